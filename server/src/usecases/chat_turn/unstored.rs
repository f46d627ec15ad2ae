//! A turn of which nothing is stored. The request holds all messages, the answer's too if there were
//! any before. The model is chosen, admitted, called and settled as for a stored turn. Only the
//! lease of its call is a row, until the turn has ended.

use std::sync::Arc;

use anneal_core::{message::Message, policy::PolicyOverrides, tokens::Encoding};
use anneal_gateway::{AdmittedCall, LeaseLost};
use anneal_proto::v1 as pb;
use pb::chat_response::{Done, Event, Started};
use tracing::warn;

use super::{
    AskedQuestion, QuestionSource, TurnError, TurnOutcome, TurnProgress, TurnRun,
    attempts::{ModelAnswer, PartialTurn},
    setup::{NO_AGENT, TurnSetup},
    store_answer::CompletedTurn,
};
use crate::{failure::Failure, usecases::build_context::UnstoredMessages};

impl TurnRun {
    /// Runs a turn of these messages. They are counted as the first model counts, also for the
    /// models that are tried after it.
    pub(super) async fn run_without_storing(
        &self,
        messages: &Arc<[Message]>,
    ) -> Result<Done, TurnError> {
        let session = self.state.store.session();
        let policy = session.resolved(&PolicyOverrides::default());
        let models = self.choose_models(NO_AGENT, &policy)?;
        let encoding = Encoding::of_model(models[0].name()).unwrap_or_default();
        let messages = Arc::clone(messages);
        let count = UnstoredMessages::count(&self.state, self.caller, messages, encoding);
        let messages = self.unless_interrupted(count).await?;
        let setup = TurnSetup::of_unstored(&self.turn, encoding, &policy, &self.settings);
        let source = QuestionSource::Request(&messages);
        Box::pin(self.try_models(source, &setup, &models)).await
    }

    /// The steps of an admitted turn of which nothing is stored: builds a context, and calls the
    /// model. An interruption ends it, and nothing of its answer is kept.
    pub(super) async fn run_unstored_steps(
        &self,
        messages: &Arc<UnstoredMessages>,
        setup: &TurnSetup,
        call: &mut AdmittedCall<'_>,
        progress: &mut TurnProgress,
    ) -> Result<TurnOutcome, TurnError> {
        let (lease, calls) = call.split();
        let model = calls.model();
        progress.partial = PartialTurn::default();
        let answer = async {
            if !progress.has_begun_unstored {
                progress.has_begun_unstored = true;
                self.events.send(Event::Started(Started::default())).await?;
            }
            let asked = AskedQuestion::Unstored(messages);
            self.answer_question(asked, setup, calls, &mut progress.partial)
                .await
        };
        let ended = lease.unless_lost(self.unless_interrupted(answer)).await;
        let ModelAnswer { answer, sent, .. } = ended.map_err(|LeaseLost| Failure::TurnLost)??;
        let completed = CompletedTurn::unstored(model, &answer, sent);
        self.learn_usage(&completed).await;
        Ok(TurnOutcome::Completed(Box::new(completed), None))
    }

    /// Calibrates the model with the usage of its answer, as a report of a stored turn does. A
    /// failure is only logged.
    async fn learn_usage(&self, completed: &CompletedTurn) {
        let Some(usage) = &completed.usage else {
            return;
        };
        let store = self.end_of_turn_store();
        let learnt = store.learn_usage(self.caller, &completed.model, usage);
        if let Err(error) = learnt.await {
            self.state.store.log_failure(&error, || {
                warn!("could not record what a model call shows about its model: {error}");
            });
        }
    }
}
