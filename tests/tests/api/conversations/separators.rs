//! Separators, which users insert. A context starts after the newest separator, or after a later
//! checkpoint. Deleting the newest separator restores the boundary that was in force before it.

#![expect(non_snake_case, reason = "test names begin with a row of docs/rows.md")]

use anneal_testkit::{
    TestApp, TestConversation, assert_refused, assistant, call, pb, result, sentence,
    status_details, user,
};
use pb::{BoundaryKind, Reason, Representation};
use tonic::Code;

/// A policy under which a checkpoint is due at 10 messages and keeps one turn.
fn policy() -> pb::Policy {
    pb::Policy {
        max_message_count: Some(10),
        keep_recent_turns: Some(1),
        ..Default::default()
    }
}

/// Appends `turns` turns, numbered from `from`, and runs the jobs that they queue. The number
/// decides the texts of a turn.
async fn append_turns(conversation: &TestConversation<'_>, from: usize, turns: usize) {
    for n in from..from + turns {
        conversation
            .append_all(vec![
                user(&sentence(2 * n)),
                assistant(&sentence(2 * n + 1)),
            ])
            .await;
    }
    conversation.app.run_jobs_until_idle().await;
}

/// Verifies the conversation and its context. Returns the kind of the boundary and the last message
/// before the context starts.
async fn verify_and_read_boundary(conversation: &TestConversation<'_>) -> (BoundaryKind, i64) {
    let built = conversation.context().await;
    built.assert_covers(conversation.conversation().await.message_count);
    conversation.verify().await;
    (built.0.boundary_kind(), built.0.boundary_message_id)
}

async fn insert_separator(
    conversation: &TestConversation<'_>,
    request_id: &str,
    expected: Option<i64>,
) -> Result<pb::Separator, tonic::Status> {
    let ask = pb::InsertSeparatorRequest {
        conversation_id: conversation.id.clone(),
        request_id: request_id.into(),
        expected_last_message_id: expected,
        ..Default::default()
    };
    Ok(conversation
        .app
        .messages()
        .insert_separator(ask)
        .await?
        .into_inner())
}

async fn delete_separator(
    conversation: &TestConversation<'_>,
    request_id: &str,
    after_message_id: i64,
) -> Result<i64, tonic::Status> {
    let ask = pb::DeleteSeparatorRequest {
        conversation_id: conversation.id.clone(),
        after_message_id,
        request_id: request_id.into(),
    };
    Ok(conversation
        .app
        .messages()
        .delete_separator(ask)
        .await?
        .into_inner()
        .boundary_message_id)
}

#[tokio::test]
async fn the_context_starts_after_a_separator() {
    let app = TestApp::start().await;
    let conversation = app.conversation_with_policy(policy()).await;
    append_turns(&conversation, 0, 3).await;
    assert_eq!(conversation.insert_separator().await.after_message_id, 6);
    assert_eq!(
        verify_and_read_boundary(&conversation).await,
        (BoundaryKind::Separator, 6)
    );
    assert!(
        conversation.context().await.0.messages.is_empty(),
        "no message follows"
    );
    append_turns(&conversation, 3, 1).await;
    let built = conversation.context().await;
    assert_eq!(
        built
            .texts_by_role()
            .iter()
            .map(|(_, text)| text.clone())
            .collect::<Vec<_>>(),
        [sentence(6), sentence(7)]
    );
    assert_eq!(
        built.representation(6),
        (Representation::BeforeSeparator, Reason::Separated)
    );
    assert_eq!(
        built.representation(7),
        (Representation::Original, Reason::Small)
    );
    assert_eq!(
        conversation.messages().await.len(),
        8,
        "a separator is not a message"
    );
    verify_and_read_boundary(&conversation).await;
}

