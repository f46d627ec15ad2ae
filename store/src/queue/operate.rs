//! For operators: lists, requeues and discards jobs, and reads the queue's figures.

use anneal_core::{
    caller::{Caller, ConversationId},
    job::JobKind,
};
use uuid::Uuid;

use crate::{
    Store,
    connection::row_security::Scope,
    error::{Entity, StoreError},
    rows::Micros,
};

/// State of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// The job waits until it is due, or until a worker claims it.
    Waiting,
    /// A worker holds the job.
    Running,
    /// The job was given up; an operator decides what becomes of it.
    Dead,
}

/// A job as operators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Kind of the job.
    pub kind: JobKind,
    /// The conversation that it works on.
    pub conversation: ConversationId,
    /// Its state.
    pub state: JobState,
    /// Starts since the last success.
    pub attempts: i16,
    /// Of a waiting job: when it is due. Of a running one: when its lease ends. Of a dead one: when
    /// it was given up.
    pub due: Micros,
    /// Since when there has been work to do.
    pub dirty: Micros,
    /// The last error, without content of messages.
    pub last_error: String,
    /// The worker that holds it; empty: none.
    pub worker: String,
}

/// Which jobs to list.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Only jobs of this kind.
    pub kind: Option<JobKind>,
    /// Only jobs in this state.
    pub state: Option<JobState>,
    /// Only jobs of this conversation.
    pub conversation: Option<ConversationId>,
    /// Only jobs after this position: state, kind and conversation of the previous page's last job.
    pub after: Option<(JobState, JobKind, ConversationId)>,
    /// Most jobs of the page.
    pub limit: i64,
}

/// A page of jobs, in the order of state, kind and conversation.
#[derive(Debug, Clone)]
pub struct JobPage {
    /// The jobs of the page.
    pub jobs: Vec<Job>,
    /// Whether more jobs follow.
    pub more: bool,
}

/// A job that was given up, and whose it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadJobOfTenant {
    /// The tenant's name.
    pub tenant: String,
    /// The job.
    pub job: Job,
}

/// Figures of one kind of job, over all tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueFigures {
    /// The kind that the figures are of.
    pub kind: JobKind,
    /// Jobs that wait, due or not.
    pub waiting: i64,
    /// Jobs that wait and are due.
    pub ready: i64,
    /// Jobs that workers hold.
    pub running: i64,
    /// Jobs that were given up.
    pub dead: i64,
    /// For how many microseconds the oldest of the ready jobs has been due.
    pub oldest_ready_us: i64,
}

impl JobState {
    /// The number by which lists are ordered. For jobs in `ai_job` it is one more than the column
    /// `state`.
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

impl Store {
    /// Lists jobs of the caller's tenant.
    pub async fn list_jobs(
        &self,
        caller: Caller,
        filter: &JobFilter,
    ) -> Result<JobPage, StoreError> {
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
        Ok(JobPage {
            jobs: rows.map(Job::try_from).collect::<Result<_, _>>()?,
            more,
        })
    }

    /// Makes a dead job wait again, or a waiting one due now. A running job runs once more when it
    /// has ended. Returns the job.
    pub async fn requeue_job(
        &self,
        caller: Caller,
        kind: JobKind,
        id: ConversationId,
    ) -> Result<Job, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let requeued =
            sqlx::query_file!("sql/requeue_job.sql", caller.tenant().0, kind.code(), id.0)
                .fetch_optional(&mut *db)
                .await?;
        db.release().await?;
        if requeued.is_none() {
            return Err(StoreError::NotFound(Entity::Job));
        }
        let filter = JobFilter {
            kind: Some(kind),
            conversation: Some(id),
            limit: 1,
            ..JobFilter::default()
        };
        let found = self.list_jobs(caller, &filter).await?.jobs.pop();
        found.ok_or(StoreError::NotFound(Entity::Job))
    }

    /// Deletes a dead job.
    pub async fn discard_job(
        &self,
        caller: Caller,
        kind: JobKind,
        id: ConversationId,
    ) -> Result<(), StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let deleted = sqlx::query!(
            "delete from ai_job_dead where tenant_id = $1 and kind = $2 and conversation_id = $3",
            caller.tenant().0,
            kind.code(),
            id.0,
        )
        .execute(&mut *db)
        .await?;
        db.release().await?;
        if deleted.rows_affected() == 0 {
            Err(StoreError::NotFound(Entity::Job))
        } else {
            Ok(())
        }
    }

    /// Lists up to `limit` jobs of all tenants that were given up last, the newest first.
    pub async fn list_newest_dead_jobs(
        &self,
        limit: i64,
    ) -> Result<Vec<DeadJobOfTenant>, StoreError> {
        let mut db = self.reads.checkout(Scope::Queue).await?;
        let rows = sqlx::query_file!("sql/newest_dead_jobs.sql", limit)
            .fetch_all(&mut *db)
            .await?;
        db.release().await?;
        let jobs = rows.into_iter().map(|row| {
            Ok(DeadJobOfTenant {
                tenant: row.tenant,
                job: Job {
                    kind: JobKind::from_code(row.kind).ok_or(StoreError::Unreadable("job kind"))?,
                    conversation: ConversationId(row.conversation_id),
                    state: JobState::Dead,
                    attempts: row.attempts,
                    due: Micros(row.died_us),
                    dirty: Micros(row.dirty_us),
                    last_error: row.last_error.unwrap_or_default(),
                    worker: String::new(),
                },
            })
        });
        jobs.collect()
    }

    /// Reads the figures of every kind of job, over all tenants.
    pub async fn read_queue_figures(&self) -> Result<Vec<QueueFigures>, StoreError> {
        let mut db = self.reads.checkout(Scope::Queue).await?;
        let kinds: Vec<i16> = JobKind::ALL.iter().map(|kind| kind.code()).collect();
        let rows = sqlx::query_file!("sql/queue_figures.sql", &kinds)
            .fetch_all(&mut *db)
            .await?;
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
