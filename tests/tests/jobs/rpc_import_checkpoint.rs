//! ImportCheckpoint: the summary of another system takes the place of the messages that it stands for, where it can.

use anneal_tests::{House, Talk, Waiting, assert_refused, assistant, call, pb, prose, result, user};
use pb::{BoundaryKind, CheckpointTrigger, SummaryKind};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

const SUMMARY: &str = "They inspected turbines in Osaka.";

async fn import(talk: &Talk<'_>, request_id: &str, last: i64, summary: &str) -> Result<pb::Checkpoint, Status> {
    let ask = pb::ImportCheckpointRequest {
        conversation_id: talk.id.clone(),
        request_id: request_id.into(),
        last_message_id: last,
        summary: summary.into(),
        model: "elsewhere-1".into(),
        ..Default::default()
    };
    Ok(talk.house.contexts().import_checkpoint(ask).await?.into_inner())
}

/// Turns of 50 sentences each.
async fn said(talk: &Talk<'_>, turns: usize) {
    for n in 0..turns {
        talk.append_all(vec![user(&prose(n * 100, 50)), assistant(&prose(n * 100 + 50, 50))]).await;
    }
}

fn patient() -> pb::Policy {
    pb::Policy { max_message_count: Some(0), keep_recent_turns: Some(1), ..Default::default() }
}

#[tokio::test]
async fn what_its_maker_counted_stands_in_the_checkpoint() {
    let house = House::start().await;
    let talk = house.conversation_under(patient()).await;
    said(&talk, 4).await;
    let ask = pb::ImportCheckpointRequest {
        conversation_id: talk.id.clone(),
        request_id: "r1".into(),
        last_message_id: 4,
        summary: SUMMARY.into(),
        tokens_before: Some(0),
        tokens_after: Some(u64::MAX),
        ..Default::default()
    };
    let import = async |ask: &pb::ImportCheckpointRequest| {
        house.contexts().import_checkpoint(ask.clone()).await.map(tonic::Response::into_inner)
    };
    let made = import(&ask).await.expect("imports");
    assert_eq!((made.tokens_before, made.tokens_after), (0, i64::MAX as u64), "as far as a column goes");
    assert_eq!(import(&ask).await.expect("imports again"), made);
    let other = pb::ImportCheckpointRequest { tokens_before: None, ..ask };
    assert_refused(import(&other).await, Code::AlreadyExists, "REQUEST_ID_REUSED", "");
    talk.context().await.assert_covers(8);
    talk.verify().await;
}

#[tokio::test]
async fn an_imported_summary_is_a_checkpoint_like_any_other() {
    let house = House::start().await;
    let talk = house.conversation_under(patient()).await;
    said(&talk, 4).await;
    let made = import(&talk, "r1", 4, SUMMARY).await.expect("imports");
    assert_eq!(
        (made.kind(), made.trigger(), made.prompt_version),
        (SummaryKind::Imported, CheckpointTrigger::Imported, 0)
    );
    assert_eq!((made.first_message_id, made.source_first_message_id, made.last_message_id), (1, 1, 4));
    assert_eq!((made.model.as_str(), made.generation), ("elsewhere-1", 1));
    assert!(made.tokens_after < made.tokens_before && made.token_usage < 20, "{made:?}");
    let built = talk.context().await;
    assert_eq!((built.0.boundary_kind(), built.0.boundary_message_id), (BoundaryKind::Checkpoint, 4));
    assert!(built.0.messages[0].segment == i32::from(pb::Segment::CheckpointSummary) && built.text().contains(SUMMARY));
    built.assert_covers(8);
    talk.verify().await;

    assert_eq!(import(&talk, "r1", 4, SUMMARY).await.expect("imports again"), made, "a repeated call changes nothing");
    assert_refused(import(&talk, "r1", 4, "Another.").await, Code::AlreadyExists, "REQUEST_ID_REUSED", "");

    house.run_jobs_until_idle().await;
    talk.compact("by hand", "").await;
    let checkpoints = talk.checkpoints().await;
    assert_eq!(checkpoints.len(), 2, "the service's own checkpoint follows it");
    assert_eq!((checkpoints[0].generation, checkpoints[0].source_first_message_id), (2, 5));
    talk.verify().await;
    let later = import(&talk, "r2", 8, SUMMARY).await.expect("one may follow the service's own");
    assert_eq!((later.generation, later.source_first_message_id), (3, 7));
    talk.verify().await;
    let changes: Vec<i64> = sqlx::query_scalar("select change_id from ai_conversation_checkpoint order by created_ts")
        .fetch_all(&mut house.db().await)
        .await
        .expect("reads");
    assert_eq!(changes.len(), 3);
    assert!(changes.is_sorted_by(|a, b| a < b), "watchers see them in this order: {changes:?}");
}

