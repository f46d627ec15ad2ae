//! Times during which jobs cannot call the model, because a breaker is open or a tenant's share of
//! calls is in use. They are known from the errors of this worker's jobs. Until such a pause ends,
//! the worker claims no jobs that would only be deferred.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use anneal_core::caller::TenantId;

use crate::retry_policy::JobError;

/// The pauses of one worker.
#[derive(Default)]
pub(crate) struct ModelPauses(Mutex<Pauses>);

#[derive(Default)]
struct Pauses {
    /// End of the pause for all tenants.
    all: Option<Instant>,
    /// Ends of the pauses for single tenants.
    tenants: HashMap<TenantId, Instant>,
}

impl ModelPauses {
    /// Records the pause that the error of a tenant's job implies.
    pub(crate) fn add(&self, tenant: TenantId, error: &JobError) {
        if let Some(pause) = error.model_pause() {
            self.lock().all = Some(Instant::now() + pause);
        }
        if let Some(pause) = error.tenant_pause() {
            self.lock().tenants.insert(tenant, Instant::now() + pause);
        }
    }

    /// Whether the model is paused for all tenants.
    pub(crate) fn is_paused_for_all(&self) -> bool {
        self.lock().all.is_some_and(|until| Instant::now() < until)
    }

    /// Tenants for which the model is paused.
    pub(crate) fn paused_tenants(&self) -> Vec<TenantId> {
        let mut pauses = self.lock();
        let now = Instant::now();
        pauses.tenants.retain(|_, until| now < *until);
        pauses.tenants.keys().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Pauses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
