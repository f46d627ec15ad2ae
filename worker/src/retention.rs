//! Deletes what the settings keep no longer, round by round, while the worker runs. All workers do
//! so; they pass over what another one works on. In a round each tenant has its turn again and
//! again, so that a tenant of which much is to be deleted does not keep the others waiting. After
//! each step the worker waits at least for as long as the step took, so that the database has time
//! for other work.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use anneal_core::caller::TenantId;
use anneal_store::{ConversationPosition, RetentionLimit, Store, StoreError, TenantLimits, Walk};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{retention_settings::RetentionSettings, tenant_cursor::BEFORE_FIRST_TENANT};

/// Time limit of a step. Longer than that of other calls, because one conversation may have a
/// million messages.
const STEP_DEADLINE: Duration = Duration::from_mins(5);
/// Time between two walks through all conversations of a tenant.
const LONG_INTERVAL: Duration = Duration::from_hours(1);
/// A tenant of which a round has looked at more conversations than this that are kept, although
/// they would be idle for another agent, is looked at again after [`LONG_INTERVAL`] only.
const MANY_KEPT: u64 = 10_000;

/// Makes rounds until the future is dropped. Begins anew when the settings are replaced.
pub(crate) async fn run_retention_loop(
    store: &Store,
    settings: &watch::Sender<Arc<RetentionSettings>>,
) {
    let store = store.clone().with_deadline(STEP_DEADLINE);
    for limit in RetentionLimit::ALL {
        count_deleted(limit, 0);
    }
    let mut settings = settings.subscribe();
    loop {
        let in_force = Arc::clone(&settings.borrow_and_update());
        warn_of_unknown_tenants(&store, &in_force).await;
        tokio::select! {
            () = run_rounds(&store, &in_force) => {}
            _ = settings.changed() => {}
        }
    }
}

/// Rules for a tenant that does not exist apply to nothing. Its name may be mistyped.
async fn warn_of_unknown_tenants(store: &Store, settings: &RetentionSettings) {
    for name in settings.named_tenants() {
        match store.find_tenant(name).await {
            Ok(Some(_)) => {}
            Ok(None) => warn!(
                tenant = name,
                "retention.rules names the tenant {name}, which does not exist"
            ),
            Err(error) => store.log_failure(&error, || {
                warn!("could not look for the tenants that retention.rules names: {error}");
            }),
        }
    }
}

/// Makes rounds with these settings, until the future is dropped.
async fn run_rounds(store: &Store, settings: &RetentionSettings) {
    let pause = Duration::from_secs(u64::from(settings.interval_seconds));
    let pace = Pace::AtMost {
        conversations_per_second: settings.conversations_per_second,
    };
    let mut schedule = Schedule::default();
    loop {
        // Varied by a quarter, so that workers do not work all at once.
        tokio::time::sleep(pause.mul_f64(0.75 + 0.5 * fastrand::f64())).await;
        let started = Instant::now();
        let mut deleted = BTreeMap::new();
        let ended = run_round(store, settings, pace, &mut schedule, &mut deleted).await;
        log_deleted(&deleted);
        match ended {
            Ok(()) => metrics::gauge!("anneal_retention_round_seconds")
                .set(started.elapsed().as_secs_f64()),
            Err(error) => store.log_failure(&error, || {
                warn!("could not look for what is kept no longer: {error}");
            }),
        }
    }
}

/// Makes a round without pauses.
pub(crate) async fn run_round_at_once(
    store: &Store,
    settings: &RetentionSettings,
) -> Result<(), StoreError> {
    let mut schedule = Schedule::default();
    let mut deleted = BTreeMap::new();
    run_round(store, settings, Pace::AtOnce, &mut schedule, &mut deleted).await
}

/// How fast a round goes.
#[derive(Debug, Clone, Copy)]
enum Pace {
    /// Without pauses.
    AtOnce,
    /// With pauses as long as the steps, or longer.
    AtMost { conversations_per_second: u32 },
}

