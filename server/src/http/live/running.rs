//! Turns under way: each is told into its log by a task of its own, so that no reader slows or ends it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anneal_core::{caller::TenantId, digest, limits::CHAT_DEADLINE_SECONDS};
use anneal_proto::v1::{self as pb, chat_response::Event, chat_service_server::ChatService as _};
use futures::StreamExt as _;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{
    log::{Ended, Log},
    place::Place,
    reader::Reader,
};
use crate::{
    http::{door::Visitor, problem::Problem},
    parse,
    polls::{Polled, Watched},
    status::{Failure, Reason},
};

/// The turns that run in this process for readers over HTTP.
#[derive(Default)]
pub(in crate::http) struct Live(Mutex<HashMap<Key, Running>>);

/// Names a turn.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    tenant: TenantId,
    session: String,
    request: String,
}

struct Running {
    /// Of what is said in it.
    digest: digest::Digest,
    log: Arc<Log>,
}

/// Where the session of a turn comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum Session {
    /// It was there before.
    Given,
    /// It was made for this turn: one that is refused before anything is stored takes it back.
    Made,
}

/// What a turn does while another one is under way in its session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum Patience {
    /// It is refused.
    None,
    /// It waits for its end: it may be the turn that the reader comes back to, in another process.
    UntilItsEnd,
}

/// A turn that a reader asks for.
pub(in crate::http) struct Asked {
    pub(in crate::http) ask: pb::ChatRequest,
    pub(in crate::http) session: Session,
    pub(in crate::http) patience: Patience,
    /// Where the reader was before.
    pub(in crate::http) place: Option<Place>,
}

/// Between two looks whether the turn of another process has ended.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long the log of a turn that has ended is kept for slow readers.
const KEPT: Duration = Duration::from_secs(CHAT_DEADLINE_SECONDS);

impl Live {
    /// A reader of the turn: of the one that runs already, or of one that begins now.
    pub(in crate::http) fn join(
        self: &Arc<Self>,
        visitor: Visitor,
        asked: Asked,
        closing: CancellationToken,
    ) -> Reader {
        let Asked { ask, session: origin, patience, place } = asked;
        let (session, request) = (ask.conversation_id.clone(), ask.request_id.clone());
        let key = Key { tenant: visitor.caller.tenant(), session: session.clone(), request: request.clone() };
        let digest = digest_of(&ask.messages);
        let (log, changes, is_new) = self.enter(&key, digest);
        if is_new {
            let telling =
                Telling { live: Arc::clone(self), key, log: Arc::clone(&log), visitor, ask, origin, patience, closing };
            tokio::spawn(Watched::new(Polled::task("running_turn"), telling.run()));
        }
        Reader::new(log, changes, (session, request), place.as_ref())
    }

    /// The log of this turn, and whether nobody tells it yet. What says something else under the same name is another turn,
    /// which the RPC refuses.
    fn enter(&self, key: &Key, digest: digest::Digest) -> (Arc<Log>, watch::Receiver<()>, bool) {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = turns.get(key).filter(|running| running.digest == digest) {
            return (Arc::clone(&running.log), running.log.changes(), false);
        }
        let (log, changes) = Log::new();
        let log = Arc::new(log);
        turns.entry(key.clone()).or_insert_with(|| Running { digest, log: Arc::clone(&log) });
        (log, changes, true)
    }

    /// The turn with this log runs no more.
    fn leave(&self, key: &Key, log: &Arc<Log>) {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if turns.get(key).is_some_and(|running| Arc::ptr_eq(&running.log, log)) {
            turns.remove(key);
        }
    }
}

fn digest_of(messages: &[pb::NewMessage]) -> digest::Digest {
    let encoded: Vec<Vec<u8>> = messages.iter().map(prost::Message::encode_to_vec).collect();
    digest::of_fields(encoded.iter().map(Vec::as_slice))
}

/// A turn that is being told.
struct Telling {
    live: Arc<Live>,
    key: Key,
    log: Arc<Log>,
    visitor: Visitor,
    ask: pb::ChatRequest,
    origin: Session,
    patience: Patience,
    closing: CancellationToken,
}

impl Drop for Telling {
    fn drop(&mut self) {
        self.live.leave(&self.key, &self.log);
        if self.log.told().end.is_none() {
            self.log.end(Ended::Failed(Failure::Panicked.into()));
        }
    }
}

impl Telling {
    /// Tells the turn to its end; returns once it is read, or slow readers have had their time.
    async fn run(self) {
        if let Err(problem) = self.told().await {
            if self.origin == Session::Made && self.log.told().started.is_none() {
                self.take_back().await;
            }
            // Whoever asks again from now on has it tried again.
            self.live.leave(&self.key, &self.log);
            self.log.end(Ended::Failed(problem));
        }
        let log = Arc::clone(&self.log);
        drop(self);
        tokio::select! {
            () = log.unread() => {}
            () = tokio::time::sleep(KEPT) => log.forget(),
        }
    }

    async fn told(&self) -> Result<(), Problem> {
        let until = Instant::now() + Duration::from_secs(CHAT_DEADLINE_SECONDS);
        loop {
            let told = self.told_once().await;
            let Err(problem) = told else { return told };
            let may_wait = self.patience == Patience::UntilItsEnd && Instant::now() < until;
            if !may_wait || !problem.is(Reason::TurnInProgress) {
                return Err(problem);
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = self.closing.cancelled() => return Err(Failure::ServerStopping.into()),
                () = self.log.unread() => return Err(problem),
            }
        }
    }

    async fn told_once(&self) -> Result<(), Problem> {
        let Self { visitor, ask, .. } = self;
        let mut events = visitor.services.chat(visitor.request(ask.clone())).await?.into_inner();
        while let Some(response) = events.next().await {
            let Some(event) = response?.event else { continue };
            let is_last = matches!(event, Event::Done(_));
            if is_last {
                self.live.leave(&self.key, &self.log);
            }
            self.log.tell(event);
            if is_last {
                return Ok(());
            }
        }
        Err(Failure::Panicked.into())
    }

    /// Deletes the session that was made for this turn, if nothing is stored in it.
    async fn take_back(&self) {
        let Ok(id) = parse::conversation_id(&self.ask.conversation_id) else { return };
        let store = &self.visitor.services.house.store;
        if let Err(error) = store.delete_empty_conversation(self.visitor.caller, id).await {
            warn!(conversation.id = %id, "could not take back the session of a refused turn: {error}");
        }
    }
}
