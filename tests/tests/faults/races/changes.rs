//! Messages are withdrawn while the result of a job is stored, or while a job is claimed or
//! requeued. A result that comes after the change was made from what was there before, and is
//! refused. One that comes before it is changed with its messages.

use std::pin::Pin;

use anneal_core::{boundary::Boundary, caller::ConversationId, job::JobKind, message::MessageId};
use anneal_store::{
    ChangeAsk, ChangeConditions, ClaimedJob, IdRange, MessageChange, ModelSpend, Selection,
    StoreError, ToolPairs,
};
use anneal_testkit::{LOCK_JOBS, OpenTransaction, TestApp, TestConversation, pb, sentence};
use pb::{JobKind as Kind, JobState as State};

use crate::races::{
    CALLER,
    checkpoints::{create_with_due_checkpoint, draft_checkpoint},
    claim_due_jobs, claim_job, count_messages, count_uncounted_messages,
    deletions::claim_summary_job,
    insert_dead_job, list_jobs,
};

/// Inserts the lease of a turn. A change deletes it after it has locked the jobs.
const INSERT_LEASE: &str =
    "insert into ai_model_lease (tenant_id, conversation_id, lease, model, turn, reserved_tokens, lease_until_ts)
    select tenant_id, conversation_id, conversation_id, 'any', true, 0, now() + interval '1 hour'
    from ai_conversation where conversation_id = $1";
/// Locks the lease of a turn.
const LOCK_LEASE: &str = "select from ai_model_lease where conversation_id = $1 for update";

pub(super) fn ask(selection: Selection) -> ChangeAsk {
    ChangeAsk {
        selection,
        pairs: ToolPairs::Together,
        conditions: ChangeConditions::default(),
        request_id: None,
    }
}

pub(super) fn one(id: i64) -> ChangeAsk {
    ask(Selection::Ids(vec![MessageId(id)]))
}

pub(super) fn range(first: i64, last: i64) -> IdRange {
    IdRange {
        first: MessageId(first),
        last: MessageId(last),
    }
}

fn id(conversation: &TestConversation<'_>) -> ConversationId {
    ConversationId(conversation.uuid())
}

pub(super) async fn withdraw(
    conversation: &TestConversation<'_>,
    ask: ChangeAsk,
) -> Result<MessageChange, StoreError> {
    let store = &conversation.app.store;
    store
        .withdraw_messages(CALLER, id(conversation), &ask)
        .await
}

pub(super) async fn restore(
    conversation: &TestConversation<'_>,
    ask: ChangeAsk,
) -> Result<MessageChange, StoreError> {
    let store = &conversation.app.store;
    store
        .restore_messages(CALLER, id(conversation), &ask, &[])
        .await
}

/// Runs `first` until it waits for the lock that the test holds, then `second` until it waits as
/// well, and releases the lock.
pub(super) fn run_in_order<'a, A: 'a, B: 'a>(
    app: &'a TestApp,
    held: OpenTransaction,
    first: impl Future<Output = A> + 'a,
    second: impl Future<Output = B> + 'a,
) -> Pin<Box<dyn Future<Output = (A, B)> + 'a>> {
    Box::pin(async move {
        let (first, second, ()) = tokio::join!(
            first,
            async {
                app.wait_for_lock_waiters(1).await;
                second.await
            },
            async {
                app.wait_for_lock_waiters(2).await;
                held.rollback().await;
            },
        );
        (first, second)
    })
}

fn is_lease_lost<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::LeaseLost))
}

/// Counts the rows that a statement selects for this conversation.
async fn count(conversation: &TestConversation<'_>, statement: &'static str) -> i64 {
    sqlx::query_scalar(statement)
        .bind(conversation.uuid())
        .fetch_one(&mut conversation.app.db().await)
        .await
        .expect("counts")
}

const COUNT_PARTS: &str = "select count(*) from ai_summary_part where conversation_id = $1";
const COUNT_SUMMARIES: &str =
    "select count(summary_cache) from ai_message where conversation_id = $1";

/// Runs all jobs. No job may be left, and nothing may be wrong.
pub(super) async fn run_jobs_and_verify(conversation: &TestConversation<'_>) {
    conversation.app.run_jobs_until_idle().await;
    assert!(list_jobs(conversation).await.is_empty());
    conversation.verify().await;
}

