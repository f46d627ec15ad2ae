//! The lease of an admitted call, renewed while the call runs. If the process dies, the lease ends,
//! and another call can be admitted in its place.

use std::time::Duration;

use anneal_core::{
    admission::{BreakerSettings, CallPurpose},
    caller::{Caller, ConversationId},
    job::{HEARTBEAT_SECONDS, LEASE_SECONDS},
};
use uuid::Uuid;

use super::stop_mode::StopMode;
use crate::{
    Store,
    connection::{BoundedConnection, row_security::Scope},
    error::StoreError,
};

/// The lease of an admitted call.
#[derive(Debug, Clone)]
pub struct ModelLease {
    pub(super) caller: Caller,
    pub(super) conversation: ConversationId,
    pub(super) model: String,
    pub(super) purpose: CallPurpose,
    pub(super) breaker: BreakerSettings,
    pub(super) lease: Uuid,
    /// Whether this is a trial call: its result decides whether the half-open breaker of the tenant
    /// or of the model closes.
    pub(super) is_model_or_tenant_trial: bool,
    /// Whether this is a trial call for the conversation's half-open breaker.
    pub(super) is_conversation_trial: bool,
    /// As [`Self::requested_stop`].
    pub(super) stop: Option<StopMode>,
}

impl ModelLease {
    /// The id of the lease, which no other call has.
    pub const fn id(&self) -> Uuid {
        self.lease
    }

    /// The stop that was asked for under the lease that this one has taken over. A later one is
    /// found with [`Store::find_stops`].
    pub const fn requested_stop(&self) -> Option<StopMode> {
        self.stop
    }
}

impl Store {
    /// Renews a call's lease. False if it is lost: the call must end, because others may be
    /// admitted in its place.
    pub async fn renew_call(&self, lease: &ModelLease) -> Result<bool, StoreError> {
        let mut db = self
            .calls_pool(lease.purpose)
            .checkout(Scope::TenantAndQueue(lease.caller.tenant()))
            .await?;
        let renewed = renew_lease(&mut db, lease).await;
        db.settle(renewed).await
    }

    /// Renews a call's lease every five seconds until the future is dropped; returns when the lease
    /// is lost. A failed renewal is followed by another one five seconds later. The lease lasts
    /// 15 s, so it survives one renewal that fails immediately. After two such failures, or after
    /// one that takes its time limit of five seconds, the next renewal comes just as the lease
    /// ends.
    pub async fn maintain_lease(&self, lease: &ModelLease) {
        let interval = Duration::from_secs(u64::from(HEARTBEAT_SECONDS));
        let store = self.clone().with_deadline(interval);
        loop {
            tokio::time::sleep(interval).await;
            if let Ok(false) = store.renew_call(lease).await {
                return;
            }
        }
    }
}

/// Renews a call's lease. False if it is lost.
pub(super) async fn renew_lease(
    db: &mut BoundedConnection,
    lease: &ModelLease,
) -> Result<bool, StoreError> {
    let renewed = sqlx::query_file!(
        "sql/renew_model_lease.sql",
        lease.caller.tenant().0,
        lease.conversation.0,
        lease.lease,
        f64::from(LEASE_SECONDS),
        lease.is_model_or_tenant_trial,
        lease.is_conversation_trial,
    )
    .execute(db)
    .await?;
    Ok(renewed.rows_affected() == 1)
}
