//! Claims find every due job and share their slots between tenants. Jobs that fail or are requeued
//! during the deletion of their conversation leave no rows.

use anneal_core::{
    caller::{ConversationId, TenantId},
    job::JobKind,
};
use anneal_store::FailOutcome;
use anneal_testkit::{TestApp, eventually, pb};
use sqlx::{Connection as _, PgConnection};
use tonic::Code;
use uuid::Uuid;

/// Inserts one job for each of `tenants` tenants. The job of the last tenant is due, the others are
/// due in an hour.
async fn insert_future_jobs_and_one_due_job(db: &mut PgConnection, tenants: i32, kind: JobKind) {
    let fill = "insert into ai_job (tenant_id, kind, conversation_id, due_ts)
        select ('00000000-0000-7000-a000-' || lpad(n::text, 12, '0'))::uuid, $1, gen_random_uuid(),
            now() + case when n = $2 then '0 s' else '1 h' end::interval
        from generate_series(1, $2) as n";
    sqlx::query(fill)
        .bind(kind.code())
        .bind(tenants)
        .execute(db)
        .await
        .expect("fills");
}

#[tokio::test]
async fn tenants_with_only_future_jobs_do_not_hide_the_due_jobs_of_others() {
    let app = TestApp::counted_by_workers().await;
    let kind = JobKind::SummarizeMessages;
    insert_future_jobs_and_one_due_job(&mut app.db().await, 2_500, kind).await;
    let (mut cursor, mut claimed) = (TenantId(Uuid::nil()), Vec::new());
    loop {
        // At most four jobs, at most two of each tenant, of tenants after the cursor.
        let claim = app
            .store
            .claim_jobs(kind, 4, 2, cursor, "by hand", &[])
            .await
            .expect("claims");
        claimed.push(claim.jobs.len());
        match claim.more_after {
            Some(after) => cursor = after,
            None => break,
        }
    }
    assert_eq!(
        claimed,
        [0, 0, 1],
        "a claim examines a thousand tenants, so only the third reaches the due job"
    );
}

#[tokio::test]
async fn a_worker_reaches_a_due_job_behind_many_tenants() {
    let app = TestApp::counted_by_workers().await;
    insert_future_jobs_and_one_due_job(&mut app.db().await, 2_500, JobKind::SummarizeMessages)
        .await;
    assert_eq!(
        app.run_jobs_until_idle().await,
        1,
        "the due job runs; it has nothing to do, because its conversation does not exist"
    );
}

#[tokio::test]
async fn a_requested_compaction_is_claimed_first_and_claims_are_shared_fairly() {
    let app = TestApp::counted_by_workers().await;
    let mut db = app.db().await;
    // A conversation's id ends with the numbers of its tenant and its job. Job 1 is the oldest; job
    // 5 is the newest, a requested compaction (priority -1).
    let fill = "insert into ai_job (tenant_id, kind, conversation_id, priority, due_ts)
        select ('00000000-0000-7000-a000-' || lpad(tenant::text, 12, '0'))::uuid, $1,
            ('00000000-0000-7000-b000-' || lpad((100 * tenant + n)::text, 12, '0'))::uuid,
            case when n = 5 then -1 else 0 end, now() - (10 - n) * interval '1 s'
        from generate_series(1, 3) as tenant, generate_series(1, 5) as n";
    sqlx::query(fill)
        .bind(JobKind::Checkpoint.code())
        .execute(&mut db)
        .await
        .expect("fills");
    let from_start = TenantId(Uuid::nil());
    let claim = app
        .store
        .claim_jobs(JobKind::Checkpoint, 8, 2, from_start, "by hand", &[])
        .await
        .expect("claims");
    let mut conversations: Vec<String> = claim
        .jobs
        .iter()
        .map(|job| job.conversation.to_string())
        .collect();
    conversations.sort_unstable();
    let last_digits = |id: &String| id[id.len() - 3..].to_owned();
    let claimed: Vec<String> = conversations.iter().map(last_digits).collect();
    assert_eq!(
        claimed,
        ["101", "105", "201", "205", "301", "305"],
        "the two jobs of each tenant are the requested compaction and the oldest"
    );
}

#[tokio::test]
async fn excluded_tenants_are_not_claimed_and_do_not_hide_others() {
    let app = TestApp::counted_by_workers().await;
    let tenant = |n: u128| TenantId(Uuid::from_u128(n));
    for n in 1..=3 {
        let fill = "insert into ai_job (tenant_id, kind, conversation_id)
            select $1, $2, gen_random_uuid() from generate_series(1, 3)";
        let insert = sqlx::query(fill)
            .bind(tenant(n).0)
            .bind(JobKind::Checkpoint.code());
        insert.execute(&mut app.db().await).await.expect("fills");
    }
    let (from_start, excluded) = (TenantId(Uuid::nil()), [tenant(1), tenant(2)]);
    let claim = app
        .store
        .claim_jobs(JobKind::Checkpoint, 2, 2, from_start, "by hand", &excluded)
        .await
        .expect("claims");
    let claimed: Vec<TenantId> = claim.jobs.iter().map(|job| job.tenant).collect();
    assert_eq!(claimed, [tenant(3), tenant(3)]);
}

