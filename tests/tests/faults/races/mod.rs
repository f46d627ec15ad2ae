//! Races between two operations on the same rows, most of them in both orders. The test holds a
//! lock that the first operation needs in the middle of its transaction, and waits until PostgreSQL
//! shows that the operation waits for the lock. Then the test starts the second operation, waits
//! until that one waits too (or has ended without waiting), and releases the lock. So the order is
//! the same in every run. Some tests run the statements of the first operation in their own
//! transaction instead.
//!
//! - `anew.rs`: a question is answered anew, or an earlier answer chosen, beside an append, a
//!   withdrawal, or the same call.
//! - `changes.rs`: messages are withdrawn while a checkpoint, a summary, a part of one or a count
//!   is stored, or a job is claimed or requeued.
//! - `checkpoints.rs`: the commit of a checkpoint against separators, other checkpoints and
//!   imports.
//! - `concurrent_changes.rs`: messages are withdrawn or restored beside an append, the answer of a
//!   turn, another change or a deletion.
//! - `deletions.rs`: a deletion against summaries, claims, counts, appends, model calls, usage
//!   reports, versions of contexts and another deletion.
//! - `edits.rs`: a message is edited beside another edit, a withdrawal, a checkpoint, a summary, a
//!   count or a deletion.
//! - `erasures.rs`: messages are erased while a checkpoint, a summary, a part of one or a count is
//!   stored, or beside an append, a withdrawal, a restore or an edit; a user is erased beside a
//!   withdrawal or another erasure.
//! - `forks.rs`: a fork against an append, a withdrawal, a deletion, the erasure of its user,
//!   another fork and a creation.
//! - `queue.rs`: enqueue, claim, finish and rescue of jobs.
//! - `repeated_requests.rs`: one request id in two concurrent calls.
//! - `responses.rs`: a response of the OpenAI protocol is stored, moved, ended, cancelled or deleted
//!   beside another such call or the deletion of its conversation.
//! - `stalled_workers.rs`: a worker that resumes after it has lost its job.
//! - `stops.rs`: a stop of a turn at another server, and after a change of messages; also with each
//!   promise broken on purpose.
//! - `tool_policy.rs`: an append against a change of the setting for tool messages.
//!
//! Other races are tested in `tests/tests/api/`: requeue and death against a deletion
//! (`jobs/claims.rs`), counting against an append and a deletion (`jobs/counting.rs`), a lease that
//! passes to another worker during a summary (`jobs/leases.rs`), appends in batches
//! (`conversations/append_batching.rs`), and many operations in no fixed order
//! (`conversations/concurrency.rs`).

mod anew;
mod changes;
mod checkpoints;
mod concurrent_changes;
mod deletions;
mod edits;
mod erasures;
mod forks;
mod queue;
mod repeated_requests;
mod responses;
mod stalled_workers;
mod stops;
mod tool_policy;

use anneal_core::{
    caller::{Caller, TenantId},
    job::JobKind,
    tokens::Tokens,
};
use anneal_store::{ClaimedJob, CountedMessages, ModelSpend, SummaryKind, SummarySpec};
use anneal_testkit::{TestApp, TestConversation, pb};
use uuid::Uuid;

/// The caller of the store functions.
const CALLER: Caller = Caller::of(TenantId::DEFAULT);

/// Claims up to 100 due jobs of a kind, as a worker does.
async fn claim_due_jobs(app: &TestApp, kind: JobKind) -> Vec<ClaimedJob> {
    let before_all_tenants = TenantId(Uuid::nil());
    app.store
        .claim_jobs(kind, 100, 100, before_all_tenants, "by hand", &[])
        .await
        .expect("claims")
        .jobs
}

/// Claims the only due job of a kind.
async fn claim_job(app: &TestApp, kind: JobKind) -> ClaimedJob {
    let mut claimed = claim_due_jobs(app, kind).await;
    assert_eq!(claimed.len(), 1, "one job is due");
    claimed.remove(0)
}

/// Reads the uncounted messages of the job's conversation and counts each as ten tokens.
async fn count_messages<'a>(app: &TestApp, job: &'a ClaimedJob) -> CountedMessages<'a> {
    let read = app
        .store
        .read_uncounted_page(job)
        .await
        .expect("reads")
        .expect("the conversation is there");
    let counts = read
        .messages
        .iter()
        .map(|(id, _, _)| (*id, Tokens::new(10)))
        .collect();
    CountedMessages {
        job,
        counted: read.counted,
        counts,
    }
}

/// Ends the leases of all running jobs (state 1).
async fn end_leases(app: &TestApp) {
    let end = "update ai_job set lease_until_ts = now() - interval '1 second' where state = 1";
    sqlx::query(end)
        .execute(&mut app.db().await)
        .await
        .expect("runs");
}

/// The jobs of a conversation: kind, state (waiting, running or dead) and attempts.
async fn list_jobs(conversation: &TestConversation<'_>) -> Vec<(pb::JobKind, pb::JobState, i32)> {
    let ask = pb::ListJobsRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    };
    let jobs = conversation
        .app
        .operators()
        .list_jobs(ask)
        .await
        .expect("lists")
        .into_inner()
        .jobs;
    jobs.iter()
        .map(|job| (job.kind(), job.state(), job.attempts))
        .collect()
}

/// Reads how many messages of a conversation are not counted.
async fn count_uncounted_messages(conversation: &TestConversation<'_>) -> i64 {
    conversation
        .conversation()
        .await
        .token_total
        .expect("has a total")
        .estimated_messages
}

/// Inserts a dead job of this kind.
async fn insert_dead_job(conversation: &TestConversation<'_>, kind: JobKind) {
    let insert =
        "insert into ai_job_dead (tenant_id, kind, conversation_id, generation, attempts, dirty_ts)
        values ($1, $2, $3, 1, 12, now())";
    let insert = sqlx::query(insert)
        .bind(TenantId::DEFAULT.0)
        .bind(kind.code())
        .bind(conversation.uuid());
    insert
        .execute(&mut conversation.app.db().await)
        .await
        .expect("inserts");
}

/// A summary as a worker would store it.
fn summary(text: &str) -> SummarySpec {
    SummarySpec {
        text: text.into(),
        tokens: Tokens::new(5),
        kind: SummaryKind::Extractive,
        model: "by hand".into(),
        prompt_version: 1,
        spent: ModelSpend::default(),
        duration_ms: 0,
    }
}
