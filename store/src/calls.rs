//! Calls of language models: admitted under the model's row lock, leased while they run, settled when they end
//! (`settling.rs`). No connection is held in between. Whoever dies stops renewing its lease, and what it held is free again.

use std::time::Duration;

use anneal_core::{
    admission::{self, Breaker, BreakerSettings, CallLimits, CallPurpose, Closed, Standing},
    caller::{Caller, ConversationId, TenantId},
    job::{HEARTBEAT_SECONDS, LEASE_SECONDS},
    tokens::Tokens,
};
use sqlx::{Connection as _, PgConnection};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};
use uuid::Uuid;

use crate::{
    Store,
    error::{Entity, StoreError, violated},
    failpoint,
    patience::within,
    pool::{Pool, StoreSettings},
    rows::{column, tokens},
    scope::Scope,
    settling::{Ending, Unheard},
};

/// A call that somebody wants to make.
#[derive(Debug, Clone, Copy)]
pub struct CallAsk<'a> {
    /// The model's name in the configuration.
    pub model: &'a str,
    /// The conversation that it is for.
    pub conversation: ConversationId,
    /// What it is for.
    pub purpose: CallPurpose,
    /// What it may use: its input and the room for its answer.
    pub tokens: Tokens,
    /// What the operator allows.
    pub limits: CallLimits,
}

/// A call that was admitted.
#[derive(Debug, Clone)]
pub struct ModelLease {
    pub(crate) caller: Caller,
    pub(crate) conversation: ConversationId,
    pub(crate) model: String,
    pub(crate) purpose: CallPurpose,
    pub(crate) breaker: BreakerSettings,
    pub(crate) lease: Uuid,
    /// Whether it is the tenant's one call that tries whether its breaker, or the model's, may close.
    tries_model: bool,
    /// The same of the conversation's.
    tries_conversation: bool,
}

/// Who may ask for the rows of models. Another process that stands still may hold such a row, until PostgreSQL ends its session:
/// those who wait for it must not take every connection from those who do not.
pub(crate) struct ModelRows {
    jobs: Semaphore,
    writes: Semaphore,
}

/// How long somebody may wait for room: longer than PostgreSQL leaves a session in a transaction that nobody goes on with.
const ROOM_WITHIN: Duration = Duration::from_secs(10);

impl ModelRows {
    /// A quarter of the connections of jobs and of writes.
    pub(crate) fn of(settings: &StoreSettings) -> Self {
        let quarter = |connections: u32| Semaphore::new((connections / 4).max(1) as usize);
        Self { jobs: quarter(settings.job_connections), writes: quarter(settings.write_connections) }
    }

    /// Given back when dropped.
    pub(crate) async fn room(&self, purpose: CallPurpose) -> Result<SemaphorePermit<'_>, StoreError> {
        let room = match purpose {
            CallPurpose::Summary => &self.jobs,
            CallPurpose::Turn => &self.writes,
        };
        let room = timeout(ROOM_WITHIN, room.acquire()).await.map_err(|_| StoreError::Busy)?;
        room.map_err(|_| StoreError::Busy)
    }
}

impl Store {
    /// Admits a call, or says why not. Until it is settled, its lease must be kept by [`Store::keep_call`]. Where nobody hears
    /// whether it was admitted, it is ended in the background.
    pub async fn admit_call(
        &self,
        caller: Caller,
        ask: &CallAsk<'_>,
    ) -> Result<Result<ModelLease, Closed>, StoreError> {
        let _room = self.model_rows.room(ask.purpose).await?;
        let mut db = self.calls_pool(ask.purpose).checkout(Scope::TenantInFleet(caller.tenant())).await?;
        let mut unheard = Unheard::new(self, None);
        let outcome = match admitted(&mut db, caller, ask, &mut unheard).await {
            // A turn of the same conversation with another model came between.
            Err(StoreError::Database(error)) if violated(error.error()) == Some("ai_model_lease_turn_unique") => {
                db.undo().await.map(|()| Err(Closed::Turn))
            }
            admitted => db.settle(admitted).await,
        };
        failpoint!("call.admitted");
        if outcome.is_ok() {
            unheard.heard();
        }
        outcome
    }

    /// Renews a call's lease. False when it is lost: the call must end, for others may be admitted in its place.
    pub async fn renew_call(&self, lease: &ModelLease) -> Result<bool, StoreError> {
        let mut db = self.calls_pool(lease.purpose).checkout(Scope::TenantInFleet(lease.caller.tenant())).await?;
        let renewed = sqlx::query_file!(
            "sql/renew_model_lease.sql",
            lease.caller.tenant().0,
            lease.conversation.0,
            lease.lease,
            f64::from(LEASE_SECONDS),
            lease.tries_model,
            lease.tries_conversation,
        )
        .execute(&mut *db)
        .await?;
        db.release().await?;
        Ok(renewed.rows_affected() == 1)
    }

    /// Keeps a call's lease until the future is dropped; ends when the lease is lost. A renewal that fails is tried at the
    /// next beat: two may fail before a lease ends; one that nobody answers counts as both.
    pub async fn keep_call(&self, lease: &ModelLease) {
        let beat = Duration::from_secs(u64::from(HEARTBEAT_SECONDS));
        loop {
            tokio::time::sleep(beat).await;
            if let Ok(false) = within(beat, self.renew_call(lease)).await {
                return;
            }
        }
    }