impl Pace {
    /// The pause after a step that took so long and has deleted so many conversations.
    fn pause(self, took: Duration, conversations: u64) -> Duration {
        match self {
            Self::AtOnce => Duration::ZERO,
            Self::AtMost {
                conversations_per_second,
            } => {
                let seconds = conversations as f64 / f64::from(conversations_per_second.max(1));
                took.max(Duration::from_secs_f64(seconds).saturating_sub(took))
            }
        }
    }
}

/// What does not happen in every round.
#[derive(Debug, Default)]
struct Schedule {
    /// When a walk through the rows of all conversations ended last. None: it is due.
    walked: Option<Instant>,
    /// Tenants that keep many rows, and when they are looked at again.
    resting: HashMap<TenantId, Instant>,
}

impl Schedule {
    /// Begins a round. Returns whether it walks through the rows of all conversations.
    fn begin_round(&mut self) -> bool {
        self.resting.retain(|_, until| Instant::now() < *until);
        self.walked
            .is_none_or(|walked| walked.elapsed() >= LONG_INTERVAL)
    }
}

/// Deletes of every tenant what the settings keep no longer. Adds to `deleted`.
async fn run_round(
    store: &Store,
    settings: &RetentionSettings,
    pace: Pace,
    schedule: &mut Schedule,
    deleted: &mut BTreeMap<RetentionLimit, u64>,
) -> Result<(), StoreError> {
    let walks_all = schedule.begin_round();
    let deletes_rows = walks_all && !settings.trim_limits().keeps_all();
    if !deletes_rows && !settings.has_days() {
        return Ok(());
    }
    let (mut last, mut is_interrupted) = (BEFORE_FIRST_TENANT, false);
    loop {
        let tenants = store.list_tenants_after(last).await?;
        let Some((last_of_page, _)) = tenants.last() else {
            // A walk that was interrupted is repeated in the next round.
            if walks_all && !is_interrupted {
                schedule.walked = Some(Instant::now());
            }
            return Ok(());
        };
        last = *last_of_page;
        let mut waiting: VecDeque<TenantRound> = tenants
            .iter()
            .map(|(tenant, name)| {
                let is_resting = schedule.resting.contains_key(tenant);
                TenantRound::new(*tenant, settings.limits_of(name), is_resting, walks_all)
            })
            .filter(|round| !round.has_ended())
            .collect();
        while let Some(mut round) = waiting.pop_front() {
            let started = Instant::now();
            let mut conversations = 0;
            for (limit, rows) in round.make_step(store).await? {
                count_deleted(limit, rows);
                *deleted.entry(limit).or_default() += rows;
                if limit == RetentionLimit::IdleDays {
                    conversations += rows;
                }
            }
            let pause = pace.pause(started.elapsed(), conversations);
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            if !round.has_ended() {
                waiting.push_back(round);
                continue;
            }
            is_interrupted |= round.is_interrupted;
            if round.kept > MANY_KEPT {
                let until = Instant::now() + LONG_INTERVAL;
                schedule.resting.insert(round.tenant, until);
            }
        }
    }
}

/// The walks through the rows of one tenant.
struct TenantRound {
    tenant: TenantId,
    limits: TenantLimits,
    idle: Walk<ConversationPosition>,
    versions: Walk<ConversationPosition>,
    rows: Walk<ConversationPosition>,
    /// Conversations that may be idle, and stay.
    kept: u64,
    /// Whether a step was interrupted, because the database was away, or because other
    /// transactions used the rows.
    is_interrupted: bool,
}

impl TenantRound {
    fn new(tenant: TenantId, limits: TenantLimits, is_resting: bool, walks_all: bool) -> Self {
        Self {
            tenant,
            idle: first_walk(!is_resting && limits.idle.shortest().is_some()),
            versions: first_walk(walks_all && limits.withdrawn.shortest().is_some()),
            rows: first_walk(walks_all && !limits.trim.keeps_all()),
            limits,
            kept: 0,
            is_interrupted: false,
        }
    }

    fn has_ended(&self) -> bool {
        self.idle == Walk::Ended && self.versions == Walk::Ended && self.rows == Walk::Ended
    }

