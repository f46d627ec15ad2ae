//! A stored response: how it has ended, and what its answer is.

use std::{sync::Arc, time::Duration};

use anneal_core::{
    caller::ConversationId,
    message::{MessageId, Part},
};
use anneal_proto::v1::{self as pb, message_service_server::MessageService as _};
use anneal_store::{
    Entity, ResponseEnd, StoreError, StoredAnswer, StoredResponse, TurnEnd as StoredTurnEnd,
};
use serde_json::Value;
use tokio::sync::OnceCell;
use tracing::warn;
use uuid::Uuid;

use super::{
    outcome::{Outcome, Status, Storage, TurnEnd, now},
    parameters::ShownRequest,
    retries::retry,
    tools::CheckedCalls,
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

/// A stored response, and for whom it is read.
#[derive(Clone)]
pub(super) struct Record {
    pub(super) state: HttpState,
    pub(super) caller: HttpCaller,
    pub(super) row: StoredResponse,
    pub(super) shown: ShownRequest,
    /// The end that one of the readers in this process has stored: those of one turn, which are
    /// clones, store it once.
    ended: Arc<OnceCell<Ended>>,
}

/// A response that has ended.
#[derive(Debug, Clone)]
struct Ended {
    row: StoredResponse,
    outcome: Outcome,
    presence: Presence,
}

/// Whether a response has ended.
pub(super) enum Settled {
    /// It is under way.
    Running(Status),
    Ended(Outcome),
}

/// Whether a row is there when it is read again.
#[derive(Debug, Clone, Copy)]
enum Presence {
    There,
    /// It was deleted, or another try has its id.
    Gone,
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
        let shown =
            serde_json::from_str(&row.request).map_err(|_| unreadable("request of a response"))?;
        Ok(Self {
            state: state.clone(),
            caller: caller.clone(),
            row,
            shown,
            ended: Arc::default(),
        })
    }

    /// The id as clients see it.
    pub(super) fn id(&self) -> String {
        response_id(self.row.response_id)
    }

    /// Whether the response has ended. Stores the end of a response whose server has stopped. Of one
    /// that has ended without output no message stands any more.
    pub(super) async fn settle(&mut self) -> Result<Settled, ApiError> {
        let mut pauses = LOOK_PAUSES.into_iter();
        loop {
            if let Some(outcome) = self.stored_outcome()? {
                self.repeat_withdrawal(&outcome).await?;
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

    /// Reads the row again. Fails if it is gone, also if another try has its id.
    pub(super) async fn reload(&mut self) -> Result<(), ApiError> {
        match self.read_row().await {
            Ok(Presence::There) => Ok(()),
            Ok(Presence::Gone) => Err(no_response(&self.id())),
            Err(error) => Err(Failure::from(error).into()),
        }
    }

    /// Reads the row again, unless it is gone.
    async fn read_row(&mut self) -> Result<Presence, StoreError> {
        let store = &self.state.services.state.store;
        let row = store
            .get_response(self.caller.caller, self.row.response_id)
            .await;
        match row {
            Ok(row) if row.request_id == self.row.request_id => {
                self.row = row;
                Ok(Presence::There)
            }
            Ok(_) | Err(StoreError::NotFound(Entity::Response)) => Ok(Presence::Gone),
            Err(error) => Err(error),
        }
    }

    /// Records that the turn's input is stored up to this message.
    pub(super) async fn note_question(&self, last: MessageId) {
        let store = &self.state.services.state.store;
        let noted = store
            .note_question(self.caller.caller, self.row.turn(), last)
            .await;
        if let Err(error) = noted {
            store.log_failure(&error, || {
                warn!("could not record which messages a response answers: {error}");
            });
        }
    }

    /// Stores how the response has ended, unless an end is stored already. Returns the stored end.
    /// Whichever end that is: if it has no output, neither the input nor `answer` stays. Messages
    /// that other clients have appended meanwhile do.
    pub(super) async fn end(
        &mut self,
        answer: Option<MessageId>,
        outcome: Outcome,
    ) -> Result<Outcome, ApiError> {
        let shared = Arc::clone(&self.ended);
        let end = || Box::pin(self.clone().store_end_once(answer, outcome));
        let ended = shared.get_or_try_init(end).await?.clone();
        self.row = ended.row;
        match ended.presence {
            Presence::There => Ok(ended.outcome),
            Presence::Gone => Err(no_response(&self.id())),
        }
    }

    async fn store_end_once(
        mut self,
        answer: Option<MessageId>,
        outcome: Outcome,
    ) -> Result<Ended, ApiError> {
        if self.row.question_last_id.is_none() {
            self.row.question_last_id = self.find_input_end().await?;
        }
        let end = ResponseEnd {
            question: self.row.question_last_id,
            answer,
            outcome: outcome.to_json(),
        };
        let presence = if self.store_end(&end).await? {
            self.row.answer_message_id = answer;
            self.row.outcome = Some(end.outcome);
            Presence::There
        } else {
            self.read_end().await?
        };
        let outcome = self.stored_outcome()?.unwrap_or(outcome);
        if !outcome.status.has_output() {
            self.withdraw_messages(self.row.answer_message_id.or(answer))
                .await?;
        }
        Ok(Ended {
            row: self.row,
            outcome,
            presence,
        })
    }

    async fn store_end(&self, end: &ResponseEnd) -> Result<bool, ApiError> {
        let store = &self.state.services.state.store;
        let end = || store.end_response(self.caller.caller, self.row.turn(), end);
        let stored = retry(end, StoreError::is_transient).await;
        stored.map_err(|error| Failure::from(error).into())
    }

    /// Reads the end that another reader or server has stored.
    async fn read_end(&mut self) -> Result<Presence, ApiError> {
        // The row here may know more of the input than the stored one.
        let known = self.row.question_last_id;
        let presence = self.read_row().await.map_err(Failure::from)?;
        self.row.question_last_id = self.row.question_last_id.max(known);
        Ok(presence)
    }

    /// The items of the answer to a response with this status, as they are stored. Empty: it has no
    /// output, or that was withdrawn.
    async fn load_output(&self, status: Status) -> Result<Vec<Value>, ApiError> {
        if !status.has_output() {
            return Ok(Vec::new());
        }
        let Some(message) = self.load_answer().await? else {
            return Ok(Vec::new());
        };
        let mut items = items::items_of(self.row.conversation_id, &message);
        if let Some(last) = items.last_mut()
            && status == Status::Incomplete
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
            Settled::Ended(outcome) => {
                let output = self.load_output(outcome.status).await?;
                Ok(self.shown.ended(&outcome, &output))
            }
        }
    }

    fn stored_outcome(&self) -> Result<Option<Outcome>, ApiError> {
        let stored = self.row.outcome.as_deref();
        let outcome = stored.map(serde_json::from_str).transpose();
        outcome.map_err(|_| unreadable("outcome of a response").into())
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
            let mut calls = CheckedCalls::new(self.shown.tool_rule());
            for part in &answer.message.parts {
                if let Part::ToolUse { name, .. } = part {
                    calls.add(name);
                }
            }
            let end = TurnEnd::from(&answer);
            let outcome = Outcome::of_turn(&end, &calls, Storage::Stored);
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

    /// Deletes the response, of which nothing is kept, so that its key can be used again; not another
    /// try that has its id meanwhile. The conversation of a chain goes with it, if nothing of others
    /// stands there.
    pub(super) async fn discard(&self) -> Result<(), StoreError> {
        let store = &self.state.services.state.store;
        let discarded = store.discard_response(self.caller.caller, self.row.turn());
        discarded.await.map(drop)
    }
}

fn unreadable(value: &'static str) -> Failure {
    StoreError::Unreadable(value).into()
}
