//! The queue seen from outside: marking conversations dirty, and what operators list, requeue and discard.

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    job::JobKind,
};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{
    Store,
    error::{Entity, StoreError},
    failpoint,
    rows::Micros,
    scope::Scope,
};

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// Waits until it is due.
    Waiting,
    /// A worker holds its lease.
    Running,
    /// Given up; waits for an operator.
    Dead,
}

/// A job as operators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// What it does.
    pub kind: JobKind,
    /// For which conversation.
    pub conversation: ConversationId,
    /// Where it stands.
    pub state: JobState,
    /// Starts since its last success.
    pub attempts: i16,
    /// When it may start, its lease ends, or it died.
    pub due: Micros,
    /// Since when there is work.
    pub dirty: Micros,
    /// What went wrong last.
    pub last_error: String,
    /// Who holds it.
    pub worker: String,
}

/// Which jobs to list.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Of this kind.
    pub kind: Option<JobKind>,
    /// In this state.
    pub state: Option<JobState>,
    /// Of this conversation.
    pub conversation: Option<ConversationId>,
    /// After this place: the last entry's state, kind and conversation.
    pub after: Option<(JobState, JobKind, ConversationId)>,
    /// At most so many.
    pub limit: i64,
}

/// Jobs by state, kind and conversation.
#[derive(Debug, Clone)]
pub struct JobPage {
    /// The entries.
    pub jobs: Vec<Job>,
    /// Whether more follow.
    pub more: bool,
}

/// Figures of one kind of job, over all tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueFigures {
    /// The kind.
    pub kind: JobKind,
    /// Waiting.
    pub waiting: i64,
    /// Waiting and due.
    pub ready: i64,
    /// Leased.
    pub running: i64,
    /// Given up.
    pub dead: i64,
    /// Microseconds that the oldest ready job has been due.
    pub oldest_ready_us: i64,
}

impl JobState {
    /// The number that lists order by.
    pub const fn code(self) -> i16 {
        match self {
            Self::Waiting => 1,
            Self::Running => 2,
            Self::Dead => 3,
        }
    }

    /// The state with this number.
    pub const fn from_code(code: i16) -> Option<Self> {
        match code {
            1 => Some(Self::Waiting),
            2 => Some(Self::Running),
            3 => Some(Self::Dead),
            _ => None,
        }
    }
}

struct JobRow {
    state: i16,
    kind: i16,
    conversation_id: Uuid,
    attempts: i16,
    due_us: i64,
    dirty_us: i64,
    last_error: Option<String>,
    worker: Option<String>,
}

impl TryFrom<JobRow> for Job {
    type Error = StoreError;

    fn try_from(row: JobRow) -> Result<Self, StoreError> {
        Ok(Self {
            kind: JobKind::from_code(row.kind).ok_or(StoreError::Unreadable("job kind"))?,
            conversation: ConversationId(row.conversation_id),
            state: JobState::from_code(row.state).ok_or(StoreError::Unreadable("job state"))?,
            attempts: row.attempts,
            due: Micros(row.due_us),
            dirty: Micros(row.dirty_us),
            last_error: row.last_error.unwrap_or_default(),
            worker: row.worker.unwrap_or_default(),
        })
    }
}

/// Marks a conversation dirty for these kinds, in the caller's transaction, which holds the conversation's row lock.
pub(crate) async fn enqueue(
    db: &mut PgConnection,
    caller: Caller,
    id: ConversationId,
    kinds: &[JobKind],
) -> Result<(), StoreError> {
    let dirty: Vec<_> = kinds.iter().map(|kind| (caller.tenant(), id, *kind)).collect();
    enqueue_all(db, &dirty).await
}

/// Marks conversations dirty for kinds, in the caller's transaction, which holds the conversations' row locks.
pub(crate) async fn enqueue_all(
    db: &mut PgConnection,
    dirty: &[(TenantId, ConversationId, JobKind)],
) -> Result<(), StoreError> {
    if dirty.is_empty() {
        return Ok(());
    }
    let tenants: Vec<Uuid> = dirty.iter().map(|(tenant, _, _)| tenant.0).collect();
    let kinds: Vec<i16> = dirty.iter().map(|(_, _, kind)| kind.code()).collect();
    let conversations: Vec<Uuid> = dirty.iter().map(|(_, id, _)| id.0).collect();
    failpoint!("enqueue.begun");
    sqlx::query_file!("sql/enqueue_jobs.sql", &tenants, &kinds, &conversations, None::<String>).execute(db).await?;
    failpoint!("enqueue.marked");
    Ok(())
}

