//! The auditor of a worker finds broken promises. It reports them by metric and log, with ids only.
//! Of a long conversation it reads only the newest part.

use anneal_core::caller::{Caller, ConversationId, TenantId};
use anneal_store::VerifyReport;
use anneal_testkit::{
    AnnealBinary, Folder, TestApp, TestConversation, assistant, eventually, pb, prose, user,
};
use tonic::Code;
use uuid::Uuid;

use crate::BINARY;

/// Beginning of every user message of [`create_healthy_conversation`]. No audit may report or log
/// it.
const SECRET: &str = "text that must not be logged";

/// No broken promise.
pub(crate) const NONE: [i32; 0] = [];

/// Creates a counted conversation with a checkpoint.
pub(crate) async fn create_healthy_conversation(app: &TestApp) -> TestConversation<'_> {
    let policy = pb::Policy {
        max_message_count: Some(10),
        keep_recent_turns: Some(1),
        large_message_threshold: Some(200),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    for n in 0..6 {
        conversation
            .turn(&format!("{SECRET} {}", prose(n, 2)), &prose(n + 50, 2))
            .await;
        app.run_jobs_until_idle().await;
    }
    assert_eq!(conversation.checkpoints().await.len(), 1);
    conversation
}

/// Executes a statement with the conversation's id as `$1`.
pub(crate) async fn execute(conversation: &TestConversation<'_>, statement: &'static str) {
    let ran = sqlx::query(statement)
        .bind(conversation.uuid())
        .execute(&mut conversation.app.db().await)
        .await;
    assert!(ran.expect("runs").rows_affected() > 0, "{statement}");
}

/// Audits the conversation completely.
pub(crate) async fn audit(conversation: &TestConversation<'_>) -> VerifyReport {
    let audit = conversation.app.store.audit(
        Caller::of(TenantId::DEFAULT),
        ConversationId(conversation.uuid()),
    );
    let (report, error) = audit.await.expect("audits");
    assert!(error.is_none(), "{error:?}");
    report
}

/// Audits the conversation. Returns the numbers of the promises that are broken.
pub(crate) async fn broken_promises(conversation: &TestConversation<'_>) -> Vec<i32> {
    audit(conversation)
        .await
        .violations
        .iter()
        .map(|violation| violation.promise)
        .collect()
}

/// The number of a promise in `Violation.promise` of the proto (0: inconsistent figures), and a
/// statement that breaks it.
const VIOLATIONS: [(i32, &str); 12] = [
    (
        0,
        "update ai_conversation set token_total = token_total + 1 where conversation_id = $1",
    ),
    (
        0,
        "update ai_message set token_count = null where conversation_id = $1 and message_id = 3",
    ),
    (
        3,
        "delete from ai_message where conversation_id = $1 and message_id = 7",
    ),
    (
        3,
        "update ai_message set turn = turn + 1 where conversation_id = $1 and message_id = 7",
    ),
    (
        6,
        "update ai_conversation_checkpoint set source_digest = 'x' where conversation_id = $1",
    ),
    (
        7,
        "update ai_conversation_checkpoint set source_first_message_id = 2 where conversation_id = $1",
    ),
    (
        12,
        "update ai_message set content = '[{\"type\":\"text\",\"text\":\"\"}]' where conversation_id = $1 and message_id = 2",
    ),
    (
        0,
        "update ai_conversation set withdrawn_messages = 1 where conversation_id = $1",
    ),
    // The source of a fork that is in no list.
    (
        0,
        "update ai_conversation set forked_from_id = conversation_id where conversation_id = $1",
    ),
    // A withdrawn message whose content is still there.
    (
        16,
        "update ai_message set withdrawn_ts = now() where conversation_id = $1 and message_id = 4",
    ),
    // Work without a job: a missing count and a missing checkpoint.
    (
        4,
        "update ai_conversation set counted_message_id = 11 where conversation_id = $1",
    ),
    (
        4,
        "delete from ai_conversation_checkpoint where conversation_id = $1",
    ),
];

#[tokio::test]
async fn an_audit_finds_each_promise_that_the_test_breaks() {
    let app = TestApp::start().await;
    for (promise, statement) in VIOLATIONS {
        let conversation = create_healthy_conversation(&app).await;
        assert_eq!(
            broken_promises(&conversation).await,
            NONE,
            "no promise is broken before the statement"
        );
        execute(&conversation, statement).await;
        let report = audit(&conversation).await;
        assert!(
            report
                .violations
                .iter()
                .any(|found| found.promise == promise),
            "{statement}: {report:?}"
        );
        assert!(!format!("{report:?}").contains(SECRET));
    }
}