#[tokio::test]
async fn a_tenants_share_of_the_claim_slots_shrinks_as_more_tenants_have_due_jobs() {
    let app = TestApp::counted_by_workers().await;
    // The first tenant has ten due jobs, the others have one each.
    let fill = "insert into ai_job (tenant_id, kind, conversation_id)
        select ('00000000-0000-7000-a000-' || lpad(tenant::text, 12, '0'))::uuid, $1, gen_random_uuid()
        from generate_series(1, $2) as tenant, generate_series(1, case when tenant = 1 then 10 else 1 end) as n";
    // Fills the queue for this many tenants and claims up to eight jobs. Returns how many jobs were
    // claimed, and how many of them belong to the first tenant.
    let claim = async |tenants: i32| {
        sqlx::query("delete from ai_job")
            .execute(&mut app.db().await)
            .await
            .expect("empties");
        let insert = sqlx::query(fill)
            .bind(JobKind::CountTokens.code())
            .bind(tenants);
        insert.execute(&mut app.db().await).await.expect("fills");
        let from_start = TenantId(Uuid::nil());
        let claim = app
            .store
            .claim_jobs(JobKind::CountTokens, 8, 8, from_start, "by hand", &[])
            .await
            .expect("claims");
        let of_the_first = claim
            .jobs
            .iter()
            .filter(|job| job.tenant.to_string().ends_with("a000-000000000001"));
        (claim.jobs.len(), of_the_first.count())
    };
    assert_eq!(claim(1).await, (8, 8), "no other tenant has due jobs");
    assert_eq!(
        claim(2).await,
        (5, 4),
        "one other tenant: the first gets half of the eight slots"
    );
    assert_eq!(
        claim(7).await,
        (8, 2),
        "six others: the first gets a quarter of the slots"
    );
    assert_eq!(
        claim(20).await,
        (8, 1),
        "nineteen others: no tenant gets more than one slot"
    );
}

/// Creates a conversation whose counting job is dead. Returns its id, as text and as a typed id.
async fn create_conversation_with_dead_job(app: &TestApp) -> (String, ConversationId) {
    let conversation = app.conversation().await;
    conversation.append("said").await;
    let from_start = TenantId(Uuid::nil());
    let claim = app
        .store
        .claim_jobs(JobKind::CountTokens, 1, 1, from_start, "by hand", &[])
        .await
        .expect("claims");
    let job = claim.jobs.first().expect("it is due");
    // This call allows one start (the last argument), so the first failure makes the job dead.
    let failed = app
        .store
        .fail_job(job, "it cannot be done", 0, 1)
        .await
        .expect("fails");
    assert_eq!(failed, FailOutcome::Dead);
    (conversation.id.clone(), job.conversation)
}

/// Statements that delete a conversation's rows; `$1` is its id.
const DELETE_CONVERSATION: [&str; 4] = [
    "delete from ai_message where conversation_id = $1",
    "delete from ai_job where conversation_id = $1",
    "delete from ai_job_dead where conversation_id = $1",
    "delete from ai_conversation where conversation_id = $1",
];

async fn delete_conversation(db: &mut PgConnection, id: ConversationId) {
    for statement in DELETE_CONVERSATION {
        sqlx::query(statement)
            .bind(id.0)
            .execute(&mut *db)
            .await
            .expect("deletes");
    }
}

/// Counts the jobs of a conversation, dead ones included.
async fn count_jobs(db: &mut PgConnection, id: ConversationId) -> i64 {
    let count = "select (select count(*) from ai_job where conversation_id = $1)
        + (select count(*) from ai_job_dead where conversation_id = $1)";
    sqlx::query_scalar(count)
        .bind(id.0)
        .fetch_one(db)
        .await
        .expect("counts")
}

#[tokio::test]
async fn requeuing_a_job_while_its_conversation_is_deleted_leaves_no_job() {
    let app = TestApp::counted_by_workers().await;
    let (conversation_id, id) = create_conversation_with_dead_job(&app).await;
    let (mut db, mut observer) = (app.db().await, app.db().await);
    let mut deletion = db.begin().await.expect("begins");
    let lock = "select from ai_conversation where conversation_id = $1 for update";
    sqlx::query(lock)
        .bind(id.0)
        .execute(&mut *deletion)
        .await
        .expect("locks");
    let ask = pb::RequeueJobRequest {
        kind: pb::JobKind::CountTokens.into(),
        conversation_id,
        ..Default::default()
    };
    let mut operators = app.operators();
    let requeue = tokio::spawn(async move { operators.requeue_job(ask).await });
    eventually("the requeue waits for the conversation", async || {
        let waits = "select exists (select from pg_stat_activity
            where datname = current_database() and wait_event_type = 'Lock')";
        sqlx::query_scalar(waits)
            .fetch_one(&mut observer)
            .await
            .expect("asks")
    })
    .await;
    delete_conversation(&mut deletion, id).await;
    deletion.commit().await.expect("deletes");
    let refused = requeue
        .await
        .expect("runs")
        .expect_err("no job is left to requeue");
    assert_eq!(refused.code(), Code::NotFound);
    assert_eq!(count_jobs(&mut observer, id).await, 0);
}

#[tokio::test]
async fn failing_a_job_does_not_wait_for_the_deletion_of_its_conversation() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.append("said").await;
    let from_start = TenantId(Uuid::nil());
    let claim = app
        .store
        .claim_jobs(JobKind::CountTokens, 1, 1, from_start, "by hand", &[])
        .await
        .expect("claims");
    let job = claim.jobs.first().expect("it is due");
    let mut db = app.db().await;
    let mut deletion = db.begin().await.expect("begins");
    let lock = "select from ai_conversation where conversation_id = $1 for update";
    sqlx::query(lock)
        .bind(job.conversation.0)
        .execute(&mut *deletion)
        .await
        .expect("locks");
    // If `fail_job` waited for the conversation's lock, it would deadlock with the deletion, which
    // locks the job's row next.
    let failed = app
        .store
        .fail_job(job, "it cannot be done", 0, 1)
        .await
        .expect("fails");
    assert_eq!(failed, FailOutcome::Dead);
    delete_conversation(&mut deletion, job.conversation).await;
    deletion.commit().await.expect("deletes");
    assert_eq!(count_jobs(&mut app.db().await, job.conversation).await, 0);
}
