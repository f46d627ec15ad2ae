//! Stops of turns. A caller asks for one at any server; it is a column of the turn's lease. The
//! server that runs the turn finds it there, and records how the turn has ended: by its answer, or
//! by a request that says that nothing of the answer is kept.

use anneal_core::{
    caller::{Caller, ConversationId},
    digest,
    message::MessageId,
};
use uuid::Uuid;

use super::{
    lease::{ModelLease, renew_lease},
    stop_mode::StopMode,
};
use crate::{
    Store,
    connection::{BoundedConnection, row_security::Scope},
    conversations::lock_conversation,
    error::StoreError,
    failpoint,
    idempotency::{EarlierRequest, IdempotentRequest, find_request, put_request},
};

/// The stop of a turn that a caller asks for.
#[derive(Debug, Clone, Copy)]
pub struct StopAsk<'a> {
    /// The request id of the turn; None: any turn of the conversation.
    pub turn_request_id: Option<&'a str>,
    /// Whether the answer is kept.
    pub mode: StopMode,
}

/// A turn that was told to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoppedTurn {
    /// Its conversation.
    pub conversation: ConversationId,
    /// The id of its lease, as [`ModelLease::id`].
    pub lease: Uuid,
    /// Its request id; None: it runs on an older server.
    pub request_id: Option<String>,
}

/// The request ids of a turn.
#[derive(Debug, Clone, Copy)]
pub struct TurnRequestIds<'a> {
    /// Of its question.
    pub turn: &'a str,
    /// Of the append of its answer.
    pub answer: &'a str,
}

/// How a turn has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnEnd {
    /// Its answer is stored.
    Answered {
        /// The message that holds the answer.
        message: MessageId,
        /// Whether the answer was stopped before its end.
        stopped: bool,
    },
    /// It was stopped, and nothing of its answer is stored.
    Dropped,
}

/// The method under which the end of a turn is recorded of which nothing is kept.
const STOPPED: &str = "chat_stopped";

fn stopped_request(answer_request_id: &str) -> IdempotentRequest<'_> {
    IdempotentRequest {
        method: STOPPED,
        id: Some(answer_request_id),
        digest: digest::of_fields([STOPPED.as_bytes()]),
    }
}

impl Store {
    /// Tells the turn that is under way in a conversation to stop. None: no such turn is under way.
    /// The server that runs it finds the stop with [`Store::find_stops`].
    pub async fn request_stop(
        &self,
        caller: Caller,
        id: ConversationId,
        ask: &StopAsk<'_>,
    ) -> Result<Option<StoppedTurn>, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let stopped = match put_stop(&mut db, caller, id, ask).await? {
            // The statement may have waited for a call that took the turn's lease over: it has
            // found the old lease deleted, and has not seen the new one.
            None => put_stop(&mut db, caller, id, ask).await?,
            stopped => stopped,
        };
        db.release().await?;
        failpoint!("stop.requested");
        Ok(stopped)
    }

    /// The stops of those of these turns that were told to stop, by the ids of their leases. One
    /// statement for all turns of a process.
    pub async fn find_stops(
        &self,
        leases: &[ModelLease],
    ) -> Result<Vec<(Uuid, StopMode)>, StoreError> {
        let tenants = leases.iter().map(|lease| lease.caller.tenant());
        let mut db = self.writes.checkout(Scope::of(tenants)).await?;
        let rows = sqlx::query_file!(
            "sql/find_stops.sql",
            &column(leases, |lease| lease.caller.tenant().0),
            &column(leases, |lease| lease.conversation.0),
            &column(leases, ModelLease::id),
        )
        .fetch_all(&mut *db)
        .await?;
        db.release().await?;
        Ok(rows
            .into_iter()
            .map(|row| (row.lease, StopMode::from_code(row.stop)))
            .collect())
    }

    /// Whether a turn that was told to stop is still under way. A call that has taken over its
    /// lease belongs to it.
    pub async fn is_running(&self, caller: Caller, turn: &StoppedTurn) -> Result<bool, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let running = sqlx::query_scalar!(
            r#"select exists (
                   select from ai_model_lease
                   where tenant_id = $1 and conversation_id = $2 and turn and lease_until_ts > now()
                       and (lease = $3 or request_id = $4)
               ) as "running!""#,
            caller.tenant().0,
            turn.conversation.0,
            turn.lease,
            turn.request_id.as_deref(),
        )
        .fetch_one(&mut *db)
        .await?;
        db.release().await?;
        Ok(running)
    }

    /// Renews the lease of a turn that was stopped, and records that nothing of its answer is kept,
    /// in one transaction. A repetition finds that with [`Store::find_turn_end`]. False, and
    /// nothing is recorded, if the lease is lost.
    pub async fn record_stop(
        &self,
        caller: Caller,
        lease: &ModelLease,
        answer_request_id: &str,
    ) -> Result<bool, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let recorded = record_under_lease(&mut db, caller, lease, answer_request_id).await;
        db.settle(recorded).await
    }

    /// Records that nothing is kept of a turn that was told to stop and is no longer under way, as
    /// [`Store::record_stop`] does, unless its answer is stored or the record exists. Returns how
    /// the turn has ended. Its server may have died, so its lease is deleted: if the server goes
    /// on, it stores no answer any more. If not even the question is stored, nothing is recorded: a
    /// repetition is the first turn.
    pub async fn record_stop_of_ended_turn(
        &self,
        caller: Caller,
        id: ConversationId,
        request_ids: TurnRequestIds<'_>,
    ) -> Result<TurnEnd, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let recorded = record_after_end(&mut db, (caller, id), request_ids).await;
        db.settle(recorded).await
    }

    /// How the turn has ended whose answer has this request id; None: it has neither an answer that
    /// stands nor a record that it was stopped.
    pub async fn find_turn_end(
        &self,
        caller: Caller,
        id: ConversationId,
        answer_request_id: &str,
    ) -> Result<Option<TurnEnd>, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let end = select_turn_end(&mut db, caller, id, answer_request_id).await;
        db.settle(end).await
    }
}

