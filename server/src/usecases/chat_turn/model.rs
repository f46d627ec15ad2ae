//! Chooses the models of a turn, admits a call, and decides after which failures the next model is
//! tried.

use std::sync::Arc;

use anneal_core::{
    admission::{AdmissionRefusal, CallPurpose},
    chat_options::{ChatOption, Tool},
    policy::PolicyOverrides,
    render::find_blocked_media,
    tokens::Tokens,
};
use anneal_gateway::{AdmittedCall, ModelGateway, TurnLease};
use anneal_llm::provider::{CallFailure, Model};
use anneal_store::{ModelLease, StoreError};

use super::{QuestionSource, TurnRun, setup::TurnSetup, store_answer::DB_DEADLINE};
use crate::{failure::Failure, truncated_text::TruncatedText};

impl TurnRun {
    /// The models to try, in order and without duplicates, at least one. The first is the one that
    /// the caller names; else the model of the conversation's policy, if it is configured; else the
    /// server's first. The others are those that the caller names; else, if it does not name the
    /// first one, those that the settings of the agent or of the server name after the first.
    pub(super) fn choose_models(
        &self,
        agent_id: &str,
        policy: &PolicyOverrides,
    ) -> Result<Vec<Arc<Model>>, Failure> {
        let first = self.choose_first_model(policy)?;
        let mut others = Vec::new();
        for name in &self.turn.fallback_models {
            let model = self.find_model(name);
            others.push(model.ok_or_else(|| Failure::model_not_configured(name.as_str()))?);
        }
        if others.is_empty() && self.turn.model.is_none() {
            let names = self.configured_fallbacks(agent_id, first.name());
            // An agent's settings may name a model that is not configured.
            others.extend(names.iter().filter_map(|name| self.find_model(name)));
        }
        let mut models: Vec<Arc<Model>> = vec![first];
        for model in others {
            if models.iter().all(|known| known.name() != model.name()) {
                models.push(model);
            }
        }
        Ok(models)
    }

    fn choose_first_model(&self, policy: &PolicyOverrides) -> Result<Arc<Model>, Failure> {
        if let Some(name) = &self.turn.model {
            let model = self.find_model(name);
            return model.ok_or_else(|| Failure::model_not_configured(name.as_str()));
        }
        let default = self.settings.chat.model.first();
        let policy_model = policy.model.as_deref();
        policy_model
            .and_then(|name| self.find_model(name))
            .or_else(|| self.find_model(default?))
            .ok_or_else(|| match (policy_model, default) {
                (Some(model), None) => Failure::NoDefaultModel {
                    model: TruncatedText::new(model),
                },
                (_, default) => Failure::model_not_configured(default.unwrap_or_default()),
            })
    }

    fn find_model(&self, name: &str) -> Option<Arc<Model>> {
        self.settings.models.models.find(name).cloned()
    }

    /// The names that the settings of the agent have after this one, else those that the server's
    /// have after it.
    fn configured_fallbacks(&self, agent_id: &str, first: &str) -> &[String] {
        let agent = self.settings.agents.get(agent_id);
        let of_agent = agent.map(|agent| agent.model.after(first));
        match of_agent {
            Some(names) if !names.is_empty() => names,
            _ => self.settings.chat.model.after(first),
        }
    }

    /// Refuses a prompt with a media address that the model's provider would fetch and that may not
    /// be sent to it. In stored messages such media are replaced by a description.
    fn check_media(&self, model: &Model) -> Result<(), Failure> {
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

    /// Refuses what the model cannot be asked: media that its provider may not receive, and options
    /// that it does not accept.
    pub(super) fn check_model(&self, model: &Model, setup: &TurnSetup) -> Result<(), Failure> {
        self.check_media(model)?;
        Self::check_options(model, setup)
    }

    /// Refuses an option that the model does not accept, and a tool whose name its provider
    /// refuses. The sentence says where an option comes from that the request does not set.
    fn check_options(model: &Model, setup: &TurnSetup) -> Result<(), Failure> {
        let TurnSetup {
            options, inherited, ..
        } = setup;
        model.check_options(options).map_err(|refusal| {
            let origin = inherited.origin(refusal.option);
            Failure::invalid(
                format!("options.{}", refusal.option.name()),
                format!("{}{origin}", refusal.sentence),
            )
        })?;
        let refused = |tool: &Tool| !tool.is_accepted_by(model.format());
        match options.tools().iter().position(refused) {
            None => Ok(()),
            Some(index) => Err(Failure::invalid(
                format!("tools[{index}].name"),
                format!(
                    "must begin with a letter or an underscore for the model {}{}",
                    model.name(),
                    inherited.origin(ChatOption::Tools)
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
    /// reserved the tokens that it may take, if those of a day are limited. `replaces` is the lease
    /// of an earlier model's call, which this call takes over.
    pub(super) async fn admit<'a>(
        &'a self,
        model: &'a Model,
        setup: &TurnSetup,
        source: QuestionSource<'_>,
        replaces: Option<&ModelLease>,
    ) -> Result<AdmittedCall<'a>, Failure> {
        let tokens = match self.settings.models.tokens_per_day {
            Some(_) => self.estimate_reservation(model, setup, source).await?,
            // Reservations of running calls count only against this limit.
            None => Tokens::ZERO,
        };
        let request_id = match source {
            QuestionSource::Conversation(_) => Some(self.turn.request_id.as_str()),
            QuestionSource::Request(_) => None,
        };
        let turn = TurnLease {
            request_id,
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
            .await;
        match admitted {
            Err(StoreError::LeaseLost) => Err(Failure::TurnLost),
            admitted => admitted?.map_err(|refusal| Failure::NotAdmitted {
                model: model.name().to_owned(),
                refusal,
            }),
        }
    }

    /// Estimates the tokens of the context and of the answer.
    async fn estimate_reservation(
        &self,
        model: &Model,
        setup: &TurnSetup,
        source: QuestionSource<'_>,
    ) -> Result<Tokens, Failure> {
        let context = match source {
            QuestionSource::Conversation(_) => self.estimate_stored_context(model).await?,
            QuestionSource::Request(messages) => {
                let prompt = self.turn.system_prompt.as_deref().unwrap_or_default();
                messages.tokens() + messages.encoding().estimate(prompt)
            }
        };
        let answer = self.overflow_guard(model, setup).answer_tokens();
        Ok((context + setup.reserved).min(model.window()) + answer)
    }

    /// Estimates the tokens of the conversation's context with the prompt.
    async fn estimate_stored_context(&self, model: &Model) -> Result<Tokens, Failure> {
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
        Ok(usage.system_prompt + usage.summary + usage.sent_tail + prompt)
    }
}
