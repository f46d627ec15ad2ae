//! The sabotage that answers an append before its commit.

use std::time::Duration;

use anneal_core::caller::Caller;

use super::{Append, Appended, append_one::try_append_in_transaction};
use crate::{
    Store,
    conversations::lock_conversation,
    sabotage::{Sabotage, breaks},
};

/// Answers an append and commits it a moment later. None: the append takes its usual way.
pub(super) async fn answer_early(
    store: &Store,
    caller: Caller,
    append: &Append,
) -> Option<Appended> {
    if !breaks(Sabotage::EarlyAnswer) {
        return None;
    }
    let mut db = store.writes.checkout(caller).await.ok()?;
    sqlx::query("begin").execute(&mut *db).await.ok()?;
    lock_conversation(&mut db, caller, append.conversation())
        .await
        .ok()?;
    let appended =
        try_append_in_transaction(&mut db, caller, append, store.policy_defaults.bases()).await?;
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if sqlx::query("commit").execute(&mut *db).await.is_ok() {
            let _ = db.release().await;
        }
    });
    Some(appended)
}
