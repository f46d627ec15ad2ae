//! Retention erases content that no longer stands: of withdrawn messages, and earlier versions of
//! edited ones. What was made from it goes with it. Appends do not wait for it, and it gives way to
//! changes of the same messages.

use std::collections::HashMap;

use anneal_core::caller::TenantId;
use anneal_testkit::{
    AnnealBinary, Canary, Folder, LOCK_CONVERSATION, LOCK_DEAD_JOBS, LOCK_JOBS, TestApp,
    TestConversation, assert_refused, assistant, call, dump_database, eventually, pb, prose,
    result, user,
};
use anneal_worker::{RetentionRule, RetentionSettings};
use sqlx::PgConnection;
use tonic::Code;
use uuid::Uuid;

use crate::{
    BINARY,
    retention::{assert_usage_is_right, change_rows, count},
};

const CANARY: Canary = Canary("quuxCanary77");
/// Makes all content that no longer stands old.
const AGE: &str = "update ai_message_version set replaced_ts = now() - interval '31 days' where conversation_id = $1";
const COUNT_VERSIONS: &str = "select count(*) from ai_message_version";

/// Settings that erase content after 30 days, and delete nothing else.
fn settings() -> RetentionSettings {
    RetentionSettings {
        withdrawn_days: 30,
        prefix_versions: 0,
        ..RetentionSettings::default()
    }
}

/// A conversation of two turns whose first message is withdrawn for longer than it is kept.
async fn conversation_with_old_content(app: &TestApp) -> TestConversation<'_> {
    let conversation = app.conversation().await;
    conversation.turns(2).await;
    conversation.withdraw(&[1]).await;
    assert_eq!(change_rows(app, AGE, conversation.uuid()).await, 1);
    conversation
}

#[tokio::test]
async fn old_content_is_erased_and_younger_content_can_be_restored() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.turns(3).await;
    conversation.withdraw(&[1, 3]).await;
    conversation.edit(5, user("Another question.")).await;
    let age = "update ai_message_version set replaced_ts = now() - interval '31 days'
        where conversation_id = $1 and message_id in (1, 5)";
    assert_eq!(change_rows(&app, age, conversation.uuid()).await, 2);
    let kept = app
        .conversation_with(pb::CreateConversationRequest {
            agent_id: "archive".into(),
            ..Default::default()
        })
        .await;
    kept.turns(1).await;
    kept.withdraw(&[1]).await;
    change_rows(&app, AGE, kept.uuid()).await;
    let settings = RetentionSettings {
        rules: vec![RetentionRule {
            agent: Some("archive".into()),
            withdrawn_days: Some(0),
            ..RetentionRule::default()
        }],
        ..settings()
    };

    app.run_retention(&settings).await;
    assert_refused(
        conversation.restore(&[1]).send().await,
        Code::FailedPrecondition,
        "MESSAGE_ERASED",
        "message_ids[0]",
    );
    assert_refused(
        conversation.message_version(5, 1).await,
        Code::NotFound,
        "VERSION_NOT_FOUND",
        "",
    );
    let listed = conversation.messages_with_withdrawn().await;
    let erased: Vec<i64> = listed
        .iter()
        .filter(|message| message.erased)
        .map(|message| message.message_id)
        .collect();
    assert_eq!(erased, [1]);
    conversation.restore(&[3]).await;
    kept.restore(&[1]).await;
    assert_usage_is_right(&app).await;
    for conversation in [conversation, kept] {
        conversation.verify().await;
        conversation.append("And now?").await;
        conversation.verify().await;
    }
}

/// Stores the word where no call stores it reliably: in the error of a dead job, and in the summary
/// of a checkpoint that no longer holds.
async fn plant_in_rows(app: &TestApp, id: Uuid) {
    for sql in [
        "insert into ai_job_dead (tenant_id, kind, conversation_id, generation, attempts, last_error, dirty_ts)
         select tenant_id, 3, conversation_id, 1, 1, $2, now() from ai_conversation where conversation_id = $1",
        "update ai_void_checkpoint set summary = $2, focus = $2 where conversation_id = $1",
    ] {
        let ran = sqlx::query(sql)
            .bind(id)
            .bind(CANARY.in_text("row"))
            .execute(&mut app.db().await)
            .await;
        assert!(ran.expect("runs").rows_affected() > 0, "{sql}");
    }
}

