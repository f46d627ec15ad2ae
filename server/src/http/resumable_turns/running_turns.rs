//! The running turns of this process. For each turn, a separate task relays the events into the
//! turn's log, so that no reader slows the turn down or ends it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anneal_core::{
    caller::{ConversationId, TenantId},
    digest,
    limits::CHAT_DEADLINE_SECONDS,
};
use anneal_proto::v1::{self as pb, chat_response::Event, chat_service_server::ChatService as _};
use futures::StreamExt as _;
use prost::Message as _;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tracing::warn;

use super::{
    delta_merger::DeltaMerger,
    log_budget::{DiscardableLog as _, LogBudget},
    reader::TurnReader,
    resume_point::ResumePoint,
    turn_log::{TurnEnd, TurnLog},
};
use crate::{
    failure::Failure,
    http::{
        caller::HttpCaller,
        problem::{Problem, TurnMessages},
    },
    poll_watchdog::{PollWatchdog, WatchedFuture},
    reason::Reason,
};

/// The turns that run in this process for HTTP readers.
pub(in crate::http) struct RunningTurns {
    turns: Mutex<HashMap<TurnKey, RunningTurn>>,
    budget: LogBudget,
}

/// Identifies a turn.
#[derive(Clone, PartialEq, Eq, Hash)]
struct TurnKey {
    tenant: TenantId,
    session: ConversationId,
    request: String,
}

struct RunningTurn {
    /// Digest of what the turn answers.
    digest: digest::Digest,
    log: Arc<TurnLog>,
}

/// Whether a turn's session existed before the turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum SessionOrigin {
    /// The session existed before.
    Existing,
    /// The session was created for this turn. If the turn is refused or stopped before anything is
    /// stored, the session is deleted.
    Created,
}

/// Whether a request waits while its session is busy with another turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum WhenBusy {
    /// The request is refused.
    Refuse,
    /// The request waits. The other turn may be the one that the reader comes back to, and may run
    /// on another server.
    Wait,
}

/// A turn that a reader starts or joins.
pub(in crate::http) struct TurnRequest {
    pub(in crate::http) ask: pb::ChatRequest,
    /// The session: the conversation that `ask` names.
    pub(in crate::http) session: ConversationId,
    pub(in crate::http) session_origin: SessionOrigin,
    pub(in crate::http) when_busy: WhenBusy,
    /// Where the reader continues; None: at the beginning.
    pub(in crate::http) resume_point: Option<ResumePoint>,
}

/// Time between two tries of a turn that waits while another turn runs in the session.
const BUSY_RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// How long the log of an ended turn is kept for slow readers.
const LOG_TTL: Duration = Duration::from_secs(CHAT_DEADLINE_SECONDS);

impl RunningTurns {
    /// A registry without turns. The logs of its turns will share this budget.
    pub(in crate::http) fn new(budget: LogBudget) -> Self {
        Self {
            turns: Mutex::default(),
            budget,
        }
    }

    fn turns(&self) -> MutexGuard<'_, HashMap<TurnKey, RunningTurn>> {
        // A panic cannot leave the map half changed: each change is one insertion or one removal.
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins a running turn as a reader, or starts the turn.
    pub(in crate::http) fn join_or_start(
        self: &Arc<Self>,
        http_caller: HttpCaller,
        turn_request: TurnRequest,
        closing: CancellationToken,
    ) -> TurnReader {
        let TurnRequest {
            ask,
            session,
            session_origin,
            when_busy,
            resume_point,
        } = turn_request;
        let request = ask.request_id.clone();
        let key = TurnKey {
            tenant: http_caller.caller.tenant(),
            session,
            request: request.clone(),
        };
        let digest = digest_of(&ask);
        let (log, changes, is_new) = self.find_or_insert(&key, digest);
        if is_new {
            let relay = TurnRelay {
                turns: Arc::clone(self),
                key,
                log: Arc::clone(&log),
                http_caller,
                ask,
                session_origin,
                when_busy,
                closing,
            };
            tokio::spawn(WatchedFuture::new(
                PollWatchdog::for_task("running_turn"),
                relay.run(),
            ));
        }
        TurnReader::new(log, changes, (session, request), resume_point.as_ref())
    }

