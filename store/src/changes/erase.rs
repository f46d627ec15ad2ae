//! Erases messages: their content and all their versions are deleted, and so is everything that was
//! made from them. Their rows stay without content, as those of withdrawn messages.

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::SetDigest,
    limits::CHANGE_MESSAGES,
    message::MessageId,
};

use super::{
    ChangeAsk, MessageChange, MessageChangeKind,
    blank::{blank_derived_texts, blank_request_digests},
    selection::{IdRange, columns, runs_of},
    targets::Targets,
    transaction::{Begun, ChangeTransaction, Moved},
};
use crate::{
    Store,
    connection::BoundedConnection,
    erasures::{ErasureKind, Receipt, insert_receipt, message_receipt_id},
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

/// The content that was deleted of the selected messages.
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
        Begun::Replayed(earlier) => return Ok(earlier),
        Begun::New(change) => change,
    };
    let ids = select_messages(&mut change, ask).await?;
    let erased = erase_content(change.db(), caller, id, &ids).await?;
    failpoint!("change.erased");
    if erased.all.is_empty() {
        return change.finish_without_change().await;
    }
    let runs = runs_of(erased.all.iter().copied());
    // Before jobs are locked: it may update messages beside the erased ones.
    let mut rows = blank_request_digests(change.db(), caller, id, &runs, &[]).await?;
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
    rows.add_all(&blank_derived_texts(change.db(), caller, id, &runs).await?);
    let responses = erase_responses(change.db(), caller, id, &runs).await?;
    rows.add("ai_response", responses);
    failpoint!("change.blanked");
    rows.add("ai_message", erased.standing.len() as i64);
    rows.add("ai_message_version", erased.versions);
    let receipt = Receipt {
        id: message_receipt_id(caller, (id, change.head().created), done.id),
        kind: ErasureKind::Messages,
        request_digest: request.digest,
        requested_by,
        conversation: id,
        messages: erased.all.len() as i64,
        rows,
        ids_digest: digest_of_messages(id, &erased.all),
    };
    insert_receipt(change.db(), caller, &receipt).await?;
    change.commit(moved.usage_bytes_change).await?;
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

/// Deletes the responses of which a message was erased: what they repeat of their requests
/// (instructions, labels) may tell something of it. Returns their number.
async fn erase_responses(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    runs: &[IdRange],
) -> Result<i64, StoreError> {
    let (firsts, lasts) = columns(runs);
    let deleted = sqlx::query_file!(
        "sql/erase_responses.sql",
        caller.tenant().0,
        id.0,
        &firsts,
        &lasts
    )
    .execute(db)
    .await?;
    Ok(i64::try_from(deleted.rows_affected()).unwrap_or(i64::MAX))
}

/// Digest of erased messages: of each the bytes of the conversation's id, and of its own.
fn digest_of_messages(id: ConversationId, messages: &[MessageId]) -> SetDigest {
    let mut digest = SetDigest::default();
    for message in messages {
        digest.add(&[id.0.as_bytes().as_slice(), &message.0.to_be_bytes()].concat());
    }
    digest
}
