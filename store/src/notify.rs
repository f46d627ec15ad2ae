//! The doorbell between servers and workers: a hint that there is work, never a message that must arrive. Rung after the
//! commit, at most once per kind in 50 ms; workers poll as well.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use anneal_core::job::JobKind;
use sqlx::postgres::PgListener;
use tokio::sync::Notify;
use tracing::debug;

use crate::{
    Store,
    error::StoreError,
    patience::within,
    pool::{Pooling, connect_to_listen},
    scope::Scope,
};

const CHANNEL: &str = "anneal_jobs";
/// Shortest time between two rings.
const QUIET: Duration = Duration::from_millis(50);
/// How long a ring may take.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// Rings for kinds of jobs. Cheap to clone; many rings become one.
#[derive(Clone, Default)]
pub struct Doorbell {
    /// A bit per kind that waits to be rung.
    pending: Arc<AtomicU8>,
    wake: Arc<Notify>,
}

impl Doorbell {
    /// Rings soon for these kinds. Never waits.
    pub fn ring(&self, kinds: &[JobKind]) {
        let bits = kinds.iter().fold(0_u8, |bits, kind| bits | bit(*kind));
        if bits != 0 && self.pending.fetch_or(bits, Ordering::AcqRel) & bits != bits {
            self.wake.notify_one();
        }
    }

    /// Sends the rings, until the future is dropped. A ring that cannot be sent is dropped: workers poll.
    pub async fn run(&self, store: Store) {
        loop {
            self.wake.notified().await;
            let bits = self.pending.swap(0, Ordering::AcqRel);
            for kind in JobKind::ALL.into_iter().filter(|kind| bits & bit(*kind) != 0) {
                // A ring that nobody answers must not silence those after it.
                if let Err(error) = within(ANSWERED_WITHIN, store.notify(kind)).await {
                    debug!(job.kind = kind.name(), "could not ring for {}: {error}", kind.name());
                }
            }
            tokio::time::sleep(QUIET).await;
        }
    }
}

const fn bit(kind: JobKind) -> u8 {
    1 << (kind.code() - 1)
}

impl Store {
    async fn notify(&self, kind: JobKind) -> Result<(), StoreError> {
        let mut db = self.writes.checkout(Scope::Nobody).await?;
        sqlx::query("select pg_notify($1, $2)").bind(CHANNEL).bind(kind.name()).execute(&mut *db).await?;
        db.release().await?;
        Ok(())
    }

    /// Listens for rings on a connection of its own. Behind a pooler in transaction mode there is none, and this waits
    /// for ever: a session that listens would ring for whoever has it next.
    pub async fn listen(&self) -> Result<Rings, StoreError> {
        if self.settings.pooling == Pooling::Transaction {
            return std::future::pending().await;
        }
        let mut listener = connect_to_listen(&self.settings).await?;
        listener.listen(CHANNEL).await?;
        Ok(Rings { listener })
    }
}

/// The rings of all servers and workers.
pub struct Rings {
    listener: PgListener,
}

impl Rings {
    /// The next ring. An error means that the connection is lost; listen again.
    pub async fn next(&mut self) -> Result<Option<JobKind>, StoreError> {
        let ring = self.listener.recv().await?;
        Ok(JobKind::ALL.into_iter().find(|kind| kind.name() == ring.payload()))
    }
}
