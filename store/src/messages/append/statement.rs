//! Executes `sql/append.sql`, for appends to different conversations, and `sql/append_one.sql`.

use anneal_core::{caller::Caller, job::JobKind, message::MessageId, tokens::Encoding};

use super::{Append, Appended, AppendedMessage};
use crate::{
    connection::BoundedConnection,
    conversations::LISTING_STEP_SECONDS,
    policy_defaults::PolicyDefaults,
    rows::{encoding_code, role_code, tokens},
};

/// The result of `sql/append.sql` for one append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AppendOutcome {
    /// The append is stored.
    Stored(Appended),
    /// The conversation was locked, and a condition of the append does not hold.
    Refused,
    /// The conversation was not locked: it is not the caller's, or another transaction holds it or
    /// has just changed it.
    NotLocked,
}

/// The array arguments of `sql/append.sql`, as it describes them: first the columns with one entry
/// per append, then those with one entry per message.
#[derive(Default)]
struct Columns<'a> {
    tenants: Vec<uuid::Uuid>,
    conversations: Vec<uuid::Uuid>,
    counts: Vec<i64>,
    last_roles: Vec<i16>,
    starts_after_user: Vec<i32>,
    starts_otherwise: Vec<i32>,
    o200k_sums: Vec<i64>,
    cl100k_sums: Vec<i64>,
    expected_lasts: Vec<Option<i64>>,
    request_ids: Vec<Option<&'a str>>,
    tools: Vec<bool>,
    titles: Vec<Option<&'a str>>,
    trace_contexts: Vec<Option<&'a str>>,
    counted_in: Vec<Option<i16>>,
    largest: Vec<i64>,
    content_bytes: Vec<i64>,
    request_digests: Vec<Option<&'a [u8]>>,
    request_counts: Vec<Option<i16>>,
    message_appends: Vec<i32>,
    message_places: Vec<i64>,
    messages: MessageColumns<'a>,
}

/// The array arguments with one entry per message that both statements have.
#[derive(Default)]
struct MessageColumns<'a> {
    roles: Vec<i16>,
    starts_after: Vec<i32>,
    o200k: Vec<i64>,
    cl100k: Vec<i64>,
    text_bytes: Vec<i64>,
    contents: Vec<&'a str>,
    content_digests: Vec<&'a [u8]>,
    outlines: Vec<Option<&'a str>>,
    metadata: Vec<Option<&'a str>>,
}

impl<'a> MessageColumns<'a> {
    fn push(&mut self, append: &'a Append) {
        let rows = &append.rows;
        let [o200k, cl100k] = &rows.tokens;
        self.roles
            .extend(append.roles.iter().copied().map(role_code));
        self.starts_after.extend(append.turn_starts_after());
        self.o200k.extend(o200k);
        self.cl100k.extend(cl100k);
        self.text_bytes.extend(&rows.text_bytes);
        self.contents
            .extend(rows.contents.iter().map(String::as_str));
        self.content_digests
            .extend(rows.content_digests.iter().map(Vec::as_slice));
        self.outlines
            .extend(rows.outlines.iter().map(Option::as_deref));
        self.metadata
            .extend(rows.metadata.iter().map(Option::as_deref));
    }
}