#[tokio::test]
async fn a_checkpoint_covers_messages_after_the_separator() {
    let app = TestApp::start().await;
    let conversation = app.conversation_with_policy(policy()).await;
    append_turns(&conversation, 0, 4).await;
    conversation.insert_separator().await;
    append_turns(&conversation, 4, 5).await;
    let checkpoints = conversation.checkpoints().await;
    assert_eq!(checkpoints.len(), 1, "ten messages after the separator");
    assert_eq!(
        (
            checkpoints[0].first_message_id,
            checkpoints[0].last_message_id
        ),
        (9, 16)
    );
    assert_eq!(
        (
            checkpoints[0].source_first_message_id,
            checkpoints[0].generation
        ),
        (9, 1)
    );
    assert!(!checkpoints[0].summary.contains(&sentence(0)));
    assert_eq!(
        verify_and_read_boundary(&conversation).await,
        (BoundaryKind::Checkpoint, 16)
    );
    let built = conversation.context().await;
    assert_eq!(
        built.representation(8),
        (Representation::BeforeSeparator, Reason::Separated)
    );
    assert_eq!(
        built.representation(9),
        (Representation::Checkpoint, Reason::Checkpointed)
    );
}

#[tokio::test]
async fn row_D5_a_separator_invalidates_the_checkpoint_before_it_until_it_is_deleted() {
    let app = TestApp::start().await;
    let conversation = app.conversation_with_policy(policy()).await;
    append_turns(&conversation, 0, 5).await;
    assert_eq!(
        verify_and_read_boundary(&conversation).await,
        (BoundaryKind::Checkpoint, 8)
    );
    let before = conversation.context().await;
    conversation.insert_separator().await;
    assert_eq!(
        verify_and_read_boundary(&conversation).await,
        (BoundaryKind::Separator, 10)
    );
    assert!(
        !conversation.checkpoints().await[0].valid,
        "the checkpoint before the separator is invalid"
    );
    append_turns(&conversation, 5, 1).await;
    let with_separator = conversation.context().await;
    assert_eq!(
        with_separator.0.messages.len(),
        2,
        "no summary: {:#?}",
        with_separator.texts_by_role()
    );
    assert_eq!(
        conversation.delete_separator(10).await,
        8,
        "contexts start after the checkpoint again"
    );
    app.run_jobs_until_idle().await;
    assert_eq!(
        verify_and_read_boundary(&conversation).await,
        (BoundaryKind::Checkpoint, 8)
    );
    assert!(conversation.checkpoints().await[0].valid);
    let after = conversation.context().await;
    assert_eq!(
        after.0.messages[..before.0.messages.len()],
        before.0.messages[..],
        "the context begins as it did before the separator"
    );
}

#[tokio::test]
async fn a_checkpoint_after_a_separator_is_invalid_once_the_separator_is_deleted() {
    let app = TestApp::start().await;
    let conversation = app.conversation_with_policy(policy()).await;
    append_turns(&conversation, 0, 2).await;
    conversation.insert_separator().await;
    append_turns(&conversation, 2, 5).await;
    assert_eq!(
        verify_and_read_boundary(&conversation).await,
        (BoundaryKind::Checkpoint, 12)
    );
    conversation.delete_separator(4).await;
    assert_eq!(
        verify_and_read_boundary(&conversation).await,
        (BoundaryKind::Unspecified, 0),
        "the checkpoint does not cover message 1"
    );
    let built = conversation.context().await;
    assert_eq!(
        built.representation(1),
        (Representation::Original, Reason::Small)
    );
    assert_eq!(built.0.messages.len(), 14);
    assert!(!conversation.checkpoints().await[0].valid);
    app.run_jobs_until_idle().await;
    assert_eq!(
        verify_and_read_boundary(&conversation).await,
        (BoundaryKind::Checkpoint, 12),
        "fourteen messages exceed the threshold"
    );
    let checkpoints = conversation.checkpoints().await;
    assert_eq!(
        checkpoints.len(),
        2,
        "both checkpoints end at message 12; the new one starts at message 1"
    );
    let valid: Vec<_> = checkpoints
        .iter()
        .filter(|checkpoint| checkpoint.valid)
        .collect();
    assert_eq!(valid.len(), 1);
    assert_eq!((valid[0].first_message_id, valid[0].generation), (1, 1));
}

