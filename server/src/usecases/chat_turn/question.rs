//! Stores the question of a turn: new messages, or a stored question that is answered anew.

use anneal_core::message::{MessageId, Role};
use anneal_gateway::CallLease;
use anneal_store::{Append, Appended};

use super::{
    AskedQuestion, TurnRun, replay::Replay, request::TurnPrompt, stored_question::Question,
};
use crate::{
    failure::Failure,
    usecases::{append, build_context::BuiltContext},
};

/// The outcome of storing the question of an admitted turn.
pub(super) enum QuestionOutcome {
    /// An earlier call with this request id has ended: by an answer, or because it was stopped.
    AlreadyEnded(Box<Replay>),
    /// The question is to be answered.
    Stored(Question),
}

impl TurnRun {
    /// Stores the question, or makes a stored one the newest. `prompt` is the append of new
    /// messages; None: a stored question is answered anew.
    pub(super) async fn store_question(
        &self,
        prompt: Option<&Append>,
        lease: CallLease<'_>,
    ) -> Result<QuestionOutcome, Failure> {
        let question = match prompt {
            Some(prompt) => Question::from(self.store_prompt(prompt).await?),
            None => Question::from(self.begin_anew(lease).await?),
        };
        if question.is_replayed {
            question.check_stands()?;
            // Another call with this request id may have ended since `run_to_end` looked.
            if let Some(end) = self.find_earlier_end().await? {
                return Ok(QuestionOutcome::AlreadyEnded(Box::new(Replay {
                    question,
                    end,
                })));
            }
            self.check_not_overtaken(&question).await?;
        }
        Ok(QuestionOutcome::Stored(question))
    }

    /// The question that an earlier call with this request id has stored; None: there is none.
    /// Fails if one of its messages was withdrawn.
    pub(super) async fn find_question(
        &self,
        prompt: Option<&Append>,
    ) -> Result<Option<Question>, Failure> {
        let question = match prompt {
            Some(prompt) => {
                let stored = self.state.store.find_append(self.caller, prompt).await?;
                stored.map(Question::from)
            }
            None => self.find_anew().await?.map(Question::from),
        };
        if let Some(question) = &question {
            question.check_stands()?;
        }
        Ok(question)
    }

    /// Stores the prompt. Fails, and stores nothing, if the conversation keeps no tool messages and
    /// the rest of the prompt does not end with a message of the user: there is nothing to answer.
    async fn store_prompt(&self, prompt: &Append) -> Result<Appended, Failure> {
        self.state
            .storage_quota
            .admit(&self.state.store, self.caller, prompt)
            .await?;
        let stored = append::store_and_notify(&self.state, self.caller, prompt).await?;
        if stored.messages.is_empty() {
            return Err(Failure::ToolsNotKept);
        }
        Ok(stored)
    }

    /// Refuses a prompt of tool results that are all missing in its context, because they answer no
    /// call of the conversation. The model would answer the messages before them once more.
    pub(super) fn check_results_have_calls(
        &self,
        asked: AskedQuestion<'_>,
        built: &BuiltContext,
    ) -> Result<(), Failure> {
        let is_sent = |id: MessageId| {
            let mut sent = built.context.messages.iter().rev();
            sent.any(|message| message.message_ids.contains(&id))
        };
        let has_only_missing_results = match (asked, &self.turn.prompt) {
            (AskedQuestion::Stored(question), TurnPrompt::Messages(messages)) => {
                let mut stored = question.messages.iter();
                messages.iter().all(|message| message.role == Role::Tool)
                    && !stored.any(|message| is_sent(message.id))
            }
            (AskedQuestion::Stored(_), _) => false,
            (AskedQuestion::Unstored(messages), _) => {
                let mut results = messages.last_results().peekable();
                results.peek().is_some() && !results.any(is_sent)
            }
        };
        if has_only_missing_results {
            return Err(Failure::ToolCallMissing);
        }
        Ok(())
    }

    /// Refuses to answer a repeated question if the conversation has newer messages.
    async fn check_not_overtaken(&self, question: &Question) -> Result<(), Failure> {
        let Some(last) = question.messages.last() else {
            return Ok(());
        };
        let store = &self.state.store;
        if store
            .is_overtaken(self.caller, self.turn.id, last.id)
            .await?
        {
            return Err(Failure::TurnOvertaken);
        }
        Ok(())
    }
}
