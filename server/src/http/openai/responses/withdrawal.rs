//! Withdraws the messages of a response that keeps nothing: exactly its input and its answer, never
//! what others have stored between them.
//!
//! The end of a response is stored first, so that there is only one, and its messages are withdrawn
//! afterwards. Each withdrawal has a request id of its own. So whoever finds such an end repeats
//! the withdrawal before the response is shown: a process that dies in between leaves nothing that
//! the next look does not mend, and a repetition never withdraws again what a user has restored.

use anneal_core::message::MessageId;
use anneal_proto::v1::{self as pb, message_service_server::MessageService as _};
use anneal_store::{InputAppends, Micros, StoreError};
use tonic::{Code, Status};
use tracing::warn;

use super::{
    outcome::{Outcome, now},
    record::Record,
    request_ids,
    retries::retry,
};
use crate::{failure::Failure, http::openai::errors::ApiError};

/// Seconds after the end of a response in which a look at it repeats the withdrawal. Its server
/// withdraws within seconds, or has died; a client asks for a response that it began, or begins it
/// again, within minutes. A look at an older failure is a plain read.
const REPETITION_SECONDS: i64 = 3_600;

impl Record {
    /// Withdraws what an end without output should have withdrawn, if the end is not old.
    pub(super) async fn repeat_withdrawal(&self, outcome: &Outcome) -> Result<(), ApiError> {
        let limit = now() - REPETITION_SECONDS;
        let is_recent = |ended: Micros| ended.0 / 1_000_000 > limit;
        if outcome.status.has_output() || self.row.ended.is_none_or(|ended| !is_recent(ended)) {
            return Ok(());
        }
        self.withdraw_messages(self.row.answer_message_id).await
    }

    /// Withdraws the input as far as the row knows it, and this answer. Fails if that was not
    /// possible now, but may be later. A refusal is only logged.
    pub(super) async fn withdraw_messages(
        &self,
        answer: Option<MessageId>,
    ) -> Result<(), ApiError> {
        let first = self.row.after_message_id.next();
        if let Some(last) = self.row.question_last_id.filter(|last| *last >= first) {
            self.withdraw(first, last).await?;
        }
        if let Some(answer) = answer {
            self.withdraw(answer, answer).await?;
        }
        Ok(())
    }

    /// Withdraws the input of a response whose turn was refused, as far as it is stored.
    pub(super) async fn withdraw_input(&mut self) -> Result<(), ApiError> {
        self.row.question_last_id = self.find_input_end().await?;
        self.withdraw_messages(None).await
    }

    /// The last message of the input, by what is stored. So it is known even if the process that has
    /// appended it died before it could record that.
    pub(super) async fn find_input_end(&self) -> Result<Option<MessageId>, ApiError> {
        let store = &self.state.services.state.store;
        let prefix = request_ids::input_prefix(&self.row.request_id);
        let appends = InputAppends {
            after: self.row.after_message_id,
            request_id: &self.row.request_id,
            earlier_prefix: &prefix,
        };
        let find = || store.find_input_end(self.caller.caller, self.row.conversation_id, appends);
        let found = retry(find, StoreError::is_transient).await;
        found.map_err(|error| Failure::from(error).into())
    }

    async fn withdraw(&self, first: MessageId, last: MessageId) -> Result<(), ApiError> {
        let ask = pb::WithdrawMessagesRequest {
            conversation_id: self.row.conversation_id.to_string(),
            request_id: request_ids::withdrawal(&self.row.request_id, first, last),
            range: Some(pb::IdRange {
                first_message_id: first.0,
                last_message_id: last.0,
            }),
            // The call that an output answers belongs to the response before.
            keep_tool_pairs_apart: true,
            ..pb::WithdrawMessagesRequest::default()
        };
        let withdraw = || {
            let ask = self.caller.request(ask.clone());
            self.caller.services.withdraw_messages(ask)
        };
        match retry(withdraw, may_pass).await {
            Ok(_) => Ok(()),
            // The messages are gone with their conversation.
            Err(status) if status.code() == Code::NotFound => Ok(()),
            Err(status) if may_pass(&status) => Err(status.into()),
            Err(status) => {
                warn!(
                    conversation.id = %self.row.conversation_id,
                    "could not withdraw messages of a response that keeps nothing: {:?}",
                    status.code()
                );
                Ok(())
            }
        }
    }
}

/// Whether the same call may succeed a little later.
fn may_pass(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable | Code::ResourceExhausted | Code::DeadlineExceeded | Code::Aborted
    )
}
