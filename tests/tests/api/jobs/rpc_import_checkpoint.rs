//! ImportCheckpoint: the summary of another system becomes a checkpoint, or is refused if it is
//! invalid.

use anneal_testkit::{
    GatedSummarizer, TestApp, TestConversation, assert_refused, assistant, call, pb, prose, result,
    user,
};
use pb::{BoundaryKind, CheckpointTrigger, SummaryKind};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

const SUMMARY: &str = "They inspected turbines in Osaka.";

async fn import(
    conversation: &TestConversation<'_>,
    request_id: &str,
    last_message_id: i64,
    summary: &str,
) -> Result<pb::Checkpoint, Status> {
    let ask = pb::ImportCheckpointRequest {
        conversation_id: conversation.id.clone(),
        request_id: request_id.into(),
        last_message_id,
        summary: summary.into(),
        model: "elsewhere-1".into(),
        ..Default::default()
    };
    Ok(conversation
        .app
        .contexts()
        .import_checkpoint(ask)
        .await?
        .into_inner())
}

/// Appends turns of two messages with 50 sentences each.
async fn append_turns(conversation: &TestConversation<'_>, turns: usize) {
    for n in 0..turns {
        conversation
            .append_all(vec![
                user(&prose(n * 100, 50)),
                assistant(&prose(n * 100 + 50, 50)),
            ])
            .await;
    }
}

/// No number of messages is a trigger, and the conversations here stay below the token threshold. A
/// checkpoint keeps one turn.
fn policy_without_message_trigger() -> pb::Policy {
    pb::Policy {
        max_message_count: Some(0),
        keep_recent_turns: Some(1),
        ..Default::default()
    }
}

#[tokio::test]
async fn an_imported_checkpoint_stores_the_token_counts_of_its_request() {
    let app = TestApp::start().await;
    let conversation = app
        .conversation_with_policy(policy_without_message_trigger())
        .await;
    append_turns(&conversation, 4).await;
    let ask = pb::ImportCheckpointRequest {
        conversation_id: conversation.id.clone(),
        request_id: "r1".into(),
        last_message_id: 4,
        summary: SUMMARY.into(),
        tokens_before: Some(0),
        tokens_after: Some(u64::MAX),
        ..Default::default()
    };
    let send = async |ask: &pb::ImportCheckpointRequest| {
        app.contexts()
            .import_checkpoint(ask.clone())
            .await
            .map(tonic::Response::into_inner)
    };
    let imported = send(&ask).await.expect("imports");
    assert_eq!(
        (imported.tokens_before, imported.tokens_after),
        (0, i64::MAX as u64),
        "larger numbers are stored as the column's maximum"
    );
    assert_eq!(send(&ask).await.expect("imports again"), imported);
    let other = pb::ImportCheckpointRequest {
        tokens_before: None,
        ..ask
    };
    assert_refused(
        send(&other).await,
        Code::AlreadyExists,
        "REQUEST_ID_REUSED",
        "",
    );
    conversation.context().await.assert_covers(8);
    conversation.verify().await;
}

#[tokio::test]
async fn an_imported_summary_is_a_checkpoint_like_any_other() {
    let app = TestApp::start().await;
    let conversation = app
        .conversation_with_policy(policy_without_message_trigger())
        .await;
    append_turns(&conversation, 4).await;
    let imported = import(&conversation, "r1", 4, SUMMARY)
        .await
        .expect("imports");
    assert_eq!(
        (imported.kind(), imported.trigger(), imported.prompt_version),
        (SummaryKind::Imported, CheckpointTrigger::Imported, 0)
    );
    assert_eq!(
        (
            imported.first_message_id,
            imported.source_first_message_id,
            imported.last_message_id
        ),
        (1, 1, 4)
    );
    assert_eq!(
        (imported.model.as_str(), imported.generation),
        ("elsewhere-1", 1)
    );
    assert!(
        imported.tokens_after < imported.tokens_before && imported.token_usage < 20,
        "{imported:?}"
    );
    let built = conversation.context().await;
    assert_eq!(
        (built.0.boundary_kind(), built.0.boundary_message_id),
        (BoundaryKind::Checkpoint, 4)
    );
    assert!(
        built.0.messages[0].segment == i32::from(pb::Segment::CheckpointSummary)
            && built.text().contains(SUMMARY)
    );
    built.assert_covers(8);
    conversation.verify().await;

    assert_eq!(
        import(&conversation, "r1", 4, SUMMARY)
            .await
            .expect("imports again"),
        imported,
        "a repeated call changes nothing"
    );
    assert_refused(
        import(&conversation, "r1", 4, "Another.").await,
        Code::AlreadyExists,
        "REQUEST_ID_REUSED",
        "",
    );

    app.run_jobs_until_idle().await;
    conversation.compact("by hand", "").await;
    let checkpoints = conversation.checkpoints().await;
    assert_eq!(
        checkpoints.len(),
        2,
        "the service's own checkpoint follows the imported one"
    );
    assert_eq!(
        (
            checkpoints[0].generation,
            checkpoints[0].source_first_message_id
        ),
        (2, 5)
    );
    conversation.verify().await;
    let later = import(&conversation, "r2", 8, SUMMARY)
        .await
        .expect("an import may follow a checkpoint of the service");
    assert_eq!((later.generation, later.source_first_message_id), (3, 7));
    conversation.verify().await;
    let change_ids: Vec<i64> =
        sqlx::query_scalar("select change_id from ai_conversation_checkpoint order by created_ts")
            .fetch_all(&mut app.db().await)
            .await
            .expect("reads");
    assert_eq!(change_ids.len(), 3);
    assert!(
        change_ids.is_sorted_by(|a, b| a < b),
        "each checkpoint has a later change id than the one before: {change_ids:?}"
    );
}

