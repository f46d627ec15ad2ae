//! Deletes what the settings keep no longer, round by round, while the worker runs. All workers do
//! so; they pass over what another one works on. There are two kinds of rounds, which run beside
//! each other: one for idle conversations, and one for everything else, which takes longer. In a
//! round each tenant has its turn again and again, so that a tenant of which much is to be deleted
//! does not keep the others waiting. After each step the worker waits at least for as long as the
//! step took, so that the database has time for other work. If rows cannot be deleted, the walk
//! goes on after them. If the database does not answer, the walk goes on in the next round; after
//! [`INTERRUPTIONS`] such steps in a row, all walks do.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use anneal_core::caller::TenantId;
use anneal_store::{RetentionLimit, Store, StoreError, TenantLimits, Walk, WalkStep};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{
    pause::sleep_about, retention_settings::RetentionSettings, tenant_cursor::BEFORE_FIRST_TENANT,
};

/// Time limit of each use of a connection. Longer than that of other calls, because one
/// conversation may have a million messages.
const STEP_DEADLINE: Duration = Duration::from_mins(10);
/// Time between two rounds that walk through all conversations.
const LONG_INTERVAL: Duration = Duration::from_hours(1);
/// If a round has passed over more conversations of a tenant than this, because they are kept
/// although they would be idle for another agent, the rounds leave out the tenant for
/// [`LONG_INTERVAL`].
const MANY_KEPT: u64 = 10_000;
/// Steps in a row that the database or a pool of connections has interrupted, after which a round
/// ends: the next ones would be interrupted too.
const INTERRUPTIONS: u32 = 3;

/// Makes rounds until the future is dropped. Begins anew when the settings are replaced.
pub(crate) async fn run_retention_loop(
    store: &Store,
    settings: &watch::Sender<Arc<RetentionSettings>>,
) {
    let store = store.clone().with_deadline(STEP_DEADLINE);
    for limit in RetentionLimit::ALL {
        count_deleted(limit, 0);
    }
    for walk in WalkKind::ALL {
        count_failed(walk, 0);
    }
    let mut settings = settings.subscribe();
    loop {
        let in_force = Arc::clone(&settings.borrow_and_update());
        warn_of_unknown_tenants(&store, &in_force).await;
        tokio::select! {
            () = run_rounds(&store, &in_force, RoundKind::Idle) => {}
            () = run_rounds(&store, &in_force, RoundKind::All) => {}
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

/// Makes rounds of a kind with these settings, until the future is dropped.
async fn run_rounds(store: &Store, settings: &RetentionSettings, kind: RoundKind) {
    let pause = Duration::from_secs(u64::from(settings.interval_seconds));
    let pace = Pace::AtMost {
        conversations_per_second: settings.conversations_per_second,
    };
    let mut schedule = Schedule::new(kind);
    loop {
        sleep_about(pause).await;
        // An interruption is logged where it happens.
        schedule.make_round(store, settings, pace).await.ok();
    }
}

/// Makes a round of each kind, without pauses. Returns an error that has kept a walk from its end.
pub(crate) async fn run_rounds_at_once(
    store: &Store,
    settings: &RetentionSettings,
) -> Result<(), StoreError> {
    let mut made = Ok(());
    for kind in RoundKind::ALL {
        let mut schedule = Schedule::new(kind);
        made = made.and(schedule.make_round(store, settings, Pace::AtOnce).await);
    }
    made
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

/// The rows that a round looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RoundKind {
    /// Idle conversations, which come first in the walk.
    Idle,
    /// Everything else, for which it walks through all conversations.
    All,
}

impl RoundKind {
    const ALL: [Self; 2] = [Self::Idle, Self::All];

    /// The round in metrics.
    const fn label(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::All => "all",
        }
    }

    /// Time after a round through all tenants until the next one is due.
    const fn interval(self) -> Duration {
        match self {
            Self::Idle => Duration::ZERO,
            Self::All => LONG_INTERVAL,
        }
    }

    /// The walks that it makes.
    const fn walks(self) -> &'static [WalkKind] {
        match self {
            Self::Idle => &[WalkKind::Idle],
            Self::All => &[WalkKind::Versions, WalkKind::Rows],
        }
    }
}

/// A walk through the conversations of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WalkKind {
    /// Deletes idle conversations.
    Idle,
    /// Erases content that no longer stands.
    Versions,
    /// Deletes the oldest rows of other tables.
    Rows,
}

impl WalkKind {
    const ALL: [Self; 3] = [Self::Idle, Self::Versions, Self::Rows];

    /// The walk in metrics and logs.
    const fn label(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Versions => "versions",
            Self::Rows => "rows",
        }
    }

    /// Whether the limits let it delete or erase anything.
    fn is_needed(self, limits: &TenantLimits) -> bool {
        match self {
            Self::Idle => limits.idle.shortest().is_some(),
            Self::Versions => limits.withdrawn.shortest().is_some(),
            Self::Rows => !limits.trim.keeps_all(),
        }
    }
}

