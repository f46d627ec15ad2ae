//! Messages are erased while a checkpoint, a summary, a part of one or a count is stored, and
//! beside an append, a withdrawal, a restore and an edit. A result that comes after the erasure was
//! made from what was erased, and is refused. One that comes before it is erased with its messages.
//! A user is erased while messages are withdrawn, and twice at once.

use anneal_core::{caller::ConversationId, job::JobKind};
use anneal_store::{ErasureStep, MessageChange, ModelSpend, StoreError};
use anneal_testkit::{
    LOCK_CONVERSATION, LOCK_JOBS, OpenTransaction, TestApp, TestConversation, pb,
};
use tonic::Status;

use crate::races::{
    CALLER,
    changes::{one, range, restore, run_in_order, run_jobs_and_verify, withdraw},
    checkpoints::{create_with_due_checkpoint, draft_checkpoint},
    claim_job, count_messages, count_uncounted_messages,
    deletions::{assert_no_rows, claim_summary_job},
    edits::{edit, edit_of_first},
};

/// Erases one message.
async fn erase(
    conversation: &TestConversation<'_>,
    message: i64,
) -> Result<MessageChange, StoreError> {
    let id = ConversationId(conversation.uuid());
    let store = &conversation.app.store;
    store
        .erase_messages(CALLER, id, &one(message), "anyone")
        .await
}

async fn count(conversation: &TestConversation<'_>, statement: &'static str) -> i64 {
    sqlx::query_scalar(statement)
        .bind(conversation.uuid())
        .fetch_one(&mut conversation.app.db().await)
        .await
        .expect("counts")
}

const COUNT_VERSIONS: &str = "select count(*) from ai_message_version where conversation_id = $1";
/// Texts that were made of messages: summaries of messages, parts of summaries, and summaries of
/// checkpoints, whether they hold or not.
const COUNT_TEXTS: &str =
    "select (select count(summary_cache) from ai_message where conversation_id = $1)
    + (select count(*) from ai_summary_part where conversation_id = $1)
    + (select count(*) from ai_conversation_checkpoint where conversation_id = $1)
    + (select count(*) from ai_void_checkpoint where conversation_id = $1 and summary <> '')";

