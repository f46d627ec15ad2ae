//! Settles calls of language models: books their cost, moves breakers, deletes the lease. If the
//! answer to an admission or to a settlement is lost, the lease is settled in the background, so
//! that no conversation waits for a call that is not made.

use std::{sync::Arc, time::Duration};

use anneal_core::{
    admission::{Breaker, CallPurpose},
    breaker::{self, BreakerState, FailureCounts, FailureOutcome},
    job::LEASE_SECONDS,
    tokens::Tokens,
};
use tokio::{
    runtime::Handle,
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, warn};

use super::{
    lease::ModelLease,
    model_row::{ModelRow, lock_model_breaker},
};
use crate::{
    Store,
    connection::{Backoff, BoundedConnection, row_security::Scope},
    error::StoreError,
    failpoint,
    rows::{self, column},
};

/// Outcome of the call, or calls, under a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallOutcome {
    /// Tokens that the model read.
    pub input: Tokens,
    /// Tokens that the model wrote.
    pub output: Tokens,
    /// Calls that were made under the lease: a turn may make several, or none.
    pub calls: i32,
    /// The record of the outcome for the model's breakers.
    pub verdict: Verdict,
}

/// The record of a call for its model's breakers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The model answers.
    Answers,
    /// Nothing: the request was wrong, or the caller did not wait for the answer.
    Nothing,
    /// The call failed, perhaps only for this conversation. The text is never content.
    FailsConversation(String),
    /// The call failed for every caller. The text is never content.
    Fails(String),
}

impl Verdict {
    const fn code(&self) -> i16 {
        match self {
            Self::Nothing => 0,
            Self::Answers => 1,
            Self::FailsConversation(_) => 2,
            Self::Fails(_) => 3,
        }
    }

    fn error(&self) -> &str {
        match self {
            Self::Answers | Self::Nothing => "",
            Self::FailsConversation(error) | Self::Fails(error) => error,
        }
    }
}

/// The settlement of one call, kept across tries.
#[derive(Debug, Clone)]
pub(crate) struct Settlement {
    lease: ModelLease,
    settled: CallOutcome,
    missing_lease: MissingLease,
}

/// The meaning of a lease that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MissingLease {
    /// The lease was lost; the call's cost is booked all the same.
    Lost,
    /// The lease was settled by an earlier try, or never stored: settling again would book the cost
    /// twice.
    Settled,
}

impl Settlement {
    const fn of(lease: ModelLease, settled: CallOutcome) -> Self {
        Self {
            lease,
            settled,
            missing_lease: MissingLease::Lost,
        }
    }

    /// For a call of which it is unknown whether it was admitted, and which will not be made.
    pub(crate) fn for_unused_lease(lease: &ModelLease) -> Self {
        let settled = CallOutcome {
            input: Tokens::ZERO,
            output: Tokens::ZERO,
            calls: 0,
            verdict: Verdict::Nothing,
        };
        Self {
            lease: lease.clone(),
            settled,
            missing_lease: MissingLease::Settled,
        }
    }
}

/// Settlements that are retried in the background.
#[derive(Clone)]
pub(crate) struct BackgroundSettlements {
    tasks: TaskTracker,
    /// One settlement at a time uses the database, so that retries do not crowd out new calls.
    permit: Arc<Semaphore>,
}

impl Default for BackgroundSettlements {
    fn default() -> Self {
        Self {
            tasks: TaskTracker::new(),
            permit: Arc::new(Semaphore::new(1)),
        }
    }
}

/// Drop guard: if the outcome of a request about a lease stays unknown, settles the lease in the
/// background.
pub(crate) struct SettleOnDrop<'a> {
    store: &'a Store,
    settlement: Option<Settlement>,
}

impl<'a> SettleOnDrop<'a> {
    /// A guard that settles this when it is dropped.
    pub(crate) const fn new(store: &'a Store, settlement: Option<Settlement>) -> Self {
        Self { store, settlement }
    }

    /// Sets what is settled when the guard is dropped.
    pub(crate) fn arm(&mut self, settlement: Settlement) {
        self.settlement = Some(settlement);
    }

    /// The outcome is known: the guard does nothing.
    pub(crate) fn disarm(mut self) {
        self.settlement = None;
    }
}

impl Drop for SettleOnDrop<'_> {
    fn drop(&mut self) {
        // Without a runtime the process is ending. The lease then expires some seconds later.
        if let (Some(settlement), Ok(runtime)) = (self.settlement.take(), Handle::try_current()) {
            let tasks = self.store.background_settlements.tasks.clone();
            tasks.spawn_on(
                settle_in_background(self.store.clone(), settlement).in_current_span(),
                &runtime,
            );
        }
    }
}

/// How long one try in the background may take. Its connection can be dead without an error on this
/// side.
const DB_DEADLINE: Duration = Duration::from_secs(5);

/// How long a process that stops waits for settlements in the background.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(2);

/// Settles a call; retries transient errors for as long as a lease lasts.
async fn settle_in_background(store: Store, mut settlement: Settlement) {
    let store = store.with_deadline(DB_DEADLINE);
    let until = Instant::now() + Duration::from_secs(u64::from(LEASE_SECONDS));
    let mut backoff = Backoff::default();
    loop {
        let outcome = {
            // The semaphore is never closed.
            let _permit = store.background_settlements.permit.acquire().await;
            store.settle_once(&mut settlement).await
        };
        let Err(error) = outcome else { return };
        if !error.is_transient() || Instant::now() >= until {
            let Settlement { lease, settled, .. } = settlement;
            let (calls, input, output) = (settled.calls, settled.input.get(), settled.output.get());
            return warn!(
                model = lease.model,
                calls,
                input_tokens = input,
                output_tokens = output,
                "could not end a model call, its lease ends by itself and its cost is not booked: {error}"
            );
        }
        sleep(backoff.next_pause()).await;
    }
}