/// The rounds of one kind.
#[derive(Debug)]
struct Schedule {
    kind: RoundKind,
    /// When a round through all tenants ended last. None: it is due.
    ended: Option<Instant>,
    /// Walks that were interrupted. They go on where they are, until the next round through all
    /// tenants is due.
    interrupted: VecDeque<TenantWalks>,
    /// Tenants that keep many conversations, and when they are looked at again.
    resting: HashMap<TenantId, Instant>,
}

impl Schedule {
    fn new(kind: RoundKind) -> Self {
        Self {
            kind,
            ended: None,
            interrupted: VecDeque::new(),
            resting: HashMap::new(),
        }
    }

    /// Whether a round through all tenants is due.
    fn is_due(&self) -> bool {
        self.ended
            .is_none_or(|ended| ended.elapsed() >= self.kind.interval())
    }

    /// Makes a round through all tenants if it is due, and otherwise goes on with what was
    /// interrupted. Returns an error that has kept a walk from its end.
    async fn make_round(
        &mut self,
        store: &Store,
        settings: &RetentionSettings,
        pace: Pace,
    ) -> Result<(), StoreError> {
        let is_due = self.is_due();
        let waiting = if is_due {
            let tenants = list_tenants(store, settings, self.kind)
                .await
                .inspect_err(|error| {
                    store.log_failure(error, || {
                        warn!("could not look for what is kept no longer: {error}");
                    });
                })?;
            self.interrupted.clear();
            self.begin_walks(tenants)
        } else {
            std::mem::take(&mut self.interrupted)
        };
        let started = Instant::now();
        let made = self.walk_in_turn(store, pace, waiting).await;
        if is_due {
            self.ended = Some(Instant::now());
            metrics::gauge!("anneal_retention_round_seconds", "round" => self.kind.label())
                .set(started.elapsed().as_secs_f64());
        }
        made
    }

    /// The walks of a round through these tenants.
    fn begin_walks(&mut self, tenants: Vec<(TenantId, TenantLimits)>) -> VecDeque<TenantWalks> {
        self.resting.retain(|_, until| Instant::now() < *until);
        let mut walks: VecDeque<TenantWalks> = tenants
            .into_iter()
            .filter(|(tenant, _)| !self.resting.contains_key(tenant))
            .map(|(tenant, limits)| TenantWalks::new(tenant, limits, self.kind))
            .filter(|walks| !walks.left.is_empty())
            .collect();
        // Another tenant is the first one each time: workers do not follow each other, and rounds
        // that end early do not always leave out the same tenants.
        if !walks.is_empty() {
            walks.rotate_left(fastrand::usize(..walks.len()));
        }
        walks
    }

    /// Makes a step for each of the tenants in turn, until all walks have ended or are interrupted.
    async fn walk_in_turn(
        &mut self,
        store: &Store,
        pace: Pace,
        mut waiting: VecDeque<TenantWalks>,
    ) -> Result<(), StoreError> {
        let mut deleted: BTreeMap<RetentionLimit, u64> = BTreeMap::new();
        let (mut made, mut interruptions) = (Ok(()), 0);
        while let Some(mut walks) = waiting.pop_front() {
            let started = Instant::now();
            let step = walks.make_step(store).await;
            let mut conversations = 0;
            for (limit, rows) in step.deleted {
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
            if let Some(error) = step.interruption {
                made = Err(error);
                self.interrupted.push_back(walks);
                interruptions += 1;
                if interruptions == INTERRUPTIONS {
                    // The others come first in the next round.
                    waiting.append(&mut self.interrupted);
                    std::mem::swap(&mut self.interrupted, &mut waiting);
                }
                continue;
            }
            interruptions = 0;
            if !walks.left.is_empty() {
                waiting.push_back(walks);
            } else if walks.kept > MANY_KEPT {
                let until = Instant::now() + LONG_INTERVAL;
                self.resting.insert(walks.tenant, until);
            }
        }
        log_deleted(&deleted);
        made
    }
}

/// All tenants, each with the limits that apply to it. Empty: a round of this kind has nothing to
/// look for.
async fn list_tenants(
    store: &Store,
    settings: &RetentionSettings,
    round: RoundKind,
) -> Result<Vec<(TenantId, TenantLimits)>, StoreError> {
    let mut all = Vec::new();
    let trims = round == RoundKind::All && !settings.trim_limits().keeps_all();
    if !trims && !settings.has_days() {
        return Ok(all);
    }
    let mut last = BEFORE_FIRST_TENANT;
    loop {
        let page = store.list_tenants_after(last).await?;
        let Some((last_of_page, _)) = page.last() else {
            return Ok(all);
        };
        last = *last_of_page;
        let limits = page
            .into_iter()
            .map(|(tenant, name)| (tenant, settings.limits_of(&name)));
        all.extend(limits);
    }
}

/// The walks through the conversations of one tenant.
#[derive(Debug)]
struct TenantWalks {
    tenant: TenantId,
    limits: TenantLimits,
    /// Walks that have not ended, one after the other, and how far each has come.
    left: VecDeque<(WalkKind, Walk)>,
    /// Conversations that the steps have passed over because they are kept, although they would be
    /// idle for another agent.
    kept: u64,
}

impl TenantWalks {
    fn new(tenant: TenantId, limits: TenantLimits, round: RoundKind) -> Self {
        let needed = round.walks().iter().filter(|walk| walk.is_needed(&limits));
        Self {
            tenant,
            left: needed.map(|walk| (*walk, Walk::Start)).collect(),
            limits,
            kept: 0,
        }
    }

