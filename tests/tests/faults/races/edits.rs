//! A message is edited while the result of a job is stored, or while another call changes the
//! conversation. The rows are those of one order of the two.

use anneal_core::{
    boundary::Boundary,
    caller::ConversationId,
    job::JobKind,
    message::{Message, MessageId, Part, Role},
    tokens::Encoding,
};
use anneal_store::{
    ChangeConditions, Labels, MessageChange, MessageEdit, NewContent, StoreError, ToolPairs,
};
use anneal_testkit::{LOCK_JOBS, TestApp, TestConversation, user};

use crate::races::{
    CALLER,
    changes::{one, range, run_in_order, run_jobs_and_verify, withdraw},
    checkpoints::{create_with_due_checkpoint, draft_checkpoint},
    claim_job, count_messages, count_uncounted_messages,
    deletions::{assert_no_rows, claim_summary_job, delete_conversation},
};

/// An edit of message 1, a user's.
pub(super) fn edit_of_first(text: &str) -> MessageEdit {
    let new = Message {
        role: Role::User,
        parts: vec![Part::Text { text: text.into() }],
        metadata: [].into(),
    };
    MessageEdit {
        message: MessageId(1),
        new: NewContent::new(&new, Labels::Replace, Encoding::default()),
        pairs: ToolPairs::Together,
        expected_version: None,
        conditions: ChangeConditions::default(),
        request_id: None,
    }
}

/// The same edit, which fails unless this version stands.
fn expecting(version: i32, edit: MessageEdit) -> MessageEdit {
    MessageEdit {
        expected_version: Some(version),
        ..edit
    }
}

pub(super) async fn edit(
    conversation: &TestConversation<'_>,
    edit: MessageEdit,
) -> Result<MessageChange, StoreError> {
    let (store, id) = (&conversation.app.store, ConversationId(conversation.uuid()));
    store.edit_message(CALLER, id, &edit).await
}

async fn start_with_turn(app: &TestApp) -> TestConversation<'_> {
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    conversation
}