#[tokio::test]
async fn a_checkpoint_that_comes_before_a_withdrawal_no_longer_holds() {
    let app = TestApp::counted_by_workers().await;
    let conversation = create_with_due_checkpoint(&app).await;
    let job = claim_job(&app, JobKind::Checkpoint).await;
    let draft = draft_checkpoint(&app, &job).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (committed, change) = run_in_order(
        &app,
        held,
        app.store.commit_checkpoint(&job, &draft),
        withdraw(&conversation, one(4)),
    )
    .await;
    assert!(committed.expect("commits").results_kept);
    let change = change.expect("withdraws");
    assert_eq!(change.changed, [range(4, 4)]);
    assert_eq!(change.void_checkpoints, [range(1, 8)]);
    assert_eq!(change.boundary, Boundary::Start);
    assert_eq!(change.id, 2, "the change comes after the checkpoint");
    assert!(conversation.checkpoints().await.is_empty());
    run_jobs_and_verify(&conversation).await;
    let context = conversation.context().await.text();
    assert!(!context.contains(&sentence(3)), "{context}");
    assert!(context.contains(&sentence(2)), "{context}");
}

#[tokio::test]
async fn a_checkpoint_that_comes_after_a_withdrawal_is_refused() {
    let app = TestApp::counted_by_workers().await;
    let conversation = create_with_due_checkpoint(&app).await;
    let job = claim_job(&app, JobKind::Checkpoint).await;
    let draft = draft_checkpoint(&app, &job).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (change, committed) = run_in_order(
        &app,
        held,
        withdraw(&conversation, one(4)),
        app.store.commit_checkpoint(&job, &draft),
    )
    .await;
    assert!(is_lease_lost(&committed), "{committed:?}");
    assert_eq!(change.expect("withdraws").caused, [JobKind::Checkpoint]);
    assert!(conversation.checkpoints().await.is_empty());
    assert_eq!(
        list_jobs(&conversation).await,
        [(Kind::Checkpoint, State::Waiting, 0)],
        "the job looks again, and the lost start does not count"
    );
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn a_summary_that_comes_before_a_withdrawal_is_withdrawn_with_its_message() {
    let app = TestApp::counted_by_workers().await;
    let (conversation, job, summary) = claim_summary_job(&app).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let summaries = [summary];
    let (recorded, change) = run_in_order(
        &app,
        held,
        app.store.record_summaries(&job, &summaries, false),
        withdraw(&conversation, one(1)),
    )
    .await;
    recorded.expect("precedes the withdrawal");
    change.expect("withdraws");
    assert_eq!(count(&conversation, COUNT_SUMMARIES).await, 0);
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn a_summary_that_comes_after_a_withdrawal_is_refused() {
    let app = TestApp::counted_by_workers().await;
    let (conversation, job, summary) = claim_summary_job(&app).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let summaries = [summary];
    let (change, recorded) = run_in_order(
        &app,
        held,
        withdraw(&conversation, one(1)),
        app.store.record_summaries(&job, &summaries, false),
    )
    .await;
    change.expect("withdraws");
    assert!(is_lease_lost(&recorded), "{recorded:?}");
    let stored = app.store.store_summaries(&job, &summaries).await;
    assert!(is_lease_lost(&stored), "{stored:?}");
    assert_eq!(count(&conversation, COUNT_SUMMARIES).await, 0);
    restore(&conversation, one(1)).await.expect("restores");
    let stored = app.store.store_summaries(&job, &summaries).await;
    assert!(is_lease_lost(&stored), "{stored:?}");
    assert_eq!(count(&conversation, COUNT_SUMMARIES).await, 0);
    run_jobs_and_verify(&conversation).await;
}

/// Stores a part of the summary that the job makes.
async fn store_part(app: &TestApp, job: &ClaimedJob, digest: u8) -> Result<(), StoreError> {
    let (digest, spent) = ([digest; 32], ModelSpend::default());
    app.store
        .store_partial_summary(job, &digest, "Half of it.", spent)
        .await
}

#[tokio::test]
async fn a_part_of_a_summary_that_comes_before_a_withdrawal_is_deleted() {
    let app = TestApp::counted_by_workers().await;
    let (conversation, job, _) = claim_summary_job(&app).await;
    store_part(&app, &job, 1).await.expect("stores");
    assert_eq!(count(&conversation, COUNT_PARTS).await, 1);
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (stored, change) = run_in_order(
        &app,
        held,
        store_part(&app, &job, 2),
        withdraw(&conversation, one(1)),
    )
    .await;
    stored.expect("precedes the withdrawal");
    change.expect("withdraws");
    assert_eq!(count(&conversation, COUNT_PARTS).await, 0);
}

#[tokio::test]
async fn a_part_of_a_summary_that_comes_after_a_withdrawal_is_not_stored() {
    let app = TestApp::counted_by_workers().await;
    let (conversation, job, _) = claim_summary_job(&app).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (change, stored) = run_in_order(
        &app,
        held,
        withdraw(&conversation, one(1)),
        store_part(&app, &job, 1),
    )
    .await;
    change.expect("withdraws");
    stored.expect("is answered");
    assert_eq!(count(&conversation, COUNT_PARTS).await, 0);
}

#[tokio::test]
async fn a_count_that_comes_before_a_withdrawal_is_kept() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let job = claim_job(&app, JobKind::CountTokens).await;
    let counted = count_messages(&app, &job).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (recorded, change) = run_in_order(
        &app,
        held,
        app.store.record_counts_of_one(&counted),
        withdraw(&conversation, one(2)),
    )
    .await;
    recorded.expect("precedes the withdrawal");
    let change = change.expect("withdraws");
    assert_eq!((change.token_total.get(), change.uncounted), (10, 0));
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn a_count_that_comes_after_a_withdrawal_is_refused() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let job = claim_job(&app, JobKind::CountTokens).await;
    let counted = count_messages(&app, &job).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (change, recorded) = run_in_order(
        &app,
        held,
        withdraw(&conversation, one(2)),
        app.store.record_counts_of_one(&counted),
    )
    .await;
    assert_eq!(change.expect("withdraws").uncounted, 2);
    assert!(is_lease_lost(&recorded), "{recorded:?}");
    let batch = app
        .store
        .record_counts(std::slice::from_ref(&counted))
        .await;
    assert!(is_lease_lost(&batch), "{batch:?}");
    assert_eq!(count_uncounted_messages(&conversation).await, 2);
    run_jobs_and_verify(&conversation).await;
    assert_eq!(count_uncounted_messages(&conversation).await, 0);
}

#[tokio::test]
async fn a_batch_of_counts_skips_a_conversation_whose_messages_are_being_withdrawn() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let job = claim_job(&app, JobKind::CountTokens).await;
    let counted = count_messages(&app, &job).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (change, batch) = tokio::join!(withdraw(&conversation, one(2)), async {
        app.wait_for_lock_waiters(1).await;
        let batch = app
            .store
            .record_counts(std::slice::from_ref(&counted))
            .await;
        held.rollback().await;
        batch
    });
    change.expect("withdraws");
    assert_eq!(batch.expect("is answered"), [None]);
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn a_claim_skips_the_jobs_of_a_conversation_until_its_change_is_committed() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    // The change has locked the job when it waits for the lease.
    app.hold_lock(INSERT_LEASE, conversation.uuid())
        .await
        .commit()
        .await;
    let held = app.hold_lock(LOCK_LEASE, conversation.uuid()).await;
    let (change, claimed) = tokio::join!(withdraw(&conversation, one(2)), async {
        app.wait_for_lock_waiters(1).await;
        let claimed = claim_due_jobs(&app, JobKind::CountTokens).await;
        held.rollback().await;
        claimed
    });
    change.expect("withdraws");
    assert!(claimed.is_empty(), "{claimed:?}");
    let job = claim_job(&app, JobKind::CountTokens).await;
    let counted = count_messages(&app, &job).await;
    let recorded = app.store.record_counts_of_one(&counted).await;
    recorded.expect("was read after the change");
    conversation.verify().await;
}

