//! The steps of retention: what cannot be deleted keeps nothing else, steps are bounded by rows and
//! by bytes, and the walks through all conversations do not delay the deletion of idle ones.

use anneal_core::caller::TenantId;
use anneal_store::{KeptDays, RetentionLimit, Walk, WalkStep};
use anneal_testkit::{AnnealBinary, Folder, TestApp, eventually};
use anneal_worker::RetentionSettings;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::{
    BINARY,
    retention::{
        GROWN_ROWS, assert_usage_is_right, change_rows, conversation_of, count, has_rows, idle_days,
    },
};

/// Makes a conversation idle.
const MAKE_IDLE: &str = "update ai_conversation
    set last_activity_ts = now() - interval '100 days', listed_ts = now() - interval '100 days'
    where conversation_id = $1";

async fn execute(app: &TestApp, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .execute(&mut app.db().await)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Lets the deletion of a conversation's rows from this table fail with this SQLSTATE.
async fn refuse_deletion(app: &TestApp, table: &str, id: Uuid, code: &str) {
    let sql = format!(
        "create function refuse() returns trigger language plpgsql as $$
         begin raise exception 'refused' using errcode = '{code}'; end $$;
         create trigger refuse before delete on {table} for each row
         when (old.conversation_id = '{id}') execute function refuse()"
    );
    execute(app, &sql).await;
}

/// Copies a conversation's row to another tenant, whose id comes after the default tenant's.
async fn copy_to_another_tenant(app: &TestApp, id: Uuid) -> Uuid {
    let copy = Uuid::from_u128(id.as_u128() ^ 1);
    let sql = format!(
        "insert into tenant (tenant_id, name) values ('00000000-0000-7000-8000-000000000002', 'other');
         insert into ai_conversation
         select (jsonb_populate_record(c, jsonb_build_object(
             'tenant_id', '00000000-0000-7000-8000-000000000002', 'conversation_id', '{copy}'))).*
         from ai_conversation as c where conversation_id = '{id}'"
    );
    execute(app, &sql).await;
    copy
}

async fn count_prefixes(app: &TestApp, id: Uuid) -> i64 {
    sqlx::query_scalar("select count(*) from ai_context_prefix where conversation_id = $1")
        .bind(id)
        .fetch_one(&mut app.db().await)
        .await
        .expect("counts")
}

/// 90 days for all agents.
fn kept_days() -> KeptDays {
    KeptDays {
        general: 90,
        ..KeptDays::default()
    }
}

/// Rows that a step has deleted. It must not have failed.
fn deleted_rows(step: &WalkStep, limit: RetentionLimit) -> u64 {
    assert!(
        step.failures.is_empty() && step.interruption.is_none(),
        "{step:?}"
    );
    let of_limit = step.deleted.iter().filter(|(of, _)| *of == limit);
    of_limit.map(|(_, rows)| rows).sum()
}

/// The conversations that each step of a walk for idle ones deletes.
async fn deleted_by_steps(app: &TestApp) -> Vec<u64> {
    let (mut steps, mut walk) = (Vec::new(), Walk::Start);
    while walk != Walk::Ended {
        let step = app
            .store
            .delete_idle_conversations(TenantId::DEFAULT, &kept_days(), walk)
            .await;
        walk = step.walk;
        steps.push(deleted_rows(&step, RetentionLimit::IdleDays));
    }
    steps
}

/// The versions that each step of a walk for content that no longer stands erases.
async fn erased_by_steps(app: &TestApp) -> Vec<u64> {
    let (mut steps, mut walk) = (Vec::new(), Walk::Start);
    while walk != Walk::Ended {
        let step = app
            .store
            .erase_old_versions(TenantId::DEFAULT, &kept_days(), walk)
            .await;
        walk = step.walk;
        steps.push(deleted_rows(&step, RetentionLimit::WithdrawnDays));
    }
    steps
}

/// Adds versions to a message that no longer stand for long, each of so many bytes.
async fn add_old_versions(app: &TestApp, id: Uuid, versions: i64, bytes: i64) {
    let sql = format!(
        "insert into ai_message_version (tenant_id, conversation_id, message_id, version, change_id, token_estimate,
            text_bytes, content_bytes, content, content_digest, created_ts, replaced_ts)
         select tenant_id, conversation_id, 1, n, 1, 1, 1, {bytes}, '[]', '', now() - interval '100 days',
            now() - interval '100 days'
         from ai_conversation cross join generate_series(1, {versions}) as n where conversation_id = '{id}'"
    );
    execute(app, &sql).await;
}

#[tokio::test]
async fn rows_that_cannot_be_deleted_keep_none_of_other_conversations_and_tenants() {
    let app = TestApp::start().await;
    let (refused, other) = (
        conversation_of(&app, "", 1).await,
        conversation_of(&app, "", 1).await,
    );
    let of_another_tenant = copy_to_another_tenant(&app, other.uuid()).await;
    let ids = [refused.uuid(), other.uuid(), of_another_tenant];
    for id in ids {
        change_rows(&app, GROWN_ROWS[0], id).await;
    }
    refuse_deletion(&app, "ai_context_prefix", refused.uuid(), "XX000").await;
    app.run_retention(&RetentionSettings::default()).await;
    let mut left = Vec::new();
    for id in ids {
        left.push(count_prefixes(&app, id).await);
    }
    assert_eq!(left, [150, 100, 100]);
}

