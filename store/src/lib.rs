//! All access to PostgreSQL. Each statement is here or in `sql/`. Each transaction is one function
//! that is named after its use case. Every statement on tenants' tables names the tenant, or the
//! lease of a job, except statements of the queue, which serves all tenants.
//!
//! - `connection`: pools, deadlines, row-level security, repairs after the clock was set back.
//! - `conversations`, `messages`, `checkpoints`, `sessions`: the rows of these kinds.
//! - `tenants`: tenants, their API keys, and how much they have stored.
//! - `changes`: withdraws, restores, edits and erases messages, and updates what is derived from
//!   them. Withdraws answers whose question is answered anew, and chooses one of them again.
//! - `erasures`: erases the conversations of a user or of a tenant, and keeps receipts.
//! - `retention`: deletes what the operator's limits keep no longer.
//! - `forks`: conversations that begin with copies of another one's messages.
//! - `responses`: responses of the OpenAI protocol: which turn each is, and how it has ended.
//! - `watch`: what watchers of conversations read: heads, changes and dead jobs.
//! - `triggers`: what decides whether a conversation's jobs are due.
//! - `summary_spec`: a summary, of one message or of a checkpoint, and how it was made.
//! - `partial_summaries`: finished parts of summaries that need several model calls.
//! - `context`: what BuildContext reads and writes.
//! - `queue`: jobs.
//! - `model_calls`: admission, leases, settlement and history of model calls.
//! - `audit`: checks stored rows against the promises that docs/operations.md numbers.
//! - `migrate`: runs the migrations of the schema.
//! - `legacy`: moves the rows of an older system's tables into the present schema.
//! - `diagnosis`: what `anneal doctor` reads of the database's settings and statistics.
//! - `durability`: whether a crash of the database can lose acknowledged data, and whether
//!   row-level security is active.
//! - `policy_defaults`: the server's `[session]` settings, which conversations override.
//! - `idempotency`: the answers to requests that a client may send again.
//! - `rows`: how the domain's values are stored in columns.
//! - `error`: which failure of the database becomes which error.
//! - `failpoints`: faults that tests inject.

mod audit;
mod changes;
mod checkpoints;
mod connection;
mod context;
mod conversations;
mod diagnosis;
mod durability;
mod erasures;
mod error;
pub mod failpoints;
mod forks;
mod idempotency;
mod legacy;
mod messages;
mod migrate;
mod model_calls;
mod partial_summaries;
mod policy_defaults;
mod queue;
mod responses;
mod retention;
mod rows;
mod sessions;
mod summary_spec;
mod tenants;
mod triggers;
mod watch;

