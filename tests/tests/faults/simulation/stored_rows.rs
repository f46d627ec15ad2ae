//! The conversation's rows, read by one statement and compared with the expected ones. This is fast
//! enough to run after every operation.

use anneal_core::{
    digest,
    message::Role,
    tokens::{Encoding, count_message},
    turn,
};
use anneal_testkit::parsed;
use sqlx::{FromRow, postgres::PgRow};

use crate::simulation::conversation::{SimulatedConversation, Violation};

/// The values that the checks need: of the conversation's own row, and of its messages, jobs,
/// separators and checkpoints.
#[derive(FromRow)]
pub(crate) struct StoredRows {
    /// Id of the newest message, according to the conversation's row.
    pub(crate) newest: i64,
    /// Id of the last message whose tokens are counted.
    pub(crate) counted: i64,
    token_total: i64,
    turn: i32,
    /// Kinds of the waiting, running and dead jobs.
    pub(crate) jobs: Vec<i16>,
    separators: Vec<i64>,
    /// Last messages of all checkpoints, including those before a separator.
    pub(crate) checkpoints: Vec<i64>,
    /// Last message before the context: the newest separator or valid checkpoint.
    pub(crate) boundary: i64,
    /// Number of messages with a summary.
    pub(crate) summaries: i64,
    ids: Vec<i64>,
    roles: Vec<i16>,
    turns: Vec<i32>,
    token_counts: Vec<Option<i64>>,
    token_estimates: Vec<i64>,
    digests: Vec<Vec<u8>>,
    /// Whether the content of every message matches its digest.
    digests_match: bool,
}

/// The expected row of a message.
pub(crate) struct ExpectedRow {
    role: Role,
    digest: digest::Digest,
    /// The message's exact token count.
    pub(crate) tokens: i64,
}

/// Reads [`StoredRows`] in one statement. A checkpoint is valid if it begins with the first message
/// after the newest separator (message 1 if there is none).
const READ_ROWS: &str = "
    select last_message_id as newest, counted_message_id as counted, token_total, turn, summaries, ids, roles, turns,
        token_counts, token_estimates, digests, digests_match, s.separators, c.checkpoints,
        greatest(s.separator, (
            select max(last_message_id) from ai_conversation_checkpoint
            where conversation_id = $1 and first_message_id = s.separator + 1
        )) as boundary,
        array(
            select kind from ai_job where conversation_id = $1
            union all select kind from ai_job_dead where conversation_id = $1
        ) as jobs
    from ai_conversation
    cross join lateral (
        select coalesce(array_agg(after_message_id order by after_message_id), '{}') as separators,
            coalesce(max(after_message_id), 0) as separator
        from ai_separator where conversation_id = $1
    ) as s
    cross join lateral (
        select coalesce(array_agg(last_message_id order by last_message_id), '{}') as checkpoints
        from ai_conversation_checkpoint where conversation_id = $1
    ) as c
    cross join lateral (
        select coalesce(array_agg(message_id), '{}') as ids, coalesce(array_agg(role), '{}') as roles,
            coalesce(array_agg(m.turn), '{}') as turns, coalesce(array_agg(token_count), '{}') as token_counts,
            coalesce(array_agg(token_estimate), '{}') as token_estimates,
            coalesce(array_agg(content_digest), '{}') as digests, count(summary_cache) as summaries,
            coalesce(bool_and(sha256(convert_to(content::text, 'UTF8')) = content_digest), true) as digests_match
        from (select * from ai_message where conversation_id = $1 order by message_id) as m
    ) as messages
    where conversation_id = $1";

/// Reads the rows and checks them: all messages are stored without gaps and in order, counts are
/// exact, the conversation's totals match its messages, and the separators are where they were
/// inserted.
pub(crate) async fn read_and_check(
    simulated: &mut SimulatedConversation<'_>,
) -> Result<StoredRows, Violation> {
    let row: Option<PgRow> = sqlx::query(READ_ROWS)
        .bind(simulated.id.0)
        .fetch_optional(&mut *simulated.db)
        .await
        .expect("runs the query");
    let row = row.ok_or_else(|| format!("the conversation {} does not exist", simulated.id))?;
    let rows = StoredRows::from_row(&row).expect("the statement's columns");
    check_rows(simulated, &rows)?;
    let inserted: Vec<i64> = simulated.separators.iter().map(|after| after.0).collect();
    if rows.separators == inserted {
        return Ok(rows);
    }
    Err(format!(
        "separators are stored after {:?}, inserted after {inserted:?}",
        rows.separators
    ))
}

fn check_rows(
    simulated: &mut SimulatedConversation<'_>,
    rows: &StoredRows,
) -> Result<(), Violation> {
    let expected = simulated.update_expected_rows();
    let ids: Vec<i64> = (1..=expected.len() as i64).collect();
    if rows.ids != ids || rows.newest != expected.len() as i64 {
        return Err(format!(
            "{:?} are stored up to {}, {} messages are expected",
            rows.ids,
            rows.newest,
            expected.len()
        ));
    }
    if !rows.digests_match {
        return Err("a message's content does not match its digest".into());
    }
    let (mut turn, mut previous_role, mut total) = (0, None, 0);
    for (index, message) in expected.iter().enumerate() {
        let id = rows.ids[index];
        turn += i32::from(turn::starts(message.role, previous_role));
        previous_role = Some(message.role);
        if (rows.roles[index], rows.turns[index]) != (code(message.role), turn) {
            let (role, found) = (rows.roles[index], rows.turns[index]);
            return Err(format!(
                "message {id} has the role {role} in turn {found}, expected {:?} in {turn}",
                message.role
            ));
        }
        if rows.digests[index] != message.digest {
            return Err(format!("message {id} has another digest than expected"));
        }
        let token_count = rows.token_counts[index];
        if token_count.is_some_and(|count| count != message.tokens)
            || token_count.is_some() != (id <= rows.counted)
        {
            let (tokens, up_to) = (message.tokens, rows.counted);
            return Err(format!(
                "message {id} is counted as {token_count:?}, and has {tokens} tokens; counted up to {up_to}"
            ));
        }
        total += token_count.unwrap_or(rows.token_estimates[index]);
    }
    if (rows.turn, rows.token_total) == (turn, total) {
        return Ok(());
    }
    let (stored_turn, stored_total) = (rows.turn, rows.token_total);
    Err(format!(
        "the conversation has turn {stored_turn} and {stored_total} tokens, its messages have turn {turn} and {total} tokens"
    ))
}

/// The number of a role in the column `ai_message.role`.
const fn code(role: Role) -> i16 {
    match role {
        Role::User => 1,
        Role::Assistant => 2,
        Role::Tool => 3,
        Role::System => 4,
    }
}

impl SimulatedConversation<'_> {
    /// Computes the expected rows of new messages, and returns all expected rows.
    pub(crate) fn update_expected_rows(&mut self) -> &[ExpectedRow] {
        for new in &self.messages[self.expected_rows.len()..] {
            let message = parsed(new);
            let content = serde_json::to_string(&message.parts).expect("parts are JSON");
            let tokens = count_message(Encoding::default(), &message)
                .get()
                .cast_signed();
            self.expected_rows.push(ExpectedRow {
                role: message.role,
                digest: digest::of_content(&content),
                tokens,
            });
        }
        &self.expected_rows
    }
}