#[tokio::test]
async fn of_two_edits_at_once_the_last_one_stays_and_the_first_is_kept_as_a_version() {
    let app = TestApp::counted_by_workers().await;
    let conversation = start_with_turn(&app).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (first, second) = run_in_order(
        &app,
        held,
        edit(&conversation, edit_of_first("first")),
        edit(&conversation, edit_of_first("second")),
    )
    .await;
    let versions = [first, second].map(|change| change.expect("edits").version);
    assert_eq!(versions, [Some(2), Some(3)]);
    for (version, text) in [(1, "a"), (2, "first"), (3, "second")] {
        let kept = conversation.message_version(1, version).await;
        assert_eq!(kept.expect("is kept").parts, user(text).parts);
    }
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn of_two_edits_that_expect_the_same_version_the_second_is_refused() {
    let app = TestApp::counted_by_workers().await;
    let conversation = start_with_turn(&app).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (first, second) = run_in_order(
        &app,
        held,
        edit(&conversation, expecting(1, edit_of_first("first"))),
        edit(&conversation, expecting(1, edit_of_first("second"))),
    )
    .await;
    assert_eq!(first.expect("edits").version, Some(2));
    assert!(
        matches!(
            second,
            Err(StoreError::VersionMismatch {
                expected: 1,
                actual: 2
            })
        ),
        "{second:?}"
    );
    assert_eq!(conversation.message(1).await.parts, user("first").parts);
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn an_edit_repeated_while_it_is_made_waits_and_returns_the_same() {
    let app = TestApp::counted_by_workers().await;
    let conversation = start_with_turn(&app).await;
    let repeatable = || MessageEdit {
        request_id: Some("r".into()),
        ..edit_of_first("once")
    };
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (first, again) = run_in_order(
        &app,
        held,
        edit(&conversation, repeatable()),
        edit(&conversation, repeatable()),
    )
    .await;
    let expected = MessageChange {
        replayed: true,
        caused: Vec::new(),
        ..first.expect("edits")
    };
    assert_eq!(again.expect("is answered"), expected);
    assert_eq!(conversation.versions(1).await.len(), 2);
}

#[tokio::test]
async fn an_edit_that_comes_before_a_withdrawal_is_withdrawn_with_its_message() {
    let app = TestApp::counted_by_workers().await;
    let conversation = start_with_turn(&app).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (edited, withdrawn) = run_in_order(
        &app,
        held,
        edit(&conversation, edit_of_first("new")),
        withdraw(&conversation, one(1)),
    )
    .await;
    assert_eq!(edited.expect("edits").version, Some(2));
    assert_eq!(withdrawn.expect("withdraws").changed, [range(1, 1)]);
    let versions = conversation.versions(1).await;
    assert_eq!(versions.len(), 2, "{versions:?}");
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn an_edit_that_comes_after_a_withdrawal_is_refused() {
    let app = TestApp::counted_by_workers().await;
    let conversation = start_with_turn(&app).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (withdrawn, edited) = run_in_order(
        &app,
        held,
        withdraw(&conversation, one(1)),
        edit(&conversation, edit_of_first("new")),
    )
    .await;
    withdrawn.expect("withdraws");
    assert!(
        matches!(edited, Err(StoreError::MessageWithdrawn(MessageId(1)))),
        "{edited:?}"
    );
    assert_eq!(conversation.versions(1).await.len(), 1);
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn a_checkpoint_that_comes_before_an_edit_no_longer_holds() {
    let app = TestApp::counted_by_workers().await;
    let conversation = create_with_due_checkpoint(&app).await;
    let job = claim_job(&app, JobKind::Checkpoint).await;
    let draft = draft_checkpoint(&app, &job).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (committed, change) = run_in_order(
        &app,
        held,
        app.store.commit_checkpoint(&job, &draft),
        edit(&conversation, edit_of_first("new")),
    )
    .await;
    assert!(committed.expect("commits").results_kept);
    let change = change.expect("edits");
    assert_eq!(change.void_checkpoints, [range(1, 8)]);
    assert_eq!(change.boundary, Boundary::Start);
    assert!(conversation.checkpoints().await.is_empty());
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn a_checkpoint_that_comes_after_an_edit_is_refused() {
    let app = TestApp::counted_by_workers().await;
    let conversation = create_with_due_checkpoint(&app).await;
    let job = claim_job(&app, JobKind::Checkpoint).await;
    let draft = draft_checkpoint(&app, &job).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (change, committed) = run_in_order(
        &app,
        held,
        edit(&conversation, edit_of_first("new")),
        app.store.commit_checkpoint(&job, &draft),
    )
    .await;
    assert!(
        matches!(committed, Err(StoreError::LeaseLost)),
        "{committed:?}"
    );
    assert_eq!(change.expect("edits").caused, [JobKind::Checkpoint]);
    assert!(conversation.checkpoints().await.is_empty());
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn a_summary_that_comes_before_an_edit_is_dropped_with_the_old_content() {
    let app = TestApp::counted_by_workers().await;
    let (conversation, job, summary) = claim_summary_job(&app).await;
    let summaries = [summary];
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (recorded, change) = run_in_order(
        &app,
        held,
        app.store.record_summaries(&job, &summaries, false),
        edit(&conversation, edit_of_first("short")),
    )
    .await;
    recorded.expect("precedes the edit");
    change.expect("edits");
    assert_eq!(conversation.message(1).await.summary, None);
    run_jobs_and_verify(&conversation).await;
    assert_eq!(conversation.message(1).await.summary, None);
}

#[tokio::test]
async fn a_summary_that_comes_after_an_edit_is_refused() {
    let app = TestApp::counted_by_workers().await;
    let (conversation, job, summary) = claim_summary_job(&app).await;
    let summaries = [summary];
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (change, recorded) = run_in_order(
        &app,
        held,
        edit(&conversation, edit_of_first("short")),
        app.store.record_summaries(&job, &summaries, false),
    )
    .await;
    change.expect("edits");
    let stored = app.store.store_summaries(&job, &summaries).await;
    for refused in [recorded.map(|_| ()), stored.map(drop)] {
        assert!(matches!(refused, Err(StoreError::LeaseLost)), "{refused:?}");
    }
    assert_eq!(conversation.message(1).await.summary, None);
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn a_count_that_comes_before_an_edit_does_not_count_the_new_content() {
    let app = TestApp::counted_by_workers().await;
    let conversation = start_with_turn(&app).await;
    let job = claim_job(&app, JobKind::CountTokens).await;
    let counted = count_messages(&app, &job).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (recorded, change) = run_in_order(
        &app,
        held,
        app.store.record_counts_of_one(&counted),
        edit(&conversation, edit_of_first("a few more words")),
    )
    .await;
    recorded.expect("precedes the edit");
    let change = change.expect("edits");
    let tokens = conversation.message(1).await.tokens.expect("tokens");
    assert!(!tokens.estimated && tokens.tokens != 10, "{tokens:?}");
    assert_eq!(
        (change.token_total.get(), change.uncounted),
        (tokens.tokens + 10, 0)
    );
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn a_count_that_comes_after_an_edit_is_refused() {
    let app = TestApp::counted_by_workers().await;
    let conversation = start_with_turn(&app).await;
    let job = claim_job(&app, JobKind::CountTokens).await;
    let counted = count_messages(&app, &job).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (change, recorded) = run_in_order(
        &app,
        held,
        edit(&conversation, edit_of_first("a few more words")),
        app.store.record_counts_of_one(&counted),
    )
    .await;
    assert_eq!(change.expect("edits").uncounted, 2);
    assert!(
        matches!(recorded, Err(StoreError::LeaseLost)),
        "{recorded:?}"
    );
    assert_eq!(count_uncounted_messages(&conversation).await, 2);
    run_jobs_and_verify(&conversation).await;
    assert_eq!(count_uncounted_messages(&conversation).await, 0);
    let tokens = conversation.message(1).await.tokens.expect("tokens");
    assert_ne!(tokens.tokens, 10, "the new content was counted");
}

#[tokio::test]
async fn an_edit_that_comes_before_a_deletion_leaves_nothing_behind() {
    let app = TestApp::counted_by_workers().await;
    let conversation = start_with_turn(&app).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (change, ()) = run_in_order(
        &app,
        held,
        edit(&conversation, edit_of_first("new")),
        delete_conversation(&conversation),
    )
    .await;
    change.expect("edits");
    assert_no_rows(&conversation).await;
    let usage = app.store.read_tenant_usage(CALLER).await.expect("reads");
    assert_eq!((usage.messages, usage.content_bytes), (0, 0));
}

#[tokio::test]
async fn an_edit_that_comes_after_a_deletion_finds_no_conversation() {
    let app = TestApp::counted_by_workers().await;
    let conversation = start_with_turn(&app).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let ((), change) = run_in_order(
        &app,
        held,
        delete_conversation(&conversation),
        edit(&conversation, edit_of_first("new")),
    )
    .await;
    assert!(matches!(change, Err(StoreError::NotFound(_))), "{change:?}");
    assert_no_rows(&conversation).await;
}
