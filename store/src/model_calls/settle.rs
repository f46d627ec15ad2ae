//! Settles calls of language models: books their cost, updates the breakers, deletes the lease. A
//! settlement that fails is retried in the background. If it stays unknown whether an admission has
//! stored a lease, that lease is settled in the background as well. Otherwise the lease would keep
//! other calls from being admitted until it ends.

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
    breaker_change::{BreakerChange, BreakerOwner, ModelFault},
    lease::ModelLease,
    model_row::{ModelRow, has_failures, lock_model_breaker},
};
use crate::{
    Store,
    connection::{Backoff, BoundedConnection, row_security::Scope},
    error::StoreError,
    failpoint,
    rows::{self, column, elapsed},
};

/// The outcome of all provider calls that were made under one lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallOutcome {
    /// Tokens that the model read.
    pub input: Tokens,
    /// Tokens that the model wrote.
    pub output: Tokens,
    /// Number of calls: a turn may make several, or none.
    pub calls: i32,
    /// Those of the calls that failed. A call that its caller ended is one of them only if it hung.
    pub failed_calls: i32,
    /// The effect on the breakers.
    pub verdict: Verdict,
}

/// The effect of a call on the breakers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The model answered. The breakers of the model and of the tenant close; after a summary also
    /// the conversation's.
    Answers,
    /// The call says nothing about the model: for example, the request was wrong, or the caller did
    /// not wait for the answer. Breakers do not change.
    Nothing,
    /// The call failed, perhaps only for this conversation. If it was for a summary, it counts
    /// against the conversation. The text has no content of messages.
    FailsConversation(String),
    /// The call failed as it would for every caller. It counts against the model, the tenant and,
    /// if it was for a summary, the conversation.
    Fails(ModelFault),
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
            Self::FailsConversation(error) => error,
            Self::Fails(fault) => &fault.text,
        }
    }
}

/// The settlement of one call. It is kept from one try to the next.
#[derive(Debug, Clone)]
pub(crate) struct Settlement {
    lease: ModelLease,
    call_outcome: CallOutcome,
    missing_lease: MissingLease,
}

/// The meaning of a lease that the settlement does not find in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MissingLease {
    /// The lease was lost. The call's cost is booked all the same.
    Lost,
    /// The lease was settled by an earlier try, or was never stored. Nothing is booked: the cost
    /// would be booked twice.
    Settled,
}

impl Settlement {
    const fn of(lease: ModelLease, call_outcome: CallOutcome) -> Self {
        Self {
            lease,
            call_outcome,
            missing_lease: MissingLease::Lost,
        }
    }

    /// The settlement of a call that will not be made, because it is unknown whether it was
    /// admitted.
    pub(crate) fn for_unused_lease(lease: &ModelLease) -> Self {
        let call_outcome = CallOutcome {
            input: Tokens::ZERO,
            output: Tokens::ZERO,
            calls: 0,
            failed_calls: 0,
            verdict: Verdict::Nothing,
        };
        Self {
            lease: lease.clone(),
            call_outcome,
            missing_lease: MissingLease::Settled,
        }
    }
}

/// Settlements that are retried in the background.
#[derive(Clone)]
pub(crate) struct BackgroundSettlements {
    tasks: TaskTracker,
    /// Lets one settlement at a time use the database, so that retries leave connections to new
    /// calls.
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

/// A guard for a transaction that stores or deletes a lease: if it is dropped before it is
/// disarmed, it settles the lease in the background.
pub(crate) struct SettleOnDrop<'a> {
    store: &'a Store,
    settlement: Option<Settlement>,
}

impl<'a> SettleOnDrop<'a> {
    /// A guard that performs this settlement when it is dropped; None: it does nothing until it is
    /// armed.
    pub(crate) const fn new(store: &'a Store, settlement: Option<Settlement>) -> Self {
        Self { store, settlement }
    }

    /// Sets the settlement that is performed when the guard is dropped.
    pub(crate) fn arm(&mut self, settlement: Settlement) {
        self.settlement = Some(settlement);
    }

    /// Drops the guard without a settlement, because the outcome is known.
    pub(crate) fn disarm(mut self) {
        self.settlement = None;
    }
}

impl Drop for SettleOnDrop<'_> {
    fn drop(&mut self) {
        // Without a runtime the process is ending. Then the lease ends by itself some seconds
        // later.
        if let (Some(settlement), Ok(runtime)) = (self.settlement.take(), Handle::try_current()) {
            let tasks = self.store.background_settlements.tasks.clone();
            tasks.spawn_on(
                settle_in_background(self.store.clone(), settlement).in_current_span(),
                &runtime,
            );
        }
    }
}

