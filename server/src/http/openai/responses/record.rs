//! A stored response: how it has ended, and what its answer is.

use std::time::Duration;

use anneal_core::{
    caller::ConversationId,
    message::{MessageId, Part},
};
use anneal_proto::v1::{self as pb, message_service_server::MessageService as _};
use anneal_store::{
    Entity, ResponseEnd, StoreError, StoredAnswer, StoredResponse, TurnEnd as StoredTurnEnd,
};
use serde_json::Value;
use tracing::warn;
use uuid::Uuid;

use super::{
    outcome::{Outcome, Status, TurnEnd, now},
    parameters::ShownRequest,
};
use crate::{
    failure::Failure,
    http::{
        HttpState,
        caller::HttpCaller,
        openai::{errors::ApiError, ids::response_id, items},
    },
    usecases::chat_turn::answer_request_id,
};

/// Seconds that a response may take until its input is stored. Until then no turn shows that it is
/// under way.
const START_SECONDS: i64 = 30;
/// The pauses after which a turn that has ended without a stored end is looked at again: its server
/// may be about to store the end.
const LOOK_PAUSES: [Duration; 3] = [
    Duration::from_millis(50),
    Duration::from_millis(250),
    Duration::from_secs(1),
];
/// Pauses between tries to store an end, while the database is unavailable.
const END_RETRIES: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(5),
];

/// A stored response, and for whom it is read.
#[derive(Clone)]
pub(super) struct Record {
    pub(super) state: HttpState,
    pub(super) caller: HttpCaller,
    pub(super) row: StoredResponse,
    pub(super) shown: ShownRequest,
}

/// Whether a response has ended.
pub(super) enum Settled {
    /// It is under way.
    Running(Status),
    Ended(Outcome),
}

impl Settled {
    /// The status of the response.
    pub(super) const fn status(&self) -> Status {
        match self {
            Self::Running(status) => *status,
            Self::Ended(outcome) => outcome.status,
        }
    }
}

/// The refusal of a response that does not exist.
pub(super) fn no_response(id: &str) -> ApiError {
    let shown: String = id.chars().take(64).collect();
    ApiError::not_found(format!("Response with id '{shown}' not found."))
}

impl Record {
    /// Reads a response. None: it does not exist.
    pub(super) async fn find(
        state: &HttpState,
        caller: &HttpCaller,
        id: Uuid,
    ) -> Result<Option<Self>, ApiError> {
        let store = &state.services.state.store;
        match store.get_response(caller.caller, id).await {
            Ok(row) => Ok(Some(Self::new(state, caller, row)?)),
            Err(StoreError::NotFound(Entity::Response)) => Ok(None),
            Err(error) => Err(Failure::from(error).into()),
        }
    }

    /// Reads the response that a path names.
    pub(super) async fn get(
        state: &HttpState,
        caller: &HttpCaller,
        id: &str,
    ) -> Result<Self, ApiError> {
        let uuid =
            crate::http::openai::ids::parse_response_id(id).ok_or_else(|| no_response(id))?;
        Self::find(state, caller, uuid)
            .await?
            .ok_or_else(|| no_response(id))
    }

    /// The record of this row.
    pub(super) fn new(
        state: &HttpState,
        caller: &HttpCaller,
        row: StoredResponse,
    ) -> Result<Self, ApiError> {
        let shown = serde_json::from_str(&row.request).map_err(|_| Failure::Panicked)?;
        Ok(Self {
            state: state.clone(),
            caller: caller.clone(),
            row,
            shown,
        })
    }

    /// The id as clients see it.
    pub(super) fn id(&self) -> String {
        response_id(self.row.response_id)
    }

    /// Whether the response has ended. Stores the end of a response whose server has stopped.
    pub(super) async fn settle(&mut self) -> Result<Settled, ApiError> {
        let mut pauses = LOOK_PAUSES.into_iter();
        loop {
            if let Some(outcome) = self.stored_outcome() {
                return Ok(Settled::Ended(outcome));
            }
            if let Some(status) = self.find_running().await? {
                return Ok(Settled::Running(status));
            }
            let Some(pause) = pauses.next() else {
                break;
            };
            tokio::time::sleep(pause).await;
            self.reload().await?;
        }
        let (answer, outcome) = match self.find_end().await? {
            Some((answer, outcome)) => (answer, outcome),
            None if self.row.cancelled.is_some() => (None, Outcome::cancelled()),
            None => (None, Outcome::server_stopped()),
        };
        self.end(answer, outcome).await.map(Settled::Ended)
    }

    /// Reads the row again.
    pub(super) async fn reload(&mut self) -> Result<(), ApiError> {
        let store = &self.state.services.state.store;
        let row = store
            .get_response(self.caller.caller, self.row.response_id)
            .await;
        self.row = row.map_err(|error| match error {
            StoreError::NotFound(Entity::Response) => no_response(&self.id()),
            error => Failure::from(error).into(),
        })?;
        Ok(())
    }

