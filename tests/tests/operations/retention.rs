//! Workers delete what the settings of `[retention]` keep no longer: idle conversations by the most
//! specific rule, and the oldest rows of tables that grow. Nothing else goes. What another
//! transaction uses stays for the next round. `retention_content` has tests of withdrawn content,
//! `retention_steps` of what fails and of the limits of a step.

use std::collections::BTreeMap;

use anneal_core::caller::TenantId;
use anneal_testkit::{
    AnnealBinary, Folder, LOCK_CONVERSATION, LOCK_JOBS, TestApp, TestConversation, eventually, pb,
};
use anneal_worker::{RetentionRule, RetentionSettings};
use serde_json::Value;
use uuid::Uuid;

use crate::BINARY;

/// The name of the tenant that callers without a credential have.
const TENANT: &str = "default";

/// Runs a statement with this id as `$1`. Returns the number of rows that it has changed.
pub(crate) async fn change_rows(app: &TestApp, sql: &'static str, id: Uuid) -> u64 {
    let ran = sqlx::query(sql).bind(id).execute(&mut app.db().await).await;
    ran.expect("the statement runs").rows_affected()
}

/// The number that a statement selects.
pub(crate) async fn count(app: &TestApp, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql)
        .fetch_one(&mut app.db().await)
        .await
        .expect("counts")
}

/// Asserts that the usage of all tenants is that of the stored rows.
pub(crate) async fn assert_usage_is_right(app: &TestApp) {
    let differences: (i64, i64) = sqlx::query_as(
        "select (select coalesce(sum(messages), 0)::bigint from tenant_usage_part)
                - (select count(*) from ai_message where token_count is not null),
            (select coalesce(sum(content_bytes), 0)::bigint from tenant_usage_part)
                - (select coalesce(sum(content_bytes), 0)::bigint from ai_message where token_count is not null)
                - (select coalesce(sum(content_bytes), 0)::bigint from ai_message_version)",
    )
    .fetch_one(&mut app.db().await)
    .await
    .expect("sums");
    assert_eq!(differences, (0, 0), "messages and bytes");
}

/// Settings that delete conversations after so many days, and nothing else.
pub(crate) fn idle_days(days: u32) -> RetentionSettings {
    RetentionSettings {
        idle_days: days,
        prefix_versions: 0,
        ..RetentionSettings::default()
    }
}

fn rule(tenant: Option<&str>, agent: Option<&str>, idle_days: u32) -> RetentionRule {
    RetentionRule {
        tenant: tenant.map(str::to_owned),
        agent: agent.map(str::to_owned),
        idle_days: Some(idle_days),
        ..RetentionRule::default()
    }
}

/// A conversation of an agent with a turn, whose newest message is so many days old.
pub(crate) async fn conversation_of<'a>(
    app: &'a TestApp,
    agent_id: &str,
    idle_days: i32,
) -> TestConversation<'a> {
    let ask = pb::CreateConversationRequest {
        agent_id: agent_id.to_owned(),
        ..Default::default()
    };
    let conversation = app.conversation_with(ask).await;
    conversation.turns(1).await;
    sqlx::query(
        "update ai_conversation
         set last_activity_ts = now() - $2::integer * interval '1 day', listed_ts = now() - $2 * interval '1 day'
         where conversation_id = $1",
    )
    .bind(conversation.uuid())
    .bind(idle_days)
    .execute(&mut app.db().await)
    .await
    .expect("makes it older");
    conversation
}

pub(crate) async fn has_rows(conversation: &TestConversation<'_>) -> bool {
    let tables = conversation.app.list_tables_with_rows(conversation.uuid());
    !tables.await.is_empty()
}

#[tokio::test]
async fn idle_conversations_go_by_the_most_specific_rule_and_others_stay() {
    let app = TestApp::start().await;
    let settings = RetentionSettings {
        rules: vec![
            rule(None, Some("lab"), 7),
            rule(Some(TENANT), Some("audit"), 0),
            rule(Some("another"), None, 1),
        ],
        ..idle_days(90)
    };
    let mut conversations = Vec::new();
    for (agent, days, is_kept) in [
        ("", 91, false),
        ("", 89, true),
        ("lab", 8, false),
        ("lab", 6, true),
        ("audit", 1_000, true),
    ] {
        let conversation = conversation_of(&app, agent, days).await;
        conversations.push((conversation, agent, days, is_kept));
    }
    app.run_retention(&settings).await;
    for (conversation, agent, days, is_kept) in conversations {
        let is_there = has_rows(&conversation).await;
        assert_eq!(is_there, is_kept, "agent {agent:?}, {days} days");
        if is_there {
            conversation.verify().await;
        }
    }
    assert_usage_is_right(&app).await;
}

