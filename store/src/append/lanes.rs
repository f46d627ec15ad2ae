//! Lanes: appends that wait at the same time share a statement. A lane takes what is waiting, never waits for more, and answers
//! once that is committed; whatever it cannot store with the others is left to its caller, who does it alone.

use std::{io, num::NonZeroU32, sync::Arc, time::Duration};

use anneal_core::{
    caller::{Caller, ConversationId},
    limits::DEADLINE_DEFAULT_SECONDS,
};
use sqlx::PgConnection;
use tokio::sync::{
    Semaphore,
    mpsc::{self, UnboundedReceiver, UnboundedSender},
    oneshot,
};
use tracing::debug;

use super::{
    Append, Appended,
    queue::{Queue, Waiting},
    statement::{self, Done},
};
use crate::{
    error::StoreError,
    failpoint,
    patience::within,
    pool::{Pool, Reserved},
    rules::Rules,
    scope::Scope,
};

/// How often a conversation may be found held by another transaction before its caller waits for it alone.
const PATIENCE: u8 = 4;
/// How long a group may take: as long as callers wait who do not say how long. A connection that has gone dead is noticed by
/// nobody else.
const GROUP_SECONDS: u64 = DEADLINE_DEFAULT_SECONDS;

/// What a lane says about an append.
pub(super) enum Answer {
    /// It is stored, or cannot be.
    Ended(Result<Appended, StoreError>),
    /// It has to be done by itself: only then it waits for its conversation, and learns what is wrong with it.
    Alone,
}

/// Kibibytes of content that may wait for lanes. Callers who have gone away leave theirs behind until a lane comes to it: a
/// database that does not answer must not fill the memory.
const WAITING_KIB: u32 = 64 * 1024;

/// The lanes of a store.
pub(crate) struct Lanes {
    senders: Vec<UnboundedSender<Waiting>>,
    room: Arc<Semaphore>,
}

impl Lanes {
    /// Starts so many, each with at most one connection at a time. They end with the store.
    pub(super) fn start(count: NonZeroU32, writes: &Pool, rules: &Arc<Rules>) -> Self {
        let lane = |_| {
            // Bounded by the room for what waits.
            let (sender, arriving) = mpsc::unbounded_channel();
            let lane = Lane { arriving, queue: Queue::default(), writes: writes.clone(), rules: Arc::clone(rules) };
            tokio::spawn(lane.run());
            sender
        };
        Self { senders: (0..count.get()).map(lane).collect(), room: Arc::new(Semaphore::new(WAITING_KIB as usize)) }
    }

    /// Appends with others. Appends of one conversation share a lane, where they do not meet.
    pub(super) async fn append(&self, caller: Caller, append: &Append) -> Answer {
        let kibibytes = append.content_bytes().div_ceil(1024) as u32 + 1;
        let Ok(room) = Arc::clone(&self.room).acquire_many_owned(kibibytes).await else { return Answer::Alone };
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { caller, append: append.clone(), answer, passed_over: 0, _room: room };
        let lane = self.lane_of(append.conversation);
        // A lane that is gone, or was lost while it stored, knows nothing: the append is done by itself, or is unknown.
        if lane.send(waiting).is_err() {
            return Answer::Alone;
        }
        answered.await.unwrap_or_else(|_| unknown(append))
    }

    fn lane_of(&self, id: ConversationId) -> &UnboundedSender<Waiting> {
        &self.senders[(id.0.as_u128() % self.senders.len() as u128) as usize]
    }
}

/// The answer when it is not known whether an append was stored: with a request id it may be done again.
fn unknown(append: &Append) -> Answer {
    if append.request_id.is_some() {
        return Answer::Alone;
    }
    let lost = io::Error::new(io::ErrorKind::ConnectionAborted, "the connection was lost while appends were stored");
    Answer::Ended(Err(StoreError::Unavailable(sqlx::Error::Io(lost).into())))
}

struct Lane {
    arriving: UnboundedReceiver<Waiting>,
    queue: Queue,
    writes: Pool,
    rules: Arc<Rules>,
}

impl Lane {
    /// Stores what arrives until nobody can send any more.
    async fn run(mut self) {
        loop {
            if self.queue.is_empty() {
                let Some(waiting) = self.arriving.recv().await else { return };
                self.queue.push(waiting);
            }
            let free = self.writes.reserve().await;
            while let Ok(waiting) = self.arriving.try_recv() {
                self.queue.push(waiting);
            }
            let group = self.queue.take();
            match free {
                Ok(_) if group.is_empty() => {}
                Ok(free) => self.store(free, group).await,
                Err(error) => refuse(group, &error),
            }
        }
    }

    async fn store(&mut self, free: Reserved, group: Vec<Waiting>) {
        let appends: Vec<_> = group.iter().map(|waiting| (waiting.caller, &waiting.append)).collect();
        let storing = async {
            let mut db = free.seeing(Scope::of(appends.iter().map(|(caller, _)| caller.tenant()))).await?;
            let stored = store_together(&mut db, &appends, self.rules.bases()).await?;
            db.release().await?;
            Ok(stored)
        };
        let stored = within(Duration::from_secs(GROUP_SECONDS), storing).await;
        metrics::counter!("append_groups_total").increment(1);
        metrics::counter!("append_group_members_total").increment(group.len() as u64);
        match stored {
            Ok(done) => self.answer(group, done),
            Err(error @ (StoreError::Unavailable(_) | StoreError::Silent)) => {
                debug!("lost the connection on which {} appends were stored: {error}", group.len());
                for waiting in group {
                    let answer = unknown(&waiting.append);
                    // Who does not wait any more does not need to know.
                    let _ = waiting.answer.send(answer);
                }
            }
            Err(error) => {
                debug!("{} appends are stored one by one: {error}", group.len());
                for waiting in group {
                    let _ = waiting.answer.send(Answer::Alone);
                }
            }
        }
    }

    fn answer(&mut self, group: Vec<Waiting>, done: Vec<Done>) {
        let mut again = Vec::new();
        for (mut waiting, done) in group.into_iter().zip(done) {
            let answer = match done {
                Done::Stored(appended) => Answer::Ended(Ok(appended)),
                Done::PassedOver if waiting.passed_over < PATIENCE => {
                    waiting.passed_over += 1;
                    again.push(waiting);
                    continue;
                }
                Done::PassedOver | Done::Refused => Answer::Alone,
            };
            let _ = waiting.answer.send(answer);
        }
        self.queue.put_back(again);
    }
}

async fn store_together(
    db: &mut PgConnection,
    appends: &[(Caller, &Append)],
    bases: &str,
) -> Result<Vec<Done>, StoreError> {
    failpoint!("append.group.taken");
    let done = statement::store(db, appends, bases).await?;
    failpoint!("append.group.stored");
    Ok(done)
}

/// Answers all that there is no connection now.
fn refuse(group: Vec<Waiting>, error: &StoreError) {
    debug!("no connection for {} appends: {error}", group.len());
    for waiting in group {
        let refusal = match error {
            StoreError::Busy => StoreError::Busy,
            other => StoreError::Unavailable(sqlx::Error::Io(io::Error::other(other.to_string())).into()),
        };
        let _ = waiting.answer.send(Answer::Ended(Err(refusal)));
    }
}
