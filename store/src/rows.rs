//! How the domain's values are stored in columns.

use std::{collections::BTreeMap, io, time::Duration};

use anneal_core::{
    admission::Breaker,
    cut::Trigger,
    message::{Part, Role},
    tokens::{Encoding, Tokens},
};

use crate::error::StoreError;

/// A time: microseconds since 1970-01-01 UTC, by the database's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub i64);

pub(crate) const fn role_code(role: Role) -> i16 {
    match role {
        Role::User => 1,
        Role::Assistant => 2,
        Role::Tool => 3,
        Role::System => 4,
    }
}

pub(crate) const fn role(code: i16) -> Result<Role, StoreError> {
    match code {
        1 => Ok(Role::User),
        2 => Ok(Role::Assistant),
        3 => Ok(Role::Tool),
        4 => Ok(Role::System),
        _ => Err(StoreError::Unreadable("role")),
    }
}

pub(crate) const fn encoding_code(encoding: Encoding) -> i16 {
    match encoding {
        Encoding::O200kBase => 1,
        Encoding::Cl100kBase => 2,
    }
}

pub(crate) const fn encoding(code: i16) -> Result<Encoding, StoreError> {
    match code {
        1 => Ok(Encoding::O200kBase),
        2 => Ok(Encoding::Cl100kBase),
        _ => Err(StoreError::Unreadable("encoding")),
    }
}

/// The code of a checkpoint's trigger. None: the checkpoint was imported.
pub(crate) const fn trigger_code(trigger: Option<Trigger>) -> i16 {
    match trigger {
        Some(Trigger::Tokens) => 1,
        Some(Trigger::Messages) => 2,
        Some(Trigger::Manual) => 3,
        None => 4,
        Some(Trigger::Idle) => 5,
    }
}

/// The trigger stored as `code`. None: the checkpoint was imported. An unknown code counts as a
/// manual trigger.
pub(crate) const fn trigger(code: i16) -> Option<Trigger> {
    match code {
        1 => Some(Trigger::Tokens),
        2 => Some(Trigger::Messages),
        4 => None,
        5 => Some(Trigger::Idle),
        _ => Some(Trigger::Manual),
    }
}

/// Tokens from a column; a negative value counts as zero.
pub(crate) fn tokens(column: i64) -> Tokens {
    Tokens::new(u64::try_from(column).unwrap_or(0))
}

/// Tokens as a column stores them; values above 2^63 - 1 are stored as 2^63 - 1.
pub(crate) fn column(tokens: Tokens) -> i64 {
    i64::try_from(tokens.get()).unwrap_or(i64::MAX)
}

/// A breaker that stays open for `open_seconds`. None: it is closed. Zero or less: its cooldown is
/// over, so it is half open.
pub(crate) fn breaker(failures: i32, open_seconds: Option<f64>) -> Breaker {
    let open_for = time_left(open_seconds);
    Breaker {
        failures: failures.unsigned_abs(),
        open_for,
        is_half_open: open_seconds.is_some() && open_for.is_none(),
    }
}

/// A time that is left, from seconds. None: there is no such time, nothing of it is left, or it is
/// too long for a [`Duration`].
pub(crate) fn time_left(left: Option<f64>) -> Option<Duration> {
    left.filter(|left| *left > 0.0)
        .and_then(|left| Duration::try_from_secs_f64(left).ok())
}

/// A time that has passed, from seconds. None: there is no such time. Negative seconds, which a
/// clock that was set back can cause, count as zero.
pub(crate) fn elapsed(seconds: Option<f64>) -> Option<Duration> {
    seconds.map(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default())
}

/// Parses a message's stored content.
pub(crate) fn parts(content: &str) -> Result<Vec<Part>, StoreError> {
    serde_json::from_str(content).map_err(|_| StoreError::Unreadable("content"))
}

/// Parses stored metadata: the labels that the caller gave.
pub(crate) fn labels(metadata: Option<&str>) -> Result<BTreeMap<String, String>, StoreError> {
    let Some(metadata) = metadata else {
        return Ok(BTreeMap::new());
    };
    serde_json::from_str(metadata).map_err(|_| StoreError::Unreadable("metadata"))
}

/// Why writing JSON cannot fail here.
const SERIALIZES: &str = "strings, numbers, lists and maps of strings always serialize";

/// JSON text of a value that always serializes: maps of strings, lists of parts.
pub(crate) fn json<T: serde::Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect(SERIALIZES)
}

/// JSON text of a value of more than about 64 KiB that always serializes. The value is measured
/// before it is written, because a buffer that grows takes up to three times the bytes of the text.
pub(crate) fn large_json<T: serde::Serialize + ?Sized>(value: &T) -> String {
    let mut length = Length(0);
    serde_json::to_writer(&mut length, value).expect(SERIALIZES);
    let mut text = Vec::with_capacity(length.0);
    serde_json::to_writer(&mut text, value).expect(SERIALIZES);
    String::from_utf8(text).expect("JSON is UTF-8")
}

/// A writer that only counts the bytes written to it.
struct Length(usize);

impl io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
