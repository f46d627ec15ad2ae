//! The auditor of a worker: sees what is broken on purpose, tells it by metric and log with ids alone, and costs no more for a
//! long conversation than for a short one.

use anneal_core::caller::{Caller, ConversationId, TenantId};
use anneal_store::Verified;
use anneal_tests::{Anneal, Folder, House, Talk, assistant, eventually, pb, prose, user};

use crate::BINARY;

const SECRET: &str = "what nobody may read in a log";

/// A conversation with a checkpoint, counted.
async fn healthy(house: &House) -> Talk<'_> {
    let policy = pb::Policy {
        max_message_count: Some(10),
        keep_recent_turns: Some(1),
        large_message_threshold: Some(200),
        ..Default::default()
    };
    let talk = house.conversation_under(policy).await;
    for n in 0..6 {
        talk.turn(&format!("{SECRET} {}", prose(n, 2)), &prose(n + 50, 2)).await;
        house.run_jobs_until_idle().await;
    }
    assert_eq!(talk.checkpoints().await.len(), 1);
    talk
}

async fn sql(talk: &Talk<'_>, statement: &'static str) {
    let ran = sqlx::query(statement).bind(talk.uuid()).execute(&mut talk.house.db().await).await;
    assert!(ran.expect("runs").rows_affected() > 0, "{statement}");
}

async fn audited(talk: &Talk<'_>) -> Verified {
    let audit = talk.house.store.audit(Caller::of(TenantId::DEFAULT), ConversationId(talk.uuid()));
    let (verified, error) = audit.await.expect("audits");
    assert!(error.is_none(), "{error:?}");
    verified
}

async fn promises(talk: &Talk<'_>) -> Vec<i32> {
    audited(talk).await.violations.iter().map(|violation| violation.promise).collect()
}

/// What breaks which promise.
const BREAKS: [(i32, &str); 9] = [
    (0, "update ai_conversation set token_total = token_total + 1 where conversation_id = $1"),
    (0, "update ai_message set token_count = null where conversation_id = $1 and message_id = 3"),
    (3, "delete from ai_message where conversation_id = $1 and message_id = 7"),
    (3, "update ai_message set turn = turn + 1 where conversation_id = $1 and message_id = 7"),
    (6, "update ai_conversation_checkpoint set source_digest = 'x' where conversation_id = $1"),
    (7, "update ai_conversation_checkpoint set source_first_message_id = 2 where conversation_id = $1"),
    (
        12,
        "update ai_message set content = '[{\"type\":\"text\",\"text\":\"\"}]' where conversation_id = $1 and message_id = 2",
    ),
    // Success without effect: a count that never comes, and a checkpoint.
    (4, "update ai_conversation set counted_message_id = 11 where conversation_id = $1"),
    (4, "delete from ai_conversation_checkpoint where conversation_id = $1"),
];

#[tokio::test]
async fn an_audit_sees_every_kind_of_broken_promise() {
    let house = House::start().await;
    for (promise, statement) in BREAKS {
        let talk = healthy(&house).await;
        assert_eq!(promises(&talk).await, [0; 0], "all is well before");
        sql(&talk, statement).await;
        let broken = audited(&talk).await;
        assert!(broken.violations.iter().any(|found| found.promise == promise), "{statement}: {broken:?}");
        assert!(!format!("{broken:?}").contains(SECRET));
    }
}

#[tokio::test]
async fn large_messages_without_a_summary_and_without_a_job_are_found() {
    let house = House::start().await;
    let talk = healthy(&house).await;
    talk.append_all(vec![user(&prose(0, 40))]).await;
    house.run_jobs_until_idle().await;
    assert_eq!(promises(&talk).await, [0; 0], "it has its summary");
    let lose =
        "update ai_message set summary_cache = null, summary_tokens = null, summary_kind = null, summary_ts = null
        where conversation_id = $1 and summary_cache is not null";
    sql(&talk, lose).await;
    let broken = audited(&talk).await;
    assert!(broken.violations.iter().any(|found| found.promise == 4), "{broken:?}");
}

#[tokio::test]
async fn what_waits_for_a_job_is_not_broken_and_neither_is_what_other_settings_call_for() {
    let house = House::start().await;
    let talk = healthy(&house).await;
    talk.turn("more", "of it").await;
    assert_eq!(promises(&talk).await, [0; 0], "a job waits");
    house.run_jobs_until_idle().await;
    // As a server with other settings would find it: what is due there nobody has looked at yet.
    sql(&talk, "update ai_conversation set quiet_rules = quiet_rules + 1 where conversation_id = $1").await;
    sql(&talk, "delete from ai_conversation_checkpoint where conversation_id = $1").await;
    assert_eq!(promises(&talk).await, [0; 0]);
}