/// How long one try in the background may take. Limits the wait on a dead connection that reports
/// no error.
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
            let deadline = store.calls_pool(settlement.lease.purpose).deadline();
            deadline.bound(store.settle_once(&mut settlement)).await
        };
        let Err(error) = outcome else { return };
        if !error.is_transient() || Instant::now() >= until {
            let Settlement {
                lease,
                call_outcome,
                ..
            } = settlement;
            let (calls, input, output) = (
                call_outcome.calls,
                call_outcome.input.get(),
                call_outcome.output.get(),
            );
            return store.log_failure(&error, || {
                warn!(
                    model = lease.model,
                    calls,
                    input_tokens = input,
                    output_tokens = output,
                    "could not settle a model call, its lease ends by itself and its cost is not booked: {error}"
                );
            });
        }
        sleep(backoff.next_pause()).await;
    }
}

impl Store {
    /// Settles a call: books its cost, updates the breakers, deletes the lease. If this fails, or
    /// if the future is dropped, the settlement is retried in the background, for as long as a
    /// lease lasts.
    pub async fn settle_call(
        &self,
        lease: &ModelLease,
        call_outcome: &CallOutcome,
    ) -> Result<(), StoreError> {
        let mut settle_on_drop = SettleOnDrop::new(
            self,
            Some(Settlement::of(lease.clone(), call_outcome.clone())),
        );
        // Always present: it was just set, and only `arm`, `disarm` and `drop` change it.
        let Some(settlement) = &mut settle_on_drop.settlement else {
            return Ok(());
        };
        // One deadline for both tries, including their waits for a permit and a connection.
        let deadline = self.calls_pool(lease.purpose).deadline();
        let mut outcome = deadline.bound(self.settle_once(settlement)).await;
        if let Err(StoreError::Conflict(_) | StoreError::Busy | StoreError::ShareInUse) = outcome {
            outcome = deadline.bound(self.settle_once(settlement)).await;
        }
        if outcome.is_ok() {
            settle_on_drop.disarm();
        }
        outcome
    }

    /// Settles a call in the background. For callers that are being dropped and so cannot wait.
    pub fn settle_call_in_background(&self, lease: &ModelLease, call_outcome: CallOutcome) {
        let settlement = Settlement::of(lease.clone(), call_outcome);
        drop(SettleOnDrop::new(self, Some(settlement)));
    }

    /// Waits at most two seconds until all settlements in the background are done. For a process
    /// that stops and makes no more calls. Leases that are not settled by then end by themselves.
    pub async fn wait_for_settlements(&self) {
        let tasks = &self.background_settlements.tasks;
        tasks.close();
        let _ = timeout(SHUTDOWN_DEADLINE, tasks.wait()).await;
    }

    async fn settle_once(&self, settlement: &mut Settlement) -> Result<(), StoreError> {
        let Settlement {
            lease,
            call_outcome,
            missing_lease,
        } = settlement;
        let _permit = self.acquire_model_row_permit(lease.purpose).await?;
        let mut db = self
            .calls_pool(lease.purpose)
            .checkout_transaction(Scope::TenantAndQueue(lease.caller.tenant()))
            .await?;
        let is_booked_without_lease = *missing_lease == MissingLease::Lost;
        let is_unlocked = is_booked_without_lease
            && changes_no_breaker(&mut db, lease, &call_outcome.verdict).await?;
        let model = if is_unlocked {
            // Admissions need not wait for the commit of this.
            ModelRow::default()
        } else {
            // The lock makes this wait for an admission that is just storing the lease.
            lock_model_breaker(&mut db, &lease.model).await?
        };
        failpoint!("call.settling");
        let mut changes = Vec::new();
        if is_booked_without_lease || lease_exists(&mut db, lease).await? {
            let Assessment {
                failure,
                opens_tenant_alone,
                opened,
            } = match &call_outcome.verdict {
                Verdict::Fails(fault) => assess_failure(&mut db, lease, &model, fault).await?,
                _ => Assessment::default(),
            };
            changes = opened;
            let closed_tenant = sqlx::query_file!(
                "sql/settle_call.sql",
                lease.caller.tenant().0,
                lease.conversation.0,
                lease.lease,
                lease.model,
                column(call_outcome.input),
                column(call_outcome.output),
                lease.purpose == CallPurpose::Summary,
                i32::from(call_outcome.verdict.code()),
                call_outcome.verdict.error(),
                lease.breaker.failures as i32,
                failure.evidence as i32,
                f64::from(lease.breaker.cooldown_seconds),
                call_outcome.calls,
                failure.opens_model,
                failure.tenant_evidence as i32,
                failure.opens_tenant,
                model.series,
                call_outcome.failed_calls,
                opens_tenant_alone,
            )
            .fetch_optional(&mut *db)
            .await?;
            if let (Verdict::Answers, Some(open_for)) =
                (&call_outcome.verdict, model.cause.opened_ago)
            {
                changes.push(BreakerChange::closed(BreakerOwner::Model, open_for));
            }
            if let Some(open_for) = closed_tenant.and_then(|row| elapsed(Some(row.opened_seconds)))
            {
                let owner = find_tenant_owner(&mut db, lease).await?;
                changes.push(BreakerChange::closed(owner, open_for));
            }
        }
        // Even if the commit fails, it may have happened. So at the next try a missing lease means
        // that the call is settled already.
        *missing_lease = MissingLease::Settled;
        db.commit().await?;
        for change in &changes {
            change.log(lease);
        }
        failpoint!("call.settled");
        Ok(())
    }
}

