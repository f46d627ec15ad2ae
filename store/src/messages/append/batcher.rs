//! Batches appends: appends that wait at the same time share a statement. A batch runs in a task of
//! its own. It takes the appends that are waiting, does not wait for more, and answers after the
//! commit; then the next batch begins, if appends wait. An append that cannot be stored with the
//! others goes back to its caller, which stores it alone, under its conversation's lock.

use std::{
    io,
    num::NonZeroU32,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anneal_core::{caller::Caller, limits::DEADLINE_DEFAULT_SECONDS};
use tokio::sync::{Semaphore, oneshot};
use tracing::debug;

use super::{
    Append,
    pending::{BatchAnswer, ConversationKey, PendingAppend, PendingAppends},
    statement::{self, AppendOutcome},
};
use crate::{
    connection::{
        BoundedConnection,
        pool::{Pool, UnscopedConnection},
        row_security::Scope,
    },
    error::StoreError,
    failpoint,
    policy_defaults::{CurrentPolicyDefaults, PolicyDefaults},
};

/// How often batches skip an append because its conversation could not be locked. After that
/// the caller stores the append alone, and waits for the lock.
const MAX_SKIPS: u8 = 4;

/// How long a batch may take, in seconds: as long as callers without a deadline of their own wait.
/// Without this limit, a batch would wait for ever on a dead connection.
const BATCH_SECONDS: u64 = DEADLINE_DEFAULT_SECONDS;

/// Most kibibytes of content that may wait for a batch. An append waits until a batch takes it,
/// even if its caller has disconnected. So without a limit, appends could fill the memory while the
/// database does not answer.
const PENDING_KIB: u32 = 64 * 1024;

/// Stores the appends of a store in batches.
pub(crate) struct AppendBatcher {
    batches: Arc<Batches>,
    /// One permit per kibibyte of content that may wait.
    memory: Arc<Semaphore>,
}

/// The appends that wait, and what batches need.
struct Batches {
    pending: Mutex<PendingAppends>,
    writes: Pool,
    policy_defaults: CurrentPolicyDefaults,
}

impl AppendBatcher {
    /// Runs at most `most_running` batches at once, each on a connection of `writes`.
    pub(crate) fn new(
        most_running: NonZeroU32,
        writes: &Pool,
        policy_defaults: &CurrentPolicyDefaults,
    ) -> Self {
        let batches = Batches {
            pending: Mutex::new(PendingAppends::new(most_running.get())),
            writes: writes
                .clone()
                .with_deadline(Duration::from_secs(BATCH_SECONDS)),
            policy_defaults: policy_defaults.clone(),
        };
        Self {
            batches: Arc::new(batches),
            memory: Arc::new(Semaphore::new(PENDING_KIB as usize)),
        }
    }

    /// Appends in a batch. Two appends of one conversation are never stored at once. The append of a
    /// bound caller is not batched, because a batch sees all rows of its tenants.
    pub(super) async fn append(&self, caller: Caller, append: &Append) -> BatchAnswer {
        if caller.bound().is_some() {
            return BatchAnswer::StoreUnderLock;
        }
        // Plus one, because an append takes memory besides its content.
        let kibibytes = append.content_bytes().div_ceil(1024) as u32 + 1;
        // Never fails, because the semaphore is never closed.
        let Ok(memory) = Arc::clone(&self.memory).acquire_many_owned(kibibytes).await else {
            return BatchAnswer::StoreUnderLock;
        };
        let (answer, answered) = oneshot::channel();
        let waiting = PendingAppend {
            caller,
            append: append.clone(),
            answer,
            skips: 0,
            _memory: memory,
        };
        let begins = {
            let mut pending = self.batches.pending();
            pending.push(waiting);
            pending.begin_batch(Instant::now())
        };
        if begins {
            RunningBatch::start(Arc::clone(&self.batches));
        }
        // No answer comes if the batch panicked, perhaps while it stored this append.
        answered
            .await
            .unwrap_or_else(|_| answer_to_unknown_outcome(append))
    }
}

/// The answer if it is unknown whether an append was stored. An append with a request id can be
/// repeated, because it is stored only once.
fn answer_to_unknown_outcome(append: &Append) -> BatchAnswer {
    if append.request_id.is_some() {
        return BatchAnswer::StoreUnderLock;
    }
    let lost = io::Error::new(
        io::ErrorKind::ConnectionAborted,
        "the connection was lost while appends were stored",
    );
    BatchAnswer::Ended(Err(StoreError::Unavailable(sqlx::Error::Io(lost).into())))
}

/// A batch, from `begin_batch` to its end. When it is dropped, its conversations are free for the
/// next batch, which then begins.
struct RunningBatch {
    batches: Arc<Batches>,
    /// The conversations of its appends.
    taken: Vec<ConversationKey>,
    /// Appends that wait for the next batch, because their conversations could not be locked.
    skipped: Vec<PendingAppend>,
    has_ended: bool,
}

impl RunningBatch {
    /// Runs a batch that `begin_batch` has counted, in a task of its own.
    fn start(batches: Arc<Batches>) {
        let batch = Self {
            batches,
            taken: Vec::new(),
            skipped: Vec::new(),
            has_ended: false,
        };
        tokio::spawn(batch.run());
    }

    async fn run(mut self) {
        // The connection is taken first: appends that arrive meanwhile join the batch.
        let connection = self.batches.writes.checkout_without_scope().await;
        let appends = self.take();
        match connection {
            Ok(_) if appends.is_empty() => {}
            Ok(connection) => self.skipped = self.batches.store(connection, appends).await,
            Err(error) => fail_batch(appends, &error),
        }
        self.has_ended = true;
    }

    fn take(&mut self) -> Vec<PendingAppend> {
        let appends = self.batches.pending().take();
        self.taken = appends.iter().map(PendingAppend::key).collect();
        appends
    }
}

impl Drop for RunningBatch {
    fn drop(&mut self) {
        let skipped = std::mem::take(&mut self.skipped);
        // The next batch also begins if this one has panicked. Otherwise the runtime is shutting
        // down, and would drop the next batch at once.
        let goes_on = self.has_ended || std::thread::panicking();
        let begins = {
            let mut pending = self.batches.pending();
            pending.end_batch(&self.taken, skipped);
            goes_on && pending.begin_batch(Instant::now())
        };
        if begins {
            Self::start(Arc::clone(&self.batches));
        }
    }
}

impl Batches {
    fn pending(&self) -> MutexGuard<'_, PendingAppends> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a batch and answers its callers. Returns the appends whose conversations could not be
    /// locked.
    async fn store(
        &self,
        connection: UnscopedConnection,
        batch: Vec<PendingAppend>,
    ) -> Vec<PendingAppend> {
        let appends: Vec<_> = batch
            .iter()
            .map(|waiting| (waiting.caller, &waiting.append))
            .collect();
        let stored = async {
            let mut db = connection
                .set_scope(Scope::of(appends.iter().map(|(caller, _)| caller.tenant())))
                .await?;
            let policy_defaults = self.policy_defaults.get();
            let outcomes = store_together(&mut db, &appends, &policy_defaults).await?;
            db.release().await?;
            Ok(outcomes)
        }
        .await;
        metrics::counter!("anneal_append_groups_total").increment(1);
        metrics::counter!("anneal_append_group_members_total").increment(batch.len() as u64);
        match stored {
            Ok(outcomes) => return answer(batch, outcomes),
            Err(error @ (StoreError::Unavailable(_) | StoreError::Unresponsive)) => {
                debug!(
                    "lost the connection on which {} appends were stored: {error}",
                    batch.len()
                );
                for waiting in batch {
                    let answer = answer_to_unknown_outcome(&waiting.append);
                    // Fails if the caller has disconnected.
                    let _ = waiting.answer.send(answer);
                }
            }
            Err(error) => {
                debug!("{} appends are stored one by one: {error}", batch.len());
                for waiting in batch {
                    let _ = waiting.answer.send(BatchAnswer::StoreUnderLock);
                }
            }
        }
        Vec::new()
    }
}

/// Answers the callers of a batch. Returns the appends whose conversations could not be locked:
/// they wait for the next batch, unless they were skipped [`MAX_SKIPS`] times.
fn answer(batch: Vec<PendingAppend>, outcomes: Vec<AppendOutcome>) -> Vec<PendingAppend> {
    let mut skipped = Vec::new();
    for (mut waiting, outcome) in batch.into_iter().zip(outcomes) {
        let answer = match outcome {
            AppendOutcome::Stored(appended) => BatchAnswer::Ended(Ok(appended)),
            AppendOutcome::NotLocked if waiting.skips < MAX_SKIPS => {
                waiting.skips += 1;
                skipped.push(waiting);
                continue;
            }
            AppendOutcome::NotLocked | AppendOutcome::Refused => BatchAnswer::StoreUnderLock,
        };
        let _ = waiting.answer.send(answer);
    }
    skipped
}

async fn store_together(
    db: &mut BoundedConnection,
    appends: &[(Caller, &Append)],
    policy_defaults: &PolicyDefaults,
) -> Result<Vec<AppendOutcome>, StoreError> {
    failpoint!("append.group.taken");
    let outcomes = match appends {
        [(caller, append)] => {
            let stored = statement::execute_one(db, *caller, append, policy_defaults).await?;
            // If it was not stored, its caller learns why under the conversation's lock.
            vec![stored.map_or(AppendOutcome::Refused, AppendOutcome::Stored)]
        }
        _ => statement::execute(db, appends, policy_defaults).await?,
    };
    failpoint!("append.group.stored");
    Ok(outcomes)
}

/// Answers all appends of a batch with an error, because no connection could be taken.
fn fail_batch(batch: Vec<PendingAppend>, error: &StoreError) {
    debug!("no connection for {} appends: {error}", batch.len());
    for waiting in batch {
        let failure = match error {
            StoreError::Busy => StoreError::Busy,
            other => {
                StoreError::Unavailable(sqlx::Error::Io(io::Error::other(other.to_string())).into())
            }
        };
        let _ = waiting.answer.send(BatchAnswer::Ended(Err(failure)));
    }
}