    /// Joins a turn as a reader, from its beginning or from a resume point. None: it does not run
    /// here.
    pub(in crate::http) fn join(
        &self,
        (tenant, session): (TenantId, ConversationId),
        request: &str,
        resume_point: Option<&ResumePoint>,
    ) -> Option<TurnReader> {
        let key = TurnKey {
            tenant,
            session,
            request: request.to_owned(),
        };
        let log = Arc::clone(&self.turns().get(&key)?.log);
        let changes = log.changes();
        Some(TurnReader::new(
            log,
            changes,
            (session, key.request),
            resume_point,
        ))
    }

    /// Whether a turn runs here.
    pub(in crate::http) fn is_running(
        &self,
        (tenant, session): (TenantId, ConversationId),
        request: &str,
    ) -> bool {
        let key = TurnKey {
            tenant,
            session,
            request: request.to_owned(),
        };
        self.turns().contains_key(&key)
    }

    /// The log of this turn, its change notifications, and whether the log is new. A request with
    /// the same key but another message gets a log of its own, and is then refused by the RPC.
    fn find_or_insert(
        &self,
        key: &TurnKey,
        digest: digest::Digest,
    ) -> (Arc<TurnLog>, watch::Receiver<()>, bool) {
        let mut turns = self.turns();
        if let Some(running) = turns.get(key).filter(|running| running.digest == digest) {
            return (Arc::clone(&running.log), running.log.changes(), false);
        }
        let (log, changes) = TurnLog::new(&self.budget, key.tenant);
        turns.entry(key.clone()).or_insert_with(|| RunningTurn {
            digest,
            log: Arc::clone(&log),
        });
        (log, changes, true)
    }

    /// Removes the turn, if it still has this log.
    fn remove(&self, key: &TurnKey, log: &Arc<TurnLog>) {
        let mut turns = self.turns();
        if turns
            .get(key)
            .is_some_and(|running| Arc::ptr_eq(&running.log, log))
        {
            turns.remove(key);
        }
    }
}

/// Digest of the messages, and of the question that is answered anew.
fn digest_of(ask: &pb::ChatRequest) -> digest::Digest {
    let messages = ask
        .messages
        .iter()
        .map(|message| digest_of_message(message).to_vec());
    let anew = ask.edit_message_id.map_or_else(
        || vec![u8::from(ask.regenerate)],
        |id| id.to_be_bytes().to_vec(),
    );
    let fields: Vec<Vec<u8>> = messages.chain([anew]).collect();
    digest::of_fields(fields.iter().map(Vec::as_slice))
}

/// Digest of a message. Its labels are sorted: each map has an order of its own.
fn digest_of_message(message: &pb::NewMessage) -> digest::Digest {
    let parts: Vec<Vec<u8>> = message.parts.iter().map(pb::Part::encode_to_vec).collect();
    let mut labels: Vec<(&String, &String)> = message.metadata.iter().collect();
    labels.sort_unstable();
    let labels = labels.into_iter().flat_map(|(name, value)| [name, value]);
    let head = [
        message.role.to_be_bytes(),
        (parts.len() as u32).to_be_bytes(),
    ];
    let fields = head.iter().map(<[u8; 4]>::as_slice);
    let fields = fields.chain(parts.iter().map(Vec::as_slice));
    digest::of_fields(fields.chain(labels.map(String::as_bytes)))
}

/// Relays the events of a turn into its log.
struct TurnRelay {
    turns: Arc<RunningTurns>,
    key: TurnKey,
    log: Arc<TurnLog>,
    http_caller: HttpCaller,
    ask: pb::ChatRequest,
    session_origin: SessionOrigin,
    when_busy: WhenBusy,
    closing: CancellationToken,
}

impl Drop for TurnRelay {
    fn drop(&mut self) {
        self.turns.remove(&self.key, &self.log);
        if self.log.state().end.is_none() {
            self.log.end(TurnEnd::Failed(Failure::Panicked.into()));
        }
    }
}

