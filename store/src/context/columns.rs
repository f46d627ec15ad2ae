//! The columns of context_material.sql and how they are decoded. What belongs together is one
//! column, a record: every column costs the database and the server more than a field of a record.

use sqlx::{Decode, Postgres, error::BoxDynError, postgres::PgValueRef};

use crate::messages::stored_text::StoredText;

/// A row of context_material.sql: the head row, or a message of the tail.
pub(super) struct MaterialRow {
    /// 0 in the head row.
    pub(super) message_id: i64,
    pub(super) role: i16,
    pub(super) turn: i32,
    /// Tokens of the original: counted, or estimated until they are counted.
    pub(super) tokens: i64,
    pub(super) estimated: bool,
    /// None: the message is sent as its summary.
    pub(super) content: Option<StoredText>,
    pub(super) summary: Option<SummaryColumns>,
    /// When the message was stored; in the head row, the present time.
    pub(super) stored: StoredTime,
    /// Present in the head row alone.
    pub(super) head: Option<Head>,
}

/// The summary of a message, its tokens, the bytes of the original's plain text, and the tool
/// outline.
pub(super) type SummaryColumns = (String, i64, i64, Option<String>);

/// A time of the database's clock: microseconds since 2000-01-01 UTC, as PostgreSQL sends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StoredTime(i64);

impl StoredTime {
    /// Seconds from this time to `later`, rounded as PostgreSQL does; negative if `later` is
    /// earlier.
    pub(super) fn seconds_until(self, later: Self) -> i64 {
        let seconds = (later.0 - self.0) as f64 / 1_000_000.0;
        seconds.round_ties_even() as i64
    }
}

impl Decode<'_, Postgres> for StoredTime {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        Ok(Self(<i64 as Decode<'_, Postgres>>::decode(value)?))
    }
}

/// The record of the head row. It is boxed because every [`MaterialRow`] has room for it.
pub(super) struct Head(pub(super) Box<HeadColumns>);

/// The values of the head row's record.
pub(super) struct HeadColumns {
    /// The newest message; 0: there is none.
    pub(super) last_message_id: i64,
    pub(super) last_role: Option<i16>,
    /// The newest message's turn.
    pub(super) turn: i32,
    pub(super) encoding: i16,
    pub(super) system_prompt_tokens: i64,
    pub(super) system_prompt: String,
    /// The conversation's overrides, as text.
    pub(super) policy: String,
    /// The newest change that watchers see.
    pub(super) change_id: i64,
    pub(super) separator: Option<i64>,
    pub(super) checkpoint_last: Option<i64>,
    /// The checkpoint's summary.
    pub(super) summary: Option<String>,
    pub(super) summary_tokens: Option<i64>,
    pub(super) saved_tokens: Option<i64>,
    pub(super) prefix: Option<PrefixColumns>,
    /// Bytes that the tail's rows take, with [`ROW_BYTES`](crate::messages::read_budget::ROW_BYTES)
    /// for each. None: the tail is empty, or another policy than the expected one is stored.
    pub(super) tail_bytes: Option<i64>,
    pub(super) window_tokens: Option<i64>,
    pub(super) tokens_ratio: Option<f64>,
}

/// The newest recorded version of the context's beginning, or the mark after it.
pub(super) struct PrefixColumns {
    pub(super) epoch: i64,
    pub(super) hash: Vec<u8>,
    pub(super) boundary_message_id: i64,
    pub(super) system_prompt_digest: Vec<u8>,
    pub(super) swapped_message_ids: Vec<i64>,
    /// Whether a budget had cut or dropped something.
    pub(super) cut: bool,
    pub(super) reason: i16,
    pub(super) broken_message_id: i64,
    /// The newest mark up to this version; equal to `epoch` in a mark. None: there is none.
    pub(super) change_epoch: Option<i64>,
    pub(super) model: Option<String>,
    pub(super) tools_digest: Option<Vec<u8>>,
    pub(super) options_digest: Option<Vec<u8>>,
}