#[tokio::test]
async fn by_default_no_conversation_goes() {
    let app = TestApp::start().await;
    let conversation = conversation_of(&app, "", 10_000).await;
    app.run_retention(&RetentionSettings::default()).await;
    assert!(has_rows(&conversation).await);
}

#[tokio::test]
async fn a_conversation_in_use_is_passed_over_and_goes_in_the_next_round() {
    let app = TestApp::start().await;
    let (used, free) = (
        conversation_of(&app, "", 100).await,
        conversation_of(&app, "", 100).await,
    );
    let held = app.hold_lock(LOCK_CONVERSATION, used.uuid()).await;
    app.run_retention(&idle_days(90)).await;
    assert_eq!(
        (has_rows(&used).await, has_rows(&free).await),
        (true, false)
    );
    held.rollback().await;
    app.run_retention(&idle_days(90)).await;
    assert!(!has_rows(&used).await);
}

#[tokio::test]
async fn a_conversation_that_is_used_after_it_was_found_is_not_deleted() {
    let app = TestApp::start().await;
    let (used, idle) = (
        conversation_of(&app, "", 100).await,
        conversation_of(&app, "", 100).await,
    );
    used.append("I am back.").await;
    // The statement gets a conversation that a step has found before.
    for (conversation, locked) in [(&used, None), (&idle, Some(idle.uuid()))] {
        let sql = include_str!("../../../store/sql/lock_idle_conversation.sql");
        let found: Option<Uuid> = sqlx::query_scalar(sql)
            .bind(TenantId::DEFAULT.0)
            .bind(conversation.uuid())
            .bind(90)
            .bind(Vec::<String>::new())
            .bind(Vec::<i32>::new())
            .fetch_optional(&mut app.db().await)
            .await
            .expect("locks");
        assert_eq!(found, locked);
    }
    app.run_retention(&idle_days(90)).await;
    assert_eq!(
        (has_rows(&used).await, has_rows(&idle).await),
        (true, false)
    );
}

#[tokio::test]
async fn appends_to_other_conversations_do_not_wait_for_a_deletion() {
    let app = TestApp::counted_by_workers().await;
    let idle = conversation_of(&app, "", 100).await;
    let other = app.conversation().await;
    let held = app.hold_lock(LOCK_JOBS, idle.uuid()).await;
    let settings = idle_days(90);
    tokio::join!(app.run_retention(&settings), async {
        // The deletion waits in the middle of its transaction.
        app.wait_for_lock_waiters(1).await;
        other.turns(1).await;
        held.rollback().await;
    });
    assert!(!has_rows(&idle).await);
    assert_eq!(other.messages().await.len(), 2);
}

#[tokio::test]
async fn two_workers_at_once_delete_each_row_once() {
    let app = TestApp::start().await;
    let second = app.second_server().await;
    let mut kept = Vec::new();
    for _ in 0..60 {
        conversation_of(&app, "", 100).await;
        conversation_of(&app, "", 100).await;
        let changed = conversation_of(&app, "", 1).await;
        changed.withdraw(&[1]).await;
        let age = "update ai_message_version set replaced_ts = now() - interval '31 days' where conversation_id = $1";
        assert_eq!(change_rows(&app, age, changed.uuid()).await, 1);
        kept.push(changed);
    }
    let settings = RetentionSettings {
        withdrawn_days: 30,
        ..idle_days(90)
    };
    let left =
        "select (select count(*) from ai_conversation) + (select count(*) from ai_message_version)";
    // A worker passes over what the other one works on.
    while count(&app, left).await > kept.len() as i64 {
        tokio::join!(
            app.run_retention(&settings),
            second.run_retention(&settings)
        );
    }
    assert_usage_is_right(&app).await;
    for conversation in kept {
        conversation.verify().await;
    }
}