/// How a settlement changes the breakers of the model and of the tenant.
struct Assessment {
    failure: FailureOutcome,
    /// Whether the tenant's breaker opens while the model's is closed. Otherwise the tenant's opens
    /// because of the model's, whose log line says enough.
    opens_tenant_alone: bool,
    /// The breakers that were closed and open.
    opened: Vec<BreakerChange>,
}

impl Default for Assessment {
    /// The assessment of a call that has not failed for every caller: no failure counts against the
    /// model or the tenant.
    fn default() -> Self {
        Self {
            failure: FailureOutcome {
                evidence: 0,
                tenant_evidence: 0,
                opens_model: false,
                opens_tenant: false,
            },
            opens_tenant_alone: false,
            opened: Vec::new(),
        }
    }
}

/// Whether the outcome changes neither the model's breaker nor the tenant's. If another call fails
/// at this moment, an answer counts as one before that failure.
async fn changes_no_breaker(
    db: &mut BoundedConnection,
    lease: &ModelLease,
    verdict: &Verdict,
) -> Result<bool, StoreError> {
    match verdict {
        Verdict::Nothing | Verdict::FailsConversation(_) => Ok(true),
        Verdict::Fails(_) => Ok(false),
        Verdict::Answers => Ok(!has_failures(db, lease.caller.tenant(), &lease.model).await?),
    }
}

/// Decides how a call that failed for every caller changes the breakers of the model and of the
/// tenant. The model's row is locked, so no other call changes them meanwhile.
async fn assess_failure(
    db: &mut BoundedConnection,
    lease: &ModelLease,
    model: &ModelRow,
    fault: &ModelFault,
) -> Result<Assessment, StoreError> {
    let tenant_row = sqlx::query!(
        r#"select failures, evidence, series, opened_ts is not null as "is_opened!",
               extract(epoch from open_until_ts - now())::double precision as "open_seconds?"
           from ai_tenant_breaker where tenant_id = $1 and model = $2"#,
        lease.caller.tenant().0,
        lease.model,
    )
    .fetch_optional(&mut *db)
    .await?;
    let tenant_breaker = tenant_row.as_ref().map_or_else(Breaker::default, |row| {
        rows::breaker(row.failures, row.open_seconds)
    });
    let is_tenant_opened = tenant_row.as_ref().is_some_and(|row| row.is_opened);
    let known = FailureCounts {
        model: breaker_state(&model.breaker),
        evidence: model.evidence,
        tenant: breaker_state(&tenant_breaker),
        tenant_failures: tenant_breaker.failures,
        // Failures of another series no longer count against the model: since then it has answered,
        // or its breaker has opened.
        tenant_evidence: tenant_row
            .filter(|row| row.series == model.series)
            .map_or(0, |row| row.evidence.unsigned_abs()),
    };
    let failure = breaker::after_failure(&known, &lease.breaker);
    let opens_tenant_alone = failure.opens_tenant && known.model == BreakerState::Closed;
    let mut opened = Vec::new();
    if failure.opens_model && model.cause.opened_ago.is_none() {
        let failures = model.breaker.failures.saturating_add(1);
        opened.push(BreakerChange::opened(BreakerOwner::Model, failures, fault));
    }
    if opens_tenant_alone && !is_tenant_opened {
        let failures = known.tenant_failures.saturating_add(1);
        let owner = find_tenant_owner(db, lease).await?;
        opened.push(BreakerChange::opened(owner, failures, fault));
    }
    Ok(Assessment {
        failure,
        opens_tenant_alone,
        opened,
    })
}

/// Reads the name of the call's tenant, for a log line about the tenant's breaker.
async fn find_tenant_owner(
    db: &mut BoundedConnection,
    lease: &ModelLease,
) -> Result<BreakerOwner, StoreError> {
    let name = sqlx::query_scalar!(
        "select name from tenant where tenant_id = $1",
        lease.caller.tenant().0
    )
    .fetch_optional(db)
    .await?;
    Ok(BreakerOwner::Tenant {
        name: name.unwrap_or_default(),
    })
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

/// Whether the lease is there. Waits for an earlier try that is just deleting it.
async fn lease_exists(db: &mut BoundedConnection, lease: &ModelLease) -> Result<bool, StoreError> {
    let found = sqlx::query_scalar!(
        "select lease from ai_model_lease
         where tenant_id = $1 and conversation_id = $2 and lease = $3
         for update",
        lease.caller.tenant().0,
        lease.conversation.0,
        lease.lease,
    );
    Ok(found.fetch_optional(db).await?.is_some())
}
