//! Deletes what else tells something of erased messages, in rows that stay.

use anneal_core::{
    caller::{Caller, ConversationId},
    job::JobKind,
    limits::{CHANGE_MESSAGES, MESSAGES_PER_APPEND},
    message::MessageId,
};

use super::selection::{IdRange, columns};
use crate::{connection::BoundedConnection, erasures::RowCounts, error::StoreError};

/// Deletes the digests of the requests that brought the content of these messages: of edits only
/// those that brought one of `versions`, which belong to these messages; empty: of all edits.
/// Returns the number of changed rows, by table; messages are left out.
pub(crate) async fn blank_request_digests(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    runs: &[IdRange],
    versions: &[(MessageId, i32)],
) -> Result<RowCounts, StoreError> {
    let (tenant, conversation, (firsts, lasts)) = (caller.tenant().0, id.0, columns(runs));
    let (most_appended, most_erased) = (MESSAGES_PER_APPEND as i64, CHANGE_MESSAGES as i64);
    sqlx::query_file!(
        "sql/blank_append_digests.sql",
        tenant,
        conversation,
        &firsts,
        &lasts,
        most_appended,
        most_erased
    )
    .execute(&mut *db)
    .await?;
    let (messages, versions): (Vec<i64>, Vec<i32>) = if versions.is_empty() {
        let messages = runs.iter().flat_map(|run| run.first.0..=run.last.0);
        (messages.collect(), Vec::new())
    } else {
        let erased = versions.iter();
        erased.map(|(id, version)| (id.0, *version)).unzip()
    };
    let requests = sqlx::query_file!(
        "sql/blank_request_digests.sql",
        tenant,
        conversation,
        &messages,
        &versions
    )
    .execute(db)
    .await?;
    let mut rows = RowCounts::default();
    rows.add("ai_request", number(requests.rows_affected()));
    Ok(rows)
}

/// Deletes what was made from these messages: the texts of checkpoints that no longer hold, errors,
/// and old versions of contexts' beginnings. Returns the number of changed rows, by table.
pub(crate) async fn blank_derived_texts(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    runs: &[IdRange],
) -> Result<RowCounts, StoreError> {
    let (tenant, conversation, (firsts, lasts)) = (caller.tenant().0, id.0, columns(runs));
    let kinds: Vec<i16> = JobKind::ALL.iter().map(|kind| kind.code()).collect();
    let checkpoints = sqlx::query_file!(
        "sql/blank_void_checkpoints.sql",
        tenant,
        conversation,
        &firsts,
        &lasts
    )
    .execute(&mut *db)
    .await?;
    let errors = sqlx::query_file!("sql/erase_job_errors.sql", tenant, &kinds, conversation)
        .fetch_one(&mut *db)
        .await?;
    let breakers = sqlx::query!(
        "update ai_conversation_breaker set last_error = ''
         where tenant_id = $1 and conversation_id = $2 and last_error <> ''",
        tenant,
        conversation,
    )
    .execute(&mut *db)
    .await?;
    let prefixes = sqlx::query_file_scalar!("sql/erase_prefixes.sql", tenant, conversation)
        .fetch_one(db)
        .await?;
    let mut rows = RowCounts::default();
    for (table, changed) in [
        ("ai_void_checkpoint", number(checkpoints.rows_affected())),
        ("ai_job", errors.jobs),
        ("ai_job_dead", errors.dead_jobs),
        ("ai_conversation_breaker", number(breakers.rows_affected())),
        ("ai_context_prefix", prefixes),
    ] {
        rows.add(table, changed);
    }
    Ok(rows)
}

/// A number of rows.
fn number(rows: u64) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}
