//! For whom the model is not called now, as this worker's jobs have found out: until then nothing is claimed that would only be
//! put off.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use anneal_core::caller::TenantId;

use crate::outcome::JobError;

/// The pauses of one worker.
#[derive(Default)]
pub(crate) struct ModelPauses(Mutex<Pauses>);

#[derive(Default)]
struct Pauses {
    /// Until when nobody calls the model.
    all: Option<Instant>,
    /// The same of tenants whose calls alone are refused.
    tenants: HashMap<TenantId, Instant>,
}

impl ModelPauses {
    /// Notes what the error of a tenant's job says of the model.
    pub(crate) fn note(&self, tenant: TenantId, error: &JobError) {
        if let Some(closed_for) = error.closes_the_model() {
            self.locked().all = Some(Instant::now() + closed_for);
        }
        if let Some(closed_for) = error.closes_the_model_to_its_tenant() {
            self.locked().tenants.insert(tenant, Instant::now() + closed_for);
        }
    }

    /// Whether nobody calls the model.
    pub(crate) fn hold_for_all(&self) -> bool {
        self.locked().all.is_some_and(|until| Instant::now() < until)
    }

    /// Tenants that do not call it.
    pub(crate) fn tenants(&self) -> Vec<TenantId> {
        let (mut pauses, now) = (self.locked(), Instant::now());
        pauses.tenants.retain(|_, until| now < *until);
        pauses.tenants.keys().copied().collect()
    }

    fn locked(&self) -> MutexGuard<'_, Pauses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