/// Rows of a conversation in the tables that grow with its use: old ones and a new one. A request
/// of an append is old, and stays.
pub(crate) const GROWN_ROWS: [&str; 4] = [
    "insert into ai_context_prefix (tenant_id, conversation_id, epoch, prefix_hash, boundary_message_id,
         system_prompt_digest, swapped_message_id, swapped_message_ids, cut, at_message_id, reason, broken_message_id,
         rewritten_tokens, saved_tokens)
     select tenant_id, conversation_id, n, '\\x00', 0, '\\x00', 0, '{}', false, 1, 1, 0, 0, 0
     from ai_conversation cross join generate_series(1, 150) as n where conversation_id = $1",
    "insert into ai_model_call (tenant_id, conversation_id, request_id, request_digest, model, context_tokens,
         input_tokens, cached_tokens, written_tokens, output_tokens, cache_state, created_ts)
     select tenant_id, conversation_id, 'call ' || n, '', 'm', 1, 1, 0, 0, 1, 1,
         now() - case when n = 1 then 1 else 40 end * interval '1 day'
     from ai_conversation cross join generate_series(1, 2501) as n where conversation_id = $1",
    "insert into ai_request (tenant_id, conversation_id, method, request_id, request_digest, created_ts)
     select tenant_id, conversation_id, method, 'request ' || days, '', now() - days * interval '1 day'
     from ai_conversation
     cross join (values ('insert_separator', 40), ('insert_separator', 1), ('append_messages', 40)) as r (method, days)
     where conversation_id = $1",
    "insert into ai_job_dead (tenant_id, kind, conversation_id, generation, attempts, dirty_ts, died_ts)
     select tenant_id, kind, conversation_id, 1, 1, now(), now() - days * interval '1 day'
     from ai_conversation cross join (values (2, 40), (3, 1)) as j (kind, days) where conversation_id = $1",
];

/// How many rows there are in the tables that grow: beginnings of contexts, model calls, requests,
/// dead jobs.
async fn count_grown_rows(app: &TestApp) -> [i64; 4] {
    [
        count(app, "select count(*) from ai_context_prefix").await,
        count(app, "select count(*) from ai_model_call").await,
        count(app, "select count(*) from ai_request").await,
        count(app, "select count(*) from ai_job_dead").await,
    ]
}

#[tokio::test]
async fn tables_that_grow_keep_their_newest_rows() {
    let app = TestApp::start().await;
    let conversation = conversation_of(&app, "", 1).await;
    for insert in GROWN_ROWS {
        change_rows(&app, insert, conversation.uuid()).await;
    }
    assert_eq!(count_grown_rows(&app).await, [150, 2_501, 3, 2]);
    app.run_retention(&RetentionSettings::default()).await;
    assert_eq!(count_grown_rows(&app).await, [100, 2_501, 3, 2]);
    let oldest = count(&app, "select min(epoch) from ai_context_prefix").await;
    assert_eq!(oldest, 51, "the newest versions stay");

    let settings = RetentionSettings {
        prefix_versions: 0,
        model_call_days: 30,
        request_days: 30,
        dead_job_days: 30,
        ..RetentionSettings::default()
    };
    app.run_retention(&settings).await;
    assert_eq!(count_grown_rows(&app).await, [100, 1, 2, 1]);
    let of_appends = "select count(*) from ai_request where method = 'append_messages'";
    assert_eq!(count(&app, of_appends).await, 1);
    assert!(has_rows(&conversation).await);
}

/// The settings of the dry run, as text and as a worker has them.
const DRY_RUN: &str = "[retention]\nidle_days = 90\nwithdrawn_days = 30\nmodel_call_days = 30\nrequest_days = 30\n\
    dead_job_days = 30\n[[retention.rules]]\nagent = \"lab\"\nidle_days = 7\n\
    [[retention.rules]]\ntenant = \"nobody\"\nidle_days = 1\n";

fn dry_run_settings() -> RetentionSettings {
    RetentionSettings {
        idle_days: 90,
        withdrawn_days: 30,
        model_call_days: 30,
        request_days: 30,
        dead_job_days: 30,
        rules: vec![rule(None, Some("lab"), 7), rule(Some("nobody"), None, 1)],
        ..RetentionSettings::default()
    }
}

