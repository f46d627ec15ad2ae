//! Begins a response that is stored.

use std::ops::RangeInclusive;

use anneal_core::{
    caller::{Bound, Caller},
    digest,
    digest::Digest,
    message::MessageId,
};
use anneal_proto::v1::{self as pb, message_service_server::MessageService as _};
use anneal_store::{NewResponse, PutResponse, StoreError};
use tracing::warn;
use uuid::Uuid;

use super::{
    create_body::{CreateBody, Origin, no_previous_response},
    input,
    outcome::{Status, now},
    parameters::{Identity, ShownRequest, merge_options},
    record::{Record, Settled},
    request_ids::{self, Attempt},
    run::RunningResponse,
    target::{self, Point, Target},
};
use crate::{
    failure::Failure,
    http::{
        HttpState,
        caller::HttpCaller,
        openai::{errors::ApiError, ids::response_id},
        problem::Problem,
        resumable_turns::{SessionOrigin, TurnReader, TurnRequest, WhenBusy},
    },
    poll_watchdog::{PollWatchdog, WatchedFuture},
    reason::Reason,
};

/// How often a response is begun, if its conversation goes on before.
const BEGIN_ATTEMPTS: usize = 4;
/// Most messages of one append.
const APPEND_MESSAGES: usize = 100;

/// By what a repeated create is known.
pub(super) struct CreateIdentity {
    /// None: the create cannot be repeated.
    pub(super) key: Option<String>,
    /// Of the body.
    pub(super) digest: Digest,
}

/// A response that begins.
struct Beginning<'a> {
    state: &'a HttpState,
    caller: &'a HttpCaller,
    body: &'a CreateBody,
    id: Uuid,
    /// The request id of its turn.
    request_id: String,
    digest: Digest,
    /// What is stored before the turn.
    earlier: Vec<pb::NewMessage>,
    /// What the turn answers.
    question: Vec<pb::NewMessage>,
}

/// Begins a response, or joins the one with the same key.
pub(super) async fn begin(
    state: &HttpState,
    caller: &HttpCaller,
    body: &CreateBody,
    identity: &CreateIdentity,
) -> Result<RunningResponse, ApiError> {
    let (key, digest) = (identity.key.as_deref(), identity.digest);
    let ids = key.map(|key| KeyIds::new(caller.caller, key));
    let id = ids.map_or_else(Uuid::new_v4, |ids| ids.after(previous_of(body)));
    if let Some(ids) = ids
        && let Some(mut record) = find_of_key(state, caller, id, ids).await?
    {
        if record.row.request_digest != digest {
            return Err(Failure::from(StoreError::RequestIdReused).into());
        }
        match record.settle().await? {
            // It has left nothing, so it is tried again. Its turn is another one.
            Settled::Ended(outcome) if outcome.status == Status::Failed => {
                record.discard().await.map_err(Failure::from)?;
            }
            Settled::Ended(_) | Settled::Running(_) => return Ok(join(record, None)),
        }
    }
    let messages = input::read(caller, body.input()?).await?;
    let point = find_point(state, caller, body).await?;
    let place = match (body.origin, point) {
        (Origin::Conversation(id), _) => Some((id, i64::MAX)),
        (_, point) => point.map(|point| (point.conversation, point.last.0)),
    };
    input::check_results(caller, place, &messages).await?;
    let (earlier, question) = input::split(messages)?;
    let beginning = Beginning {
        state,
        caller,
        body,
        id,
        request_id: request_ids::new_turn(id, key),
        digest,
        earlier,
        question,
    };
    Box::pin(beginning.begin(point)).await
}

/// A reader of a response that was begun before.
pub(super) fn join(record: Record, after: Option<u64>) -> RunningResponse {
    let row = &record.row;
    let tenant = record.caller.caller.tenant();
    let reader =
        record
            .state
            .running_turns
            .join((tenant, row.conversation_id), &row.request_id, None);
    // Once the end is stored, the turn's own end says less.
    let reader = reader.filter(|_| row.outcome.is_none());
    let mut joined = RunningResponse::of_record(record, reader, after);
    joined.is_joined = true;
    joined
}

/// Where the previous response ends. None: the request names none.
async fn find_point(
    state: &HttpState,
    caller: &HttpCaller,
    body: &CreateBody,
) -> Result<Option<Point>, ApiError> {
    let Origin::Response(id) = body.origin else {
        return Ok(None);
    };
    let record = Record::find(state, caller, id).await?;
    let mut record = record.ok_or_else(|| no_previous_response(&response_id(id)))?;
    Point::of_response(&mut record).await.map(Some)
}

/// The response that a create with this key has stored. `id`: the one that the same create stores.
async fn find_of_key(
    state: &HttpState,
    caller: &HttpCaller,
    id: Uuid,
    ids: KeyIds,
) -> Result<Option<Record>, ApiError> {
    if let Some(record) = Record::find(state, caller, id).await? {
        return Ok(Some(record));
    }
    let store = &state.services.state.store;
    let other = store.find_response_id(caller.caller, ids.range()).await;
    match other.map_err(Failure::from)? {
        Some(other) => Record::find(state, caller, other).await,
        None => Ok(None),
    }
}

