//! Chooses the model of a turn and admits its call.

use std::sync::Arc;

use anneal_core::{
    admission::CallPurpose, policy::PolicyOverrides, render::find_blocked_media, tokens::Tokens,
};
use anneal_gateway::{AdmittedCall, ModelGateway};
use anneal_llm::provider::{Model, Tool};

use super::{TurnRun, store_answer::DB_DEADLINE};
use crate::{failure::Failure, truncated_text::TruncatedText};

impl TurnRun {
    /// The model that the caller names. Without one, the model of the conversation's policy, if it
    /// is configured, else the server's default.
    pub(super) async fn choose_model(&self) -> Result<Arc<Model>, Failure> {
        let find = |name: &str| self.settings.models.models.find(name).cloned();
        let conversation = self
            .state
            .store
            .get_conversation(self.caller, self.turn.id)
            .await?;
        if let Some(name) = &self.turn.model {
            return find(name).ok_or_else(|| Failure::model_not_configured(name.as_str()));
        }
        let policy_model = self
            .state
            .store
            .session()
            .resolved(&conversation.attributes.policy)
            .model;
        let fallback = &self.settings.chat.model;
        policy_model
            .as_deref()
            .and_then(find)
            .or_else(|| find(fallback))
            .ok_or_else(|| match policy_model {
                Some(model) if fallback.is_empty() => Failure::NoDefaultModel {
                    model: TruncatedText::new(model),
                },
                _ => Failure::model_not_configured(fallback.as_str()),
            })
    }

    /// Refuses a prompt with a media address that the model's provider would fetch and that may not
    /// be sent to it. In stored messages such media are replaced by a description.
    pub(super) fn check_media(&self, model: &Model) -> Result<(), Failure> {
        let messages = self.turn.messages.iter().enumerate();
        let mut blocked_media = messages.filter_map(|(index, message)| {
            find_blocked_media(message, model.format(), model.media())
                .map(|blocked| (index, blocked))
        });
        let Some((index, blocked)) = blocked_media.next() else {
            return Ok(());
        };
        let within = blocked.media_index.map_or_else(
            || "media".to_owned(),
            |nth| format!("tool_result.media[{nth}]"),
        );
        let part = blocked.part_index;
        let field = format!("messages[{index}].parts[{part}].{within}.uri");
        Err(Failure::MediaNotAllowed {
            field,
            model: model.name().to_owned(),
        })
    }

    /// Refuses a tool whose name the model's provider refuses.
    pub(super) fn check_tools(&self, model: &Model) -> Result<(), Failure> {
        let refused = |tool: &Tool| !tool.is_accepted_by(model.format());
        match self.turn.tools.iter().position(refused) {
            None => Ok(()),
            Some(index) => Err(Failure::invalid(
                format!("tools[{index}].name"),
                format!(
                    "must begin with a letter or an underscore for the model {}",
                    model.name()
                ),
            )),
        }
    }

    /// Has the call admitted. The call then holds the lease on the conversation's turn, and has
    /// reserved the tokens that it may take.
    pub(super) async fn admit<'a>(&'a self, model: &'a Model) -> Result<AdmittedCall<'a>, Failure> {
        let tokens = self.estimate_reservation(model).await?;
        let gateway = ModelGateway::new(
            &self.state.store,
            &self.settings.models,
            CallPurpose::Turn,
            DB_DEADLINE,
        );
        let admitted = gateway
            .admit(self.caller, self.turn.id, model, tokens)
            .await?;
        admitted.map_err(|refusal| Failure::NotAdmitted {
            model: model.name().to_owned(),
            refusal,
        })
    }

    /// Estimates the tokens of the context and of the answer.
    async fn estimate_reservation(&self, model: &Model) -> Result<Tokens, Failure> {
        let overrides = PolicyOverrides {
            model: Some(model.name().to_owned()),
            ..PolicyOverrides::default()
        };
        let usage = self
            .state
            .store
            .read_context_usage(self.caller, self.turn.id, &overrides)
            .await?;
        let prompt: Tokens = self
            .turn
            .messages
            .iter()
            .map(|message| usage.encoding.estimate_message(message))
            .sum();
        let tools = self.turn.tools_tokens;
        let context = usage.system_prompt + usage.summary + usage.sent_tail + prompt + tools;
        Ok(context.min(model.window()) + self.overflow_guard(model).answer_tokens())
    }
}
