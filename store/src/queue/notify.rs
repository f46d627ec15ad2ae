//! Notifications to workers that there is work. They are sent after the commit. Each process sends
//! at most one per kind of job in 50 ms. A lost notification does no harm: workers poll as well.

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
    connection::{Pooling, connect_to_listen, row_security::Scope},
    error::StoreError,
};

/// PostgreSQL's notification channel.
const CHANNEL: &str = "anneal_jobs";

/// Shortest time between two notifications of the same kind.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// How long sending one notification may take.
const SEND_DEADLINE: Duration = Duration::from_secs(5);

/// Notifies workers of new jobs. Cheap to clone; notifications of one kind are merged until they
/// are sent.
#[derive(Clone, Default)]
pub struct JobNotifier {
    /// One bit per kind that has a notification to be sent.
    pending: Arc<AtomicU8>,
    wake: Arc<Notify>,
}

impl JobNotifier {
    /// Requests notifications for these kinds. Returns at once.
    pub fn notify(&self, kinds: &[JobKind]) {
        let bits = kinds.iter().fold(0_u8, |bits, kind| bits | bit(*kind));
        // If all of these kinds were pending already, `run` has been woken for them.
        if bits != 0 && self.pending.fetch_or(bits, Ordering::AcqRel) & bits != bits {
            self.wake.notify_one();
        }
    }

    /// Sends notifications until the future is dropped. A notification that cannot be sent is given
    /// up.
    pub async fn run(&self, store: Store) {
        // The deadline limits how long one notification delays those after it.
        let store = store.with_deadline(SEND_DEADLINE);
        loop {
            self.wake.notified().await;
            let bits = self.pending.swap(0, Ordering::AcqRel);
            for kind in JobKind::ALL
                .into_iter()
                .filter(|kind| bits & bit(*kind) != 0)
            {
                if let Err(error) = store.send_notification(kind).await {
                    debug!(
                        job.kind = kind.name(),
                        "could not notify workers of {}: {error}",
                        kind.name()
                    );
                }
            }
            tokio::time::sleep(MIN_INTERVAL).await;
        }
    }
}

/// The kind's bit in `pending`. Codes of kinds begin with 1, and a `u8` has bits for eight kinds.
const fn bit(kind: JobKind) -> u8 {
    1 << (kind.code() - 1)
}

impl Store {
    async fn send_notification(&self, kind: JobKind) -> Result<(), StoreError> {
        let mut db = self.writes.checkout(Scope::Nobody).await?;
        sqlx::query("select pg_notify($1, $2)")
            .bind(CHANNEL)
            .bind(kind.name())
            .execute(&mut *db)
            .await?;
        db.release().await?;
        Ok(())
    }

    /// Listens for notifications on a connection of its own. Behind a pooler in transaction mode
    /// this never returns: a session there serves many clients in turn, so listening is impossible.
    pub async fn listen(&self) -> Result<JobNotifications, StoreError> {
        if self.settings.pooling == Pooling::Transaction {
            return std::future::pending().await;
        }
        let mut listener = connect_to_listen(&self.settings).await?;
        listener.listen(CHANNEL).await?;
        Ok(JobNotifications { listener })
    }
}

/// The notifications of all servers and workers.
pub struct JobNotifications {
    listener: PgListener,
}

impl JobNotifications {
    /// Waits for the next notification, and returns the kind of job that it is about. None: the
    /// kind is unknown to this build. After an error the connection is lost; call [`Store::listen`]
    /// again.
    pub async fn next(&mut self) -> Result<Option<JobKind>, StoreError> {
        let notification = self.listener.recv().await?;
        Ok(JobKind::ALL
            .into_iter()
            .find(|kind| kind.name() == notification.payload()))
    }
}