#[tokio::test]
async fn nothing_is_left_of_old_content_and_of_what_was_made_from_it() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        max_message_count: Some(8),
        keep_recent_turns: Some(2),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    let id = conversation.uuid();
    let mut question = user(&CANARY.in_text(&prose(0, 6)));
    question.metadata = HashMap::from([("place".to_owned(), CANARY.in_text("label"))]);
    let planted = vec![
        question,
        call("c", &format!("{{\"said\": \"{}\"}}", CANARY.0)),
        result("c", &CANARY.in_text("found")),
        assistant(&CANARY.in_text("said")),
    ];
    conversation.append_all(planted).request_id("planted").await;
    for number in 1..5 {
        conversation.turn(&prose(number, 6), "Noted.").await;
    }
    app.run_jobs_until_idle().await;
    conversation.context().await;
    let edited = user(&CANARY.in_text("edited"));
    conversation.edit(5, edited).request_id("e1").await;
    conversation.edit(5, user("Plain.")).request_id("e2").await;
    conversation.withdraw_range(1, 4).await;
    app.run_jobs_until_idle().await;
    plant_in_rows(&app, id).await;

    let before = CANARY.find_tables(&app.url).await;
    for table in ["ai_message_version", "ai_void_checkpoint", "ai_job_dead"] {
        assert!(before.contains(table), "{table}: {before:?}");
    }
    let digests: Vec<String> = sqlx::query_scalar(
        "select encode(content_digest, 'hex') from ai_message_version
         union select encode(request_digest, 'hex') from ai_message where request_id = 'planted'
         union select encode(request_digest, 'hex') from ai_request where request_id = 'e1'
         union select encode(source_digest, 'hex') from ai_void_checkpoint",
    )
    .fetch_all(&mut app.db().await)
    .await
    .expect("selects");
    assert!(digests.len() >= 8, "{} digests", digests.len());

    change_rows(&app, AGE, id).await;
    app.run_retention(&settings()).await;
    let tables = CANARY.find_tables(&app.url).await;
    assert!(tables.is_empty(), "{tables:?}");
    let dump = dump_database(&app.url).await;
    let left: Vec<&String> = digests
        .iter()
        .filter(|digest| dump.contains(digest.as_str()))
        .collect();
    assert!(left.is_empty(), "digests of content: {left:?}");
    assert_usage_is_right(&app).await;
    conversation.verify().await;
    let standing =
        "select count(*) from ai_request where request_id = 'e2' and request_digest <> ''";
    assert_eq!(count(&app, standing).await, 1, "what it brought stands");
    let again = conversation.append_all(vec![user("Something else.")]);
    let again = again.request_id("planted").await;
    assert_eq!(again.messages[0].message_id, 1, "it is a repetition");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_and_metrics_of_a_worker_that_deletes_have_no_content() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    let conversation = app.conversation().await;
    let id = conversation.uuid();
    for number in 0..3 {
        let question = CANARY.in_text(&prose(number, 6));
        conversation.turn(&question, &CANARY.in_text("said")).await;
    }
    conversation.withdraw_range(1, 2).await;
    assert_eq!(change_rows(&app, AGE, id).await, 2);
    folder.file(
        "anneal.toml",
        "[log]\nfilter = \"trace\"\n[retention]\ninterval_seconds = 1\nidle_days = 90\nwithdrawn_days = 30\n",
    );
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    let worker = anneal.worker().await;
    eventually("the withdrawn content is erased", async || {
        count(&app, COUNT_VERSIONS).await == 0
    })
    .await;
    let age = "update ai_conversation
        set last_activity_ts = now() - interval '100 days', listed_ts = now() - interval '100 days'
        where conversation_id = $1";
    assert_eq!(change_rows(&app, age, id).await, 1);
    worker
        .wait_for_line("deleted 1 rows of ai_conversation")
        .await;
    let tables = CANARY.find_tables(&app.url).await;
    assert!(tables.is_empty(), "{tables:?}");
    let lines = worker.lines();
    assert!(lines.iter().any(|line| line.contains("TRACE")));
    let leak = lines.iter().find(|line| line.contains(CANARY.0));
    assert_eq!(leak, None, "of {} lines", lines.len());
    let metrics = worker.http_client().await.get("/metrics").await;
    assert!(metrics.status == 200 && !metrics.text.contains(CANARY.0));
}