#[tokio::test]
async fn rows_of_a_deleted_conversation_are_found_in_every_table() {
    let app = TestApp::start().await;
    create_healthy_conversation(&app).await;
    let search = async || {
        let found = app.store.find_orphaned_rows(&[TenantId::DEFAULT]).await;
        found.expect("searches")
    };
    assert_eq!(search().await.len(), 0);
    for table in app.list_tables_of_conversations().await {
        if table == "ai_conversation" {
            continue;
        }
        let deleted = Uuid::now_v7();
        let ask = || pb::VerifyConversationRequest {
            conversation_id: deleted.to_string(),
        };
        let missing = app.operators().verify_conversation(ask()).await;
        assert_eq!(missing.expect_err("no rows").code(), Code::NotFound);
        app.insert_any_row(&table, deleted).await;
        let found = search().await;
        let expected = format!("the conversation was deleted, but {table} has rows of it");
        assert!(
            found
                .iter()
                .any(|rows| rows.conversation == ConversationId(deleted)
                    && rows.violation.promise == 15
                    && rows.violation.description == expected),
            "{table}: {found:?}"
        );
        let verified = app
            .operators()
            .verify_conversation(ask())
            .await
            .expect("reports the rows")
            .into_inner();
        assert_eq!(
            verified
                .violations
                .iter()
                .map(|found| (found.promise, found.description.as_str()))
                .collect::<Vec<_>>(),
            [(15, expected.as_str())]
        );
    }
}

#[tokio::test]
async fn large_messages_without_a_summary_and_without_a_job_are_found() {
    let app = TestApp::start().await;
    let conversation = create_healthy_conversation(&app).await;
    conversation.append_all(vec![user(&prose(0, 40))]).await;
    app.run_jobs_until_idle().await;
    assert_eq!(
        broken_promises(&conversation).await,
        NONE,
        "the large message has its summary"
    );
    let remove_summary =
        "update ai_message set summary_cache = null, summary_tokens = null, summary_kind = null, summary_ts = null
        where conversation_id = $1 and summary_cache is not null";
    execute(&conversation, remove_summary).await;
    let report = audit(&conversation).await;
    assert!(
        report.violations.iter().any(|found| found.promise == 4),
        "{report:?}"
    );
}

#[tokio::test]
async fn pending_jobs_and_other_settings_are_no_violations() {
    let app = TestApp::start().await;
    let conversation = create_healthy_conversation(&app).await;
    conversation.turn("more", "of it").await;
    assert_eq!(broken_promises(&conversation).await, NONE, "a job waits");
    app.run_jobs_until_idle().await;
    // `quiet_rules` is a fingerprint of the settings under which the triggers were last evaluated.
    // With another fingerprint it is not decided yet what is due, so a missing job is no violation.
    execute(
        &conversation,
        "update ai_conversation set quiet_rules = quiet_rules + 1 where conversation_id = $1",
    )
    .await;
    execute(
        &conversation,
        "delete from ai_conversation_checkpoint where conversation_id = $1",
    )
    .await;
    assert_eq!(broken_promises(&conversation).await, NONE);
}

#[tokio::test]
async fn an_audit_reads_the_newest_part_of_a_long_conversation() {
    let app = TestApp::start().await;
    let conversation = app
        .conversation_with_policy(pb::Policy {
            max_message_count: Some(0),
            ..Default::default()
        })
        .await;
    for _ in 0..26 {
        let batch = (0..100)
            .map(|n| {
                if n % 2 == 0 {
                    user("and?")
                } else {
                    assistant("so")
                }
            })
            .collect();
        conversation.append_all(batch).await;
    }
    app.run_jobs_until_idle().await;
    let report = audit(&conversation).await;
    // Of the 2,600 messages an audit reads the newest 2,000.
    assert_eq!((report.violations.len(), report.messages), (0, 2_000));
    execute(
        &conversation,
        "update ai_message set turn = turn + 1 where conversation_id = $1 and message_id = 2500",
    )
    .await;
    assert_eq!(broken_promises(&conversation).await, [3]);
    execute(
        &conversation,
        "update ai_message set turn = turn - 1 where conversation_id = $1 and message_id = 2500",
    )
    .await;
    execute(
        &conversation,
        "update ai_message set turn = turn + 1 where conversation_id = $1 and message_id = 300",
    )
    .await;
    assert_eq!(
        broken_promises(&conversation).await,
        NONE,
        "the broken message is older than the part that an audit reads"
    );
    let ask = pb::VerifyConversationRequest {
        conversation_id: conversation.id.clone(),
    };
    let verified = app
        .operators()
        .verify_conversation(ask)
        .await
        .expect("verifies")
        .into_inner();
    assert_eq!(
        verified.violations.len(),
        1,
        "a verification reads everything"
    );
    // Large messages end the audited part earlier.
    conversation
        .append_all(vec![user(&"wide ".repeat(600_000))])
        .await;
    for _ in 0..5 {
        conversation
            .append_all(vec![user(&"wide ".repeat(700_000))])
            .await;
    }
    let read = audit(&conversation).await.messages;
    assert!(
        (2..=5).contains(&read),
        "an audit reads at most 16 MiB, the newest messages have 3.5 MB each: {read} were read"
    );
}

