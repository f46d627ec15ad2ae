//! Admits calls of language models under the model's row lock. `settle.rs` ends them. No database
//! connection is held while the model answers.

use anneal_core::{
    admission::{
        self, AdmissionRefusal, AdmissionState, Breaker, BreakerCause, CallLimits, CallPurpose,
    },
    caller::{Caller, ConversationId, TenantId},
    job::LEASE_SECONDS,
    tokens::Tokens,
};
use uuid::Uuid;

use super::{
    lease::ModelLease,
    model_row::lock_model_breaker,
    settle::{SettleOnDrop, Settlement},
    stop_mode::StopMode,
};
use crate::{
    Store,
    connection::{BoundedConnection, row_security::Scope},
    conversations::keep_conversation,
    error::{Entity, StoreError, violated},
    failpoint,
    rows::{breaker, column, elapsed, time_left, tokens},
};

/// A call to admit.
#[derive(Debug, Clone, Copy)]
pub struct CallAsk<'a> {
    /// Name of the model in the configuration.
    pub model: &'a str,
    /// The conversation that the call is for. Of a turn that is not stored: any id that no other
    /// call has.
    pub conversation: ConversationId,
    /// Whether the conversation is stored. If it is not, there is nothing to stop the call by.
    pub is_stored: bool,
    /// Purpose of the call.
    pub purpose: CallPurpose,
    /// Most tokens that the call may use: its input and the reserve for its output.
    pub tokens: Tokens,
    /// The operator's limits.
    pub limits: CallLimits,
    /// The request id of the turn that the call answers, or after which it keeps a cache warm.
    /// None: the call is for a summary, or for a turn that is not stored.
    pub request_id: Option<&'a str>,
    /// The lease of an earlier call of the same turn, which ends when this one is admitted; None:
    /// there is none. Fails with [`StoreError::LeaseLost`] if it is lost.
    pub replaces: Option<&'a ModelLease>,
}

impl Store {
    /// Admits a call, or returns the reason for refusing it. [`Store::maintain_lease`] must renew
    /// the lease until the call is settled. If it stays unknown whether the call was admitted, its
    /// lease is settled in the background.
    pub async fn admit_call(
        &self,
        caller: Caller,
        ask: &CallAsk<'_>,
    ) -> Result<Result<ModelLease, AdmissionRefusal>, StoreError> {
        let _permit = self.acquire_model_row_permit(ask.purpose).await?;
        let mut db = self
            .calls_pool(ask.purpose)
            .checkout_transaction(Scope::TenantAndQueue(caller.tenant()))
            .await?;
        let mut settle_on_drop = SettleOnDrop::new(self, None);
        let outcome = match try_admit(&mut db, caller, ask, &mut settle_on_drop).await {
            Ok(Ok(lease)) => db.commit().await.map(|()| Ok(lease)),
            Ok(Err(refusal)) => db.roll_back().await.map(|()| Err(refusal)),
            // A turn of the same conversation with another model was admitted meanwhile.
            Err(StoreError::Database(error))
                if violated(error.error()) == Some("ai_model_lease_turn_unique") =>
            {
                db.roll_back().await.map(|()| Err(AdmissionRefusal::Turn))
            }
            Err(error) => db.settle(Err(error)).await,
        };
        failpoint!("call.admitted");
        if outcome.is_ok() {
            settle_on_drop.disarm();
        }
        outcome
    }
}

