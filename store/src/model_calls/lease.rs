//! The lease of an admitted call, renewed while the call runs. A process that dies stops renewing
//! its leases, and their capacity is free again.

use std::time::Duration;

use anneal_core::{
    admission::{BreakerSettings, CallPurpose},
    caller::{Caller, ConversationId},
    job::{HEARTBEAT_SECONDS, LEASE_SECONDS},
};
use uuid::Uuid;

use crate::{Store, connection::row_security::Scope, error::StoreError};

/// The lease of an admitted call.
#[derive(Debug, Clone)]
pub struct ModelLease {
    pub(super) caller: Caller,
    pub(super) conversation: ConversationId,
    pub(super) model: String,
    pub(super) purpose: CallPurpose,
    pub(super) breaker: BreakerSettings,
    pub(super) lease: Uuid,
    /// Whether this is the tenant's probe call, which tests whether the tenant's breaker or the
    /// model's may close.
    pub(super) is_model_probe: bool,
    /// Whether this is the conversation's probe call.
    pub(super) is_conversation_probe: bool,
}

impl Store {
    /// Renews a call's lease. False if it is lost: the call must end, because others may be
    /// admitted in its place.
    pub async fn renew_call(&self, lease: &ModelLease) -> Result<bool, StoreError> {
        let mut db = self
            .calls_pool(lease.purpose)
            .checkout(Scope::TenantAndQueue(lease.caller.tenant()))
            .await?;
        let renewed = sqlx::query_file!(
            "sql/renew_model_lease.sql",
            lease.caller.tenant().0,
            lease.conversation.0,
            lease.lease,
            f64::from(LEASE_SECONDS),
            lease.is_model_probe,
            lease.is_conversation_probe,
        )
        .execute(&mut *db)
        .await?;
        db.release().await?;
        Ok(renewed.rows_affected() == 1)
    }

    /// Renews a call's lease until the future is dropped; returns when the lease is lost. A failed
    /// renewal is tried again at the next beat: two may fail before a lease ends, and one without
    /// an answer counts as two.
    pub async fn maintain_lease(&self, lease: &ModelLease) {
        let beat = Duration::from_secs(u64::from(HEARTBEAT_SECONDS));
        let store = self.clone().with_deadline(beat);
        loop {
            tokio::time::sleep(beat).await;
            if let Ok(false) = store.renew_call(lease).await {
                return;
            }
        }
    }
}