#[tokio::test]
async fn a_dry_run_counts_what_a_worker_then_deletes() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    folder.file("anneal.toml", DRY_RUN);
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    conversation_of(&app, "", 91).await;
    conversation_of(&app, "", 100).await;
    conversation_of(&app, "lab", 8).await;
    let kept = conversation_of(&app, "", 1).await;
    for insert in GROWN_ROWS {
        change_rows(&app, insert, kept.uuid()).await;
    }
    kept.withdraw(&[1, 2]).await;
    let age = "update ai_message_version set replaced_ts = now() - interval '31 days'
        where conversation_id = $1 and message_id = 1";
    change_rows(&app, age, kept.uuid()).await;
    let grown = count_grown_rows(&app).await;

    let ran = anneal.run(&["retention", "--dry-run", "--json"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains("names the tenant nobody"), "{}", ran.err);
    let mut planned = BTreeMap::new();
    for line in ran.out.lines() {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        assert_eq!(line["tenant"], TENANT, "{line}");
        let text = |key: &str| line[key].as_str().unwrap_or("all").to_owned();
        let rows = line["rows"].as_i64().expect("a number");
        planned.insert((text("setting"), text("agent")), rows);
    }
    // The withdrawal has added a version of the context's beginning, to the 150 that were there.
    let prefixes = grown[0] - 100;
    let expected = [
        ("dead_job_days", "all", 1),
        ("idle_days", "all", 2),
        ("idle_days", "lab", 1),
        ("model_call_days", "all", 2_500),
        ("prefix_versions", "all", prefixes),
        ("request_days", "all", 1),
        ("withdrawn_days", "all", 1),
    ];
    let expected =
        expected.map(|(setting, agent, rows)| ((setting.to_owned(), agent.to_owned()), rows));
    assert_eq!(planned, BTreeMap::from(expected));
    let table = anneal.run(&["retention", "--dry-run"]).await;
    assert!(
        table.out.contains("2 conversations, 4 messages"),
        "{}",
        table.out
    );
    assert_eq!(count(&app, "select count(*) from ai_conversation").await, 4);

    app.run_retention(&dry_run_settings()).await;
    assert_eq!(count(&app, "select count(*) from ai_conversation").await, 1);
    // The erasure of a version also deletes the older beginnings of the conversation's contexts.
    let [_, calls, requests, dead_jobs] = count_grown_rows(&app).await;
    assert_eq!(
        [calls, requests, dead_jobs],
        [grown[1] - 2_500, grown[2] - 1, grown[3] - 1]
    );
    assert_eq!(
        count(&app, "select count(*) from ai_message_version").await,
        1
    );
    let again = anneal.run(&["retention", "--dry-run"]).await;
    assert_eq!(again.out, "nothing would be deleted now\n");
    assert_eq!(again.code, Some(0));

    let without = anneal.run(&["retention"]).await;
    assert_eq!(without.code, Some(1));
    assert!(without.err.contains("--dry-run"), "{}", without.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_deletes_by_itself_by_settings_that_it_reloads() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    let idle = conversation_of(&app, "", 100).await;
    let settings = "[retention]\ninterval_seconds = 1\n";
    let rules = "[[retention.rules]]\ntenant = \"nobody\"\nidle_days = 1\n";
    folder.file("anneal.toml", &format!("{settings}{rules}"));
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    let worker = anneal.worker().await;
    worker
        .wait_for_line("retention.rules names the tenant nobody, which does not exist")
        .await;
    assert!(has_rows(&idle).await);

    folder.file("anneal.toml", &format!("{settings}idle_days = 90\n{rules}"));
    let line = worker
        .wait_for_line("reloaded the configuration, replaced: ")
        .await;
    assert!(line.contains("retention.idle_days"), "{line}");
    eventually("the idle conversation is deleted", async || {
        !has_rows(&idle).await
    })
    .await;
    worker
        .wait_for_line(
            "deleted 1 rows of ai_conversation, which retention.idle_days keeps no longer",
        )
        .await;
    let metrics = worker.http_client().await.get("/metrics").await.text;
    let of_conversations = metrics.lines().find(|line| {
        line.starts_with("anneal_retention_deleted_rows_total{") && line.contains("\"idle_days\"")
    });
    assert!(
        of_conversations.is_some_and(|line| line.ends_with(" 1")),
        "{of_conversations:?}"
    );
}

#[tokio::test]
async fn settings_that_mean_nothing_are_refused_at_the_start() {
    let folder = Folder::new();
    let anneal = AnnealBinary::new(BINARY, &folder, "postgres://127.0.0.1/none");
    for (settings, sentence) in [
        (
            "[retention]\nidle_days = 36501\n",
            "retention.idle_days is 36501; it must be from 0 to 36500",
        ),
        (
            "[[retention.rules]]\nidle_days = 1\n",
            "rule 1 in retention.rules names neither a tenant nor an agent",
        ),
    ] {
        folder.file("anneal.toml", settings);
        let ran = anneal.run(&["config", "--check"]).await;
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.err.contains(sentence), "{}", ran.err);
    }
}