    /// Records that the turn's input is stored up to this message.
    pub(super) async fn note_question(&self, last: MessageId) {
        let store = &self.state.services.state.store;
        let noted = store
            .note_question(self.caller.caller, self.row.response_id, last)
            .await;
        if let Err(error) = noted {
            store.log_failure(&error, || {
                warn!("could not record which messages a response answers: {error}");
            });
        }
    }

    /// Stores how the response has ended, unless an end is stored already. Returns the stored end.
    /// Of a response that ends without output no message stays; messages that other clients have
    /// appended meanwhile do.
    pub(super) async fn end(
        &mut self,
        answer: Option<MessageId>,
        outcome: Outcome,
    ) -> Result<Outcome, ApiError> {
        let question = self.row.question_last_id;
        let end = ResponseEnd {
            answer: answer.filter(|_| outcome.status.has_output()),
            outcome: serde_json::to_string(&outcome).map_err(|_| Failure::Panicked)?,
        };
        let ended = if self.store_end(&end).await? {
            self.row.answer_message_id = end.answer;
            self.row.outcome = Some(end.outcome);
            outcome
        } else {
            // Another end has come first.
            self.reload().await?;
            self.stored_outcome().unwrap_or(outcome)
        };
        if !ended.status.has_output() {
            self.withdraw_input(self.row.question_last_id.or(question))
                .await;
            if let Some(answer) = answer {
                self.withdraw((answer, answer)).await;
            }
        }
        Ok(ended)
    }

    async fn store_end(&self, end: &ResponseEnd) -> Result<bool, ApiError> {
        let store = &self.state.services.state.store;
        let mut pauses = END_RETRIES.into_iter();
        loop {
            let stored = store
                .end_response(self.caller.caller, self.row.response_id, end)
                .await;
            match (stored, pauses.next()) {
                (Err(error), Some(pause)) if error.is_transient() => {
                    tokio::time::sleep(pause).await;
                }
                (stored, _) => return stored.map_err(|error| Failure::from(error).into()),
            }
        }
    }

    /// Withdraws the input of the response, which ends with `last`.
    pub(super) async fn withdraw_input(&self, last: Option<MessageId>) {
        let first = MessageId(self.row.after_message_id.0 + 1);
        if let Some(last) = last.filter(|last| *last >= first) {
            self.withdraw((first, last)).await;
        }
    }

