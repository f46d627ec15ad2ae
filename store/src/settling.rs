//! How calls of language models end: booked, breakers moved, the lease gone. Where nobody hears from the database whether a
//! call was admitted or has ended, its lease is ended in the background, so that no conversation waits for a call that nobody
//! makes.

use std::{sync::Arc, time::Duration};

use anneal_core::{
    admission::{Breaker, CallPurpose},
    breaker::{self, Failed, Failures, State},
    job::LEASE_SECONDS,
    tokens::Tokens,
};
use sqlx::{Connection as _, PgConnection};
use tokio::{
    runtime::Handle,
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, warn};

use crate::{
    Store,
    calls::{self, ModelLease, ModelRow, locked_breaker},
    error::StoreError,
    failpoint,
    patience::{Pauses, within},
    rows::column,
    scope::Scope,
};

/// What a call has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// Tokens that the model read.
    pub input: Tokens,
    /// Tokens that it wrote.
    pub output: Tokens,
    /// Calls that were made under the lease: a turn may take several, or none.
    pub calls: i32,
    /// What that says of it.
    pub verdict: Verdict,
}

/// What a call says of its model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It answers.
    Answers,
    /// Nothing: the request was at fault, or nobody waited for the answer.
    Nothing,
    /// It failed, perhaps only this conversation. The text is never content.
    FailsConversation(String),
    /// It fails whoever calls it. The text is never content.
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

/// The end of one call, however often it is tried.
#[derive(Debug, Clone)]
pub(crate) struct Ending {
    lease: ModelLease,
    settled: Settled,
    absent: Absent,
}

/// What a lease that is not there says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Absent {
    /// It was lost; what the call cost is booked all the same.
    Lost,
    /// It was settled before, or never was: a second time would book it twice.
    Settled,
}

impl Ending {
    const fn of(lease: ModelLease, settled: Settled) -> Self {
        Self { lease, settled, absent: Absent::Lost }
    }

    /// Of a call of which nobody knows whether it was admitted; nobody makes it.
    pub(crate) fn never_made(lease: &ModelLease) -> Self {
        let settled = Settled { input: Tokens::ZERO, output: Tokens::ZERO, calls: 0, verdict: Verdict::Nothing };
        Self { lease: lease.clone(), settled, absent: Absent::Settled }
    }
}

/// Ends that go on in the background.
#[derive(Clone)]
pub(crate) struct LooseEnds {
    tasks: TaskTracker,
    /// One at a time asks the database, so that they keep nobody out who has something new to say.
    turn: Arc<Semaphore>,
}

impl Default for LooseEnds {
    fn default() -> Self {
        Self { tasks: TaskTracker::new(), turn: Arc::new(Semaphore::new(1)) }
    }
}

/// A question about a lease. Where it is dropped without an answer, whatever the reason, the lease is ended as soon as the
/// database takes it.
pub(crate) struct Unheard<'a> {
    store: &'a Store,
    ending: Option<Ending>,
}

impl<'a> Unheard<'a> {
    /// A question that leaves this behind if it is not answered.
    pub(crate) const fn new(store: &'a Store, ending: Option<Ending>) -> Self {
        Self { store, ending }
    }

    /// From now on it may leave this behind.
    pub(crate) fn leaves(&mut self, ending: Ending) {
        self.ending = Some(ending);
    }

    /// An answer has come.
    pub(crate) fn heard(mut self) {
        self.ending = None;
    }
}

impl Drop for Unheard<'_> {
    fn drop(&mut self) {
        // Where no runtime is left the process ends, and the lease some seconds after it.
        if let (Some(ending), Ok(runtime)) = (self.ending.take(), Handle::try_current()) {
            let tasks = self.store.loose_ends.tasks.clone();
            tasks.spawn_on(end(self.store.clone(), ending).in_current_span(), &runtime);
        }
    }
}

/// How long one try in the background may take: its connection may be dead without anybody saying so.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a process that stops waits for what goes on in the background.
const FAREWELL: Duration = Duration::from_secs(2);