/// Tells the turn that is under way to stop. None: this statement sees no such turn.
async fn put_stop(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    ask: &StopAsk<'_>,
) -> Result<Option<StoppedTurn>, StoreError> {
    let row = sqlx::query!(
        "update ai_model_lease set stop = greatest(stop, $3)
         where tenant_id = $1 and conversation_id = $2 and turn and lease_until_ts > now()
             and ($4::text is null or request_id = $4)
         returning lease, request_id",
        caller.tenant().0,
        id.0,
        ask.mode.code(),
        ask.turn_request_id,
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| StoppedTurn {
        conversation: id,
        lease: row.lease,
        request_id: row.request_id,
    }))
}

async fn select_turn_end(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    answer_request_id: &str,
) -> Result<Option<TurnEnd>, StoreError> {
    let row = sqlx::query_file!(
        "sql/find_turn_end.sql",
        caller.tenant().0,
        id.0,
        answer_request_id,
        STOPPED,
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| {
        row.message_id.map_or(TurnEnd::Dropped, |message| {
            let (message, stopped) = (MessageId(message), row.stopped);
            TurnEnd::Answered { message, stopped }
        })
    }))
}

/// One column of the leases, for `unnest`.
fn column(leases: &[ModelLease], value: impl Fn(&ModelLease) -> Uuid) -> Vec<Uuid> {
    leases.iter().map(value).collect()
}

async fn record_under_lease(
    db: &mut BoundedConnection,
    caller: Caller,
    lease: &ModelLease,
    answer_request_id: &str,
) -> Result<bool, StoreError> {
    let mut tx = db.begin().await?;
    lock_conversation(&mut tx, caller, lease.conversation).await?;
    if !renew_lease(&mut tx, lease).await? {
        tx.rollback().await?;
        return Ok(false);
    }
    failpoint!("stop.locked");
    let request = stopped_request(answer_request_id);
    let earlier = find_request(&mut tx, caller, lease.conversation, &request).await?;
    if matches!(earlier, EarlierRequest::None) {
        put_request(&mut tx, caller, lease.conversation, &request, None).await?;
    }
    failpoint!("stop.written");
    tx.commit().await?;
    failpoint!("stop.committed");
    Ok(true)
}

async fn record_after_end(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    request_ids: TurnRequestIds<'_>,
) -> Result<TurnEnd, StoreError> {
    let mut tx = db.begin().await?;
    lock_conversation(&mut tx, caller, id).await?;
    // Answers and records of stops are stored under the conversation's lock.
    if let Some(end) = select_turn_end(&mut tx, caller, id, request_ids.answer).await? {
        tx.commit().await?;
        return Ok(end);
    }
    // A lease that has ended can be renewed, as long as its row is there.
    sqlx::query!(
        "delete from ai_model_lease
         where tenant_id = $1 and conversation_id = $2 and turn and request_id = $3",
        caller.tenant().0,
        id.0,
        request_ids.turn,
    )
    .execute(&mut *tx)
    .await?;
    if find_stored_question(&mut tx, (caller, id), request_ids.turn).await? {
        let request = stopped_request(request_ids.answer);
        put_request(&mut tx, caller, id, &request, None).await?;
    }
    tx.commit().await?;
    Ok(TurnEnd::Dropped)
}

/// Whether the question of the turn with this request id is stored: as new messages, or as a stored
/// question that is answered anew.
async fn find_stored_question(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    turn_request_id: &str,
) -> Result<bool, StoreError> {
    let is_stored = sqlx::query_scalar!(
        r#"select exists (
               select from ai_message
               where tenant_id = $1 and conversation_id = $2 and request_id = $3
           ) or exists (
               select from ai_request
               where tenant_id = $1 and conversation_id = $2 and method = 'chat_anew' and request_id = $3
           ) as "is_stored!""#,
        caller.tenant().0,
        id.0,
        turn_request_id,
    )
    .fetch_one(db)
    .await?;
    Ok(is_stored)
}
