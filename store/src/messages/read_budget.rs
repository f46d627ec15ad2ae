//! Limits how much content a read brings into memory, to what its caller has reserved.

use std::{any::Any, sync::Arc};

use crate::error::StoreError;

/// Memory that a row takes in addition to its content, in bytes: ids, roles, counts, and the
/// headers of its strings.
pub const ROW_BYTES: u64 = 512;

/// Content of this size takes an unoptimized build 5 to 20 ms to parse: more is parsed on a
/// blocking thread. Less is not, because memory that one thread allocates and another frees is
/// returned late.
const BLOCKING_PARSE_BYTES: u64 = 1024 * 1024;

/// Bytes of rows that are parsed before the task yields to others.
pub(crate) const YIELD_BYTES: usize = 1024 * 1024;

/// How many bytes a read may bring into memory, and the reservation that is kept until its
/// connection no longer needs them.
#[derive(Clone)]
pub struct ReadBudget {
    bytes: u64,
    /// Dropped when no statement reads for this call any more: an abandoned call leaves its
    /// statement running for a while.
    pub(crate) reservation: Option<Arc<dyn Any + Send + Sync>>,
}

impl ReadBudget {
    /// A budget of `bytes`, which are reserved as long as `reservation` lives.
    pub fn new(bytes: u64, reservation: Arc<dyn Any + Send + Sync>) -> Self {
        Self {
            bytes,
            reservation: Some(reservation),
        }
    }

    /// A budget of `bytes` without a reservation.
    pub const fn unreserved(bytes: u64) -> Self {
        Self {
            bytes,
            reservation: None,
        }
    }

    /// No limit, for callers that bound their reads in another way.
    pub const fn unlimited() -> Self {
        Self::unreserved(i64::MAX as u64)
    }

    /// The limit in bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The limit as a statement's parameter.
    pub(crate) fn column(&self) -> i64 {
        i64::try_from(self.bytes).unwrap_or(i64::MAX)
    }
}

/// Outcome of a read within a [`ReadBudget`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentRead<T> {
    /// The content was read. `bytes` counts content, summaries, outlines, and [`ROW_BYTES`] for
    /// each row.
    Read {
        /// The rows that were read.
        value: T,
        /// The bytes that they take in memory.
        bytes: u64,
    },
    /// The content does not fit the budget. Nothing was read.
    TooLarge {
        /// How many bytes it would take.
        bytes: u64,
    },
}

impl<T> ContentRead<T> {
    /// Parses rows that take `bytes`, if they fit the budget.
    pub(crate) async fn parse(
        budget: &ReadBudget,
        bytes: u64,
        parse: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
    ) -> Result<Self, StoreError>
    where
        T: Send + 'static,
    {
        if bytes > budget.bytes {
            return Ok(Self::TooLarge { bytes });
        }
        Ok(Self::Read {
            value: parse_within(budget, bytes, parse).await?,
            bytes,
        })
    }

    /// Converts the value.
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> ContentRead<U> {
        match self {
            Self::Read { value, bytes } => ContentRead::Read {
                value: map(value),
                bytes,
            },
            Self::TooLarge { bytes } => ContentRead::TooLarge { bytes },
        }
    }
}

/// Runs `parse` over `bytes` of content. Much content is parsed on a blocking thread, which keeps
/// the reservation: the reservations bound the number of those threads.
pub(crate) async fn parse_within<T: Send + 'static>(
    budget: &ReadBudget,
    bytes: u64,
    parse: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    if bytes < BLOCKING_PARSE_BYTES {
        return parse();
    }
    let reservation = budget.reservation.clone();
    let parsing = tokio::task::spawn_blocking(move || {
        let _reservation = reservation;
        parse()
    });
    parsing
        .await
        .map_err(|_| StoreError::Unreadable("content"))?
}

/// Bytes that rows take: `content` is what the statement reports of content, summaries and
/// outlines.
pub(crate) fn row_bytes(rows: usize, content: i64) -> u64 {
    rows as u64 * ROW_BYTES + content.unsigned_abs()
}
