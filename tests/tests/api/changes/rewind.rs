//! A rewind withdraws every message after one.

use anneal_testkit::{TestApp, assert_refused, pb};
use pb::{BoundaryKind, RepairKind};
use tonic::Code;

use super::{
    conversation_of_turns, conversation_with_checkpoints, conversation_with_tools, ids, listed_ids,
};

#[tokio::test]
async fn a_rewind_withdraws_everything_after_a_message() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 3).await;
    let change = conversation.rewind(2).await;
    assert_eq!(ids(&change.changed), [(3, 6)]);
    assert_eq!(listed_ids(&conversation).await, [1, 2]);
    let told = conversation_of_turns(&app, 1).await;
    assert_eq!(
        conversation.context().await.texts_by_role(),
        told.context().await.texts_by_role()
    );
    let appended = conversation.turn("Another way?", "Yes.").await;
    assert_eq!(
        (appended.messages[0].message_id, appended.messages[0].turn),
        (7, 2)
    );
    conversation.verify().await;

    let change = conversation.rewind(3).await;
    assert_eq!(
        ids(&change.changed),
        [(7, 8)],
        "messages that are withdrawn already are skipped"
    );
    let change = conversation.rewind(0).await;
    assert_eq!(ids(&change.changed), [(1, 2)]);
    assert!(listed_ids(&conversation).await.is_empty());
    let empty = conversation.conversation().await;
    assert_eq!(
        (
            empty.message_count,
            empty.withdrawn_messages,
            empty.turn,
            empty.title.as_str()
        ),
        (8, 8, 0, "")
    );
    conversation.verify().await;
}

#[tokio::test]
async fn a_rewind_between_a_call_and_its_result_withdraws_the_call_too() {
    let app = TestApp::start().await;
    let conversation = conversation_with_tools(&app).await;
    let change = conversation.rewind(6).await;
    assert_eq!(ids(&change.changed), [(6, 8)]);
    let change = conversation.rewind(2).keep_tool_pairs_apart().await;
    assert_eq!(ids(&change.changed), [(3, 5)]);
    let built = conversation.context().await;
    built.assert_tools_paired();
    assert!(
        built.repairs().contains(&(RepairKind::ResultAdded, 2)),
        "{:?}",
        built.repairs()
    );
    conversation.verify().await;
}

#[tokio::test]
async fn a_rewind_to_the_newest_message_changes_nothing_and_one_to_a_later_message_is_refused() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 1).await;
    let before = conversation.conversation().await;
    let change = conversation.rewind(2).await;
    assert_eq!((change.change_id, change.changed.len()), (0, 0));
    assert_eq!(change.etag, before.etag);
    let refused = conversation.rewind(3).send().await;
    assert_refused(
        refused,
        Code::NotFound,
        "MESSAGE_NOT_FOUND",
        "after_message_id",
    );
    assert_eq!(conversation.conversation().await, before);
    let empty = app.conversation().await;
    assert_eq!(empty.rewind(0).await.change_id, 0);
}

#[tokio::test]
async fn a_rewind_behind_checkpoints_moves_the_boundary_back() {
    let app = TestApp::start().await;
    let (conversation, [older, newer]) = conversation_with_checkpoints(&app).await;
    let change = conversation.rewind(newer).await;
    assert!(change.void_checkpoints.is_empty(), "{change:?}");
    assert_eq!(change.boundary_message_id, newer);
    assert_eq!(conversation.context().await.texts_by_role().len(), 1);
    let change = conversation.rewind(older).await;
    assert_eq!(ids(&change.void_checkpoints), [(1, newer)]);
    assert_eq!(
        (change.boundary_message_id, change.boundary_kind()),
        (older, BoundaryKind::Checkpoint)
    );
    let change = conversation.rewind(older - 1).await;
    assert_eq!(ids(&change.void_checkpoints), [(1, older)]);
    assert_eq!(change.boundary_message_id, 0);
    assert_eq!(
        conversation.context().await.texts_by_role(),
        conversation.texts_by_role().await
    );
    conversation.verify().await;
}
