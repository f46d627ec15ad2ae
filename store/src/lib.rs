//! Everything anneal asks of PostgreSQL. Each statement is here (or in `sql/`), each transaction is one function, named
//! after its use. The first filter of every statement is the caller's tenant.

mod address;
mod append;
mod audit;
mod calls;
mod checkpoints;
mod claims;
mod clock;
mod compaction;
mod content;
mod context;
mod conversations;
mod counting;
mod creation;
mod credentials;
mod database;
mod deletion;
mod durability;
mod error;
pub mod failpoints;
mod foreign;
mod jobs;
mod legacy;
mod link;
mod lists;
mod messages;
mod migrate;
mod model_stats;
mod notify;
mod parts;
mod patience;
mod pool;
mod quiet;
mod ranges;
mod requests;
mod rows;
mod rules;
#[cfg(feature = "sabotage")]
mod sabotage;
mod scope;
mod separators;
mod sessions;
mod settling;
mod shares;
mod stored_text;
mod summaries;
mod tail;
mod tenant_semaphores;
mod tenant_usage;
mod turns;
mod usage;
mod verify;
mod watching;

pub use append::{Append, AppendSettings, Appended, AppendedMessage, Grouping};
pub use audit::Candidates;
pub use calls::{CallAsk, ModelLease};
pub use checkpoints::{Checkpoint, CheckpointPage, Compaction};
pub use claims::{Claim, ClaimedJob, Committed, Failed, Finished, ManualCompaction, Rescued};
pub use compaction::{CheckpointDraft, CheckpointMaterial, CheckpointSource, PreviousCheckpoint};
pub use content::{ContentRead, ContentRoom, ROW_BYTES};
pub use context::{ContextRows, TurnsAhead};
pub use conversations::{Conversation, ConversationChange, ConversationStatus, CountedConversation, NewConversation};
pub use counting::{CountedMessages, UncountedMessages};
pub use credentials::{KnownKey, ListedKey, ListedTenant, NewKey, Owner};
pub use database::create_database;
pub use durability::{Unsecured, Weakness};
pub use error::{Entity, StoreError};
pub use foreign::ForeignSummary;
pub use jobs::{Job, JobFilter, JobPage, JobState, QueueFigures};
pub use legacy::{LegacyCounts, Moved};
pub use lists::{ConversationFilter, ConversationPage};
pub use messages::{MessagePage, PageAsk, StoredMessage, StoredSummary};
pub use migrate::{Applied, Migration, Migrations, MigrationsError};
pub use model_stats::{ConversationBreaker, ModelFigures};
pub use notify::{Doorbell, Rings};
pub use patience::{Pauses, within};
pub use pool::{PoolFigures, Pooling, StoreSettings};
pub use ranges::MessageRange;
pub use rows::Micros;
pub use separators::Separator;
pub use sessions::{Rotation, Start, StoredSession};
pub use settling::{Settled, Verdict};
pub use summaries::{MessageSummary, ModelSpend, SummaryKind, SummarySpec, UnsummarizedMessage};
pub use tail::Usage;
pub use tenant_semaphores::{TenantSemaphores, WaitCount};
pub use tenant_usage::TenantUsage;
pub use turns::{RecordedCall, StoredAnswer};
pub use usage::{Calibration, CallHistory, Reported, Spend, UsageReport};
pub use verify::{Verified, Violation};
pub use watching::{Change, ChangesAsk, DeadJob, Head, Stored};

use anneal_core::policy::Session;
use append::Lanes;
use pool::{Pool, pool};
use rules::Rules;
use scope::Scope;

/// The way to the data. Cheap to clone; opens connections when they are needed.
#[derive(Clone)]
pub struct Store {
    writes: Pool,
    /// The lanes' own: appends that wait for a conversation, each with a connection of `writes`, must not keep out those that do not.
    shared_writes: Pool,
    reads: Pool,
    jobs: Pool,
    /// For credentials: whoever is looked up has no tenant yet, and must not wait behind those who have.
    system: Pool,
    /// For the readiness probe alone: whether the database answers does not depend on who uses the other connections.
    probe: Pool,
    model_rows: std::sync::Arc<calls::ModelRows>,
    loose_ends: settling::LooseEnds,
    /// The server's `[session]` settings, which conversations override key by key.
    rules: std::sync::Arc<Rules>,
    settings: std::sync::Arc<StoreSettings>,
    append: AppendSettings,
    /// Started with the first append.
    lanes: std::sync::Arc<std::sync::OnceLock<Lanes>>,
}

impl Store {
    /// A store on the database that the settings name. Does not connect yet.
    pub fn new(settings: StoreSettings, append: AppendSettings, session: Session) -> Result<Self, StoreError> {
        let access = pool::Access::new(&settings)?;
        let wait = std::time::Duration::from_millis(u64::from(settings.pool_wait_ms));
        Ok(Self {
            writes: pool(access.clone(), settings.write_connections, wait),
            shared_writes: pool(access.clone(), append.lanes.get(), wait),
            reads: pool(access.clone(), settings.read_connections, wait),
            jobs: pool(access.clone(), settings.job_connections, wait),
            system: pool(access.clone(), settings.system_connections, wait),
            probe: pool(access, 1, wait),
            model_rows: std::sync::Arc::new(calls::ModelRows::of(&settings)),
            loose_ends: settling::LooseEnds::default(),
            rules: std::sync::Arc::new(Rules::new(session)),
            settings: std::sync::Arc::new(settings),
            append,
            lanes: std::sync::Arc::default(),
        })
    }

    /// The server's `[session]` settings.
    pub fn session(&self) -> &Session {
        self.rules.session()
    }

    /// The same store, of whose connections for reads and for writes one tenant may use so many percent at once, and at least
    /// one. Jobs and appends that share a transaction are not counted: their queues take tenants in turn.
    #[must_use]
    pub fn shared_by_tenants(self, percent: u32) -> Self {
        let (writes, reads) = (self.writes.shared_by_tenants(percent), self.reads.shared_by_tenants(percent));
        Self { writes, reads, ..self }
    }

    /// One round trip to the database, on a connection of its own: is it there?
    pub async fn ping(&self) -> Result<(), StoreError> {
        let mut db = self.probe.checkout(Scope::Nobody).await?;
        sqlx::query!("select 1 as one").fetch_one(&mut *db).await?;
        db.release().await?;
        Ok(())
    }

    /// How busy the pools are: writes, shared writes, reads, jobs, credentials.
    pub fn pools(&self) -> [(&'static str, PoolFigures); 5] {
        [
            ("writes", self.writes.figures()),
            ("shared_writes", self.shared_writes.figures()),
            ("reads", self.reads.figures()),
            ("jobs", self.jobs.figures()),
            ("system", self.system.figures()),
        ]
    }
}
