//! Makes withdrawn messages stand again.

use anneal_core::{
    caller::{Caller, ConversationId},
    limits::PAGE_CONTENT_BYTES,
    message::MessageId,
    tokens::Tokens,
};

use super::{
    ChangeAsk, MessageChange, MessageChangeKind, UncountedVersion,
    targets::{Target, Targets, select_targets, with_tool_pairs},
    transaction::{Begun, ChangeTransaction, Moved},
};
use crate::{
    Store,
    connection::BoundedConnection,
    error::StoreError,
    failpoint,
    messages::{
        read::read_newest_id,
        read_budget::{ContentRead, ReadBudget, row_bytes},
        stored_text::StoredText,
    },
    policy_defaults::PolicyDefaults,
    rows::{self, column},
};

impl Store {
    /// Restores the selected messages that are withdrawn; with a request id only once. Fails with
    /// [`StoreError::MessageErased`] if the content of one of them was erased.
    ///
    /// `counts` are those of [`Store::find_uncounted_withdrawn`]. Nearly always there are none:
    /// fails with [`StoreError::CountMissing`] if a message needs one.
    pub async fn restore_messages(
        &self,
        caller: Caller,
        id: ConversationId,
        ask: &ChangeAsk,
        counts: &[(MessageId, Tokens)],
    ) -> Result<MessageChange, StoreError> {
        let policy_defaults = self.policy_defaults.get();
        let mut db = self.writes.checkout(caller).await?;
        let changed = restore_once(&mut db, caller, id, (ask, counts), &policy_defaults).await;
        db.settle(changed).await
    }

    /// Reads a page of those messages after `after` that the same call of
    /// [`Store::restore_messages`] would restore and that need a token count, if it fits the
    /// budget: they were withdrawn before they were counted, and the conversation is counted beyond
    /// them by now. A page has at most 4 MiB of content, unless its first message alone has more.
    pub async fn find_uncounted_withdrawn(
        &self,
        caller: Caller,
        id: ConversationId,
        ask: &ChangeAsk,
        after: MessageId,
        budget: &ReadBudget,
    ) -> Result<ContentRead<Vec<UncountedVersion>>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        db.attach_reservation(budget.reservation.clone());
        let rows = read_uncounted_versions(&mut db, caller, id, (ask, after), budget).await;
        let rows = db.settle(rows).await?;
        let content = rows.last().map_or(0, |row| row.bytes);
        let bytes = row_bytes(rows.len(), content);
        let parse = move || {
            let versions = rows.into_iter().map(|row| {
                let content = row.content.ok_or(StoreError::Unreadable("content"))?;
                Ok(UncountedVersion {
                    id: MessageId(row.message_id),
                    parts: rows::parts(content.text()?)?,
                    encoding: rows::encoding(row.encoding)?,
                })
            });
            versions.collect::<Result<Vec<_>, StoreError>>()
        };
        ContentRead::parse(budget, bytes, parse).await
    }
}

async fn restore_once(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    (ask, counts): (&ChangeAsk, &[(MessageId, Tokens)]),
    policy_defaults: &PolicyDefaults,
) -> Result<MessageChange, StoreError> {
    let request = ask.request("restore_messages");
    let kind = MessageChangeKind::Restored;
    let begun =
        ChangeTransaction::begin(db, (caller, id), (kind, &request), ask.conditions).await?;
    let mut change = match begun {
        Begun::Replayed(earlier) => return Ok(earlier),
        Begun::New(change) => change,
    };
    let targets = change.select_targets(ask, Targets::Withdrawn).await?;
    refuse_erased(&targets)?;
    let messages = change
        .with_tool_pairs(ask, &targets, Targets::Withdrawn)
        .await?;
    if messages.is_empty() {
        return change.finish_without_change().await;
    }
    let messages = messages.into_iter().collect();
    let moved = move_back(&mut change, (caller, id), (messages, counts)).await?;
    change.finish(moved, policy_defaults).await
}

/// Moves the content of these messages, which are withdrawn and in order, back. There must be at
/// least one. `counts` as in [`Store::restore_messages`].
pub(super) async fn move_back(
    change: &mut ChangeTransaction<'_>,
    (caller, id): (Caller, ConversationId),
    (messages, counts): (Vec<MessageId>, &[(MessageId, Tokens)]),
) -> Result<Moved, StoreError> {
    let ids: Vec<i64> = messages.iter().map(|message| message.0).collect();
    let (counted, counts): (Vec<i64>, Vec<i64>) = counts
        .iter()
        .map(|(message, tokens)| (message.0, column(*tokens)))
        .unzip();
    let counted_up_to = change.head().counted.0;
    let row = sqlx::query_file!(
        "sql/restore_messages.sql",
        caller.tenant().0,
        id.0,
        &ids,
        counted_up_to,
        &counted,
        &counts,
    )
    .fetch_one(change.db())
    .await?;
    failpoint!("change.restored");
    // Retention erases content without the conversation's lock.
    if let Some(erased) = messages
        .iter()
        .find(|message| row.restored.binary_search(&message.0).is_err())
    {
        return Err(StoreError::MessageErased(*erased));
    }
    if row.lacks_count {
        return Err(StoreError::CountMissing);
    }
    Ok(Moved {
        changed: messages,
        token_change: row.tokens,
        withdrawn_change: -(ids.len() as i64),
        usage_bytes_change: -row.uncounted_bytes,
        touches_title: row.has_user,
        renumbers: true,
        version: None,
    })
}

/// Fails if the content of a message was erased.
pub(super) fn refuse_erased(targets: &[Target]) -> Result<(), StoreError> {
    targets
        .iter()
        .find(|target| target.has_tools.is_none())
        .map_or(Ok(()), |erased| Err(StoreError::MessageErased(erased.id)))
}

/// A withdrawn message whose content needs a count.
struct UncountedRow {
    message_id: i64,
    encoding: i16,
    content: Option<StoredText>,
    /// Bytes of the content of this row and of the rows before it.
    bytes: i64,
}

async fn read_uncounted_versions(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    (ask, after): (&ChangeAsk, MessageId),
    budget: &ReadBudget,
) -> Result<Vec<UncountedRow>, StoreError> {
    let newest = read_newest_id(&mut *db, caller, id).await?;
    let runs = ask.selection.runs(newest)?;
    let which = Targets::Withdrawn;
    let targets = select_targets(&mut *db, caller, id, &runs, which).await?;
    let messages = with_tool_pairs(&mut *db, caller, id, &targets, (ask.pairs, which)).await?;
    let ids: Vec<i64> = messages.iter().map(|message| message.0).collect();
    let rows = sqlx::query_file_as!(
        UncountedRow,
        "sql/uncounted_versions.sql",
        caller.tenant().0,
        id.0,
        &ids,
        budget.column(),
        after.0,
        PAGE_CONTENT_BYTES,
    )
    .fetch_all(db)
    .await?;
    Ok(rows)
}