#[tokio::test]
async fn a_conversation_that_cannot_be_deleted_keeps_no_other() {
    let app = TestApp::start().await;
    let first = conversation_of(&app, "", 100).await;
    let refused = conversation_of(&app, "", 100).await;
    let last = conversation_of(&app, "", 100).await;
    refuse_deletion(&app, "ai_conversation", refused.uuid(), "XX000").await;
    let step = app
        .store
        .delete_idle_conversations(TenantId::DEFAULT, &kept_days(), Walk::Start)
        .await;
    assert_eq!(step.failures.len(), 1, "{step:?}");
    assert_eq!(step.walk, Walk::Ended);
    let left = [
        has_rows(&first).await,
        has_rows(&refused).await,
        has_rows(&last).await,
    ];
    assert_eq!(left, [false, true, false]);
    refused.verify().await;
    assert_usage_is_right(&app).await;
}

#[tokio::test]
async fn a_walk_that_the_database_interrupts_keeps_no_other_tenant_and_is_repeated() {
    let app = TestApp::start().await;
    let conversation = conversation_of(&app, "", 100).await;
    let of_another_tenant = copy_to_another_tenant(&app, conversation.uuid()).await;
    // The code of a server that starts.
    refuse_deletion(&app, "ai_conversation", conversation.uuid(), "57P03").await;
    let step = app
        .store
        .delete_idle_conversations(TenantId::DEFAULT, &kept_days(), Walk::Start)
        .await;
    assert!(step.interruption.is_some(), "{step:?}");
    assert_eq!(step.walk, Walk::Start, "the walk stays where it is");
    let worker = app.worker();
    worker.replace_retention(&idle_days(90));
    worker
        .run_retention()
        .await
        .expect_err("a walk was interrupted");
    assert!(has_rows(&conversation).await);
    assert_eq!(
        app.list_tables_with_rows(of_another_tenant).await,
        [""; 0],
        "the other tenant had its turn"
    );
    execute(&app, "drop trigger refuse on ai_conversation").await;
    app.run_retention(&idle_days(90)).await;
    assert!(!has_rows(&conversation).await);
}

#[tokio::test]
async fn a_step_deletes_no_further_conversation_after_256_mib() {
    let app = TestApp::start().await;
    for _ in 0..5 {
        conversation_of(&app, "", 100).await;
    }
    // Two messages of a conversation have 150 MiB, two conversations more than 256 MiB.
    execute(
        &app,
        "update ai_message set content_bytes = 75 * 1024 * 1024",
    )
    .await;
    assert_eq!(deleted_by_steps(&app).await, [2, 2, 1]);
}

#[tokio::test]
async fn a_step_erases_at_most_1000_versions_of_all_conversations_together() {
    let app = TestApp::start().await;
    for _ in 0..2 {
        let conversation = conversation_of(&app, "", 1).await;
        add_old_versions(&app, conversation.uuid(), 1_300, 0).await;
    }
    assert_eq!(erased_by_steps(&app).await, [1_000, 1_000, 600]);
    assert_usage_is_right(&app).await;
}

#[tokio::test]
async fn a_step_erases_no_further_version_after_256_mib() {
    let app = TestApp::start().await;
    let conversation = conversation_of(&app, "", 1).await;
    add_old_versions(&app, conversation.uuid(), 5, 100 << 20).await;
    assert_eq!(erased_by_steps(&app).await, [3, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_through_all_conversations_does_not_delay_the_deletion_of_idle_ones() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    let (large, idle) = (
        conversation_of(&app, "", 1).await,
        conversation_of(&app, "", 1).await,
    );
    change_rows(&app, GROWN_ROWS[0], large.uuid()).await;
    // The deletion of its old rows waits for the test.
    let wait = "create function wait_for_test() returns trigger language plpgsql as $$
        begin perform pg_advisory_xact_lock(22); return old; end $$;
        create trigger wait_for_test before delete on ai_context_prefix for each row
        execute function wait_for_test()";
    execute(&app, wait).await;
    let mut held = app.db().await;
    sqlx::raw_sql("select pg_advisory_lock(22)")
        .execute(&mut held)
        .await
        .expect("locks");
    folder.file(
        "anneal.toml",
        "[retention]\ninterval_seconds = 1\nidle_days = 90\n",
    );
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    let worker = anneal.worker().await;
    app.wait_for_lock_waiters(1).await;
    assert_eq!(change_rows(&app, MAKE_IDLE, idle.uuid()).await, 1);
    eventually("the idle conversation is deleted", async || {
        !has_rows(&idle).await
    })
    .await;
    let left = "select count(*) from ai_context_prefix";
    assert_eq!(count(&app, left).await, 150, "the other round still waits");
    sqlx::raw_sql("select pg_advisory_unlock(22)")
        .execute(&mut held)
        .await
        .expect("unlocks");
    eventually("the other round goes on", async || {
        count(&app, left).await == 100
    })
    .await;
    let metrics = worker.http_client().await.get("/metrics").await.text;
    let failed: Vec<&str> = metrics
        .lines()
        .filter(|line| line.starts_with("anneal_retention_steps_failed_total{"))
        .collect();
    assert_eq!(failed.len(), 3, "one for each walk: {failed:?}");
    assert!(failed.iter().all(|line| line.ends_with(" 0")), "{failed:?}");
}
