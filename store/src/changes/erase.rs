//! Erases messages: their content and all their versions are deleted, and so is everything that was
//! made from them. Their rows stay without content, as those of withdrawn messages.

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::SetDigest,
    job::JobKind,
    limits::{CHANGE_MESSAGES, MESSAGES_PER_APPEND},
    message::MessageId,
};

use super::{
    ChangeAsk, IdRange, MessageChange, MessageChangeKind,
    selection::{columns, runs_of},
    targets::Targets,
    transaction::{Begun, ChangeTransaction, Moved},
};
use crate::{
    Store,
    connection::BoundedConnection,
    erasures::{ErasureKind, Receipt, RowCounts, insert_receipt, message_receipt_id},
    error::StoreError,
    failpoint,
    policy_defaults::PolicyDefaults,
};

impl Store {
    /// Erases the content of the selected messages, whether they stand or are withdrawn; with a
    /// request id only once. Tool pairs are not completed. Stores a receipt in the same
    /// transaction. `requested_by`: the caller's name in logs, for the receipt.
    pub async fn erase_messages(
        &self,
        caller: Caller,
        id: ConversationId,
        ask: &ChangeAsk,
        requested_by: &str,
    ) -> Result<MessageChange, StoreError> {
        let policy_defaults = self.policy_defaults.get();
        let mut db = self.writes.checkout(caller).await?;
        let changed =
            erase_once(&mut db, (caller, id), (ask, requested_by), &policy_defaults).await;
        db.settle(changed).await
    }
}

/// What was deleted of the selected messages.
struct Erased {
    /// Those that stood, in order.
    standing: Vec<MessageId>,
    /// All of which content was there, in order.
    all: Vec<MessageId>,
    /// Deleted versions.
    versions: i64,
    tokens: i64,
    bytes: i64,
    has_user: bool,
}

async fn erase_once(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    (ask, requested_by): (&ChangeAsk, &str),
    policy_defaults: &PolicyDefaults,
) -> Result<MessageChange, StoreError> {
    let request = ask.request("erase_messages");
    let kind = MessageChangeKind::Erased;
    let begun =
        ChangeTransaction::begin(db, (caller, id), (kind, &request), ask.conditions).await?;
    let mut change = match begun {
        Begun::Replayed(earlier) => {
            let erased_something = earlier.id > 0;
            let receipt = message_receipt_id(caller, id, earlier.id);
            return Ok(MessageChange {
                erasure: erased_something.then_some(receipt),
                ..earlier
            });
        }
        Begun::New(change) => change,
    };
    let ids = select_messages(&mut change, ask).await?;
    let erased = erase_content(change.db(), caller, id, &ids).await?;
    failpoint!("change.erased");
    if erased.all.is_empty() {
        return change.finish_without_change().await;
    }
    let standing = runs_of(erased.standing.iter().copied());
    if !standing.is_empty() {
        change.record_withdrawal(&standing).await?;
    }
    let moved = Moved {
        changed: erased.all.clone(),
        token_change: -erased.tokens,
        withdrawn_change: erased.standing.len() as i64,
        usage_bytes_change: -erased.bytes,
        touches_title: erased.has_user,
        renumbers: true,
        version: None,
    };
    let done = change.follow(&moved, &standing, policy_defaults).await?;
    let mut rows = blank_derived_rows(change.db(), caller, id, &done.changed).await?;
    failpoint!("change.blanked");
    rows.add("ai_message", erased.standing.len() as i64);
    rows.add("ai_message_version", erased.versions);
    let receipt = Receipt {
        id: message_receipt_id(caller, id, done.id),
        kind: ErasureKind::Messages,
        request_digest: request.digest,
        requested_by,
        conversation: id,
        messages: erased.all.len() as i64,
        rows,
        ids_digest: digest_of_messages(id, &erased.all),
    };
    insert_receipt(change.db(), caller, &receipt).await?;
    change.commit(&moved).await?;
    Ok(MessageChange {
        erasure: Some(receipt.id),
        ..done
    })
}

/// The selected messages, in any state. Fails if there are too many.
async fn select_messages(
    change: &mut ChangeTransaction<'_>,
    ask: &ChangeAsk,
) -> Result<Vec<i64>, StoreError> {
    let mut ids = Vec::new();
    for which in [Targets::Standing, Targets::Withdrawn] {
        let targets = change.select_targets(ask, which).await?;
        ids.extend(targets.iter().map(|target| target.id.0));
    }
    if ids.len() > CHANGE_MESSAGES {
        return Err(StoreError::TooManyMessages);
    }
    Ok(ids)
}

