//! Reads of content that stay within the memory that their caller has reserved for them.

use std::{any::Any, sync::Arc};

use crate::error::StoreError;

/// Memory that a row takes beside its content, in bytes: ids, roles, counts, and the heads of its strings.
pub const ROW_BYTES: u64 = 512;

/// Content of so many bytes takes an unoptimised build 5 to 20 ms to parse: more is not parsed where calls are answered. What a
/// thread frees that another has allocated comes back late, so that less is not handed to another.
const LONG_BYTES: u64 = 1024 * 1024;
/// Rows of so many bytes are parsed in a row before others have their turn.
pub(crate) const PAUSE_BYTES: usize = 1024 * 1024;

/// How many bytes a read may bring, and what is held until its connection has let go of them.
#[derive(Clone)]
pub struct ContentRoom {
    bytes: u64,
    /// Dropped when no statement reads for it any more: a call that is given up leaves its statement behind for a while.
    pub(crate) held: Option<Arc<dyn Any + Send + Sync>>,
}

impl ContentRoom {
    /// Room for so many bytes, reserved as long as `held` lives.
    pub fn new(bytes: u64, held: Arc<dyn Any + Send + Sync>) -> Self {
        Self { bytes, held: Some(held) }
    }

    /// Room for so many bytes that nothing is reserved for.
    pub const fn unreserved(bytes: u64) -> Self {
        Self { bytes, held: None }
    }

    /// Any number of bytes, for callers that bound them in another way.
    pub const fn unlimited() -> Self {
        Self::unreserved(i64::MAX as u64)
    }

    /// Its bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// As a statement's parameter.
    pub(crate) fn column(&self) -> i64 {
        i64::try_from(self.bytes).unwrap_or(i64::MAX)
    }
}

/// What a read within a [`ContentRoom`] has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentRead<T> {
    /// It was read, and takes so many bytes: content, summaries, outlines, and [`ROW_BYTES`] for each row.
    Read {
        /// What was read.
        value: T,
        /// Its bytes.
        bytes: u64,
    },
    /// It takes so many bytes, for which there is no room. Nothing was read.
    TooLarge {
        /// Its bytes.
        bytes: u64,
    },
}

impl<T> ContentRead<T> {
    /// What `parse` makes of rows that take so many bytes, if there is room for them.
    pub(crate) async fn within(
        room: &ContentRoom,
        bytes: u64,
        parse: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
    ) -> Result<Self, StoreError>
    where
        T: Send + 'static,
    {
        if bytes > room.bytes {
            return Ok(Self::TooLarge { bytes });
        }
        Ok(Self::Read { value: parse_in_room(room, bytes, parse).await?, bytes })
    }

    /// The same with another value.
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> ContentRead<U> {
        match self {
            Self::Read { value, bytes } => ContentRead::Read { value: map(value), bytes },
            Self::TooLarge { bytes } => ContentRead::TooLarge { bytes },
        }
    }
}

/// What `parse` makes of so many bytes of content. Many are parsed on a thread of their own, which keeps the room reserved: the
/// number of those threads is bounded by the reservations.
pub(crate) async fn parse_in_room<T: Send + 'static>(
    room: &ContentRoom,
    bytes: u64,
    parse: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    if bytes < LONG_BYTES {
        return parse();
    }
    let held = room.held.clone();
    let parsing = tokio::task::spawn_blocking(move || {
        let _held = held;
        parse()
    });
    parsing.await.map_err(|_| StoreError::Unreadable("content"))?
}

/// Bytes of so many rows with so much content, summaries and outlines, as a statement says them.
pub(crate) fn row_bytes(rows: usize, content: i64) -> u64 {
    rows as u64 * ROW_BYTES + content.unsigned_abs()
}