impl TurnRelay {
    /// Relays the turn to its end. Then waits until no reader is left, or until the log expires.
    async fn run(mut self) {
        if let Err(problem) = self.relay_until_not_busy().await {
            self.delete_unused_session().await;
            // From now on the same request starts a new turn.
            self.turns.remove(&self.key, &self.log);
            self.log.end(TurnEnd::Failed(problem));
        }
        let log = Arc::clone(&self.log);
        drop(self);
        if log.is_discarded() {
            return;
        }
        tokio::select! {
            () = log.wait_for_no_readers() => {}
            () = tokio::time::sleep(LOG_TTL) => log.discard(),
        }
    }

    /// Relays the turn. A request that may wait is tried again while its session is busy.
    async fn relay_until_not_busy(&mut self) -> Result<(), Problem> {
        let wait_deadline = Instant::now() + Duration::from_secs(CHAT_DEADLINE_SECONDS);
        let mut is_waiting = false;
        loop {
            let relayed = self.relay_once().await;
            let Err(problem) = relayed else {
                return relayed;
            };
            let may_wait = self.when_busy == WhenBusy::Wait && Instant::now() < wait_deadline;
            if !may_wait || !problem.is(Reason::TurnInProgress) || self.log.is_discarded() {
                return Err(problem);
            }
            // While the request waits, its message counts as bytes of the log.
            if !is_waiting {
                self.log.charge(self.ask.encoded_len() as u64);
                is_waiting = true;
            }
            tokio::select! {
                () = tokio::time::sleep(BUSY_RETRY_INTERVAL) => {}
                () = self.closing.cancelled() => return Err(Failure::ServerStopping.into()),
                () = self.log.wait_for_no_readers() => return Err(problem),
            }
        }
    }

    /// Calls the RPC, and records its events in the log. Merges deltas.
    async fn relay_once(&mut self) -> Result<(), Problem> {
        let messages = TurnMessages::of(&self.ask.messages);
        let refused = |status: Status| Problem::of_turn(&status, messages);
        let ask = match self.when_busy {
            WhenBusy::Refuse => std::mem::take(&mut self.ask),
            WhenBusy::Wait => self.ask.clone(),
        };
        let http_caller = &self.http_caller;
        let mut events = http_caller
            .services
            .chat(http_caller.request(ask))
            .await
            .map_err(refused)?
            .into_inner();
        let mut merger = DeltaMerger::default();
        loop {
            let response = tokio::select! {
                biased;
                () = wait_until(merger.due()) => {
                    self.record_all(merger.take_waiting());
                    continue;
                }
                response = events.next() => response,
            };
            let event = match response {
                Some(Ok(response)) => response.event,
                Some(Err(status)) => {
                    self.record_all(merger.take_waiting());
                    return Err(refused(status));
                }
                // A stream without an error ends with `Done`, unless its task has panicked.
                None => {
                    self.record_all(merger.take_waiting());
                    return Err(Failure::Panicked.into());
                }
            };
            let Some(event) = event else {
                continue;
            };
            let is_last = matches!(event, Event::Done(_));
            if is_last {
                // The turn may have been stopped before its question was stored. Until its session
                // is deleted, the same request finds this turn, and begins none in that session.
                self.delete_unused_session().await;
                self.turns.remove(&self.key, &self.log);
            }
            self.record_all(merger.push(event, Instant::now()));
            if is_last {
                return Ok(());
            }
            if self.log.is_discarded() {
                // Readers that come back get a replay from the store: at once if the answer is
                // stored, else when the turn has ended. Only a live turn must be read to its end.
                self.turns.remove(&self.key, &self.log);
                if !self.log.state().is_live {
                    return Ok(());
                }
            }
        }
    }

    fn record_all(&self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.log.record(event);
        }
    }

    /// Deletes the session that was created for this turn, if the turn has stored nothing in it.
    async fn delete_unused_session(&self) {
        let has_stored = self.log.state().stored_message_ids.is_some();
        if self.session_origin == SessionOrigin::Existing || has_stored {
            return;
        }
        let id = self.key.session;
        let store = &self.http_caller.services.state.store;
        if let Err(error) = store
            .delete_empty_conversation(self.http_caller.caller, id)
            .await
        {
            store.log_failure(&error, || {
                warn!(conversation.id = %id, "could not delete the session that was created for a turn: {error}");
            });
        }
    }
}

/// Waits until this time. Without a time it waits for ever.
async fn wait_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