/// Ends a call, once the database takes it; it is tried for as long as a lease lasts.
async fn end(store: Store, mut ending: Ending) {
    let until = Instant::now() + Duration::from_secs(u64::from(LEASE_SECONDS));
    let mut pauses = Pauses::default();
    loop {
        let outcome = {
            // It is never closed.
            let _turn = store.loose_ends.turn.acquire().await;
            within(PATIENCE, store.settle_once(&mut ending)).await
        };
        let Err(error) = outcome else { return };
        if !error.may_pass() || Instant::now() >= until {
            let Ending { lease, settled, .. } = ending;
            let (calls, input, output) = (settled.calls, settled.input.get(), settled.output.get());
            return warn!(
                model = lease.model,
                calls,
                input_tokens = input,
                output_tokens = output,
                "could not end a model call, its lease ends by itself and its cost is not booked: {error}"
            );
        }
        sleep(pauses.take()).await;
    }
}

impl Store {
    /// Ends a call: books what it cost, moves the breakers, and makes room for others. What the database has not taken when
    /// this fails, or is dropped, is offered to it again in the background, for as long as a lease lasts.
    pub async fn settle_call(&self, lease: &ModelLease, settled: &Settled) -> Result<(), StoreError> {
        let mut unheard = Unheard::new(self, Some(Ending::of(lease.clone(), settled.clone())));
        let Some(ending) = &mut unheard.ending else { return Ok(()) };
        let mut outcome = self.settle_once(ending).await;
        if let Err(StoreError::Conflict(_) | StoreError::Busy | StoreError::ShareInUse) = outcome {
            outcome = self.settle_once(ending).await;
        }
        if outcome.is_ok() {
            unheard.heard();
        }
        outcome
    }

    /// Waits until the database has taken the ends of all calls, but two seconds at most: for a process that stops, and makes no
    /// more of them. Leases of those that it has not taken end by themselves.
    pub async fn calls_ended(&self) {
        let tasks = &self.loose_ends.tasks;
        tasks.close();
        let _ = timeout(FAREWELL, tasks.wait()).await;
    }

    async fn settle_once(&self, ending: &mut Ending) -> Result<(), StoreError> {
        let Ending { lease, settled, absent } = ending;
        let _room = self.model_rows.room(lease.purpose).await?;
        let mut db = self.calls_pool(lease.purpose).checkout(Scope::TenantInFleet(lease.caller.tenant())).await?;
        let mut tx = db.begin().await?;
        // First the model's row, as admissions do: one that is about to put the lease has it.
        let model = locked_breaker(&mut tx, &lease.model).await?;
        failpoint!("call.settling");
        if *absent == Absent::Lost || is_there(&mut tx, lease).await? {
            let failed = match settled.verdict {
                Verdict::Fails(_) => fail(&mut tx, lease, &model).await?,
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
        // Once this is on its way nobody can say any more that it was not done.
        *absent = Absent::Settled;
        tx.commit().await?;
        db.release().await?;
        failpoint!("call.settled");
        Ok(())
    }
}

/// What a call that has not failed leaves of the evidence against its model.
const NOT_FAILED: Failed = Failed { evidence: 0, tenant_evidence: 0, opens_model: false, opens_tenant: false };

/// What a failed call changes. Its model's row is locked, and with it what is read here: nobody else changes it.
async fn fail(db: &mut PgConnection, lease: &ModelLease, model: &ModelRow) -> Result<Failed, StoreError> {
    let own = sqlx::query!(
        r#"select failures, evidence, series,
               extract(epoch from open_until_ts - now())::double precision as "open_seconds?"
           from ai_tenant_breaker where tenant_id = $1 and model = $2"#,
        lease.caller.tenant().0,
        lease.model,
    )
    .fetch_optional(db)
    .await?;
    let of_tenant = own.as_ref().map_or_else(Breaker::default, |own| calls::breaker(own.failures, own.open_seconds));
    let known = Failures {
        model: state(&model.breaker),
        evidence: model.evidence,
        tenant: state(&of_tenant),
        of_tenant: of_tenant.failures,
        tenant_evidence: own.filter(|own| own.series == model.series).map_or(0, |own| own.evidence.unsigned_abs()),
    };
    Ok(breaker::fail(&known, &lease.breaker))
}

const fn state(breaker: &Breaker) -> State {
    match breaker {
        Breaker { open_for: Some(_), .. } => State::Open,
        Breaker { is_half_open: true, .. } => State::HalfOpen,
        Breaker { .. } => State::Closed,
    }
}

async fn is_there(db: &mut PgConnection, lease: &ModelLease) -> Result<bool, StoreError> {
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
