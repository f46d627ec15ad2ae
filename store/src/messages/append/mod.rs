//! Appends messages. One statement, and so one transaction, gives dense ids under the
//! conversations' row locks, stores the messages and enqueues counting jobs. Small messages are
//! stored with their token counts; a job is enqueued only if messages are not counted or if a
//! trigger may be reached. Appends to different conversations that wait at the same time share a
//! statement.
//!
//! - `prepare`: computes everything about an append that needs no row lock.
//! - `batcher`: stores waiting appends together, and decides which ones are stored alone.
//! - `pending`: when a batch begins, and the order in which waiting appends are taken, fair among
//!   tenants.
//! - `append_one`: stores one append by itself, and finds an earlier append with its request id.
//! - `statement`: the arguments and outcomes of `sql/append.sql` and `sql/append_one.sql`.

mod append_one;
mod batcher;
mod pending;
mod prepare;
mod statement;

use std::num::NonZeroU32;

use anneal_core::{
    caller::Caller,
    message::MessageId,
    tokens::{Encoding, Tokens},
};
use futures::FutureExt as _;
use serde::{Deserialize, Serialize};
use tracing::{Instrument as _, debug_span};

pub use prepare::Append;

pub(crate) use append_one::{append_in_transaction, store_with_lock_held};
pub(crate) use batcher::AppendBatcher;

use crate::{Store, error::StoreError};
use append_one::{find_earlier_append, store_if_lock_is_free, store_under_lock};
use pending::BatchAnswer;

/// Whether and how appends share transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AppendSettings {
    /// Whether appends of different conversations share a transaction.
    pub grouping: Grouping,
    /// Most transactions of batched appends that run at once, each with a connection of its own. A
    /// further one begins only while a full batch waits, or while the newest one is slow.
    pub lanes: NonZeroU32,
    /// Appends with at most this many bytes of content are counted by the server, before it stores
    /// them. Workers count larger ones. 0: workers count all.
    pub count_bytes: u32,
}

/// Whether appends of different conversations share a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grouping {
    /// Appends that wait at the same time share a transaction.
    On,
    /// Each append has its own transaction. For databases in which a transaction must stay within
    /// one conversation.
    Off,
}

impl Default for AppendSettings {
    fn default() -> Self {
        Self {
            grouping: Grouping::On,
            lanes: NonZeroU32::new(2).expect("2 is not 0"),
            count_bytes: 16 * 1024,
        }
    }
}

/// An append with more bytes of content is not batched, because the other appends of the batch
/// would wait for it. Above the same limit, `prepare` removes tool messages on a blocking thread.
const MAX_BATCHED_BYTES: usize = 64 * 1024;

/// Result of an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// The stored messages, in the order of the request; their ids are contiguous.
    pub messages: Vec<AppendedMessage>,
    /// The messages that were not stored, because the conversation keeps no tool messages: their
    /// indexes in the request.
    pub skipped: Vec<usize>,
    /// Bytes of content that this call has stored; 0 if it is a repetition.
    pub content_bytes: u64,
    /// Whether the messages were stored by an earlier append with the same request id.
    pub replayed: bool,
    /// Whether the append has enqueued a counting job.
    pub has_work: bool,
    /// The encoding of the conversation. None: nothing was stored, or an earlier append is repeated.
    pub encoding: Option<Encoding>,
}

/// One stored message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendedMessage {
    /// Id of the message.
    pub id: MessageId,
    /// The turn that it belongs to.
    pub turn: i32,
    /// Its tokens.
    pub tokens: Tokens,
    /// Whether they are counted. False: they are estimated.
    pub is_counted: bool,
    /// Whether it was withdrawn since.
    pub withdrawn: bool,
}

impl Store {
    /// Appends messages to a conversation, once per `request_id`. If the conversation keeps no tool
    /// messages, appends the others.
    ///
    /// If the connection breaks during the commit, the outcome is unknown. With a `request_id` the
    /// append is then repeated once, which stores nothing twice.
    pub async fn append(&self, caller: Caller, append: &Append) -> Result<Appended, StoreError> {
        let in_trace = append.in_current_trace();
        let append: &Append = &in_trace;
        let stored = if self.append.grouping == Grouping::On
            && append.content_bytes() <= MAX_BATCHED_BYTES
        {
            let batched = self
                .batcher
                .append(caller, append)
                .instrument(debug_span!("append_in_batch"))
                .map(Ok::<_, StoreError>);
            // This deadline limits the wait of this caller. The batch, which serves several
            // callers, has a deadline of its own.
            match self.writes.deadline().bound(batched).await? {
                BatchAnswer::Ended(outcome) => return outcome,
                BatchAnswer::StoreUnderLock => Ok(None),
            }
        } else {
            self.append_if_lock_is_free(caller, append).await
        };
        let outcome = match stored {
            Ok(Some(appended)) => Ok(appended),
            Ok(None) => self.append_under_lock(caller, append).await,
            Err(error) => Err(error),
        };
        match outcome {
            Err(StoreError::Conflict(_)) => self.append_under_lock(caller, append).await,
            Err(StoreError::Unavailable(_) | StoreError::Unresponsive)
                if append.request_id.is_some() =>
            {
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

    /// Appends with more bytes of content are not to be counted by the server.
    pub const fn max_counted_append_bytes(&self) -> usize {
        self.append.count_bytes as usize
    }

    async fn append_if_lock_is_free(
        &self,
        caller: Caller,
        append: &Append,
    ) -> Result<Option<Appended>, StoreError> {
        let policy_defaults = self.policy_defaults.get();
        let mut db = self.writes.checkout(caller).await?;
        db.attach_reservation(append.reservation.clone());
        let stored = store_if_lock_is_free(&mut db, caller, append, &policy_defaults).await;
        db.settle(stored).await
    }

    async fn append_under_lock(
        &self,
        caller: Caller,
        append: &Append,
    ) -> Result<Appended, StoreError> {
        // Prepared before the lock is taken, because others wait for the lock.
        let without_tools = append.without_tools().await?;
        let policy_defaults = self.policy_defaults.get();
        let mut db = self.writes.checkout(caller).await?;
        db.attach_reservation(append.reservation.clone());
        let stored =
            store_under_lock(&mut db, caller, append, &without_tools, &policy_defaults).await;
        db.settle(stored).await
    }
}
