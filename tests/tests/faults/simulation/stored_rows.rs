//! The conversation's rows, read by one statement and compared with the expected ones. This is fast
//! enough to run after every operation.

use anneal_core::{digest, message::Role, turn};
use sqlx::{FromRow, postgres::PgRow};

use crate::simulation::{
    conversation::{SimulatedConversation, Violation},
    messages::ExpectedMessage,
};

/// The values that the checks need: of the conversation's own row, and of its messages, jobs,
/// separators and checkpoints.
#[derive(FromRow)]
pub(crate) struct StoredRows {
    /// Id of the newest message, according to the conversation's row.
    pub(crate) newest: i64,
    /// Id of the last message whose tokens are counted.
    pub(crate) counted: i64,
    pub(crate) token_total: i64,
    /// Number of messages that do not stand, according to the conversation's row.
    pub(crate) withdrawn: i64,
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
    /// Whether each message stands.
    stands: Vec<bool>,
    /// The number of each message's version.
    versions: Vec<i32>,
    /// Whether the content of every message and of every version matches its digest.
    digests_match: bool,
    /// The versions that do not stand: message, number and digest of each.
    kept_ids: Vec<i64>,
    kept_versions: Vec<i32>,
    kept_digests: Vec<Vec<u8>>,
}

/// Reads [`StoredRows`] in one statement. A checkpoint is valid if it begins with the first message
/// after the newest separator (message 1 if there is none).
const READ_ROWS: &str = "
    select last_message_id as newest, counted_message_id as counted, token_total, coalesce(withdrawn_messages, 0) as withdrawn,
        turn, summaries, ids, roles, turns, token_counts, token_estimates, digests, stands, versions,
        messages.digests_match and kept.digests_match as digests_match, kept_ids, kept_versions, kept_digests,
        s.separators, c.checkpoints,
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
            coalesce(array_agg(withdrawn_ts is null), '{}') as stands, coalesce(array_agg(coalesce(version, 1)), '{}') as versions,
            coalesce(bool_and(sha256(convert_to(content::text, 'UTF8')) = content_digest), true) as digests_match
        from (select * from ai_message where conversation_id = $1 order by message_id) as m
    ) as messages
    cross join lateral (
        select coalesce(array_agg(message_id), '{}') as kept_ids, coalesce(array_agg(version), '{}') as kept_versions,
            coalesce(array_agg(content_digest), '{}') as kept_digests,
            coalesce(bool_and(sha256(convert_to(content::text, 'UTF8')) = content_digest), true) as digests_match
        from (select * from ai_message_version where conversation_id = $1 order by message_id, version) as v
    ) as kept
    where conversation_id = $1";

/// Reads the rows and checks them: all messages are stored without gaps and in order, those that do
/// not stand without content, counts are exact, the conversation's totals match its messages, the
/// versions that do not stand are kept, and the separators are where they were inserted.
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
    check_rows(&simulated.messages, &rows)?;
    check_versions(&simulated.messages, &rows)?;
    let inserted: Vec<i64> = simulated.separators.iter().map(|after| after.0).collect();
    if rows.separators == inserted {
        return Ok(rows);
    }
    Err(format!(
        "separators are stored after {:?}, inserted after {inserted:?}",
        rows.separators
    ))
}

fn check_rows(expected: &[ExpectedMessage], rows: &StoredRows) -> Result<(), Violation> {
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
        return Err("a content does not match its digest".into());
    }
    let (mut turn, mut previous_role, mut total, mut withdrawn) = (0, None, 0, 0);
    for (index, message) in expected.iter().enumerate() {
        check_content(message, rows, index)?;
        total += rows.token_counts[index].unwrap_or(rows.token_estimates[index]);
        if !message.stands() {
            withdrawn += 1;
            continue;
        }
        // Turns are those of a conversation with only the messages that stand.
        turn += i32::from(turn::starts(message.role, previous_role));
        previous_role = Some(message.role);
        if rows.turns[index] != turn {
            let (id, found) = (rows.ids[index], rows.turns[index]);
            return Err(format!(
                "message {id} is in turn {found}, expected in {turn}"
            ));
        }
    }
    if (rows.turn, rows.token_total, rows.withdrawn) == (turn, total, withdrawn) {
        return Ok(());
    }
    Err(format!(
        "the conversation has turn {}, {} tokens and {} withdrawn messages, its messages have {turn}, {total} and {withdrawn}",
        rows.turn, rows.token_total, rows.withdrawn
    ))
}

/// Checks role, content and count of the message at this index.
fn check_content(
    message: &ExpectedMessage,
    rows: &StoredRows,
    index: usize,
) -> Result<(), Violation> {
    let id = rows.ids[index];
    let version = message.versions.len() as i32;
    let found = (rows.roles[index], rows.stands[index], rows.versions[index]);
    if found != (code(message.role), message.stands(), version) {
        return Err(format!(
            "message {id} has role, state and version {found:?}, expected {:?}, {:?} and {version}",
            message.role, message.state
        ));
    }
    let (digest, tokens) = if message.stands() {
        (message.newest().digest, message.newest().tokens)
    } else {
        (digest::of_content("[]"), 0)
    };
    if rows.digests[index] != digest {
        return Err(format!("message {id} has another digest than expected"));
    }
    let token_count = rows.token_counts[index];
    if token_count.is_some_and(|count| count != tokens)
        || token_count.is_some() != (id <= rows.counted)
    {
        return Err(format!(
            "message {id} is counted as {token_count:?}, and has {tokens} tokens; counted up to {}",
            rows.counted
        ));
    }
    Ok(())
}

/// Checks that the versions that do not stand are kept, but for those of erased messages.
fn check_versions(expected: &[ExpectedMessage], rows: &StoredRows) -> Result<(), Violation> {
    let mut kept = Vec::new();
    for (id, message) in (1_i64..).zip(expected) {
        for (number, version) in (1_i32..).zip(message.kept()) {
            kept.push((id, number, version.digest.to_vec()));
        }
    }
    let stored: Vec<(i64, i32, Vec<u8>)> = rows
        .kept_ids
        .iter()
        .zip(&rows.kept_versions)
        .zip(&rows.kept_digests)
        .map(|((id, version), digest)| (*id, *version, digest.clone()))
        .collect();
    if stored == kept {
        return Ok(());
    }
    let names = |versions: &[(i64, i32, Vec<u8>)]| {
        let names = versions.iter().map(|(id, version, _)| (*id, *version));
        names.collect::<Vec<_>>()
    };
    Err(format!(
        "the versions {:?} are kept, expected {:?}, or one has another digest",
        names(&stored),
        names(&kept)
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