#[tokio::test]
async fn the_newest_separator_is_the_boundary_and_older_ones_may_be_deleted() {
    let app = TestApp::start().await;
    let conversation = app.conversation_with_policy(policy()).await;
    for turn in 0..3 {
        append_turns(&conversation, turn, 1).await;
        conversation.insert_separator().await;
    }
    assert_eq!(
        verify_and_read_boundary(&conversation).await,
        (BoundaryKind::Separator, 6)
    );
    assert_eq!(
        conversation.delete_separator(4).await,
        6,
        "deleting an older separator does not move the boundary"
    );
    assert_eq!(
        verify_and_read_boundary(&conversation).await,
        (BoundaryKind::Separator, 6)
    );
    assert_eq!(conversation.delete_separator(6).await, 2);
    assert_eq!(
        verify_and_read_boundary(&conversation).await,
        (BoundaryKind::Separator, 2)
    );
    assert_eq!(conversation.delete_separator(2).await, 0);
    assert_eq!(
        verify_and_read_boundary(&conversation).await,
        (BoundaryKind::Unspecified, 0)
    );
}

#[tokio::test]
async fn an_empty_conversation_accepts_a_separator() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    assert_eq!(conversation.insert_separator().await.after_message_id, 0);
    conversation.context().await.assert_covers(0);
    conversation.verify().await;
    append_turns(&conversation, 0, 2).await;
    assert_eq!(verify_and_read_boundary(&conversation).await.1, 0);
    assert_eq!(conversation.context().await.0.messages.len(), 4);
    assert_eq!(conversation.delete_separator(0).await, 0);
    verify_and_read_boundary(&conversation).await;
}

#[tokio::test]
async fn a_second_separator_at_one_position_returns_the_first() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    append_turns(&conversation, 0, 1).await;
    let first = conversation.insert_separator().await;
    assert_eq!(
        conversation.insert_separator().await,
        first,
        "no second separator is stored"
    );
    assert_eq!(
        conversation.delete_separator(2).await,
        0,
        "the separator was deleted"
    );
    assert_eq!(
        status_details(
            &delete_separator(&conversation, "", 2)
                .await
                .expect_err("is deleted")
        )
        .code,
        Code::NotFound
    );
}

#[tokio::test]
async fn a_repeated_insert_returns_the_first_answer() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    append_turns(&conversation, 0, 1).await;
    let first = insert_separator(&conversation, "r1", None)
        .await
        .expect("inserts");
    append_turns(&conversation, 1, 1).await;
    assert_eq!(
        insert_separator(&conversation, "r1", None)
            .await
            .expect("replays"),
        first
    );
    assert_eq!(
        verify_and_read_boundary(&conversation).await,
        (BoundaryKind::Separator, 2),
        "the repeated call inserts no separator after message 4"
    );
    assert_eq!(
        insert_separator(&conversation, "r2", None)
            .await
            .expect("inserts")
            .after_message_id,
        4
    );
}

#[tokio::test]
async fn a_repeated_delete_deletes_once() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    append_turns(&conversation, 0, 1).await;
    conversation.insert_separator().await;
    assert_eq!(
        delete_separator(&conversation, "d1", 2)
            .await
            .expect("deletes"),
        0
    );
    assert_eq!(
        delete_separator(&conversation, "d1", 2)
            .await
            .expect("replays"),
        0
    );
    conversation.insert_separator().await;
    delete_separator(&conversation, "d1", 2)
        .await
        .expect("replays");
    assert_eq!(
        verify_and_read_boundary(&conversation).await,
        (BoundaryKind::Separator, 2),
        "the new separator stays"
    );
    let reused = status_details(
        &delete_separator(&conversation, "d1", 0)
            .await
            .expect_err("another request"),
    );
    assert_eq!(reused.reason, "REQUEST_ID_REUSED");
}

#[tokio::test]
async fn a_separator_is_refused_if_the_last_message_is_not_the_one_that_the_caller_expects() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    append_turns(&conversation, 0, 2).await;
    let refused = status_details(
        &insert_separator(&conversation, "", Some(3))
            .await
            .expect_err("4 is the newest"),
    );
    assert_eq!(refused.code, Code::Aborted);
    assert_eq!(
        verify_and_read_boundary(&conversation).await,
        (BoundaryKind::Unspecified, 0)
    );
    assert_eq!(
        insert_separator(&conversation, "", Some(4))
            .await
            .expect("inserts")
            .after_message_id,
        4
    );
}