    /// Withdraws messages, and tries again while the database is unavailable. Other failures are
    /// only logged.
    async fn withdraw(&self, (first, last): (MessageId, MessageId)) {
        let ask = pb::WithdrawMessagesRequest {
            conversation_id: self.row.conversation_id.to_string(),
            range: Some(pb::IdRange {
                first_message_id: first.0,
                last_message_id: last.0,
            }),
            // The call that an output answers belongs to the response before.
            keep_tool_pairs_apart: true,
            ..pb::WithdrawMessagesRequest::default()
        };
        let mut pauses = END_RETRIES.into_iter();
        loop {
            let ask = self.caller.request(ask.clone());
            let Err(status) = self.caller.services.withdraw_messages(ask).await else {
                return;
            };
            let may_pass = matches!(
                status.code(),
                tonic::Code::Unavailable | tonic::Code::ResourceExhausted
            );
            match pauses.next().filter(|_| may_pass) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => {
                    return warn!(
                        conversation.id = %self.row.conversation_id,
                        "could not withdraw messages of a response that has failed: {:?}",
                        status.code()
                    );
                }
            }
        }
    }

    /// The items of the answer, as they are stored. Empty: it was withdrawn.
    pub(super) async fn load_output(&self) -> Result<Vec<Value>, ApiError> {
        let Some(message) = self.load_answer().await? else {
            return Ok(Vec::new());
        };
        let mut items = items::items_of(self.row.conversation_id, &message);
        let is_incomplete = self
            .stored_outcome()
            .is_some_and(|outcome| outcome.status == Status::Incomplete);
        if let Some(last) = items.last_mut()
            && is_incomplete
            && last["type"] == "message"
        {
            last["status"] = "incomplete".into();
        }
        Ok(items)
    }

    /// The message that stores the answer. None: nothing of it is stored, or it was withdrawn.
    pub(super) async fn load_answer(&self) -> Result<Option<pb::Message>, ApiError> {
        let Some(answer) = self.row.answer_message_id else {
            return Ok(None);
        };
        let ask = pb::GetMessageRequest {
            conversation_id: self.row.conversation_id.to_string(),
            message_id: answer.0,
            ..pb::GetMessageRequest::default()
        };
        let ask = self.caller.request(ask);
        match self.caller.services.get_message(ask).await {
            Ok(found) => Ok(found.into_parts().1.message),
            Err(status) => match status.code() {
                tonic::Code::NotFound | tonic::Code::FailedPrecondition => Ok(None),
                _ => Err(status.into()),
            },
        }
    }

    /// The response object as it is now.
    pub(super) async fn object(&mut self) -> Result<Value, ApiError> {
        match self.settle().await? {
            Settled::Running(status) => Ok(self.shown.running(status)),
            Settled::Ended(outcome) => Ok(self.shown.ended(&outcome, &self.load_output().await?)),
        }
    }

    fn stored_outcome(&self) -> Option<Outcome> {
        serde_json::from_str(self.row.outcome.as_ref()?).ok()
    }

    /// The status of a response that is under way. None: it is not.
    async fn find_running(&self) -> Result<Option<Status>, ApiError> {
        let row = &self.row;
        let (caller, conversation) = (self.caller.caller, row.conversation_id);
        let turns = &self.state.running_turns;
        if turns.is_running((caller.tenant(), conversation), &row.request_id) {
            return Ok(Some(Status::InProgress));
        }
        let store = &self.state.services.state.store;
        let is_running = store
            .is_turn_running(caller, conversation, &row.request_id)
            .await
            .map_err(Failure::from)?;
        let is_starting =
            row.question_last_id.is_none() && row.created.0 / 1_000_000 + START_SECONDS > now();
        Ok(match (is_running, is_starting) {
            (true, _) => Some(Status::InProgress),
            (false, true) => Some(Status::Queued),
            (false, false) => None,
        })
    }

    /// How the turn has ended, by what is stored of it. None: nothing is.
    async fn find_end(&self) -> Result<Option<(Option<MessageId>, Outcome)>, ApiError> {
        let request_id = answer_request_id(&self.row.request_id);
        let (caller, conversation) = (self.caller.caller, self.row.conversation_id);
        if let Some(answer) = self.find_answer(conversation, &request_id).await? {
            let rule = self.shown.tool_rule();
            let names = answer.message.parts.iter().filter_map(|part| match part {
                Part::ToolUse { name, .. } => Some(name.as_str()),
                _ => None,
            });
            let names: Vec<&str> = names.collect();
            let violation = names.iter().find_map(|name| rule.refusal_of(name));
            let end = TurnEnd::from(&answer);
            let calls = (&rule, names.len());
            let outcome = Outcome::of_turn(&end, calls, violation.as_deref(), true);
            return Ok(Some((end.answer, outcome)));
        }
        let store = &self.state.services.state.store;
        let end = store.find_turn_end(caller, conversation, &request_id).await;
        let end = end.map_err(Failure::from)?;
        Ok((end == Some(StoredTurnEnd::Dropped)).then(|| (None, Outcome::cancelled())))
    }

    async fn find_answer(
        &self,
        conversation: ConversationId,
        request_id: &str,
    ) -> Result<Option<StoredAnswer>, ApiError> {
        let server = &self.state.services.state;
        let caller = self.caller.caller;
        let find = |read_budget| {
            let (store, request_id) = (server.store.clone(), request_id.to_owned());
            async move {
                store
                    .find_answer(caller, conversation, &request_id, &read_budget)
                    .await
            }
        };
        match server.content_budget.read(caller.tenant(), find).await {
            Ok(found) => Ok(found.answer),
            Err(Failure::Store(StoreError::MessageWithdrawn(_))) => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Deletes a response that has failed, so that its key can be used again. Its conversation goes,
    /// too, if nothing is in it. A response that has taken its place meanwhile stays.
    pub(super) async fn delete_after_failure(&self) -> Result<(), ApiError> {
        let store = &self.state.services.state.store;
        let (caller, row) = (self.caller.caller, &self.row);
        let deleted = store
            .delete_ended_response(caller, row.response_id, &row.request_id)
            .await
            .map_err(Failure::from)?;
        if deleted && row.is_chain {
            let emptied = store.delete_empty_conversation(caller, row.conversation_id);
            if let Err(error) = emptied.await {
                store.log_failure(&error, || {
                    warn!(
                        "could not delete the conversation of a response that has failed: {error}"
                    );
                });
            }
        }
        Ok(())
    }

    /// Deletes the conversation of a response that could not begin, or the response alone.
    pub(super) async fn discard(&self, is_conversation_new: bool) {
        let store = &self.state.services.state.store;
        let caller = self.caller.caller;
        let discarded = if is_conversation_new {
            store
                .delete_conversation(caller, self.row.conversation_id)
                .await
        } else {
            match store.delete_response(caller, self.row.response_id).await {
                // The responses before it were deleted meanwhile.
                Ok(deleted) if deleted.is_chain && !deleted.others => {
                    store
                        .delete_conversation(caller, deleted.conversation)
                        .await
                }
                deleted => deleted.map(drop),
            }
        };
        if let Err(error) = discarded {
            store.log_failure(&error, || {
                warn!("could not delete a response that was refused: {error}");
            });
        }
    }
}