pub use audit::{AuditCandidates, OrphanedRows, VerifyReport, Violation};
pub use changes::{
    Alternative, Anew, AnewAsk, AnewQuestion, ChangeAsk, ChangeConditions, ChooseAsk, IdRange,
    Labels, MessageChange, MessageChangeKind, MessageEdit, NewContent, Selection, ToolPairs,
    UncountedVersion,
};
pub use checkpoints::{
    Checkpoint, CheckpointBase, CheckpointDraft, CheckpointMaterial, CheckpointPage,
    CheckpointPosition, CheckpointSelection, CheckpointSource, CheckpointSourceBody,
    CompactionStart, CompactionStatus, IdleCheckpoint, ImportedSummary, PreviousCheckpoint,
    SummaryHealth, VoidSince,
};
pub use connection::{
    Backoff, DatabaseFigures, OutageLog, PoolFigures, Pooling, StoreSettings, TableFigures,
    TenantSemaphores, WaitCount, create_database,
};
pub use context::{
    CacheEra, ContextAt, ContextRows, EraCalls, EraPage, EraPageAsk, InputTurns, SummarizedThen,
};
pub use conversations::{
    Conversation, ConversationChange, ConversationFilter, ConversationPage, ConversationStatus,
    CountedConversation, ForkOrigin, NewConversation, OpenToolCalls, Separator,
};
pub use diagnosis::{DatabaseSettings, TableStatistics, WorkerFigures};
pub use durability::{NonDurableSetting, RowSecurityInactive};
pub use erasures::{
    Erasure, ErasureAsk, ErasureKind, ErasurePage, ErasurePosition, ErasureRound, ErasureState,
    ErasureStep, ErasureSubject,
};
pub use error::{Entity, MigrationsError, StoreError};
pub use forks::{ForkAsk, Forked};
pub use legacy::{LegacyCounts, LegacyProgress};
pub use messages::{
    Append, AppendSettings, Appended, AppendedMessage, AskedTurn, ContentRead, CountedMessages,
    Grouping, MessagePage, MessageRange, MessageSummary, MessageVersion, PageAsk, ROW_BYTES,
    ReadBudget, ShortConversationId, StoredMessage, StoredSummary, SummaryOrigin, TokenRun,
    TokenRunsAsk, TurnCandidate, TurnKey, TurnQuestion, UncountedMessages, UnsummarizedMessage,
};
pub use migrate::{Migration, MigrationOutcome, Migrations};
pub use model_calls::{
    AnsweredState, BreakerFigures, Calibration, CallAsk, CallHistory, CallOutcome,
    ConversationBreaker, LearntModel, ModelFault, ModelFigures, ModelLease, RecordedCacheUse,
    RecordedCall, ReportedCall, ReportedTotals, StopAsk, StopMode, StoppedTurn, StoredAnswer,
    SummarySpend, TurnEnd, TurnRequestIds, UsageReport, Verdict,
};
pub use policy_defaults::StoredPolicy;
pub use queue::{
    Claim, ClaimedJob, DeadJobOfTenant, FailOutcome, FinishOutcome, Job, JobCommit, JobFilter,
    JobNotifications, JobNotifier, JobPage, JobState, ManualCompaction, QueueFigures,
    QueuedCompaction, RescueOutcome,
};
pub use responses::{
    DeletedResponse, InputAppends, NewResponse, PutResponse, ResponseEnd, ResponseTurn,
    StoredResponse,
};
pub use retention::{
    ConversationPosition, KeptDays, MAX_KEPT_DAYS, PlannedDeletion, RetentionLimit, TenantLimits,
    TrimLimits, Walk, WalkStep,
};
pub use rows::Micros;
pub use sessions::{Rotation, RotationAttributes, StoredSession};
pub use summary_spec::{ModelSpend, SummaryKind, SummarySpec};
pub use tenants::{
    ActiveKey, ActiveWebSession, ListedKey, ListedTenant, NewKey, NewWebSession, OwnerConnection,
    SessionHolder, TenantFigures, TenantUsage,
};
pub use triggers::ContextUsage;
pub use watch::{Change, ChangeKind, ChangesAsk, ConversationHead, DeadJob};

use anneal_core::policy::SessionSettings;
use connection::{SessionSetup, pool::Pool, row_security::Scope};
use messages::append::AppendBatcher;
use policy_defaults::CurrentPolicyDefaults;

/// How long the database may take to answer a ping. Shorter than the two seconds after which the
/// readiness check gives up, so that the check learns the cause.
const PING_DEADLINE: std::time::Duration = std::time::Duration::from_millis(1_800);

/// Access to the database. Cheap to clone; opens connections when they are needed.
#[derive(Clone)]
pub struct Store {
    writes: Pool,
    /// For batched appends only, one connection per running batch. They count in no tenant's share,
    /// so they must not take the connections of `writes`, of which each tenant has a share. In
    /// metrics the pool is called `shared_writes`: appends of several tenants share a transaction.
    batch_writes: Pool,
    reads: Pool,
    jobs: Pool,
    /// For looking up credentials. The tenant of a lookup is not known yet, so no tenant's share
    /// can limit lookups. With a pool of their own they neither wait for other calls nor delay
    /// them.
    system: Pool,
    /// For the readiness probe only. Otherwise the database would look unreachable while the other
    /// pools are busy.
    probe: Pool,
    model_row_permits: std::sync::Arc<model_calls::model_row::ModelRowPermits>,
    background_settlements: model_calls::settle::BackgroundSettlements,
    outage_log: OutageLog,
    /// The server's `[session]` settings, which conversations override key by key.
    policy_defaults: CurrentPolicyDefaults,
    settings: std::sync::Arc<StoreSettings>,
    append: AppendSettings,
    batcher: std::sync::Arc<AppendBatcher>,
}

