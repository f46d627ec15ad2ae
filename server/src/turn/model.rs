//! Which model answers, and whether it may be called now.

use std::sync::Arc;

use anneal_core::{admission::CallPurpose, policy::PolicyOverrides, tokens::Tokens};
use anneal_llm::provider::Model;
use anneal_store::{CallAsk, ModelLease};

use super::{Run, guard::Guard};
use crate::status::Failure;

impl Run {
    /// The model that the caller names; else that of the conversation's policy where it can be called; else the server's.
    pub(super) async fn model(&self) -> Result<Arc<Model>, Failure> {
        let find = |name: &str| self.house.models.models.find(name).cloned();
        let conversation = self.house.store.conversation(self.caller, self.turn.id).await?;
        if let Some(asked) = &self.turn.model {
            return find(asked).ok_or_else(|| Failure::model_not_configured(asked.as_str()));
        }
        let policys = self.house.store.session().resolved(&conversation.given.policy).model;
        let fallback = &self.house.chat.model;
        policys
            .as_deref()
            .and_then(find)
            .or_else(|| find(fallback))
            .ok_or_else(|| Failure::model_not_configured(policys.unwrap_or_else(|| fallback.clone())))
    }

    /// The lease of a call: for the turn, and for the tokens that it may take at most.
    pub(super) async fn admitted(&self, model: &Model) -> Result<ModelLease, Failure> {
        let ask = CallAsk {
            model: model.name(),
            conversation: self.turn.id,
            purpose: CallPurpose::Turn,
            tokens: self.reserved(model).await?,
            limits: self.house.models.limits(model),
        };
        let admitted = self.house.store.admit_call(self.caller, &ask).await?;
        admitted.map_err(|closed| Failure::NotAdmitted { model: model.name().to_owned(), closed })
    }

    async fn reserved(&self, model: &Model) -> Result<Tokens, Failure> {
        let overrides = PolicyOverrides { model: Some(model.name().to_owned()), ..PolicyOverrides::default() };
        let usage = self.house.store.usage(self.caller, self.turn.id, &overrides).await?;
        let said: Tokens = self.turn.messages.iter().map(|message| usage.encoding.estimate_message(message)).sum();
        let tools = self.turn.tools_tokens;
        let context = usage.system_prompt + usage.summary + usage.sent + said + tools;
        let guard = Guard::new(model.window(), model.output(), self.turn.output, tools);
        Ok(context.min(model.window()) + guard.room())
    }
}