/// Marks a conversation dirty for a checkpoint that a caller asked for, ahead of automatic ones.
pub(crate) async fn enqueue_manual_checkpoint(
    db: &mut PgConnection,
    caller: Caller,
    id: ConversationId,
    argument: String,
) -> Result<(), StoreError> {
    let kinds = [JobKind::Checkpoint.code()];
    sqlx::query_file!("sql/enqueue_jobs.sql", &[caller.tenant().0], &kinds, &[id.0], Some(argument))
        .execute(db)
        .await?;
    failpoint!("enqueue.manual");
    Ok(())
}

impl Store {
    /// Jobs of the caller's tenant.
    pub async fn list_jobs(&self, caller: Caller, filter: &JobFilter) -> Result<JobPage, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let rows = sqlx::query_file_as!(
            JobRow,
            "sql/list_jobs.sql",
            caller.tenant().0,
            filter.kind.map(JobKind::code),
            filter.state.map(JobState::code),
            filter.conversation.map(|id| id.0),
            filter.after.map(|(state, _, _)| state.code()),
            filter.after.map(|(_, kind, _)| kind.code()),
            filter.after.map(|(_, _, id)| id.0),
            filter.limit + 1,
        )
        .fetch_all(&mut *db)
        .await?;
        db.release().await?;
        let more = rows.len() as i64 > filter.limit;
        let rows = rows.into_iter().take(filter.limit.max(0) as usize);
        Ok(JobPage { jobs: rows.map(Job::try_from).collect::<Result<_, _>>()?, more })
    }

    /// Puts a dead job back to work, or makes a waiting one due now.
    pub async fn requeue_job(&self, caller: Caller, kind: JobKind, id: ConversationId) -> Result<Job, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let requeued = sqlx::query_file!("sql/requeue_job.sql", caller.tenant().0, kind.code(), id.0)
            .fetch_optional(&mut *db)
            .await?;
        db.release().await?;
        if requeued.is_none() {
            return Err(StoreError::NotFound(Entity::Job));
        }
        let filter = JobFilter { kind: Some(kind), conversation: Some(id), limit: 1, ..JobFilter::default() };
        let found = self.list_jobs(caller, &filter).await?.jobs.pop();
        found.ok_or(StoreError::NotFound(Entity::Job))
    }

    /// Takes a dead job off the list.
    pub async fn discard_job(&self, caller: Caller, kind: JobKind, id: ConversationId) -> Result<(), StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let gone = sqlx::query!(
            "delete from ai_job_dead where tenant_id = $1 and kind = $2 and conversation_id = $3",
            caller.tenant().0,
            kind.code(),
            id.0,
        )
        .execute(&mut *db)
        .await?;
        db.release().await?;
        if gone.rows_affected() == 0 { Err(StoreError::NotFound(Entity::Job)) } else { Ok(()) }
    }

    /// Figures of every kind of job, over all tenants.
    pub async fn queue_figures(&self) -> Result<Vec<QueueFigures>, StoreError> {
        let mut db = self.reads.checkout(Scope::Queue).await?;
        let kinds: Vec<i16> = JobKind::ALL.iter().map(|kind| kind.code()).collect();
        let rows = sqlx::query_file!("sql/queue_figures.sql", &kinds).fetch_all(&mut *db).await?;
        db.release().await?;
        rows.into_iter()
            .map(|row| {
                Ok(QueueFigures {
                    kind: JobKind::from_code(row.kind).ok_or(StoreError::Unreadable("job kind"))?,
                    waiting: row.waiting,
                    ready: row.ready,
                    running: row.running,
                    dead: row.dead,
                    oldest_ready_us: row.oldest_ready_us,
                })
            })
            .collect()
    }
}