impl Store {
    /// Settles a call: books its cost, moves the breakers, deletes the lease. If this fails or is
    /// dropped, the settlement is retried in the background, for as long as a lease lasts.
    pub async fn settle_call(
        &self,
        lease: &ModelLease,
        settled: &CallOutcome,
    ) -> Result<(), StoreError> {
        let mut settle_on_drop =
            SettleOnDrop::new(self, Some(Settlement::of(lease.clone(), settled.clone())));
        let Some(settlement) = &mut settle_on_drop.settlement else {
            return Ok(());
        };
        let mut outcome = self.settle_once(settlement).await;
        if let Err(StoreError::Conflict(_) | StoreError::Busy | StoreError::ShareInUse) = outcome {
            outcome = self.settle_once(settlement).await;
        }
        if outcome.is_ok() {
            settle_on_drop.disarm();
        }
        outcome
    }

    /// Settles a call in the background. For an owner that is dropped and cannot wait.
    pub fn settle_call_in_background(&self, lease: &ModelLease, settled: CallOutcome) {
        let settlement = Settlement::of(lease.clone(), settled);
        drop(SettleOnDrop::new(self, Some(settlement)));
    }

    /// Waits until all settlements in the background are done, at most two seconds. For a process
    /// that stops and makes no more calls. Leases that are not settled by then expire.
    pub async fn wait_for_settlements(&self) {
        let tasks = &self.background_settlements.tasks;
        tasks.close();
        let _ = timeout(SHUTDOWN_DEADLINE, tasks.wait()).await;
    }

    async fn settle_once(&self, settlement: &mut Settlement) -> Result<(), StoreError> {
        let Settlement {
            lease,
            settled,
            missing_lease,
        } = settlement;
        let _permit = self.acquire_model_row_permit(lease.purpose).await?;
        let mut db = self
            .calls_pool(lease.purpose)
            .checkout(Scope::TenantAndQueue(lease.caller.tenant()))
            .await?;
        let mut tx = db.begin().await?;
        // Locks the model's row first, as admissions do: an admission that is about to store the
        // lease holds it.
        let model = lock_model_breaker(&mut tx, &lease.model).await?;
        failpoint!("call.settling");
        if *missing_lease == MissingLease::Lost || lease_exists(&mut tx, lease).await? {
            let failed = match settled.verdict {
                Verdict::Fails(_) => assess_failure(&mut tx, lease, &model).await?,
                _ => NOT_FAILED,
            };
            sqlx::query_file!(
                "sql/settle_call.sql",
                lease.caller.tenant().0,
                lease.conversation.0,
                lease.lease,
                lease.model,
                column(settled.input),
                column(settled.output),
                lease.purpose == CallPurpose::Turn,
                i32::from(settled.verdict.code()),
                settled.verdict.error(),
                lease.breaker.failures as i32,
                failed.evidence as i32,
                f64::from(lease.breaker.cooldown_seconds),
                settled.calls,
                failed.opens_model,
                failed.tenant_evidence as i32,
                failed.opens_tenant,
                model.series,
            )
            .execute(&mut *tx)
            .await?;
        }
        // From here on the commit may have happened even if it fails.
        *missing_lease = MissingLease::Settled;
        tx.commit().await?;
        db.release().await?;
        failpoint!("call.settled");
        Ok(())
    }
}

/// The evidence against the model after a call that has not failed.
const NOT_FAILED: FailureOutcome = FailureOutcome {
    evidence: 0,
    tenant_evidence: 0,
    opens_model: false,
    opens_tenant: false,
};

/// Decides how a failed call changes the breakers. The model's row is locked, so what is read here
/// cannot change meanwhile.
async fn assess_failure(
    db: &mut BoundedConnection,
    lease: &ModelLease,
    model: &ModelRow,
) -> Result<FailureOutcome, StoreError> {
    let own = sqlx::query!(
        r#"select failures, evidence, series,
               extract(epoch from open_until_ts - now())::double precision as "open_seconds?"
           from ai_tenant_breaker where tenant_id = $1 and model = $2"#,
        lease.caller.tenant().0,
        lease.model,
    )
    .fetch_optional(db)
    .await?;
    let of_tenant = own.as_ref().map_or_else(Breaker::default, |own| {
        rows::breaker(own.failures, own.open_seconds)
    });
    let known = FailureCounts {
        model: breaker_state(&model.breaker),
        evidence: model.evidence,
        tenant: breaker_state(&of_tenant),
        tenant_failures: of_tenant.failures,
        tenant_evidence: own
            .filter(|own| own.series == model.series)
            .map_or(0, |own| own.evidence.unsigned_abs()),
    };
    Ok(breaker::after_failure(&known, &lease.breaker))
}

const fn breaker_state(breaker: &Breaker) -> BreakerState {
    match breaker {
        Breaker {
            open_for: Some(_), ..
        } => BreakerState::Open,
        Breaker {
            is_half_open: true, ..
        } => BreakerState::HalfOpen,
        Breaker { .. } => BreakerState::Closed,
    }
}

async fn lease_exists(db: &mut BoundedConnection, lease: &ModelLease) -> Result<bool, StoreError> {
    let is_there = sqlx::query_scalar!(
        r#"select exists (
               select from ai_model_lease where tenant_id = $1 and conversation_id = $2 and lease = $3
           ) as "is_there!""#,
        lease.caller.tenant().0,
        lease.conversation.0,
        lease.lease,
    );
    Ok(is_there.fetch_one(db).await?)
}