impl<'a> Columns<'a> {
    fn of(appends: &[(Caller, &'a Append)]) -> Self {
        let mut columns = Self::default();
        for (place, (caller, append)) in (1..).zip(appends) {
            columns.push(place, *caller, append);
        }
        columns
    }

    fn push(&mut self, place: i32, caller: Caller, append: &'a Append) {
        let (starts_after_user, starts_otherwise) = append.turn_starts();
        let [o200k_sum, cl100k_sum] = append.token_sums();
        let count = append.roles.len();
        let request_id = append.request_id.as_deref();
        self.tenants.push(caller.tenant().0);
        self.conversations.push(append.conversation.0);
        self.counts.push(count as i64);
        self.last_roles
            .extend(append.roles.last().copied().map(role_code));
        self.starts_after_user.push(starts_after_user);
        self.starts_otherwise.push(starts_otherwise);
        self.o200k_sums.push(o200k_sum);
        self.cl100k_sums.push(cl100k_sum);
        self.expected_lasts
            .push(append.expected_last.map(|id| id.0));
        self.request_ids.push(request_id);
        self.tools.push(append.tools);
        self.titles.push(append.title.as_deref());
        self.trace_contexts.push(append.trace_context.as_deref());
        self.counted_in.push(append.counted_in.map(encoding_code));
        self.largest.push(append.largest_tokens());
        self.content_bytes.push(append.content_bytes() as i64);
        self.request_digests
            .push(request_id.map(|_| append.digest.as_slice()));
        self.request_counts.push(request_id.map(|_| count as i16));
        self.message_appends
            .extend(std::iter::repeat_n(place, count));
        self.message_places.extend(1..=count as i64);
        self.messages.push(append);
    }
}

/// A row of the result of `sql/append.sql`: an append that was stored, or refused. Then it has only
/// the place.
struct OutcomeRow {
    /// The position of the append among the arguments, from 1 on.
    place: i32,
    /// The newest message before the append.
    before_id: Option<i64>,
    turn: Option<i32>,
    encoding: Option<i16>,
    has_work: Option<bool>,
}

/// A stored append, as the statements return it.
struct StoredRow {
    /// The newest message before the append.
    before_id: i64,
    /// The turn of the last message.
    turn: i32,
    encoding: i16,
    /// Whether a counting job was enqueued.
    has_work: bool,
}

/// Stores appends to different conversations, and returns their outcomes in the same order. After
/// an error none of them is stored; if the connection broke, perhaps all are.
pub(super) async fn execute(
    db: &mut BoundedConnection,
    appends: &[(Caller, &Append)],
    policy_defaults: &PolicyDefaults,
) -> Result<Vec<AppendOutcome>, sqlx::Error> {
    let columns = Columns::of(appends);
    let messages = &columns.messages;
    let rows = sqlx::query_file_as!(
        OutcomeRow,
        "sql/append.sql",
        &columns.tenants,
        &columns.conversations,
        &columns.counts,
        &columns.last_roles,
        &columns.starts_after_user,
        &columns.starts_otherwise,
        &columns.o200k_sums,
        &columns.cl100k_sums,
        &columns.expected_lasts as &[Option<i64>],
        &columns.request_ids as &[Option<&str>],
        &columns.tools,
        &columns.titles as &[Option<&str>],
        &columns.trace_contexts as &[Option<&str>],
        &columns.counted_in as &[Option<i16>],
        &columns.largest,
        &columns.content_bytes,
        &columns.request_digests as &[Option<&[u8]>],
        &columns.request_counts as &[Option<i16>],
        policy_defaults.profiles_without_tool_messages() as &[&str],
        LISTING_STEP_SECONDS,
        JobKind::CountTokens.code(),
        policy_defaults.fingerprint(),
        &columns.message_appends,
        &columns.message_places,
        &messages.roles,
        &messages.starts_after,
        &messages.o200k,
        &messages.cl100k,
        &messages.text_bytes,
        &messages.contents as &[&str],
        &messages.content_digests as &[&[u8]],
        &messages.outlines as &[Option<&str>],
        &messages.metadata as &[Option<&str>],
    )
    .fetch_all(db)
    .await?;
    Ok(outcomes_by_append(appends, rows))
}

/// Stores one append, if its conversation can be locked at once. None: it was not locked, it is not
/// the caller's, or a condition of the append does not hold.
pub(super) async fn execute_one(
    db: &mut BoundedConnection,
    caller: Caller,
    append: &Append,
    policy_defaults: &PolicyDefaults,
) -> Result<Option<Appended>, sqlx::Error> {
    let mut messages = MessageColumns::default();
    messages.push(append);
    let (starts_after_user, starts_otherwise) = append.turn_starts();
    let [o200k_sum, cl100k_sum] = append.token_sums();
    let row = sqlx::query_file_as!(
        StoredRow,
        "sql/append_one.sql",
        caller.tenant().0,
        append.conversation.0,
        append.roles.len() as i64,
        append.roles.last().copied().map(role_code),
        starts_after_user,
        starts_otherwise,
        o200k_sum,
        cl100k_sum,
        append.expected_last.map(|id| id.0),
        append.request_id.as_deref(),
        append.tools,
        append.title.as_deref(),
        policy_defaults.profiles_without_tool_messages() as &[&str],
        LISTING_STEP_SECONDS,
        &messages.roles,
        &messages.starts_after,
        &messages.o200k,
        &messages.cl100k,
        &messages.text_bytes,
        &messages.contents as &[&str],
        &messages.content_digests as &[&[u8]],
        &messages.outlines as &[Option<&str>],
        &messages.metadata as &[Option<&str>],
        append.digest.as_slice(),
        JobKind::CountTokens.code(),
        append.trace_context.as_deref(),
        append.counted_in.map(encoding_code),
        append.largest_tokens(),
        append.content_bytes() as i64,
        policy_defaults.fingerprint(),
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| appended(append, &row)))
}

/// The outcome of each append, in the order of the appends.
fn outcomes_by_append(appends: &[(Caller, &Append)], rows: Vec<OutcomeRow>) -> Vec<AppendOutcome> {
    let mut outcomes = vec![AppendOutcome::NotLocked; appends.len()];
    for row in rows {
        let index = (row.place - 1) as usize;
        outcomes[index] = match (row.before_id, row.turn, row.encoding, row.has_work) {
            (Some(before_id), Some(turn), Some(encoding), Some(has_work)) => {
                let stored = StoredRow {
                    before_id,
                    turn,
                    encoding,
                    has_work,
                };
                AppendOutcome::Stored(appended(appends[index].1, &stored))
            }
            _ => AppendOutcome::Refused,
        };
    }
    outcomes
}

/// The result of an append that was just stored.
fn appended(append: &Append, stored: &StoredRow) -> Appended {
    let encoding = if stored.encoding == encoding_code(Encoding::O200kBase) {
        Encoding::O200kBase
    } else {
        Encoding::Cl100kBase
    };
    let is_counted = append.counted_in == Some(encoding);
    let messages = append
        .turn_starts_after()
        .into_iter()
        .zip(append.rows.tokens_in(encoding))
        .zip(stored.before_id + 1..);
    Appended {
        messages: messages
            .map(|((starts_after, message_tokens), id)| AppendedMessage {
                id: MessageId(id),
                turn: stored.turn - starts_after,
                tokens: tokens(*message_tokens),
                is_counted,
                withdrawn: false,
            })
            .collect(),
        skipped: Vec::new(),
        content_bytes: append.content_bytes() as u64,
        replayed: false,
        has_work: stored.has_work,
        encoding: Some(encoding),
    }
}