#[tokio::test]
async fn a_checkpoint_that_comes_before_an_erasure_loses_its_text() {
    let app = TestApp::counted_by_workers().await;
    let conversation = create_with_due_checkpoint(&app).await;
    let job = claim_job(&app, JobKind::Checkpoint).await;
    let draft = draft_checkpoint(&app, &job).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (committed, change) = run_in_order(
        &app,
        held,
        app.store.commit_checkpoint(&job, &draft),
        erase(&conversation, 4),
    )
    .await;
    assert!(committed.expect("commits").results_kept);
    let change = change.expect("erases");
    assert_eq!(change.changed, [range(4, 4)]);
    assert_eq!(change.void_checkpoints, [range(1, 8)]);
    assert_eq!(count(&conversation, COUNT_TEXTS).await, 0);
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn a_checkpoint_that_comes_after_an_erasure_is_refused() {
    let app = TestApp::counted_by_workers().await;
    let conversation = create_with_due_checkpoint(&app).await;
    let job = claim_job(&app, JobKind::Checkpoint).await;
    let draft = draft_checkpoint(&app, &job).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (change, committed) = run_in_order(
        &app,
        held,
        erase(&conversation, 4),
        app.store.commit_checkpoint(&job, &draft),
    )
    .await;
    change.expect("erases");
    assert!(
        matches!(committed, Err(StoreError::LeaseLost)),
        "{committed:?}"
    );
    assert_eq!(count(&conversation, COUNT_TEXTS).await, 0);
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn a_summary_and_its_parts_that_come_before_an_erasure_are_erased() {
    let app = TestApp::counted_by_workers().await;
    let (conversation, job, summary) = claim_summary_job(&app).await;
    app.store
        .store_partial_summary(&job, &[1; 32], "Half of it.", ModelSpend::default())
        .await
        .expect("stores");
    assert_eq!(count(&conversation, COUNT_TEXTS).await, 1);
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let summaries = [summary];
    let (recorded, erased) = run_in_order(
        &app,
        held,
        app.store.record_summaries(&job, &summaries, false),
        erase(&conversation, 1),
    )
    .await;
    recorded.expect("precedes the erasure");
    erased.expect("erases");
    assert_eq!(count(&conversation, COUNT_TEXTS).await, 0);
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn a_summary_and_its_parts_that_come_after_an_erasure_are_refused() {
    let app = TestApp::counted_by_workers().await;
    let (conversation, job, summary) = claim_summary_job(&app).await;
    erase(&conversation, 1).await.expect("erases");
    let summaries = [summary];
    let recorded = app.store.record_summaries(&job, &summaries, false).await;
    assert!(
        matches!(recorded, Err(StoreError::LeaseLost)),
        "{recorded:?}"
    );
    app.store
        .store_partial_summary(&job, &[1; 32], "Half of it.", ModelSpend::default())
        .await
        .expect("is answered");
    assert_eq!(count(&conversation, COUNT_TEXTS).await, 0);
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn a_message_that_is_restored_before_an_erasure_is_erased() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.turns(2).await;
    withdraw(&conversation, one(2)).await.expect("withdraws");
    let held = app.hold_lock(LOCK_CONVERSATION, conversation.uuid()).await;
    let (restored, erased) = run_in_order(
        &app,
        held,
        restore(&conversation, one(2)),
        erase(&conversation, 2),
    )
    .await;
    assert_eq!(restored.expect("restores").changed, [range(2, 2)]);
    assert_eq!(erased.expect("erases").changed, [range(2, 2)]);
    assert_eq!(count(&conversation, COUNT_VERSIONS).await, 0);
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn a_restore_that_comes_after_an_erasure_is_refused() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.turns(2).await;
    withdraw(&conversation, one(2)).await.expect("withdraws");
    let held = app.hold_lock(LOCK_CONVERSATION, conversation.uuid()).await;
    let (erased, restored) = run_in_order(
        &app,
        held,
        erase(&conversation, 2),
        restore(&conversation, one(2)),
    )
    .await;
    erased.expect("erases");
    assert!(
        matches!(restored, Err(StoreError::MessageErased(_))),
        "{restored:?}"
    );
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn a_message_that_is_withdrawn_before_an_erasure_is_erased() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.turns(2).await;
    let held = app.hold_lock(LOCK_CONVERSATION, conversation.uuid()).await;
    let (withdrawn, erased) = run_in_order(
        &app,
        held,
        withdraw(&conversation, one(2)),
        erase(&conversation, 2),
    )
    .await;
    assert_eq!(withdrawn.expect("withdraws").changed, [range(2, 2)]);
    assert_eq!(erased.expect("erases").changed, [range(2, 2)]);
    assert_eq!(count(&conversation, COUNT_VERSIONS).await, 0);
    let restored = restore(&conversation, one(2)).await;
    assert!(
        matches!(restored, Err(StoreError::MessageErased(_))),
        "{restored:?}"
    );
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn a_withdrawal_that_comes_after_an_erasure_has_nothing_to_do() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.turns(2).await;
    let held = app.hold_lock(LOCK_CONVERSATION, conversation.uuid()).await;
    let (erased, withdrawn) = run_in_order(
        &app,
        held,
        erase(&conversation, 2),
        withdraw(&conversation, one(2)),
    )
    .await;
    assert_eq!(erased.expect("erases").changed, [range(2, 2)]);
    let withdrawn = withdrawn.expect("is answered");
    assert_eq!(
        (withdrawn.id, withdrawn.changed.len(), withdrawn.withdrawn),
        (0, 0, 1)
    );
    assert_eq!(count(&conversation, COUNT_VERSIONS).await, 0);
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn both_versions_of_a_message_that_is_edited_before_an_erasure_are_erased() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.turns(1).await;
    let held = app.hold_lock(LOCK_CONVERSATION, conversation.uuid()).await;
    let (edited, erased) = run_in_order(
        &app,
        held,
        edit(&conversation, edit_of_first("edited")),
        erase(&conversation, 1),
    )
    .await;
    assert_eq!(edited.expect("edits").version, Some(2));
    assert_eq!(erased.expect("erases").changed, [range(1, 1)]);
    assert_eq!(count(&conversation, COUNT_VERSIONS).await, 0);
    let history = conversation.messages_with_withdrawn().await;
    assert!(
        history[0].erased && history[0].parts.is_empty(),
        "{history:?}"
    );
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn an_edit_that_comes_after_an_erasure_is_refused() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.turns(1).await;
    let held = app.hold_lock(LOCK_CONVERSATION, conversation.uuid()).await;
    let (erased, edited) = run_in_order(
        &app,
        held,
        erase(&conversation, 1),
        edit(&conversation, edit_of_first("edited")),
    )
    .await;
    erased.expect("erases");
    assert!(
        matches!(edited, Err(StoreError::MessageWithdrawn(_))),
        "{edited:?}"
    );
    assert_eq!(count(&conversation, COUNT_VERSIONS).await, 0);
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn an_append_that_comes_before_an_erasure_is_erased() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (appended, erased) = run_in_order(
        &app,
        held,
        conversation.append("c").send(),
        erase(&conversation, 3),
    )
    .await;
    assert_eq!(appended.expect("appends").messages[0].message_id, 3);
    assert_eq!(erased.expect("erases").changed, [range(3, 3)]);
    assert_eq!(standing(&conversation).await, [1, 2]);
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn an_append_that_comes_after_an_erasure_continues_what_is_left() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (erased, appended) = run_in_order(
        &app,
        held,
        erase(&conversation, 2),
        conversation.append("c").send(),
    )
    .await;
    assert_eq!(erased.expect("erases").changed, [range(2, 2)]);
    assert_eq!(appended.expect("appends").messages[0].message_id, 3);
    assert_eq!(standing(&conversation).await, [1, 3]);
    run_jobs_and_verify(&conversation).await;
}

/// Ids of the messages that stand.
async fn standing(conversation: &TestConversation<'_>) -> Vec<i64> {
    let messages = conversation.messages().await;
    messages.iter().map(|message| message.message_id).collect()
}

#[tokio::test]
async fn a_count_that_comes_before_an_erasure_is_kept_of_what_is_left() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let job = claim_job(&app, JobKind::CountTokens).await;
    let counted = count_messages(&app, &job).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (recorded, erased) = run_in_order(
        &app,
        held,
        app.store.record_counts_of_one(&counted),
        erase(&conversation, 2),
    )
    .await;
    recorded.expect("precedes the erasure");
    let erased = erased.expect("erases");
    assert_eq!((erased.token_total.get(), erased.uncounted), (10, 0));
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn a_count_that_comes_after_an_erasure_is_refused() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let job = claim_job(&app, JobKind::CountTokens).await;
    let counted = count_messages(&app, &job).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (erased, recorded) = run_in_order(
        &app,
        held,
        erase(&conversation, 2),
        app.store.record_counts_of_one(&counted),
    )
    .await;
    erased.expect("erases");
    assert!(
        matches!(recorded, Err(StoreError::LeaseLost)),
        "{recorded:?}"
    );
    run_jobs_and_verify(&conversation).await;
    assert_eq!(count_uncounted_messages(&conversation).await, 0);
}

/// Begins the erasure of the user anna, or finds it if there is a request id.
pub(super) async fn erase_anna(app: &TestApp, request_id: &str) -> Result<pb::Erasure, Status> {
    let ask = pb::EraseUserRequest {
        user_id: "anna".into(),
        request_id: request_id.into(),
        dry_run: false,
    };
    let begun = app.erasures().erase_user(ask).await?;
    Ok(begun.into_inner())
}

/// Asserts that an erasure has ended. Returns how many conversations it has deleted.
pub(super) async fn read_erased_count(app: &TestApp, erasure: &pb::Erasure) -> i64 {
    let ask = pb::GetErasureRequest {
        erasure_id: erasure.erasure_id.clone(),
    };
    let erasure = app.erasures().get_erasure(ask).await;
    let erasure = erasure.expect("is there").into_inner();
    assert_eq!(erasure.state(), pb::ErasureState::Done, "{erasure:?}");
    erasure.erased_conversations
}

/// Creates a conversation of the user with one turn and a counting job, and begins the user's
/// erasure.
async fn create_and_erase_user(app: &TestApp) -> (TestConversation<'_>, pb::Erasure) {
    let ask = pb::CreateConversationRequest {
        user_id: "anna".into(),
        ..Default::default()
    };
    let conversation = app.conversation_with(ask).await;
    conversation.turns(1).await;
    let begun = erase_anna(app, "").await.expect("begins");
    (conversation, begun)
}

#[tokio::test]
async fn a_withdrawal_that_comes_before_the_erasure_of_a_user_leaves_nothing_behind() {
    let app = TestApp::counted_by_workers().await;
    let (conversation, _) = create_and_erase_user(&app).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (withdrawn, ()) = tokio::join!(withdraw(&conversation, one(2)), async {
        app.wait_for_lock_waiters(1).await;
        // Passes over the conversation, which is in use.
        app.run_erasures().await;
        held.rollback().await;
    });
    assert_eq!(withdrawn.expect("withdraws").changed, [range(2, 2)]);
    app.run_erasures().await;
    assert_no_rows(&conversation).await;
}

#[tokio::test]
async fn a_withdrawal_that_comes_after_the_erasure_of_a_user_finds_no_conversation() {
    let app = TestApp::counted_by_workers().await;
    let (conversation, _) = create_and_erase_user(&app).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let ((), withdrawn) = run_in_order(
        &app,
        held,
        app.run_erasures(),
        withdraw(&conversation, one(2)),
    )
    .await;
    assert!(
        matches!(withdrawn, Err(StoreError::NotFound(_))),
        "{withdrawn:?}"
    );
    assert_no_rows(&conversation).await;
}

#[tokio::test]
async fn of_two_erasures_of_a_user_one_deletes_and_the_other_does_not_wait() {
    let app = TestApp::counted_by_workers().await;
    let (conversation, first) = create_and_erase_user(&app).await;
    let second = erase_anna(&app, "").await.expect("begins");
    assert_ne!(first.erasure_id, second.erasure_id);
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let ((), ()) = tokio::join!(app.run_erasures(), async {
        app.wait_for_lock_waiters(1).await;
        // The other worker passes over the first erasure, and over the conversation.
        let round = app.store.run_erasure_step().await.expect("is answered");
        assert_eq!(round.step, ErasureStep::Busy, "{round:?}");
        assert!(round.failures.is_empty(), "{round:?}");
        held.rollback().await;
    });
    assert_no_rows(&conversation).await;
    app.run_erasures().await;
    assert_eq!(read_erased_count(&app, &first).await, 1);
    assert_eq!(read_erased_count(&app, &second).await, 0);
}

/// Keeps the row of an erasure in another table, and deletes it.
const PUT_ASIDE: &str = "create table aside as select * from ai_erasure; delete from ai_erasure";
/// Inserts the row again, as another call does that is not committed yet.
const INSERT_ERASURE: &str =
    "insert into ai_erasure select * from aside where erasure_id = $1::uuid";

/// Returns the erasure of a user that a call with the request id "r" begins, which is not committed
/// yet, and that call.
async fn put_aside(app: &TestApp) -> (pb::Erasure, OpenTransaction) {
    let begun = erase_anna(app, "r").await.expect("begins");
    sqlx::raw_sql(PUT_ASIDE)
        .execute(&mut app.db().await)
        .await
        .expect("puts aside");
    let id = begun.erasure_id.parse().expect("an id");
    let other = app.hold_lock(INSERT_ERASURE, id).await;
    (begun, other)
}

#[tokio::test]
async fn an_erasure_that_is_repeated_while_it_is_begun_waits_and_is_the_same() {
    let app = TestApp::start().await;
    let (begun, other) = put_aside(&app).await;
    let (again, ()) = tokio::join!(erase_anna(&app, "r"), async {
        app.wait_for_lock_waiters(1).await;
        other.commit().await;
    });
    assert_eq!(again.expect("is answered"), begun);
}

#[tokio::test]
async fn an_erasure_that_is_repeated_after_the_first_was_rolled_back_is_begun() {
    let app = TestApp::start().await;
    let (begun, dying) = put_aside(&app).await;
    let (again, ()) = tokio::join!(erase_anna(&app, "r"), async {
        app.wait_for_lock_waiters(1).await;
        dying.rollback().await;
    });
    let again = again.expect("begins");
    assert_eq!(again.erasure_id, begun.erasure_id);
    app.run_erasures().await;
    assert_eq!(read_erased_count(&app, &again).await, 0);
}