/// Admits a call in the open transaction of `db`.
async fn try_admit(
    db: &mut BoundedConnection,
    caller: Caller,
    ask: &CallAsk<'_>,
    settle_on_drop: &mut SettleOnDrop<'_>,
) -> Result<Result<ModelLease, AdmissionRefusal>, StoreError> {
    let model = lock_model_breaker(db, ask.model).await?;
    if ask.limits.tokens_per_day.is_some() {
        // Locked so that concurrent calls of one tenant to two models cannot both take the last
        // tokens of the day.
        sqlx::query!(
            "select tenant_id from tenant where tenant_id = $1 for no key update",
            caller.tenant().0
        )
        .fetch_optional(&mut *db)
        .await?;
    }
    let stop = match ask.replaces {
        None => None,
        Some(replaced) => {
            if ask.is_stored {
                // A conversation is locked before the lease of a turn (`conversations/lock.rs`).
                keep_conversation(db, caller, replaced.conversation).await?;
            }
            end_replaced_lease(db, caller, replaced).await?
        }
    };
    let (state, tenant_cause) = read_state(db, caller, ask).await?;
    let state = AdmissionState {
        model: model.breaker,
        ..state
    };
    if let Err(mut refusal) = admission::admit(&state, &ask.limits, ask.purpose, ask.tokens) {
        if let AdmissionRefusal::Breaker { scope, cause, .. } = &mut refusal {
            match *scope {
                "model" => *cause = model.cause,
                "tenant" => *cause = tenant_cause,
                _ => {}
            }
        }
        return Ok(Err(refusal));
    }
    // Deletes leases that have ended. This needs a statement of its own: in the next one, a unique
    // index checks that the conversation has no other turn, and must see these rows deleted.
    sqlx::query!(
        "delete from ai_model_lease
         where lease_until_ts <= now() and (model = $2 or tenant_id = $3 or (conversation_id = $1 and turn))",
        ask.conversation.0,
        ask.model,
        caller.tenant().0,
    )
    .execute(&mut *db)
    .await?;
    let lease = ModelLease {
        caller,
        conversation: ask.conversation,
        model: ask.model.to_owned(),
        purpose: ask.purpose,
        breaker: ask.limits.breaker,
        lease: Uuid::now_v7(),
        is_model_or_tenant_trial: state.model.is_half_open || state.tenant.is_half_open,
        is_conversation_trial: state.conversation.is_half_open
            && ask.purpose == CallPurpose::Summary,
        stop,
    };
    let stored = sqlx::query_file!(
        "sql/put_model_lease.sql",
        caller.tenant().0,
        ask.conversation.0,
        lease.lease,
        ask.model,
        ask.purpose == CallPurpose::Turn,
        column(ask.tokens),
        f64::from(LEASE_SECONDS),
        lease.is_model_or_tenant_trial,
        ask.request_id,
        stop.map(StopMode::code),
        ask.purpose == CallPurpose::Summary,
        !ask.is_stored,
    )
    .execute(&mut *db)
    .await?;
    if stored.rows_affected() == 0 {
        // The conversation was deleted after the state was read.
        return Err(StoreError::NotFound(Entity::Conversation));
    }
    failpoint!("call.put");
    settle_on_drop.arm(Settlement::for_unused_lease(&lease));
    Ok(Ok(lease))
}

/// Deletes the lease of an earlier call of the same turn. Returns the stop that was asked for under
/// it, which the new lease takes over. The row comes back if the new call is not admitted, because
/// the transaction is then rolled back.
async fn end_replaced_lease(
    db: &mut BoundedConnection,
    caller: Caller,
    replaced: &ModelLease,
) -> Result<Option<StopMode>, StoreError> {
    let ended = sqlx::query!(
        "delete from ai_model_lease where tenant_id = $1 and conversation_id = $2 and lease = $3
         returning stop",
        caller.tenant().0,
        replaced.conversation.0,
        replaced.lease,
    )
    .fetch_optional(db)
    .await?
    .ok_or(StoreError::LeaseLost)?;
    Ok(ended.stop.map(StopMode::from_code))
}

/// Reads the admission state, without the model's breaker, and the cause of the tenant's breaker.
async fn read_state(
    db: &mut BoundedConnection,
    caller: Caller,
    ask: &CallAsk<'_>,
) -> Result<(AdmissionState, BreakerCause), StoreError> {
    let row = sqlx::query_file!(
        "sql/admission_state.sql",
        caller.tenant().0,
        ask.conversation.0,
        ask.model,
        TenantId::DEFAULT.0,
        !ask.is_stored,
    )
    .fetch_optional(db)
    .await?
    .ok_or(StoreError::NotFound(Entity::Conversation))?;
    let calls = |count| u32::try_from(count).unwrap_or(u32::MAX);
    let state = AdmissionState {
        model: Breaker::default(),
        tenant: breaker(row.tenant_failures, row.tenant_open_seconds),
        conversation: breaker(row.failures, row.open_seconds),
        calls_in_flight: calls(row.calls_in_flight),
        tenant_calls_in_flight: calls(row.tenant_calls_in_flight),
        has_other_tenants: row.has_other_tenants,
        tenant_tokens: tokens(row.tenant_tokens),
        day_left: time_left(Some(row.seconds_to_next_day)).unwrap_or_default(),
        turn_in_flight: row.turn_in_flight,
    };
    let tenant_cause = BreakerCause {
        opened_ago: elapsed(row.tenant_opened_seconds),
        last_error: row.tenant_error,
    };
    Ok((state, tenant_cause))
}
