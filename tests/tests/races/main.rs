//! Two that want the same, each pair in both orders. The test holds a lock that one side needs in the middle of its transaction,
//! waits until PostgreSQL shows it waiting, starts the other side, waits until that waits as well (or has ended without
//! waiting), and lets go: the order is the test's, and the same in every run.
//!
//! Races of this kind that stand with their subject: a requeue beside a deletion, a death beside a deletion
//! (`jobs/claims.rs`), counting beside an append and a deletion (`jobs/counting.rs`), a lease that another holds again while
//! a summariser thinks (`jobs/leases.rs`), appends in groups (`conversations/append_groups.rs`). Many at once, in whatever
//! order comes: `conversations/concurrency.rs`.

mod checkpoints;
mod deletions;
mod queue;
mod requests;
mod zombies;

use anneal_core::{
    caller::{Caller, TenantId},
    job::JobKind,
    tokens::Tokens,
};
use anneal_store::{ClaimedJob, CountedMessages, ModelSpend, SummaryKind, SummarySpec};
use anneal_tests::{House, Talk, pb};
use uuid::Uuid;

/// In whose name the tests speak.
const CALLER: Caller = Caller::of(TenantId::DEFAULT);

/// Claims what is due of a kind, as a worker does.
async fn claim(house: &House, kind: JobKind) -> Vec<ClaimedJob> {
    let nobody = TenantId(Uuid::nil());
    house.store.claim_jobs(kind, 100, 100, nobody, "by hand", &[]).await.expect("claims").jobs
}

/// Claims the one job of a kind that is due.
async fn claim_one(house: &House, kind: JobKind) -> ClaimedJob {
    let mut claimed = claim(house, kind).await;
    assert_eq!(claimed.len(), 1, "one job is due");
    claimed.remove(0)
}

/// What a worker would record of the job's conversation as it is now: ten tokens a message.
async fn counted<'a>(house: &House, job: &'a ClaimedJob) -> CountedMessages<'a> {
    let read = house.store.uncounted_page(job).await.expect("reads").expect("the conversation is there");
    let counts = read.messages.iter().map(|(id, _, _)| (*id, Tokens::new(10))).collect();
    CountedMessages { job, counted: read.counted, counts }
}

/// The leases of all running jobs have ended.
async fn end_leases(house: &House) {
    let end = "update ai_job set lease_until_ts = now() - interval '1 second' where state = 1";
    sqlx::query(end).execute(&mut house.db().await).await.expect("runs");
}

/// What waits, runs and is dead of a conversation: state, attempts.
async fn jobs(talk: &Talk<'_>) -> Vec<(pb::JobKind, pb::JobState, i32)> {
    let ask = pb::ListJobsRequest { conversation_id: talk.id.clone(), ..Default::default() };
    let jobs = talk.house.operators().list_jobs(ask).await.expect("lists").into_inner().jobs;
    jobs.iter().map(|job| (job.kind(), job.state(), job.attempts)).collect()
}

/// Messages of a conversation that are not counted.
async fn uncounted(talk: &Talk<'_>) -> i64 {
    talk.conversation().await.token_total.expect("has a total").estimated_messages
}

/// A job of this kind was given up before.
async fn plant_dead(talk: &Talk<'_>, kind: JobKind) {
    let plant = "insert into ai_job_dead (tenant_id, kind, conversation_id, generation, attempts, dirty_ts)
        values ($1, $2, $3, 1, 12, now())";
    let plant = sqlx::query(plant).bind(TenantId::DEFAULT.0).bind(kind.code()).bind(talk.uuid());
    plant.execute(&mut talk.house.db().await).await.expect("plants");
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

/// Everything that is left of a conversation, in whatever table.
async fn rows_left(talk: &Talk<'_>) -> i64 {
    let mut db = talk.house.db().await;
    let tables = "select format('select count(*) from %I where conversation_id = $1', table_name)
        from information_schema.columns where table_schema = 'public' and column_name = 'conversation_id'";
    let scans: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut db).await.expect("lists tables");
    let mut left = 0;
    for scan in scans {
        let scan = sqlx::query_scalar::<_, i64>(sqlx::AssertSqlSafe(scan)).bind(talk.uuid());
        left += scan.fetch_one(&mut db).await.expect("counts");
    }
    left
}
