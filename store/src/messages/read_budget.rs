//! Limits how much content a read brings into memory. The limit is what the caller has reserved, if
//! it reserves memory.

use std::{any::Any, sync::Arc};

use crate::error::StoreError;

/// Memory that a row takes in addition to its content, in bytes: ids, roles, counts, and the
/// headers of its strings.
pub const ROW_BYTES: u64 = 512;

/// Content of this size or more is parsed on a blocking thread: an unoptimized build needs 5 to 20
/// ms for it. Less is parsed on the async thread, because memory that one thread allocates and
/// another one frees is returned to the system late.
const BLOCKING_PARSE_BYTES: u64 = 1024 * 1024;

/// After parsing this many bytes of rows, a task yields to other tasks.
pub(crate) const YIELD_BYTES: usize = 1024 * 1024;

/// How many bytes a read may bring into memory, and the caller's reservation of that memory,
/// if there is one.
#[derive(Clone)]
pub struct ReadBudget {
    bytes: u64,
    /// Kept until no statement reads for this call any more: the statement of an abandoned call
    /// still runs for a while.
    pub(crate) reservation: Option<Arc<dyn Any + Send + Sync>>,
}

impl ReadBudget {
    /// A budget of `bytes`, which are reserved until `reservation` is dropped.
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
    /// The content does not fit the budget. What was read of it is discarded.
    TooLarge {
        /// How many bytes the content would take at most.
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

/// Runs `parse`, which parses `bytes` of content. Content of 1 MiB or more is parsed on a blocking
/// thread. The thread keeps the reservation, so that reservations limit the number of such threads.
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

/// The bytes that rows take in memory. `content` are the bytes of their content, summaries and
/// outlines, as the statement reports them.
pub(crate) fn row_bytes(rows: usize, content: i64) -> u64 {
    rows as u64 * ROW_BYTES + content.unsigned_abs()
}