/// Tries an invalid import. Returns the API's name of the rule that it breaks:
///
/// - `beyond_newest`: the last covered message does not exist.
/// - `parts_tool_call`: the checkpoint would end between a tool call and its result.
/// - `not_shorter`: the summary is not shorter than the messages.
/// - `not_newer`: the checkpoint would not end after the current boundary.
async fn import_and_read_broken_rule(
    conversation: &TestConversation<'_>,
    last_message_id: i64,
    summary: &str,
) -> String {
    let refused = import(conversation, "", last_message_id, summary)
        .await
        .expect_err("is refused");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    let info = refused
        .get_error_details()
        .error_info()
        .expect("says why")
        .clone();
    assert_eq!(info.reason, "CHECKPOINT_UNSOUND");
    info.metadata["rule"].clone()
}

#[tokio::test]
async fn an_invalid_checkpoint_import_is_refused_and_changes_nothing() {
    let app = TestApp::start().await;
    let conversation = app
        .conversation_with_policy(policy_without_message_trigger())
        .await;
    append_turns(&conversation, 1).await;
    conversation
        .append_all(vec![
            call("c1", "{}"),
            result("c1", "found"),
            user("and?"),
            call("c2", "{}"),
        ])
        .await;
    assert_eq!(
        import_and_read_broken_rule(&conversation, 7, SUMMARY).await,
        "beyond_newest"
    );
    assert_eq!(
        import_and_read_broken_rule(&conversation, 3, SUMMARY).await,
        "parts_tool_call"
    );
    assert_eq!(
        import_and_read_broken_rule(&conversation, 6, SUMMARY).await,
        "parts_tool_call",
        "the result of the call may still arrive"
    );
    assert_eq!(
        // One sentence more than messages 1 and 2 have together.
        import_and_read_broken_rule(&conversation, 2, &prose(0, 101)).await,
        "not_shorter"
    );
    import(&conversation, "", 4, SUMMARY)
        .await
        .expect("is valid");
    assert_eq!(
        import_and_read_broken_rule(&conversation, 4, "Short.").await,
        "not_newer"
    );
    assert_eq!(
        import_and_read_broken_rule(&conversation, 2, "Short.").await,
        "not_newer"
    );
    let parting = pb::InsertSeparatorRequest {
        conversation_id: conversation.id.clone(),
        part_tool_pairs: true,
        ..Default::default()
    };
    let separator = app.messages().insert_separator(parting).await;
    separator.expect("the separator is inserted");
    assert_eq!(
        import_and_read_broken_rule(&conversation, 6, "Short.").await,
        "not_newer",
        "a separator is a boundary too"
    );
    assert_eq!(conversation.checkpoints().await.len(), 1);
    conversation.verify().await;
}

#[tokio::test]
async fn an_invalid_summary_is_refused_and_names_its_field() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    append_turns(&conversation, 1).await;
    let bad = [
        ("", 1, "INVALID_FIELD", "summary"),
        ("a\0b", 1, "INVALID_FIELD", "summary"),
        ("a", 0, "INVALID_FIELD", "last_message_id"),
        (&"a".repeat(1024 * 1024 + 1), 1, "LIMIT_EXCEEDED", "summary"),
    ];
    for (summary, last_message_id, reason, field) in bad {
        assert_refused(
            import(&conversation, "", last_message_id, summary).await,
            Code::InvalidArgument,
            reason,
            field,
        );
    }
    let unknown = TestConversation {
        id: "0190aaaa-0000-7000-8000-000000000000".into(),
        ..conversation.clone()
    };
    assert_refused(
        import(&unknown, "", 1, "a").await,
        Code::NotFound,
        "CONVERSATION_NOT_FOUND",
        "",
    );
    let malformed = TestConversation {
        id: "7".into(),
        ..conversation
    };
    assert_refused(
        import(&malformed, "", 1, "a").await,
        Code::InvalidArgument,
        "INVALID_FIELD",
        "conversation_id",
    );
}

#[tokio::test]
async fn an_imported_checkpoint_discards_one_that_is_being_written() {
    let app = TestApp::start().await;
    let conversation = app
        .conversation_with_policy(policy_without_message_trigger())
        .await;
    append_turns(&conversation, 4).await;
    app.run_jobs_until_idle().await;
    conversation.start_compaction("by hand").await;
    let summarizer = GatedSummarizer::default();
    let worker = app.worker_with(summarizer.clone());
    let running = tokio::spawn(async move { worker.run_until_idle().await });
    summarizer.wait_until_begun().await;
    import(&conversation, "", 6, SUMMARY)
        .await
        .expect("imports");
    // The summarizer may work twice: the job whose checkpoint is discarded runs again.
    summarizer.release_one();
    summarizer.release_one();
    running.await.expect("runs");
    let checkpoints = conversation.checkpoints().await;
    assert_eq!(
        checkpoints.last().expect("one").kind(),
        SummaryKind::Imported,
        "the checkpoint that was being written is discarded"
    );
    assert!(
        checkpoints
            .iter()
            .all(|checkpoint| checkpoint.last_message_id >= 6),
        "{checkpoints:?}"
    );
    conversation.verify().await;
}