    /// Makes a step of the first walk that has not ended. Logs and counts what has failed.
    async fn make_step(&mut self, store: &Store) -> WalkStep {
        let (tenant, limits) = (self.tenant, &self.limits);
        let Some((kind, walk)) = self.left.pop_front() else {
            return WalkStep::from(Walk::Ended);
        };
        let step = match kind {
            WalkKind::Idle => {
                store
                    .delete_idle_conversations(tenant, &limits.idle, walk)
                    .await
            }
            WalkKind::Versions => {
                store
                    .erase_old_versions(tenant, &limits.withdrawn, walk)
                    .await
            }
            WalkKind::Rows => store.trim_rows(tenant, limits.trim, walk).await,
        };
        log_failures(store, tenant, kind, &step);
        if step.walk != Walk::Ended {
            self.left.push_front((kind, step.walk));
        }
        self.kept += step.kept;
        step
    }
}

/// Logs and counts why a step has not deleted all that it should have.
fn log_failures(store: &Store, tenant: TenantId, walk: WalkKind, step: &WalkStep) {
    for (limit, error) in &step.failures {
        let setting = limit.setting();
        store.log_failure(error, || {
            warn!(
                %tenant,
                setting,
                "could not delete all that retention.{setting} keeps no longer: {error}"
            );
        });
    }
    if let Some(error) = &step.interruption {
        let walk = walk.label();
        store.log_failure(error, || {
            warn!(%tenant, walk, "retention was interrupted, it goes on later: {error}");
        });
    }
    if !step.failures.is_empty() || step.interruption.is_some() {
        count_failed(walk, 1);
    }
}

fn count_failed(walk: WalkKind, steps: u64) {
    metrics::counter!("anneal_retention_steps_failed_total", "walk" => walk.label())
        .increment(steps);
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
    use uuid::Uuid;

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
    fn rounds_for_idle_conversations_are_always_due_and_the_others_once_per_hour() {
        let mut idle = Schedule::new(RoundKind::Idle);
        let mut all = Schedule::new(RoundKind::All);
        assert!(idle.is_due() && all.is_due());
        (idle.ended, all.ended) = (Some(Instant::now()), Some(Instant::now()));
        assert!(idle.is_due() && !all.is_due());
        all.ended = Instant::now().checked_sub(LONG_INTERVAL);
        assert!(all.is_due());
    }

    #[test]
    fn a_round_has_the_walks_that_limits_need() {
        let walks = |days, round| {
            let mut limits = TenantLimits::default();
            (limits.idle.general, limits.withdrawn.general) = (days, days);
            limits.trim.prefix_versions = 100;
            let walks = TenantWalks::new(BEFORE_FIRST_TENANT, limits, round);
            walks.left.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(walks(0, RoundKind::Idle), []);
        assert_eq!(walks(7, RoundKind::Idle), [(WalkKind::Idle, Walk::Start)]);
        assert_eq!(walks(0, RoundKind::All), [(WalkKind::Rows, Walk::Start)]);
        let both = [WalkKind::Versions, WalkKind::Rows].map(|walk| (walk, Walk::Start));
        assert_eq!(walks(7, RoundKind::All), both);
    }

    #[test]
    fn a_round_leaves_out_tenants_that_rest() {
        let mut schedule = Schedule::new(RoundKind::Idle);
        let mut limits = TenantLimits::default();
        limits.idle.general = 7;
        let tenants = [1, 2].map(|number| TenantId(Uuid::from_u128(number)));
        let [first, second] = tenants;
        schedule.resting = HashMap::from([(first, Instant::now() + LONG_INTERVAL)]);
        let all = tenants.map(|tenant| (tenant, limits.clone()));
        let walks = schedule.begin_walks(all.clone().to_vec());
        assert_eq!(
            walks.iter().map(|one| one.tenant).collect::<Vec<_>>(),
            [second]
        );
        schedule.resting = HashMap::from([(first, Instant::now())]);
        assert_eq!(schedule.begin_walks(all.to_vec()).len(), 2);
    }
}