/// Which rule an import breaks.
async fn broken(talk: &Talk<'_>, last: i64, summary: &str) -> String {
    let refused = import(talk, "", last, summary).await.expect_err("is refused");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    let info = refused.get_error_details().error_info().expect("says why").clone();
    assert_eq!(info.reason, "CHECKPOINT_UNSOUND");
    info.metadata["rule"].clone()
}

#[tokio::test]
async fn a_summary_that_cannot_stand_for_its_messages_is_refused_and_changes_nothing() {
    let house = House::start().await;
    let talk = house.conversation_under(patient()).await;
    said(&talk, 1).await;
    talk.append_all(vec![call("c1", "{}"), result("c1", "found"), user("and?"), call("c2", "{}")]).await;
    assert_eq!(broken(&talk, 7, SUMMARY).await, "beyond_newest");
    assert_eq!(broken(&talk, 3, SUMMARY).await, "parts_tool_call");
    assert_eq!(broken(&talk, 6, SUMMARY).await, "parts_tool_call", "its result may still come");
    assert_eq!(broken(&talk, 2, &prose(0, 101)).await, "not_shorter");
    import(&talk, "", 4, SUMMARY).await.expect("is sound");
    assert_eq!(broken(&talk, 4, "Short.").await, "not_newer");
    assert_eq!(broken(&talk, 2, "Short.").await, "not_newer");
    talk.separate().await;
    assert_eq!(broken(&talk, 6, "Short.").await, "not_newer", "a separator is a boundary too");
    assert_eq!(talk.checkpoints().await.len(), 1);
    talk.verify().await;
}

#[tokio::test]
async fn a_summary_that_is_none_is_refused_with_its_field() {
    let house = House::start().await;
    let talk = house.conversation().await;
    said(&talk, 1).await;
    let bad = [
        ("", 1, "INVALID_FIELD", "summary"),
        ("a\0b", 1, "INVALID_FIELD", "summary"),
        ("a", 0, "INVALID_FIELD", "last_message_id"),
        (&"a".repeat(1024 * 1024 + 1), 1, "LIMIT_EXCEEDED", "summary"),
    ];
    for (summary, last, reason, field) in bad {
        assert_refused(import(&talk, "", last, summary).await, Code::InvalidArgument, reason, field);
    }
    let gone = Talk { id: "0190aaaa-0000-7000-8000-000000000000".into(), ..talk.clone() };
    assert_refused(import(&gone, "", 1, "a").await, Code::NotFound, "CONVERSATION_NOT_FOUND", "");
    let odd = Talk { id: "7".into(), ..talk };
    assert_refused(import(&odd, "", 1, "a").await, Code::InvalidArgument, "INVALID_FIELD", "conversation_id");
}

#[tokio::test]
async fn a_checkpoint_that_is_being_made_gives_way_to_an_imported_one() {
    let house = House::start().await;
    let talk = house.conversation_under(patient()).await;
    said(&talk, 4).await;
    house.run_jobs_until_idle().await;
    talk.compact_later("by hand").await;
    let waiting = Waiting::default();
    let worker = house.worker_with(waiting.clone());
    let running = tokio::spawn(async move { worker.run_until_idle().await });
    waiting.begun().await;
    import(&talk, "", 6, SUMMARY).await.expect("imports");
    waiting.go_on();
    waiting.go_on();
    running.await.expect("runs");
    let checkpoints = talk.checkpoints().await;
    assert_eq!(checkpoints.last().expect("one").kind(), SummaryKind::Imported, "what was drafted before is discarded");
    assert!(checkpoints.iter().all(|checkpoint| checkpoint.last_message_id >= 6), "{checkpoints:?}");
    talk.verify().await;
}