async fn erase_content(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    ids: &[i64],
) -> Result<Erased, StoreError> {
    let row = sqlx::query_file!("sql/erase_messages.sql", caller.tenant().0, id.0, ids)
        .fetch_one(db)
        .await?;
    let standing: Vec<MessageId> = row.standing.into_iter().map(MessageId).collect();
    let mut all = standing.clone();
    all.extend(row.withdrawn.into_iter().map(MessageId));
    all.sort_unstable();
    Ok(Erased {
        standing,
        all,
        versions: row.versions,
        tokens: row.tokens,
        bytes: row.bytes,
        has_user: row.has_user,
    })
}

/// Deletes what else tells something of erased messages: the texts of checkpoints that no longer
/// hold, digests of the requests that brought the content, errors, and old versions of contexts'
/// beginnings. Returns the number of changed rows, by table.
pub(crate) async fn blank_derived_rows(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    runs: &[IdRange],
) -> Result<RowCounts, StoreError> {
    let (tenant, conversation, (firsts, lasts)) = (caller.tenant().0, id.0, columns(runs));
    let (most_appended, most_erased) = (MESSAGES_PER_APPEND as i64, CHANGE_MESSAGES as i64);
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
    let requests = sqlx::query_file!(
        "sql/blank_request_digests.sql",
        tenant,
        conversation,
        &firsts,
        &lasts
    )
    .execute(&mut *db)
    .await?;
    // Errors hold no content. If one did all the same, it would be gone with the messages.
    let jobs = sqlx::query!(
        "update ai_job set last_error = null
         where tenant_id = $1 and conversation_id = $2 and kind = any ($3) and last_error is not null",
        tenant,
        conversation,
        &kinds,
    )
    .execute(&mut *db)
    .await?;
    let dead_jobs = sqlx::query!(
        "update ai_job_dead set last_error = null
         where tenant_id = $1 and conversation_id = $2 and kind = any ($3) and last_error is not null",
        tenant,
        conversation,
        &kinds,
    )
    .execute(&mut *db)
    .await?;
    let breakers = sqlx::query!(
        "update ai_conversation_breaker set last_error = ''
         where tenant_id = $1 and conversation_id = $2 and last_error <> ''",
        tenant,
        conversation,
    )
    .execute(&mut *db)
    .await?;
    let prefixes = erase_prefixes(db, caller, id).await?;
    let mut rows = RowCounts::default();
    for (table, changed) in [
        ("ai_void_checkpoint", checkpoints.rows_affected()),
        ("ai_request", requests.rows_affected()),
        ("ai_job", jobs.rows_affected()),
        ("ai_job_dead", dead_jobs.rows_affected()),
        ("ai_conversation_breaker", breakers.rows_affected()),
        ("ai_context_prefix", prefixes),
    ] {
        rows.add(table, i64::try_from(changed).unwrap_or(i64::MAX));
    }
    Ok(rows)
}

/// Deletes all versions of the beginning of the conversation's contexts but the newest one. If that
/// is a mark, it loses the hash of the version before it. Returns the number of deleted rows.
async fn erase_prefixes(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
) -> Result<u64, StoreError> {
    let (tenant, conversation) = (caller.tenant().0, id.0);
    let deleted = sqlx::query!(
        "delete from ai_context_prefix
         where tenant_id = $1 and conversation_id = $2 and epoch < (
             select max(epoch) from ai_context_prefix where tenant_id = $1 and conversation_id = $2)",
        tenant,
        conversation,
    )
    .execute(&mut *db)
    .await?;
    sqlx::query!(
        "update ai_context_prefix set prefix_hash = decode(repeat('00', 32), 'hex')
         where tenant_id = $1 and conversation_id = $2 and change_epoch = epoch",
        tenant,
        conversation,
    )
    .execute(db)
    .await?;
    Ok(deleted.rows_affected())
}

/// Digest of erased messages: of each the bytes of the conversation's id, and of its own.
fn digest_of_messages(id: ConversationId, messages: &[MessageId]) -> SetDigest {
    let mut digest = SetDigest::default();
    for message in messages {
        digest.add(&[id.0.as_bytes().as_slice(), &message.0.to_be_bytes()].concat());
    }
    digest
}