impl Store {
    /// Creates a store for the database that the settings name. Does not connect yet.
    pub fn new(
        settings: StoreSettings,
        append: AppendSettings,
        session: SessionSettings,
    ) -> Result<Self, StoreError> {
        let setup = SessionSetup::new(&settings)?;
        let wait = std::time::Duration::from_millis(u64::from(settings.pool_wait_ms));
        let outage_log = setup.outage_log();
        let policy_defaults = CurrentPolicyDefaults::new(session);
        let batch_writes = Pool::new("shared_writes", setup.clone(), append.lanes.get(), wait);
        let batcher = AppendBatcher::new(append.lanes, &batch_writes, &policy_defaults);
        Ok(Self {
            writes: Pool::new("writes", setup.clone(), settings.write_connections, wait),
            batch_writes,
            reads: Pool::new("reads", setup.clone(), settings.read_connections, wait),
            jobs: Pool::new("jobs", setup.clone(), settings.job_connections, wait),
            system: Pool::new("system", setup.clone(), settings.system_connections, wait),
            probe: Pool::new("probe", setup, 1, wait),
            model_row_permits: std::sync::Arc::new(model_calls::model_row::ModelRowPermits::of(
                &settings,
            )),
            background_settlements: model_calls::settle::BackgroundSettlements::default(),
            outage_log,
            policy_defaults,
            settings: std::sync::Arc::new(settings),
            append,
            batcher: std::sync::Arc::new(batcher),
        })
    }

    /// The server's `[session]` settings in force.
    pub fn session(&self) -> std::sync::Arc<SessionSettings> {
        self.policy_defaults.get().session()
    }

    /// Replaces the server's `[session]` settings, for this store and all its clones. Transactions
    /// under way keep the settings with which they began.
    pub fn replace_session(&self, session: SessionSettings) {
        self.policy_defaults.replace(session);
    }

    /// Limits each tenant to `percent` of the connections for reads and of those for writes,
    /// rounded up, at least one. Jobs and batched appends are not counted: their queues take
    /// tenants in turn.
    #[must_use]
    pub fn shared_by_tenants(self, percent: u32) -> Self {
        let (writes, reads) = (
            self.writes.shared_by_tenants(percent),
            self.reads.shared_by_tenants(percent),
        );
        Self {
            writes,
            reads,
            ..self
        }
    }

    /// The same store with a time limit for each use of a connection, from the wait for the
    /// connection to its release. A use that takes longer fails with [`StoreError::Unresponsive`],
    /// and its connection is closed; the next try gets another one. A statement may or may not have
    /// been executed.
    #[must_use]
    pub fn with_deadline(self, limit: std::time::Duration) -> Self {
        Self {
            writes: self.writes.with_deadline(limit),
            batch_writes: self.batch_writes.with_deadline(limit),
            reads: self.reads.with_deadline(limit),
            jobs: self.jobs.with_deadline(limit),
            system: self.system.with_deadline(limit),
            probe: self.probe.with_deadline(limit),
            ..self
        }
    }

    /// Checks with one round trip, on a connection of its own, that the database answers within
    /// 1.8 s. Logs outages: their beginning, and, if it is called regularly, their end.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let answered = self.query_probe().await;
        match &answered {
            Ok(()) => self.outage_log.record_answer(),
            Err(error) => self.outage_log.record_ping_failure(error),
        }
        answered
    }

    async fn query_probe(&self) -> Result<(), StoreError> {
        let probe = self.probe.clone().with_deadline(PING_DEADLINE);
        let mut db = probe.checkout(Scope::Nobody).await?;
        sqlx::query!("select 1 as one").fetch_one(&mut *db).await?;
        db.release().await?;
        Ok(())
    }

    /// The figures of each pool but the probe's, by the pool's name in metrics.
    pub fn pool_figures(&self) -> [(&'static str, PoolFigures); 5] {
        let pools = [
            &self.writes,
            &self.batch_writes,
            &self.reads,
            &self.jobs,
            &self.system,
        ];
        pools.map(Pool::figures)
    }
}