#[tokio::test]
async fn a_transaction_that_erases_gives_way_to_one_that_holds_rows_which_it_needs() {
    let app = TestApp::start().await;
    let conversation = conversation_with_old_content(&app).await;
    let insert = "insert into ai_job_dead (tenant_id, kind, conversation_id, generation, attempts, last_error, dirty_ts)
        select tenant_id, 3, conversation_id, 1, 1, 'lost', now() from ai_conversation where conversation_id = $1";
    change_rows(&app, insert, conversation.uuid()).await;
    let held = app.hold_lock(LOCK_DEAD_JOBS, conversation.uuid()).await;
    app.run_retention(&settings()).await;
    assert_eq!(count(&app, COUNT_VERSIONS).await, 1);
    held.rollback().await;
    app.run_retention(&settings()).await;
    assert_eq!(count(&app, COUNT_VERSIONS).await, 0);
    assert_usage_is_right(&app).await;
}

/// Executes a statement of the store in an open transaction.
macro_rules! execute {
    ($db:expr, $name:literal $(, $argument:expr)*) => {
        sqlx::query(include_str!(concat!("../../../store/sql/", $name, ".sql")))
            .bind(TenantId::DEFAULT.0)
            $(.bind($argument))*
            .execute(&mut $db)
            .await
            .expect("the statement runs")
    };
}

/// Begins a transaction that erases the first message's content as retention does, and leaves it
/// open.
async fn begin_erasing(app: &TestApp, id: Uuid) -> PgConnection {
    let mut db = app.db().await;
    let begin = "begin; set local lock_timeout = '100ms'";
    sqlx::raw_sql(begin).execute(&mut db).await.expect("begins");
    let keep = "select from ai_conversation where conversation_id = $1 for key share";
    let kept = sqlx::query(keep).bind(id).execute(&mut db).await;
    assert_eq!(kept.expect("locks").rows_affected(), 1);
    let ids = vec![1_i64];
    execute!(db, "erase_old_versions", id, 30, 1_000_i64, 256_i64 << 20);
    execute!(db, "blank_void_checkpoints", id, &ids, &ids);
    execute!(
        db,
        "blank_append_digests",
        id,
        &ids,
        &ids,
        100_i64,
        10_000_i64
    );
    execute!(db, "blank_request_digests", id, &ids, vec![1_i32]);
    db
}

async fn commit(mut db: PgConnection) {
    sqlx::raw_sql("commit")
        .execute(&mut db)
        .await
        .expect("commits");
}

#[tokio::test]
async fn an_append_does_not_wait_while_content_of_its_conversation_is_erased() {
    let app = TestApp::start().await;
    let id = conversation_with_old_content(&app).await.uuid();
    // Sessions that are opened from now on wait for a lock for this long.
    let limit = "do $$ begin execute format('alter database %I set lock_timeout = ''300ms''', current_database()); end $$";
    let limited = sqlx::raw_sql(limit).execute(&mut app.db().await).await;
    limited.expect("limits waits");
    let server = app.second_server().await;
    let conversation = server.conversation_by_id(&id.to_string());

    let erasing = begin_erasing(&app, id).await;
    let appended = conversation.append("And now?").send().await;
    assert_eq!(appended.expect("appends").messages[0].message_id, 5);
    commit(erasing).await;
    // A lock for which appends wait would have made this append fail.
    let held = app.hold_lock(LOCK_CONVERSATION, id).await;
    conversation
        .append("And then?")
        .send()
        .await
        .expect_err("waits for too long");
    held.rollback().await;
    assert_eq!(count(&app, COUNT_VERSIONS).await, 0);
    conversation.verify().await;
}

#[tokio::test]
async fn a_restoration_that_waits_for_an_erasure_is_refused() {
    let app = TestApp::start().await;
    let conversation = conversation_with_old_content(&app).await;
    let erasing = begin_erasing(&app, conversation.uuid()).await;
    let (restored, ()) = tokio::join!(conversation.restore(&[1]).send(), async {
        app.wait_for_lock_waiters(1).await;
        commit(erasing).await;
    });
    assert_refused(
        restored,
        Code::FailedPrecondition,
        "MESSAGE_ERASED",
        "message_ids[0]",
    );
    assert_eq!(conversation.conversation().await.withdrawn_messages, 1);
    conversation.verify().await;
}

#[tokio::test]
async fn content_that_is_being_restored_stays() {
    let app = TestApp::counted_by_workers().await;
    let conversation = conversation_with_old_content(&app).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (restored, ()) = tokio::join!(conversation.restore(&[1]).send(), async {
        // The restoration has moved the content, and waits for the jobs.
        app.wait_for_lock_waiters(1).await;
        app.run_retention(&settings()).await;
        held.rollback().await;
    });
    assert_eq!(restored.expect("restores").withdrawn_messages, 0);
    assert_eq!(conversation.messages().await.len(), 4);
    app.run_jobs_until_idle().await;
    conversation.verify().await;
}
