//! Chooses the model of a turn and admits its call.

use std::sync::Arc;

use anneal_core::{
    admission::{AdmissionRefusal, CallPurpose},
    chat_options::{ChatOptions, Tool},
    policy::PolicyOverrides,
    render::find_blocked_media,
    tokens::Tokens,
};
use anneal_gateway::{AdmittedCall, ModelGateway, TurnLease};
use anneal_llm::provider::{CallFailure, Model};
use anneal_store::ModelLease;

use super::{TurnRun, options::tools_tokens, store_answer::DB_DEADLINE};
use crate::{failure::Failure, truncated_text::TruncatedText};

impl TurnRun {
    /// The models to try, in order, at least one. Turns have no fallback models yet.
    pub(super) async fn choose_models(&self) -> Result<Vec<Arc<Model>>, Failure> {
        Ok(vec![self.choose_model().await?])
    }

    /// The model that the caller names. Without one, the model of the conversation's policy, if it
    /// is configured, else the server's default.
    async fn choose_model(&self) -> Result<Arc<Model>, Failure> {
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
        let messages = self.turn.prompt.messages().iter().enumerate();
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

    /// Refuses an option that the model does not accept, and a tool whose name its provider
    /// refuses.
    pub(super) fn check_options(model: &Model, options: &ChatOptions) -> Result<(), Failure> {
        model.check_options(options).map_err(|refusal| {
            Failure::invalid(format!("options.{}", refusal.field), refusal.sentence)
        })?;
        let refused = |tool: &Tool| !tool.is_accepted_by(model.format());
        match options.tools().iter().position(refused) {
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

    /// Whether the next model may be tried after this failure: nothing of an answer was sent, and
    /// the failure is of the model or of its provider, not of the request.
    pub(super) fn may_fall_back(&self, failure: &Failure) -> bool {
        let is_of_model = match failure {
            Failure::NotAdmitted { refusal, .. } => matches!(
                refusal,
                AdmissionRefusal::Breaker { .. } | AdmissionRefusal::Busy | AdmissionRefusal::Share
            ),
            Failure::Model { failure, .. } => matches!(
                failure,
                CallFailure::Limited { .. } | CallFailure::Unavailable { .. }
            ),
            _ => false,
        };
        is_of_model && !self.events.has_shown()
    }

    /// Has the call admitted. The call then holds the lease on the conversation's turn, and has
    /// reserved the tokens that it may take. `replaces` is the lease of an earlier model's call,
    /// which this call takes over.
    pub(super) async fn admit<'a>(
        &'a self,
        model: &'a Model,
        options: &ChatOptions,
        replaces: Option<&ModelLease>,
    ) -> Result<AdmittedCall<'a>, Failure> {
        let tokens = self.estimate_reservation(model, options).await?;
        let turn = TurnLease {
            request_id: &self.turn.request_id,
            replaces,
        };
        let gateway = ModelGateway::new(
            &self.state.store,
            &self.settings.models,
            CallPurpose::Turn,
            DB_DEADLINE,
        );
        let admitted = gateway
            .admit(self.caller, self.turn.id, model, tokens, Some(turn))
            .await?;
        admitted.map_err(|refusal| Failure::NotAdmitted {
            model: model.name().to_owned(),
            refusal,
        })
    }

    /// Estimates the tokens of the context and of the answer.
    async fn estimate_reservation(
        &self,
        model: &Model,
        options: &ChatOptions,
    ) -> Result<Tokens, Failure> {
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
            .prompt
            .messages()
            .iter()
            .map(|message| usage.encoding.estimate_message(message))
            .sum();
        let tools = tools_tokens(options);
        let context = usage.system_prompt + usage.summary + usage.sent_tail + prompt + tools;
        Ok(context.min(model.window()) + Self::overflow_guard(model, options).answer_tokens())
    }
}
