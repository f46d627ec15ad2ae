//! Recorded versions of the beginning of a conversation's contexts, which a provider can cache. A
//! new version is recorded when a context no longer begins like the last recorded version.

use anneal_core::{
    caller::{Caller, ConversationId},
    context::{BreakReason, NewVersion},
};

use crate::{Store, error::StoreError, rows::column};

impl Store {
    /// Records a new version of the beginning of a conversation's contexts. Returns false if
    /// another call has recorded one first; then the context must be built again on that version.
    pub async fn record_prefix(
        &self,
        caller: Caller,
        id: ConversationId,
        new: &NewVersion,
    ) -> Result<bool, StoreError> {
        let version = &new.version;
        let swapped: Vec<i64> = version.swapped.iter().map(|id| id.0).collect();
        let mut db = self.writes.checkout(caller).await?;
        let recorded = sqlx::query_file!(
            "sql/record_prefix.sql",
            caller.tenant().0,
            id.0,
            version.epoch,
            version.hash.as_slice(),
            version.boundary.0,
            version.system_prompt.as_slice(),
            swapped.last().copied().unwrap_or(0),
            &swapped,
            new.last_message_id.0,
            reason_code(new.reason),
            new.broken_at.0,
            column(new.rewritten),
            column(new.saved),
            version.cut,
        )
        .execute(&mut *db)
        .await?;
        db.release().await?;
        Ok(recorded.rows_affected() == 1)
    }
}

const fn reason_code(reason: BreakReason) -> i16 {
    match reason {
        BreakReason::First => 1,
        BreakReason::Checkpoint => 2,
        BreakReason::Separator => 3,
        BreakReason::SystemPrompt => 4,
        BreakReason::Swap => 5,
        BreakReason::Budget => 6,
        BreakReason::Repair => 7,
        BreakReason::Idle => 8,
    }
}
