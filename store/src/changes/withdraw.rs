//! Withdraws messages: their ids, roles and turns stay. Their content is moved to a table that no
//! statement for contexts, lists, exports or summaries reads.

use anneal_core::{
    caller::{Caller, ConversationId},
    message::MessageId,
};

use super::{
    ChangeAsk, MessageChange, MessageChangeKind, Selection,
    targets::Targets,
    transaction::{Begun, ChangeTransaction, Moved},
};
use crate::{
    Store, connection::BoundedConnection, error::StoreError, failpoint,
    policy_defaults::PolicyDefaults,
};

impl Store {
    /// Withdraws the selected messages that stand; with a request id only once.
    pub async fn withdraw_messages(
        &self,
        caller: Caller,
        id: ConversationId,
        ask: &ChangeAsk,
    ) -> Result<MessageChange, StoreError> {
        let policy_defaults = self.policy_defaults.get();
        let mut db = self.writes.checkout(caller).await?;
        let changed = withdraw_once(&mut db, caller, id, ask, &policy_defaults).await;
        db.settle(changed).await
    }
}

async fn withdraw_once(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    ask: &ChangeAsk,
    policy_defaults: &PolicyDefaults,
) -> Result<MessageChange, StoreError> {
    let method = match ask.selection {
        Selection::After(_) => "rewind",
        Selection::Ids(_) | Selection::Range(_) => "withdraw_messages",
    };
    let request = ask.request(method);
    let kind = MessageChangeKind::Withdrawn;
    let begun =
        ChangeTransaction::begin(db, (caller, id), (kind, &request), ask.conditions).await?;
    let mut change = match begun {
        Begun::Replayed(earlier) => return Ok(earlier),
        Begun::New(change) => change,
    };
    let targets = change.select_targets(ask, Targets::Standing).await?;
    let messages = change
        .with_tool_pairs(ask, &targets, Targets::Standing)
        .await?;
    if messages.is_empty() {
        return change.finish_without_change().await;
    }
    let messages = messages.into_iter().collect();
    let moved = move_out(&mut change, (caller, id), messages).await?;
    change.finish(moved, policy_defaults).await
}

/// Moves the content of these messages, which stand and are in order, out of the conversation, as a
/// part of the change with the next number. There must be at least one.
pub(super) async fn move_out(
    change: &mut ChangeTransaction<'_>,
    (caller, id): (Caller, ConversationId),
    messages: Vec<MessageId>,
) -> Result<Moved, StoreError> {
    let ids: Vec<i64> = messages.iter().map(|message| message.0).collect();
    let change_id = change.next_change_id();
    let row = sqlx::query_file!(
        "sql/withdraw_messages.sql",
        caller.tenant().0,
        id.0,
        &ids,
        change_id,
    )
    .fetch_one(change.db())
    .await?;
    failpoint!("change.moved");
    Ok(Moved {
        changed: messages,
        token_change: -row.tokens,
        withdrawn_change: ids.len() as i64,
        usage_bytes_change: row.uncounted_bytes,
        touches_title: row.has_user,
        renumbers: true,
        version: None,
    })
}
