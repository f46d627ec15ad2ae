//! Appends messages. One statement, and so one transaction, gives dense ids under the
//! conversations' row locks, stores the rows and commits the counting jobs with them. Appends of
//! different conversations that wait at the same time share a statement.
//!
//! - `prepare`: everything about an append that can be computed before the row lock.
//! - `batcher`: which waiting appends share a statement, and what is left to be done alone.
//! - `pending`: the order in which waiting appends are taken, fair among tenants.
//! - `append_one`: one append by itself: what a conversation keeps of it, why it is refused, and its
//!   replay by request id.
//! - `statement`: the arguments and outcomes of `sql/append.sql`.

mod append_one;
mod batcher;
mod pending;
mod prepare;
mod statement;

use std::num::NonZeroU32;

use anneal_core::{caller::Caller, message::MessageId, tokens::Tokens};
use futures::FutureExt as _;
use serde::{Deserialize, Serialize};

pub use prepare::Append;

pub(crate) use append_one::append_in_transaction;
pub(crate) use batcher::AppendBatcher;

use crate::{Store, error::StoreError};
use append_one::{find_earlier_append, store_alone, store_under_lock};
use pending::BatchAnswer;

/// Whether and how appends share transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AppendSettings {
    /// Whether appends of different conversations share a transaction.
    pub grouping: Grouping,
    /// Transactions of batched appends that may run at once.
    pub lanes: NonZeroU32,
}

/// Whether appends of different conversations share a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grouping {
    /// Appends that wait at the same time share one.
    On,
    /// Each append has its own: for engines in which a transaction must stay within one
    /// conversation.
    Off,
}

impl Default for AppendSettings {
    fn default() -> Self {
        Self {
            grouping: Grouping::On,
            lanes: NonZeroU32::new(2).expect("2 is not 0"),
        }
    }
}

/// Bytes of content above which an append is not batched: it would make the others wait.
const SHARED_BYTES: usize = 64 * 1024;

/// Result of an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// The stored messages, in the order of the request; their ids are contiguous.
    pub messages: Vec<AppendedMessage>,
    /// Indexes in the request of the messages that were not stored, because the conversation keeps
    /// no tool messages.
    pub skipped: Vec<usize>,
    /// Bytes of content that this call has stored; 0 if it is a repetition.
    pub content_bytes: u64,
    /// Whether an earlier append with this `request_id` had stored them.
    pub replayed: bool,
}

/// One stored message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendedMessage {
    /// Id of the message.
    pub id: MessageId,
    /// The turn that it belongs to.
    pub turn: i32,
    /// Its estimated tokens.
    pub estimate: Tokens,
}

impl Store {
    /// Appends messages to a conversation, once per `request_id`. If the conversation keeps no tool
    /// messages, appends the others.
    ///
    /// If the connection breaks during the commit, the outcome is unknown. With a `request_id` the
    /// append is then repeated once, which stores nothing twice.
    pub async fn append(&self, caller: Caller, append: &Append) -> Result<Appended, StoreError> {
        let stored =
            if self.append.grouping == Grouping::On && append.content_bytes() <= SHARED_BYTES {
                let batched = self
                    .batcher()
                    .append(caller, append)
                    .map(Ok::<_, StoreError>);
                // The batch has a deadline of its own: it may wait behind others, and is shared.
                match self.writes.deadline().bound(batched).await? {
                    BatchAnswer::Ended(outcome) => return outcome,
                    BatchAnswer::StoreAlone => Ok(None),
                }
            } else {
                self.append_alone(caller, append).await
            };
        let outcome = match stored {
            Ok(Some(appended)) => Ok(appended),
            Ok(None) => self.append_under_lock(caller, append).await,
            Err(error) => Err(error),
        };
        match outcome {
            Err(StoreError::Conflict(_)) => self.append_under_lock(caller, append).await,
            Err(StoreError::Unavailable(_)) if append.request_id.is_some() => {
                self.append_under_lock(caller, append).await
            }
            outcome => outcome,
        }
    }

    /// Finds what an earlier append with the same request id stored.
    pub async fn find_append(
        &self,
        caller: Caller,
        append: &Append,
    ) -> Result<Option<Appended>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let found = find_earlier_append(&mut db, caller, append).await;
        db.settle(found).await
    }

    fn batcher(&self) -> &AppendBatcher {
        self.batcher.get_or_init(|| {
            AppendBatcher::start(
                self.append.lanes,
                &self.shared_writes,
                &self.policy_defaults,
            )
        })
    }

    async fn append_alone(
        &self,
        caller: Caller,
        append: &Append,
    ) -> Result<Option<Appended>, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        db.attach_reservation(append.reservation.clone());
        let stored = store_alone(&mut db, caller, append, self.policy_defaults.bases()).await;
        db.settle(stored).await
    }

    async fn append_under_lock(
        &self,
        caller: Caller,
        append: &Append,
    ) -> Result<Appended, StoreError> {
        // Before the lock, which others wait for.
        let rest = append.without_tools().await?;
        let bases = self.policy_defaults.bases();
        let mut db = self.writes.checkout(caller).await?;
        db.attach_reservation(append.reservation.clone());
        let stored = store_under_lock(&mut db, caller, append, &rest, bases).await;
        db.settle(stored).await
    }
}