#[tokio::test]
async fn an_audit_reads_the_newest_part_of_a_long_conversation() {
    let house = House::start().await;
    let talk = house.conversation_under(pb::Policy { max_message_count: Some(0), ..Default::default() }).await;
    for _ in 0..26 {
        let batch = (0..100).map(|n| if n % 2 == 0 { user("and?") } else { assistant("so") }).collect();
        talk.append_all(batch).await;
    }
    house.run_jobs_until_idle().await;
    let all_is_well = audited(&talk).await;
    assert_eq!((all_is_well.violations.len(), all_is_well.messages), (0, 2_000));
    sql(&talk, "update ai_message set turn = turn + 1 where conversation_id = $1 and message_id = 2500").await;
    assert_eq!(promises(&talk).await, [3]);
    sql(&talk, "update ai_message set turn = turn - 1 where conversation_id = $1 and message_id = 2500").await;
    sql(&talk, "update ai_message set turn = turn + 1 where conversation_id = $1 and message_id = 300").await;
    assert_eq!(promises(&talk).await, [0; 0], "too old for an audit");
    let ask = pb::VerifyConversationRequest { conversation_id: talk.id.clone() };
    let verified = house.operators().verify_conversation(ask).await.expect("verifies").into_inner();
    assert_eq!(verified.violations.len(), 1, "not for a verification");
    // What is large ends the part earlier.
    talk.append_all(vec![user(&"wide ".repeat(600_000))]).await;
    for _ in 0..5 {
        talk.append_all(vec![user(&"wide ".repeat(700_000))]).await;
    }
    let read = audited(&talk).await.messages;
    assert!((2..=5).contains(&read), "16 MiB of 3.5 MB each: {read} messages");
}

#[tokio::test]
async fn what_was_found_is_told_though_the_rest_cannot_be_read() {
    let house = House::start().await;
    let talk = healthy(&house).await;
    sql(&talk, "delete from ai_message where conversation_id = $1 and message_id = 7").await;
    sql(&talk, "update ai_conversation set policy = '{\"max_message_count\": \"many\"}' where conversation_id = $1")
        .await;
    let audit = house.store.audit(Caller::of(TenantId::DEFAULT), ConversationId(talk.uuid()));
    let (verified, error) = audit.await.expect("its messages can be read");
    assert!(verified.violations.iter().any(|violation| violation.promise == 3), "{verified:?}");
    assert!(error.is_some(), "its policy cannot");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_tells_of_broken_promises_by_metric_and_log_with_ids_alone() {
    let (house, folder) = (House::start().await, Folder::new());
    let (broken, other) = (healthy(&house).await, healthy(&house).await);
    let anneal = Anneal::new(BINARY, &folder, &house.url);
    let settings = ["worker.http_address=127.0.0.1:0", "worker.audit_interval_seconds=1", "worker.audit_sample=10"];
    let settings = settings.iter().flat_map(|setting| ["--set", *setting]);
    let worker = anneal.start(&["worker"].into_iter().chain(settings).collect::<Vec<_>>());
    worker.said("working as").await;
    let web = worker.door().await;
    let figure = async |line: &str| {
        let metrics = web.get("/metrics").await.text;
        metrics.lines().find_map(|found| found.strip_prefix(line)?.trim().parse::<f64>().ok())
    };
    eventually("both are audited", async || figure("audited_conversations_total ").await.is_some_and(|n| n >= 2.0))
        .await;
    let promise_3 = "invariant_violations_total{promise=\"3\"}";
    assert_eq!(figure(promise_3).await, Some(0.0), "said before there is any");
    for shown in ["jobs_oldest_ready_seconds{kind=\"count_tokens\"}", "jobs_dead{kind=\"checkpoint\"}"] {
        eventually(shown, async || figure(shown).await.is_some()).await;
    }
    sql(&broken, "delete from ai_message where conversation_id = $1 and message_id = 9").await;
    let told = worker.said("promise 3 is broken").await;
    assert!(told.contains("\"level\":\"ERROR\"") && told.contains(&broken.id), "{told}");
    assert!(told.contains("\"promise\":3") && told.contains(&TenantId::DEFAULT.to_string()), "{told}");
    eventually("it is counted", async || figure(promise_3).await.is_some_and(|n| n >= 1.0)).await;
    for line in worker.lines() {
        assert!(!line.contains(SECRET), "{line}");
        assert!(!(line.contains("is broken") && line.contains(&other.id)), "{line}");
    }
    worker.terminate().await;
    assert_eq!(worker.ended().await, Some(0));
}

/// A page of the documentation.
fn page(name: &str) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/");
    std::fs::read_to_string(format!("{root}{name}")).expect("is there")
}

#[test]
fn every_figure_that_an_alarm_goes_by_is_documented() {
    let (alarms, page) = (page("alerts.yml"), page("operations.md"));
    let expressions: Vec<&str> = alarms.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    assert!(expressions.len() >= 5, "{expressions:?}");
    for expression in expressions {
        let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let figures: Vec<&str> = words.filter(|word| word.contains('_')).collect();
        assert!(!figures.is_empty(), "{expression}");
        for figure in figures {
            assert!(page.contains(&format!("`{figure}`")), "{figure} is not in operations.md");
        }
    }
}

#[test]
fn every_alarm_leads_to_a_runbook() {
    let (alarms, page) = (page("alerts.yml"), page("runbooks.md"));
    let headings = page.lines().filter_map(|line| line.strip_prefix("## "));
    let places: Vec<String> =
        headings.map(|heading| heading.to_lowercase().replace(' ', "-").replace('\'', "")).collect();
    for alarm in alarms.split("- alert: ").skip(1) {
        let named = alarm.split_once("runbook: \"docs/runbooks.md#").and_then(|(_, rest)| rest.split_once('"'));
        assert!(named.is_some_and(|(place, _)| places.iter().any(|known| known == place)), "{alarm}");
    }
}