#[tokio::test]
async fn a_missing_separator_and_a_missing_conversation_are_not_found() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    append_turns(&conversation, 0, 1).await;
    let missing = status_details(
        &delete_separator(&conversation, "", 1)
            .await
            .expect_err("no separator is there"),
    );
    assert_eq!(
        (missing.code, missing.reason.as_str()),
        (Code::NotFound, "SEPARATOR_NOT_FOUND")
    );
    let ask = pb::InsertSeparatorRequest {
        conversation_id: uuid::Uuid::new_v4().to_string(),
        ..Default::default()
    };
    let missing = status_details(
        &app.messages()
            .insert_separator(ask)
            .await
            .expect_err("is missing"),
    );
    assert_eq!(
        (missing.code, missing.reason.as_str()),
        (Code::NotFound, "CONVERSATION_NOT_FOUND")
    );
}

#[tokio::test]
async fn lists_of_messages_show_the_separators_within_a_page() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    for turn in 0..3 {
        conversation.insert_separator().await;
        append_turns(&conversation, turn, 1).await;
    }
    assert_eq!(
        list_separators(&conversation, 500, false).await,
        [vec![0, 2, 4]]
    );
    assert_eq!(
        list_separators(&conversation, 2, false).await,
        [vec![0, 2], vec![4], vec![]],
        "each separator once, on the page of the message before it"
    );
    assert_eq!(
        list_separators(&conversation, 2, true).await,
        [vec![], vec![4], vec![0, 2]]
    );
    let empty = app.conversation().await;
    assert_eq!(list_separators(&empty, 2, false).await, [Vec::<i64>::new()]);
    empty.insert_separator().await;
    assert_eq!(list_separators(&empty, 2, false).await, [vec![0]]);
}

/// Lists all messages. Returns the separators of each page, as the message ids that they follow.
async fn list_separators(
    conversation: &TestConversation<'_>,
    page_size: i32,
    newest_first: bool,
) -> Vec<Vec<i64>> {
    let mut pages = Vec::new();
    let mut page_token = String::new();
    loop {
        let conversation_id = conversation.id.clone();
        let ask = pb::ListMessagesRequest {
            conversation_id,
            page_size,
            page_token,
            newest_first,
            ..Default::default()
        };
        let page = conversation
            .app
            .messages()
            .list_messages(ask)
            .await
            .expect("lists")
            .into_inner();
        pages.push(
            page.separators
                .iter()
                .map(|separator| separator.after_message_id)
                .collect(),
        );
        if page.next_page_token.is_empty() {
            return pages;
        }
        page_token = page.next_page_token;
    }
}

#[tokio::test]
async fn a_separator_does_not_part_a_call_from_its_result() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation
        .append_all(vec![user("Look."), call("c1", "{}"), call("c2", "{}")])
        .await;
    conversation.append_all(vec![result("c1", "one")]).await;
    assert_refused(
        insert_separator(&conversation, "r1", None).await,
        Code::FailedPrecondition,
        "TOOL_CALL_OPEN",
        "",
    );
    assert_eq!(verify_and_read_boundary(&conversation).await.1, 0);
    conversation.append_all(vec![result("c2", "two")]).await;
    let inserted = insert_separator(&conversation, "r1", None).await;
    assert_eq!(inserted.expect("inserts").after_message_id, 5);
    // After the separator a call is open again, until the user goes on without its result.
    conversation
        .append_all(vec![user("Look again."), call("c3", "{}")])
        .await;
    let refused = insert_separator(&conversation, "", None).await;
    assert!(refused.is_err());
    conversation.append("Never mind.").await;
    let inserted = insert_separator(&conversation, "", None).await;
    assert_eq!(inserted.expect("inserts").after_message_id, 8);
}

#[tokio::test]
async fn a_separator_parts_a_call_from_its_result_if_the_caller_says_so() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation
        .append_all(vec![user("Look."), call("c1", "{}")])
        .await;
    let ask = pb::InsertSeparatorRequest {
        conversation_id: conversation.id.clone(),
        part_tool_pairs: true,
        ..Default::default()
    };
    let inserted = app.messages().insert_separator(ask).await.expect("inserts");
    assert_eq!(inserted.into_inner().after_message_id, 2);
    conversation
        .append_all(vec![result("c1", "late"), user("And?")])
        .await;
    let built = conversation.context().await;
    assert_eq!(built.0.messages.len(), 1, "the result is left out");
}
