//! Batches appends: appends that wait at the same time share a statement. Batch workers, which are
//! tasks of this process, do this. A batch worker takes the appends that are waiting, does not wait
//! for more, and answers after the commit. An append that cannot be stored with the others goes
//! back to its caller, which stores it alone, under its conversation's lock.

use std::{io, num::NonZeroU32, sync::Arc, time::Duration};

use anneal_core::{
    caller::{Caller, ConversationId},
    limits::DEADLINE_DEFAULT_SECONDS,
};
use tokio::sync::{
    Semaphore,
    mpsc::{self, UnboundedReceiver, UnboundedSender},
    oneshot,
};
use tracing::debug;

use super::{
    Append,
    pending::{BatchAnswer, PendingAppend, PendingAppends},
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
    policy_defaults::CurrentPolicyDefaults,
};

/// How often batches skip an append because its conversation could not be locked. After that
/// the caller stores the append alone, and waits for the lock.
const MAX_SKIPS: u8 = 4;

/// How long a batch may take, in seconds: as long as callers without a deadline of their own wait.
/// Without this limit, a batch worker would wait for ever on a dead connection.
const BATCH_SECONDS: u64 = DEADLINE_DEFAULT_SECONDS;

/// Most kibibytes of content that may wait for batch workers. An append waits until a batch worker
/// takes it, even if its caller has disconnected. So without a limit, appends could fill the memory
/// while the database does not answer.
const PENDING_KIB: u32 = 64 * 1024;

/// The batch workers of a store.
pub(crate) struct AppendBatcher {
    senders: Vec<UnboundedSender<PendingAppend>>,
    /// One permit per kibibyte of content that may wait.
    memory: Arc<Semaphore>,
}

impl AppendBatcher {
    /// Starts `count` batch workers, each with at most one connection at a time. They end when the
    /// store is dropped.
    pub(super) fn start(
        count: NonZeroU32,
        writes: &Pool,
        policy_defaults: &CurrentPolicyDefaults,
    ) -> Self {
        let start_worker = |_| {
            // The channel needs no bound of its own: the memory permits limit what it holds.
            let (sender, incoming) = mpsc::unbounded_channel();
            let worker = BatchWorker {
                incoming,
                pending: PendingAppends::default(),
                writes: writes
                    .clone()
                    .with_deadline(Duration::from_secs(BATCH_SECONDS)),
                policy_defaults: policy_defaults.clone(),
            };
            tokio::spawn(worker.run());
            sender
        };
        Self {
            senders: (0..count.get()).map(start_worker).collect(),
            memory: Arc::new(Semaphore::new(PENDING_KIB as usize)),
        }
    }

    /// Appends in a batch. All appends of one conversation go to the same batch worker, which never
    /// stores two of them at once.
    pub(super) async fn append(&self, caller: Caller, append: &Append) -> BatchAnswer {
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
        let sender = self.sender_for(append.conversation);
        if sender.send(waiting).is_err() {
            return BatchAnswer::StoreUnderLock;
        }
        // No answer comes if the batch worker panicked, perhaps while it stored this append.
        answered
            .await
            .unwrap_or_else(|_| answer_to_unknown_outcome(append))
    }

    fn sender_for(&self, id: ConversationId) -> &UnboundedSender<PendingAppend> {
        &self.senders[(id.0.as_u128() % self.senders.len() as u128) as usize]
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

struct BatchWorker {
    incoming: UnboundedReceiver<PendingAppend>,
    pending: PendingAppends,
    writes: Pool,
    policy_defaults: CurrentPolicyDefaults,
}

impl BatchWorker {
    /// Stores appends until all senders are gone.
    async fn run(mut self) {
        loop {
            if self.pending.is_empty() {
                let Some(waiting) = self.incoming.recv().await else {
                    return;
                };
                self.pending.push(waiting);
            }
            // The connection is taken first: appends that arrive meanwhile join the batch.
            let connection = self.writes.checkout_without_scope().await;
            while let Ok(waiting) = self.incoming.try_recv() {
                self.pending.push(waiting);
            }
            let batch = self.pending.take();
            match connection {
                Ok(_) if batch.is_empty() => {}
                Ok(connection) => self.store(connection, batch).await,
                Err(error) => fail_batch(batch, &error),
            }
        }
    }

    /// Stores a batch and answers its callers.
    async fn store(&mut self, connection: UnscopedConnection, batch: Vec<PendingAppend>) {
        let appends: Vec<_> = batch
            .iter()
            .map(|waiting| (waiting.caller, &waiting.append))
            .collect();
        let stored = async {
            let mut db = connection
                .set_scope(Scope::of(appends.iter().map(|(caller, _)| caller.tenant())))
                .await?;
            let policy_defaults = self.policy_defaults.get();
            let outcomes = store_together(&mut db, &appends, policy_defaults.bases()).await?;
            db.release().await?;
            Ok(outcomes)
        }
        .await;
        metrics::counter!("anneal_append_groups_total").increment(1);
        metrics::counter!("anneal_append_group_members_total").increment(batch.len() as u64);
        match stored {
            Ok(outcomes) => self.answer(batch, outcomes),
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
    }

    /// Answers the callers of a batch. Appends whose conversations could not be locked wait for the
    /// next batch, unless they were skipped [`MAX_SKIPS`] times.
    fn answer(&mut self, batch: Vec<PendingAppend>, outcomes: Vec<AppendOutcome>) {
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
        self.pending.put_back(skipped);
    }
}

async fn store_together(
    db: &mut BoundedConnection,
    appends: &[(Caller, &Append)],
    bases: &str,
) -> Result<Vec<AppendOutcome>, StoreError> {
    failpoint!("append.group.taken");
    let outcomes = statement::execute(db, appends, bases).await?;
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