    /// Makes a step of the first walk that has not ended. Returns how many rows it has deleted, by
    /// limit.
    async fn make_step(&mut self, store: &Store) -> Result<Vec<(RetentionLimit, u64)>, StoreError> {
        if self.idle != Walk::Ended {
            let step = store
                .delete_idle_conversations(self.tenant, &self.limits.idle, self.idle)
                .await?;
            self.idle = step.walk;
            self.kept += step.read.saturating_sub(step.deleted);
            self.log_failure(store, RetentionLimit::IdleDays, step.failure.as_ref());
            return Ok(vec![(RetentionLimit::IdleDays, step.deleted)]);
        }
        if self.versions != Walk::Ended {
            let step = store
                .erase_old_versions(self.tenant, &self.limits.withdrawn, self.versions)
                .await?;
            self.versions = step.walk;
            self.is_interrupted |= step.is_busy;
            self.log_failure(store, RetentionLimit::WithdrawnDays, step.failure.as_ref());
            return Ok(vec![(RetentionLimit::WithdrawnDays, step.deleted)]);
        }
        let step = store
            .trim_rows(self.tenant, self.limits.trim, self.rows)
            .await?;
        self.rows = step.walk;
        Ok(step.deleted)
    }

    /// Logs why not all rows could be deleted, if there is a reason.
    fn log_failure(&mut self, store: &Store, limit: RetentionLimit, failure: Option<&StoreError>) {
        if let Some(error) = failure {
            self.is_interrupted |= error.is_transient();
            store.log_failure(error, || {
                warn!(
                    tenant = %self.tenant,
                    "could not delete all that retention.{} keeps no longer: {error}",
                    limit.setting()
                );
            });
        }
    }
}

const fn first_walk<Position>(is_due: bool) -> Walk<Position> {
    if is_due { Walk::Start } else { Walk::Ended }
}

fn count_deleted(limit: RetentionLimit, rows: u64) {
    metrics::counter!(
        "anneal_retention_deleted_rows_total",
        "setting" => limit.setting(),
        "table" => limit.table()
    )
    .increment(rows);
}

fn log_deleted(deleted: &BTreeMap<RetentionLimit, u64>) {
    for (limit, &rows) in deleted.iter().filter(|(_, rows)| **rows > 0) {
        let (setting, table) = (limit.setting(), limit.table());
        info!(
            setting,
            table,
            rows,
            "deleted {rows} rows of {table}, which retention.{setting} keeps no longer"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_as_long_as_the_step_or_longer_and_keeps_to_the_rate() {
        let pace = Pace::AtMost {
            conversations_per_second: 200,
        };
        let millis = Duration::from_millis;
        // 50 conversations take a quarter of a second, with the step itself.
        assert_eq!(pace.pause(millis(10), 50), millis(240));
        assert_eq!(pace.pause(millis(200), 50), millis(200));
        assert_eq!(pace.pause(millis(10), 0), millis(10));
        assert_eq!(Pace::AtOnce.pause(millis(10), 50), Duration::ZERO);
    }

    #[test]
    fn all_conversations_are_walked_through_until_that_has_ended_and_then_once_per_hour() {
        let mut schedule = Schedule::default();
        assert!(schedule.begin_round());
        assert!(schedule.begin_round(), "the walk was interrupted");
        schedule.walked = Some(Instant::now());
        assert!(!schedule.begin_round());
        schedule.walked = Instant::now().checked_sub(LONG_INTERVAL);
        assert!(schedule.begin_round());
    }

    #[test]
    fn a_round_has_the_walks_that_limits_need_and_a_resting_tenant_lacks_that_of_idle_ones() {
        let round = |days, is_resting, walks_all| {
            let mut limits = TenantLimits::default();
            (limits.idle.general, limits.withdrawn.general) = (days, days);
            limits.trim.prefix_versions = 100;
            let tenant = BEFORE_FIRST_TENANT;
            let round = TenantRound::new(tenant, limits, is_resting, walks_all);
            let (idle, versions) = (round.idle == Walk::Start, round.versions == Walk::Start);
            (idle, versions, round.rows == Walk::Start)
        };
        assert_eq!(round(0, false, true), (false, false, true));
        assert_eq!(round(7, false, false), (true, false, false));
        assert_eq!(round(7, false, true), (true, true, true));
        assert_eq!(round(7, true, true), (false, true, true));
    }
}