    /// Jobs and turns do not wait for each other's connections.
    pub(crate) const fn calls_pool(&self, purpose: CallPurpose) -> &Pool {
        match purpose {
            CallPurpose::Summary => &self.jobs,
            CallPurpose::Turn => &self.writes,
        }
    }
}

async fn admitted(
    db: &mut PgConnection,
    caller: Caller,
    ask: &CallAsk<'_>,
    unheard: &mut Unheard<'_>,
) -> Result<Result<ModelLease, Closed>, StoreError> {
    let mut tx = db.begin().await?;
    let model = locked_breaker(&mut tx, ask.model).await?.breaker;
    if ask.limits.tokens_per_day.is_some() {
        // Calls of one tenant to two models must not both take the last tokens.
        sqlx::query!("select tenant_id from tenant where tenant_id = $1 for no key update", caller.tenant().0)
            .fetch_optional(&mut *tx)
            .await?;
    }
    let standing = Standing { model, ..standing(&mut tx, caller, ask).await? };
    #[cfg(feature = "sabotage")]
    let standing = crate::sabotage::anybodys_breaker(&mut tx, ask.model, standing).await;
    if let Err(closed) = admission::admit(&standing, &ask.limits, ask.purpose, ask.tokens) {
        tx.rollback().await?;
        return Ok(Err(closed));
    }
    // In a statement of its own: the key of turns must see that they are gone.
    sqlx::query!(
        "delete from ai_model_lease
         where lease_until_ts <= now() and (model = $2 or tenant_id = $3 or (conversation_id = $1 and turn))",
        ask.conversation.0,
        ask.model,
        caller.tenant().0,
    )
    .execute(&mut *tx)
    .await?;
    let lease = ModelLease {
        caller,
        conversation: ask.conversation,
        model: ask.model.to_owned(),
        purpose: ask.purpose,
        breaker: ask.limits.breaker,
        lease: Uuid::now_v7(),
        tries_model: standing.model.is_half_open || standing.tenant.is_half_open,
        tries_conversation: standing.conversation.failures >= ask.limits.breaker.failures
            && ask.purpose == CallPurpose::Summary,
    };
    sqlx::query_file!(
        "sql/put_model_lease.sql",
        caller.tenant().0,
        ask.conversation.0,
        lease.lease,
        ask.model,
        ask.purpose == CallPurpose::Turn,
        column(ask.tokens),
        f64::from(LEASE_SECONDS),
        lease.tries_model,
    )
    .execute(&mut *tx)
    .await?;
    failpoint!("call.put");
    unheard.leaves(Ending::never_made(&lease));
    tx.commit().await?;
    Ok(Ok(lease))
}

/// A model's row.
pub(crate) struct ModelRow {
    pub(crate) breaker: Breaker,
    /// Failures that count against the model.
    pub(crate) evidence: u32,
    /// The series of failures that they belong to.
    pub(crate) series: i64,
}

/// The model's breaker, and its row's lock: admissions of one model follow each other.
pub(crate) async fn locked_breaker(db: &mut PgConnection, model: &str) -> Result<ModelRow, StoreError> {
    sqlx::query!("insert into ai_model_breaker (model) values ($1) on conflict (model) do nothing", model)
        .execute(&mut *db)
        .await?;
    let row = sqlx::query!(
        r#"select failures, evidence, series,
               extract(epoch from open_until_ts - now())::double precision as "open_seconds?"
           from ai_model_breaker where model = $1 for update"#,
        model,
    )
    .fetch_one(db)
    .await?;
    let evidence = row.evidence.unsigned_abs();
    Ok(ModelRow { breaker: breaker(row.failures, row.open_seconds), evidence, series: row.series })
}

/// How things stand but for the model's breaker.
async fn standing(db: &mut PgConnection, caller: Caller, ask: &CallAsk<'_>) -> Result<Standing, StoreError> {
    let row = sqlx::query_file!(
        "sql/call_standing.sql",
        caller.tenant().0,
        ask.conversation.0,
        ask.model,
        TenantId::DEFAULT.0,
    )
    .fetch_optional(db)
    .await?
    .ok_or(StoreError::NotFound(Entity::Conversation))?;
    let calls = |count| u32::try_from(count).unwrap_or(u32::MAX);
    Ok(Standing {
        model: Breaker::default(),
        tenant: breaker(row.tenant_failures, row.tenant_open_seconds),
        conversation: breaker(row.failures, row.open_seconds),
        under_way: calls(row.under_way),
        tenant_under_way: calls(row.tenant_under_way),
        has_neighbours: row.has_neighbours,
        tenant_tokens: tokens(row.tenant_tokens),
        day_left: seconds(Some(row.day_left)).unwrap_or_default(),
        turn: row.turn,
    })
}

/// A breaker with so many seconds until its time is over: none where it is closed, none or less where the time is over.
pub(crate) fn breaker(failures: i32, open_seconds: Option<f64>) -> Breaker {
    let open_for = seconds(open_seconds);
    Breaker { failures: failures.unsigned_abs(), open_for, is_half_open: open_seconds.is_some() && open_for.is_none() }
}

/// A time that is still to come; None: it has passed, or there is none.
pub(crate) fn seconds(left: Option<f64>) -> Option<Duration> {
    left.filter(|left| *left > 0.0).and_then(|left| Duration::try_from_secs_f64(left).ok())
}