#[tokio::test]
async fn violations_are_reported_when_the_policy_cannot_be_read() {
    let app = TestApp::start().await;
    let conversation = create_healthy_conversation(&app).await;
    execute(
        &conversation,
        "delete from ai_message where conversation_id = $1 and message_id = 7",
    )
    .await;
    execute(&conversation, "update ai_conversation set policy = '{\"max_message_count\": \"many\"}' where conversation_id = $1")
        .await;
    let audit = app.store.audit(
        Caller::of(TenantId::DEFAULT),
        ConversationId(conversation.uuid()),
    );
    let (report, error) = audit.await.expect("its messages can be read");
    assert!(
        report
            .violations
            .iter()
            .any(|violation| violation.promise == 3),
        "{report:?}"
    );
    assert!(error.is_some(), "its policy cannot be read");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_reports_broken_promises_by_metric_and_log_with_ids_only() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    let (broken, other) = (
        create_healthy_conversation(&app).await,
        create_healthy_conversation(&app).await,
    );
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    let settings = [
        "worker.http_address=127.0.0.1:0",
        "worker.audit_interval_seconds=1",
        "worker.audit_sample=10",
    ];
    let settings = settings.iter().flat_map(|setting| ["--set", *setting]);
    let worker = anneal.start(&["worker"].into_iter().chain(settings).collect::<Vec<_>>());
    worker.wait_for_line("working as").await;
    let web = worker.http_client().await;
    let metric = async |series: &str| {
        let metrics = web.get("/metrics").await.text;
        metrics
            .lines()
            .find_map(|line| line.strip_prefix(series)?.trim().parse::<f64>().ok())
    };
    eventually("both are audited", async || {
        metric("anneal_audited_conversations_total ")
            .await
            .is_some_and(|n| n >= 2.0)
    })
    .await;
    let promise_3 = "anneal_invariant_violations_total{promise=\"3\"}";
    assert_eq!(
        metric(promise_3).await,
        Some(0.0),
        "the metric exists, with the value 0, before a violation"
    );
    for name in [
        "anneal_jobs_oldest_ready_seconds{kind=\"count_tokens\"}",
        "anneal_jobs_dead{kind=\"checkpoint\"}",
    ] {
        eventually(name, async || metric(name).await.is_some()).await;
    }
    execute(
        &broken,
        "delete from ai_message where conversation_id = $1 and message_id = 9",
    )
    .await;
    let line = worker.wait_for_line("promise 3 is broken").await;
    assert!(
        line.contains("\"level\":\"ERROR\"") && line.contains(&broken.id),
        "{line}"
    );
    assert!(
        line.contains("\"promise\":3") && line.contains(&TenantId::DEFAULT.to_string()),
        "{line}"
    );
    eventually("the violation is counted", async || {
        metric(promise_3).await.is_some_and(|n| n >= 1.0)
    })
    .await;
    let deleted = Uuid::now_v7();
    app.insert_any_row("ai_model_call", deleted).await;
    let line = worker.wait_for_line("promise 15 is broken").await;
    assert!(line.contains(&deleted.to_string()), "{line}");
    for line in worker.lines() {
        assert!(!line.contains(SECRET), "{line}");
        assert!(
            !(line.contains("is broken") && line.contains(&other.id)),
            "{line}"
        );
    }
    worker.terminate().await;
    assert_eq!(worker.wait_for_exit().await, Some(0));
}
