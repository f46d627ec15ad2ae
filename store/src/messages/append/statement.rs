//! Executes `sql/append.sql`, for one append or for many to different conversations.

use anneal_core::{caller::Caller, job::JobKind, message::MessageId, tokens::Encoding};

use super::{Append, Appended, AppendedMessage};
use crate::{
    connection::BoundedConnection,
    conversations::LISTED_LAG_SECONDS,
    rows::{encoding_code, role_code, tokens},
};

/// The statement's result for one append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AppendOutcome {
    /// The append is stored.
    Stored(Appended),
    /// The conversation was locked, and a condition of the append does not hold.
    Refused,
    /// The conversation was not locked: it is not the caller's, or another transaction holds it.
    NotLocked,
}

/// The array arguments of `sql/append.sql`, as it describes them: first the columns with one entry
/// per append, then, from `message_appends` on, those with one entry per message.
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
    message_appends: Vec<i64>,
    message_places: Vec<i64>,
    roles: Vec<i16>,
    starts_after: Vec<i32>,
    o200k: Vec<i64>,
    cl100k: Vec<i64>,
    text_bytes: Vec<i64>,
    contents: Vec<&'a str>,
    content_digests: Vec<&'a [u8]>,
    outlines: Vec<Option<&'a str>>,
    metadata: Vec<Option<&'a str>>,
    message_request_ids: Vec<Option<&'a str>>,
    message_request_digests: Vec<Option<&'a [u8]>>,
    message_request_counts: Vec<Option<i16>>,
}

impl<'a> Columns<'a> {
    fn of(appends: &[(Caller, &'a Append)]) -> Self {
        let mut columns = Self::default();
        for (place, (caller, append)) in (1..).zip(appends) {
            columns.push(place, *caller, append);
        }
        columns
    }

    fn push(&mut self, place: i64, caller: Caller, append: &'a Append) {
        let rows = &append.rows;
        let (starts_after_user, starts_otherwise) = append.turn_starts();
        let [o200k, cl100k] = &rows.estimates;
        self.tenants.push(caller.tenant().0);
        self.conversations.push(append.conversation.0);
        self.counts.push(append.roles.len() as i64);
        self.last_roles
            .extend(append.roles.last().copied().map(role_code));
        self.starts_after_user.push(starts_after_user);
        self.starts_otherwise.push(starts_otherwise);
        self.o200k_sums.push(o200k.iter().sum());
        self.cl100k_sums.push(cl100k.iter().sum());
        self.expected_lasts
            .push(append.expected_last.map(|id| id.0));
        self.request_ids.push(append.request_id.as_deref());
        self.tools.push(append.tools);
        self.titles.push(append.title.as_deref());
        self.trace_contexts.push(append.trace_context.as_deref());
        let count = append.roles.len();
        self.message_appends
            .extend(std::iter::repeat_n(place, count));
        self.message_places.extend(1..=count as i64);
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
        // The first message of an append carries the append's request id.
        let request_id = append.request_id.as_deref();
        let rest = count.saturating_sub(1);
        self.message_request_ids.push(request_id);
        self.message_request_ids
            .extend(std::iter::repeat_n(None, rest));
        self.message_request_digests
            .push(request_id.map(|_| append.digest.as_slice()));
        self.message_request_digests
            .extend(std::iter::repeat_n(None, rest));
        self.message_request_counts
            .push(request_id.map(|_| count as i16));
        self.message_request_counts
            .extend(std::iter::repeat_n(None, rest));
    }
}

/// A row of the result. An append whose conversation was locked has a row without the last three
/// columns. If the append was stored, it has a second row with them.
struct OutcomeRow {
    /// The position of the append among the arguments, from 1 on.
    place: i64,
    /// The newest message before the append.
    before_id: Option<i64>,
    turn: Option<i32>,
    encoding: Option<i16>,
}

/// Stores appends to different conversations, and returns their outcomes in the same order. After
/// an error none of them is stored; if the connection broke, perhaps all are. `bases` are the
/// server's settings by profile, as JSON.
pub(super) async fn execute(
    db: &mut BoundedConnection,
    appends: &[(Caller, &Append)],
    bases: &str,
) -> Result<Vec<AppendOutcome>, sqlx::Error> {
    let columns = Columns::of(appends);
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
        // Only the rule for tool messages needs the settings.
        columns.tools.contains(&true).then_some(bases),
        LISTED_LAG_SECONDS,
        &columns.message_appends,
        &columns.message_places,
        &columns.roles,
        &columns.starts_after,
        &columns.o200k,
        &columns.cl100k,
        &columns.text_bytes,
        &columns.contents as &[&str],
        &columns.content_digests as &[&[u8]],
        &columns.outlines as &[Option<&str>],
        &columns.metadata as &[Option<&str>],
        &columns.message_request_ids as &[Option<&str>],
        &columns.message_request_digests as &[Option<&[u8]>],
        &columns.message_request_counts as &[Option<i16>],
        JobKind::CountTokens.code(),
        &columns.trace_contexts as &[Option<&str>],
    )
    .fetch_all(db)
    .await?;
    Ok(outcomes_by_append(appends, rows))
}

/// The outcome of each append, in the order of the appends.
fn outcomes_by_append(appends: &[(Caller, &Append)], rows: Vec<OutcomeRow>) -> Vec<AppendOutcome> {
    let mut outcomes = vec![AppendOutcome::NotLocked; appends.len()];
    for row in rows {
        let index = (row.place - 1) as usize;
        match (row.before_id, row.turn, row.encoding) {
            (Some(before_id), Some(turn), Some(encoding)) => {
                outcomes[index] =
                    AppendOutcome::Stored(appended(appends[index].1, before_id, turn, encoding));
            }
            _ if outcomes[index] == AppendOutcome::NotLocked => {
                outcomes[index] = AppendOutcome::Refused;
            }
            _ => {}
        }
    }
    outcomes
}

/// The result of an append that was just stored after the message `before_id`. `turn` is the turn
/// of its last message.
fn appended(append: &Append, before_id: i64, turn: i32, encoding: i16) -> Appended {
    let estimates =
        &append.rows.estimates[usize::from(encoding != encoding_code(Encoding::O200kBase))];
    let messages = append
        .turn_starts_after()
        .into_iter()
        .zip(estimates)
        .zip(before_id + 1..);
    Appended {
        messages: messages
            .map(|((starts_after, estimate), id)| AppendedMessage {
                id: MessageId(id),
                turn: turn - starts_after,
                estimate: tokens(*estimate),
            })
            .collect(),
        skipped: Vec::new(),
        content_bytes: append.content_bytes() as u64,
        replayed: false,
    }
}