#[tokio::test]
async fn a_claim_that_is_committed_during_a_change_loses_its_lease() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    // The test performs the update of a claim itself, so that it decides when the claim commits.
    let claim = "update ai_job set state = 1, attempts = attempts + 1, lease = '00000000-0000-7000-8000-00000000000a',
            lease_until_ts = now() + interval '1 hour', worker = 'by hand'
        where conversation_id = $1";
    let claiming = app.hold_lock(claim, conversation.uuid()).await;
    let (change, ()) = tokio::join!(withdraw(&conversation, one(2)), async {
        app.wait_for_lock_waiters(1).await;
        claiming.commit().await;
    });
    change.expect("withdraws");
    assert_eq!(
        list_jobs(&conversation).await,
        [(Kind::CountTokens, State::Waiting, 0)]
    );
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn a_dead_job_is_requeued_only_after_a_change_that_is_under_way() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    insert_dead_job(&conversation, JobKind::Checkpoint).await;
    app.hold_lock(INSERT_LEASE, conversation.uuid())
        .await
        .commit()
        .await;
    let held = app.hold_lock(LOCK_LEASE, conversation.uuid()).await;
    let requeue = app
        .store
        .requeue_job(CALLER, JobKind::Checkpoint, id(&conversation));
    // Fails after a while if the second one does not wait.
    let (change, requeued) =
        run_in_order(&app, held, withdraw(&conversation, one(2)), requeue).await;
    change.expect("withdraws");
    requeued.expect("requeues");
    run_jobs_and_verify(&conversation).await;
}