/// The response that a create continues.
const fn previous_of(body: &CreateBody) -> Option<Uuid> {
    match body.origin {
        Origin::Response(id) => Some(id),
        Origin::Nothing | Origin::Conversation(_) => None,
    }
}

/// The ids of responses to creates with one key: they begin with the same ten bytes. The rest
/// depends on the response before. So a key that is used again after its response was deleted does
/// not get that response's id at another place, where the chain could lead back to itself. Each user,
/// agent and conversation that credentials are bound to has keys of its own.
#[derive(Clone, Copy)]
struct KeyIds {
    prefix: [u8; 10],
}

impl KeyIds {
    fn new(caller: Caller, key: &str) -> Self {
        let bound = caller.bound().map(Bound::setting);
        let tenant = caller.tenant();
        let fields = [tenant.0.as_bytes().as_slice(), key.as_bytes()];
        let bound = bound.as_deref().map(str::as_bytes);
        let digest = digest::of_fields(fields.into_iter().chain(bound));
        let (prefix, _) = digest.split_first_chunk().expect("a digest has 32 bytes");
        Self { prefix: *prefix }
    }

    /// The id of the response that continues this one.
    fn after(self, previous: Option<Uuid>) -> Uuid {
        let previous = previous.unwrap_or_default();
        let digest = digest::of_fields([self.prefix.as_slice(), previous.as_bytes()]);
        let (rest, _) = digest.split_first_chunk().expect("a digest has 32 bytes");
        self.id(*rest)
    }

    /// All ids of the key.
    fn range(self) -> RangeInclusive<Uuid> {
        self.id([0; 6])..=self.id([u8::MAX; 6])
    }

    fn id(self, rest: [u8; 6]) -> Uuid {
        let mut id = [0; 16];
        id[..10].copy_from_slice(&self.prefix);
        id[10..].copy_from_slice(&rest);
        Uuid::from_bytes(id)
    }
}