/// As in [`PrefixColumns`]: those up to `change_epoch`, and the others.
type PrefixRecord = (
    (
        i64,
        Vec<u8>,
        i64,
        Vec<u8>,
        Vec<i64>,
        bool,
        i16,
        i64,
        Option<i64>,
    ),
    (Option<String>, Option<Vec<u8>>, Option<Vec<u8>>),
);

/// As in [`HeadColumns`], from `last_message_id` to `change_id`.
type ConversationColumns = (i64, Option<i16>, i32, i16, i64, String, String, i64);
/// As in [`HeadColumns`], from `separator` to `saved_tokens`.
type CheckpointColumns = (
    Option<i64>,
    Option<i64>,
    Option<String>,
    Option<i64>,
    Option<i64>,
);
/// As in [`HeadColumns`]: `window_tokens` and `tokens_ratio`.
type ModelColumns = (Option<i64>, Option<f64>);
/// The record of the head row.
type HeadRecord = (
    ConversationColumns,
    CheckpointColumns,
    Option<PrefixRecord>,
    Option<i64>,
    Option<ModelColumns>,
);

impl Decode<'_, Postgres> for Head {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        let (conversation, checkpoint, prefix, tail_bytes, model) =
            <HeadRecord as Decode<'_, Postgres>>::decode(value)?;
        let (
            last_message_id,
            last_role,
            turn,
            encoding,
            system_prompt_tokens,
            system_prompt,
            policy,
            change_id,
        ) = conversation;
        let (separator, checkpoint_last, summary, summary_tokens, saved_tokens) = checkpoint;
        let (window_tokens, tokens_ratio) = model.unwrap_or_default();
        Ok(Self(Box::new(HeadColumns {
            last_message_id,
            last_role,
            turn,
            encoding,
            system_prompt_tokens,
            system_prompt,
            policy,
            change_id,
            separator,
            checkpoint_last,
            summary,
            summary_tokens,
            saved_tokens,
            prefix: prefix.map(PrefixColumns::from),
            tail_bytes,
            window_tokens,
            tokens_ratio,
        })))
    }
}

impl From<PrefixRecord> for PrefixColumns {
    fn from(record: PrefixRecord) -> Self {
        let (version, (model, tools_digest, options_digest)) = record;
        let (
            epoch,
            hash,
            boundary_message_id,
            system_prompt_digest,
            swapped_message_ids,
            cut,
            reason,
            broken_message_id,
            change_epoch,
        ) = version;
        Self {
            epoch,
            hash,
            boundary_message_id,
            system_prompt_digest,
            swapped_message_ids,
            cut,
            reason,
            broken_message_id,
            change_epoch,
            model,
            tools_digest,
            options_digest,
        }
    }
}

impl HeadColumns {
    /// The context starts after this message; 0: the first message starts it.
    pub(super) fn boundary(&self) -> i64 {
        self.separator.max(self.checkpoint_last).unwrap_or(0)
    }
}

/// A row of context_left_out.sql.
pub(super) struct LeftOutRow {
    pub(super) message_id: i64,
    pub(super) turn: i32,
    pub(super) tokens: i64,
    /// Whether this is the newest user message, which is read nevertheless.
    pub(super) kept: bool,
    /// Whether it is withdrawn or erased.
    pub(super) withdrawn: bool,
    /// Whether it is an assistant's message.
    pub(super) answer: bool,
    /// When it was stored.
    pub(super) stored: StoredTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_between_times_are_rounded_to_the_nearest_and_halves_to_even() {
        let seconds = |micros: i64| StoredTime(1).seconds_until(StoredTime(1 + micros));
        assert_eq!(
            [0, 499_999, 500_000, 1_500_000, 2_500_001, -700_000].map(seconds),
            [0, 0, 0, 2, 3, -1]
        );
    }
}