impl Beginning<'_> {
    /// Begins the response at the end of its conversation. If the conversation goes on meanwhile,
    /// tries again: a chain is then forked.
    async fn begin(self, point: Option<Point>) -> Result<RunningResponse, ApiError> {
        let mut record: Option<Record> = None;
        for index in 0..BEGIN_ATTEMPTS {
            let turn = &*self.request_id;
            let attempt = Attempt { turn, index };
            let target = target::find(self.caller, self.body, point, attempt).await?;
            let mut placed = match record.take() {
                None => match self.put(&target).await? {
                    PutResponse::Stored(row) => Record::new(self.state, self.caller, row)?,
                    // A create with the same key has come first.
                    PutResponse::Exists(row) => {
                        self.delete_unused_conversation(&target).await;
                        return Ok(join(Record::new(self.state, self.caller, row)?, None));
                    }
                },
                Some(placed) => self.move_to(placed, &target).await?,
            };
            let refusal = match self.start(&placed, &target, attempt).await {
                Ok(reader) => return Ok(reader),
                Err(refusal) => refusal,
            };
            let has_gone_on = refusal.is(Reason::LastMessageMismatch)
                || (target.is_chain && refusal.is(Reason::TurnInProgress));
            // If that fails, the row stays, so that a later look withdraws the input.
            placed.withdraw_input().await?;
            if !has_gone_on || index + 1 == BEGIN_ATTEMPTS {
                self.discard(&placed).await;
                return Err(refusal.into());
            }
            record = Some(placed);
        }
        Err(Failure::TurnLost.into())
    }

    /// Deletes the response, which could not begin.
    async fn discard(&self, placed: &Record) {
        if let Err(error) = placed.discard().await {
            self.state.services.state.store.log_failure(&error, || {
                warn!("could not delete a response that was refused: {error}");
            });
        }
    }

    /// Deletes the conversation that was made for this response, which is not stored.
    async fn delete_unused_conversation(&self, target: &Target) {
        if !target.is_new {
            return;
        }
        let store = &self.state.services.state.store;
        let deleted = store
            .delete_unused_conversation(self.caller.caller, target.id, target.after)
            .await;
        if let Err(error) = deleted {
            store.log_failure(&error, || {
                warn!("could not delete the conversation of a repeated response: {error}");
            });
        }
    }

    fn model(&self, target: &Target) -> String {
        let settings = self.state.services.state.settings.get();
        let default = settings.chat.model.first().map(str::to_owned);
        let named = self.body.model.clone().filter(|name| !name.is_empty());
        named
            .or_else(|| target.model.clone())
            .or(default)
            .unwrap_or_default()
    }

    async fn put(&self, target: &Target) -> Result<PutResponse, ApiError> {
        let options = merge_options(self.body, Some(&target.options));
        let identity = Identity {
            id: &response_id(self.id),
            created_at: now(),
            model: &self.model(target),
        };
        let shown = ShownRequest::new(&identity, self.body, &options);
        let response = NewResponse {
            response_id: self.id,
            conversation_id: target.id,
            request_id: self.request_id.clone(),
            previous_response_id: previous_of(self.body),
            after_message_id: target.after,
            is_chain: target.is_chain,
            background: self.body.background,
            request: shown.to_json(),
            request_digest: self.digest,
        };
        let store = &self.state.services.state.store;
        let put = store.put_response(self.caller.caller, &response).await;
        put.map_err(|error| Failure::from(error).into())
    }

    async fn load(&self) -> Result<Record, ApiError> {
        let record = Record::find(self.state, self.caller, self.id).await?;
        record.ok_or_else(|| Failure::TurnLost.into())
    }

    /// Moves a response of which nothing is stored yet to another place.
    async fn move_to(&self, placed: Record, target: &Target) -> Result<Record, ApiError> {
        let store = &self.state.services.state.store;
        store
            .move_response(
                self.caller.caller,
                placed.row.response_id,
                target.id,
                target.after,
            )
            .await
            .map_err(Failure::from)?;
        self.load().await
    }

    /// Stores the input and starts the turn. Returns a reader of it. Of a turn that is refused a part
    /// of the input may be stored.
    async fn start(
        &self,
        record: &Record,
        target: &Target,
        attempt: Attempt<'_>,
    ) -> Result<RunningResponse, Problem> {
        let last = self.append_earlier(target, attempt).await?;
        let (reader, recorder) = self.start_turn(target, last).await?;
        let recorder = RunningResponse::of_record(record.clone(), Some(recorder), None);
        let turns = &self.state.services.state.turns;
        turns.spawn(WatchedFuture::new(
            PollWatchdog::for_task("response"),
            recorder.record(),
        ));
        Ok(RunningResponse::of_record(
            record.clone(),
            Some(reader),
            None,
        ))
    }

    /// Appends what precedes the question. Returns the newest message.
    async fn append_earlier(
        &self,
        target: &Target,
        attempt: Attempt<'_>,
    ) -> Result<MessageId, Problem> {
        let mut last = target.after;
        for (part, messages) in self.earlier.chunks(APPEND_MESSAGES).enumerate() {
            let ask = pb::AppendMessagesRequest {
                conversation_id: target.id.to_string(),
                request_id: attempt.input(part),
                messages: messages.to_vec(),
                expected_last_message_id: Some(last.0),
            };
            let services = &self.caller.services;
            let appended = services.append_messages(self.caller.request(ask)).await;
            let appended = appended.map_err(|status| Problem::of_rpc(&status))?;
            if let Some(newest) = appended.into_inner().messages.last() {
                last = MessageId(newest.message_id);
            }
        }
        Ok(last)
    }

    /// Starts the turn, and waits until its question is stored. Returns two readers of it.
    async fn start_turn(
        &self,
        target: &Target,
        last: MessageId,
    ) -> Result<(TurnReader, TurnReader), Problem> {
        let options = merge_options(self.body, Some(&target.options));
        let ask = pb::ChatRequest {
            conversation_id: target.id.to_string(),
            request_id: self.request_id.clone(),
            messages: self.question.clone(),
            model: self.body.model.clone().unwrap_or_default(),
            system_prompt: self.body.instructions.clone(),
            expected_last_message_id: Some(last.0),
            options: (options != pb::ChatOptions::default()).then_some(options),
            on_disconnect: pb::OnDisconnect::Finish.into(),
            on_overflow: target.on_overflow.into(),
            ..pb::ChatRequest::default()
        };
        let join = || {
            let turn_request = TurnRequest {
                ask: ask.clone(),
                session: target.id,
                session_origin: SessionOrigin::Existing,
                when_busy: WhenBusy::Refuse,
                resume_point: None,
            };
            let closing = self.state.closing.clone();
            let turns = &self.state.running_turns;
            turns.join_or_start(self.caller.with_new_request_id(), turn_request, closing)
        };
        let (mut reader, recorder) = (join(), join());
        reader.wait_for_start().await?;
        Ok((reader, recorder))
    }
}

#[cfg(test)]
mod tests {
    use anneal_core::caller::{BoundId, TenantId};

    use super::*;

    #[test]
    fn a_key_names_ids_of_its_tenant_that_depend_on_the_response_before() {
        let caller = |tenant| Caller::of(TenantId(Uuid::from_u128(tenant)));
        let ids = |tenant, key| KeyIds::new(caller(tenant), key);
        let user = Bound::User(BoundId::new("anna").expect("an id"));
        let bound = KeyIds::new(caller(1).bound_to(user), "a");
        let (first, later) = (
            ids(1, "a").after(None),
            ids(1, "a").after(Some(Uuid::max())),
        );
        assert_eq!(first, ids(1, "a").after(None));
        assert_ne!(first, later);
        for id in [first, later] {
            assert!(ids(1, "a").range().contains(&id));
            assert!(!ids(2, "a").range().contains(&id));
            assert!(!ids(1, "b").range().contains(&id));
            assert!(!bound.range().contains(&id));
        }
    }
}
