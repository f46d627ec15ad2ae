//! Races of the job queue: enqueue, claim, finish and rescue.

use anneal_core::job::{JobKind, MAX_ATTEMPTS};
use anneal_store::{FinishOutcome, RescueOutcome, StoreError};
use anneal_testkit::{LOCK_DEAD_JOBS, LOCK_JOBS, TestApp, TestConversation, pb};
use pb::{JobKind as Kind, JobState as State};

use crate::races::{
    claim_due_jobs, claim_job, count_messages, count_uncounted_messages, end_leases,
    insert_dead_job, list_jobs,
};

fn is_lease_lost(error: &StoreError) -> bool {
    matches!(error, StoreError::LeaseLost)
}

#[tokio::test]
async fn an_append_that_comes_after_a_finish_queues_a_new_job() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let job = claim_job(&app, JobKind::CountTokens).await;
    let counted = count_messages(&app, &job).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (finished, appended, ()) = tokio::join!(
        // The worker has locked the conversation and written the counts. It waits for the job's
        // row.
        app.store.record_counts_of_one(&counted),
        async {
            app.wait_for_lock_waiters(1).await;
            conversation.append("c").await
        },
        async {
            app.wait_for_lock_waiters(2).await;
            held.rollback().await;
        },
    );
    assert_eq!(finished.expect("records").finished, FinishOutcome::Done);
    assert_eq!(appended.messages[0].message_id, 3);
    assert_eq!(
        list_jobs(&conversation).await,
        [(Kind::CountTokens, State::Waiting, 0)]
    );
    assert_eq!(count_uncounted_messages(&conversation).await, 1);
    run_jobs_and_check_counts(&conversation).await;
}

#[tokio::test]
async fn a_finish_that_comes_after_an_append_leaves_the_job_waiting() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let job = claim_job(&app, JobKind::CountTokens).await;
    let counted = count_messages(&app, &job).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (appended, finished, ()) = tokio::join!(
        // The append has stored the message and waits for the job's row.
        conversation.append("c").send(),
        async {
            app.wait_for_lock_waiters(1).await;
            app.store.record_counts_of_one(&counted).await
        },
        async {
            app.wait_for_lock_waiters(2).await;
            held.rollback().await;
        },
    );
    assert_eq!(appended.expect("appends").messages[0].message_id, 3);
    assert_eq!(
        finished.expect("records").finished,
        FinishOutcome::Again,
        "the job must count the new message"
    );
    assert_eq!(
        list_jobs(&conversation).await,
        [(Kind::CountTokens, State::Waiting, 0)]
    );
    assert_eq!(
        count_uncounted_messages(&conversation).await,
        1,
        "only the messages that were read are counted"
    );
    run_jobs_and_check_counts(&conversation).await;
}

/// Creates a conversation, requests its compaction and claims the checkpoint job.
async fn create_and_claim_checkpoint_job(
    app: &TestApp,
) -> (TestConversation<'_>, anneal_store::ClaimedJob) {
    let conversation = app.conversation().await;
    conversation.turns(12).await;
    app.run_jobs_until_idle().await;
    request_compaction(&conversation).await;
    let job = claim_job(app, JobKind::Checkpoint).await;
    (conversation, job)
}

async fn request_compaction(conversation: &TestConversation<'_>) {
    let ask = pb::CompactRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    };
    conversation
        .app
        .contexts()
        .compact(ask)
        .await
        .expect("queues");
}

#[tokio::test]
async fn a_compaction_asked_for_after_a_finish_without_results_is_not_lost() {
    let app = TestApp::counted_by_workers().await;
    let (conversation, job) = create_and_claim_checkpoint_job(&app).await;
    // Finishing takes no lock on the conversation. Only the job's row orders the two operations:
    // the finish has locked it when it waits for the row in `ai_job_dead` that the test locks.
    insert_dead_job(&conversation, JobKind::Checkpoint).await;
    let held = app.hold_lock(LOCK_DEAD_JOBS, conversation.uuid()).await;
    let (finished, (), ()) = tokio::join!(
        app.store.finish_job(&job),
        async {
            app.wait_for_lock_waiters(1).await;
            request_compaction(&conversation).await;
        },
        async {
            app.wait_for_lock_waiters(2).await;
            held.rollback().await;
        },
    );
    assert_eq!(finished.expect("finishes"), FinishOutcome::Done);
    assert_eq!(
        list_jobs(&conversation).await,
        [(Kind::Checkpoint, State::Waiting, 0)]
    );
    app.run_jobs_until_idle().await;
    assert_eq!(conversation.checkpoints().await.len(), 1);
}

#[tokio::test]
async fn a_compaction_asked_for_before_a_finish_without_results_is_not_lost() {
    let app = TestApp::counted_by_workers().await;
    let (conversation, job) = create_and_claim_checkpoint_job(&app).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let ((), finished, ()) = tokio::join!(
        request_compaction(&conversation),
        async {
            app.wait_for_lock_waiters(1).await;
            app.store.finish_job(&job).await
        },
        async {
            app.wait_for_lock_waiters(2).await;
            held.rollback().await;
        },
    );
    assert_eq!(finished.expect("finishes"), FinishOutcome::Again);
    assert_eq!(
        list_jobs(&conversation).await,
        [(Kind::Checkpoint, State::Waiting, 0)]
    );
    app.run_jobs_until_idle().await;
    assert_eq!(conversation.checkpoints().await.len(), 1);
}

#[tokio::test]
async fn a_rescue_skips_a_job_that_is_being_finished() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let job = claim_job(&app, JobKind::CountTokens).await;
    let counted = count_messages(&app, &job).await;
    end_leases(&app).await;
    insert_dead_job(&conversation, JobKind::CountTokens).await;
    let held = app.hold_lock(LOCK_DEAD_JOBS, conversation.uuid()).await;
    let (finished, rescued) = tokio::join!(app.store.record_counts_of_one(&counted), async {
        app.wait_for_lock_waiters(1).await;
        let rescued = app.store.rescue_jobs(100).await.expect("rescues");
        held.rollback().await;
        rescued
    });
    assert_eq!(
        rescued,
        RescueOutcome::default(),
        "the rescue skips the locked job without waiting"
    );
    assert_eq!(
        finished
            .expect("its lease had ended, but no other worker had claimed the job")
            .finished,
        FinishOutcome::Done
    );
    assert!(list_jobs(&conversation).await.is_empty());
    run_jobs_and_check_counts(&conversation).await;
}

/// Creates two conversations, each with a running job whose lease has ended. The first job has used
/// all its attempts and has a row in `ai_job_dead` already. The test locks that row: a rescue that
/// waits for it has locked both jobs.
async fn create_two_orphan_jobs(app: &TestApp) -> (TestConversation<'_>, TestConversation<'_>) {
    let (first, second) = (app.conversation().await, app.conversation().await);
    first.turn("a", "b").await;
    second.turn("a", "b").await;
    assert_eq!(claim_due_jobs(app, JobKind::CountTokens).await.len(), 2);
    end_leases(app).await;
    let exhaust = "update ai_job set attempts = $1 where conversation_id = $2";
    let exhaust = sqlx::query(exhaust).bind(MAX_ATTEMPTS).bind(first.uuid());
    exhaust.execute(&mut app.db().await).await.expect("runs");
    insert_dead_job(&first, JobKind::CountTokens).await;
    (first, second)
}

#[tokio::test]
async fn a_finish_that_comes_after_a_rescue_writes_nothing() {
    let app = TestApp::counted_by_workers().await;
    let (exhausted, conversation) = (app.conversation().await, app.conversation().await);
    exhausted.turn("a", "b").await;
    conversation.turn("a", "b").await;
    let claimed = claim_due_jobs(&app, JobKind::CountTokens).await;
    let job = claimed
        .iter()
        .find(|job| job.conversation.0 == conversation.uuid())
        .expect("is claimed");
    let counted = count_messages(&app, job).await;
    end_leases(&app).await;
    // The rescue locks both jobs, and then waits for the row in `ai_job_dead` that the test locks.
    let exhaust = sqlx::query("update ai_job set attempts = $1 where conversation_id = $2")
        .bind(MAX_ATTEMPTS);
    exhaust
        .bind(exhausted.uuid())
        .execute(&mut app.db().await)
        .await
        .expect("runs");
    insert_dead_job(&exhausted, JobKind::CountTokens).await;
    let held = app.hold_lock(LOCK_DEAD_JOBS, exhausted.uuid()).await;
    let (rescued, finished, ()) = tokio::join!(
        app.store.rescue_jobs(100),
        async {
            app.wait_for_lock_waiters(1).await;
            app.store.record_counts_of_one(&counted).await
        },
        async {
            app.wait_for_lock_waiters(2).await;
            held.rollback().await;
        },
    );
    assert_eq!(
        rescued.expect("rescues"),
        RescueOutcome {
            waiting: 1,
            dead: 1
        }
    );
    assert!(finished.as_ref().is_err_and(is_lease_lost), "{finished:?}");
    assert_eq!(
        count_uncounted_messages(&conversation).await,
        2,
        "without the lease no count is recorded"
    );
    assert_eq!(
        list_jobs(&conversation).await,
        [(Kind::CountTokens, State::Waiting, 1)],
        "the rescue keeps the number of attempts"
    );
    run_jobs_and_check_counts(&conversation).await;
}

#[tokio::test]
async fn of_two_concurrent_rescues_one_frees_the_jobs() {
    let app = TestApp::counted_by_workers().await;
    let (first, second) = create_two_orphan_jobs(&app).await;
    let held = app.hold_lock(LOCK_DEAD_JOBS, first.uuid()).await;
    let (one, other) = tokio::join!(app.store.rescue_jobs(100), async {
        app.wait_for_lock_waiters(1).await;
        let other = app.store.rescue_jobs(100).await.expect("rescues");
        held.rollback().await;
        other
    });
    assert_eq!(
        other,
        RescueOutcome::default(),
        "the second rescue skips the locked jobs without waiting"
    );
    assert_eq!(
        one.expect("rescues"),
        RescueOutcome {
            waiting: 1,
            dead: 1
        }
    );
    assert_eq!(
        list_jobs(&first).await,
        [(Kind::CountTokens, State::Dead, i32::from(MAX_ATTEMPTS))]
    );
    assert_eq!(
        list_jobs(&second).await,
        [(Kind::CountTokens, State::Waiting, 1)]
    );
    assert_eq!(claim_due_jobs(&app, JobKind::CountTokens).await.len(), 1);
}

/// Runs all jobs. Every message must be counted, and no job may be left.
async fn run_jobs_and_check_counts(conversation: &TestConversation<'_>) {
    conversation.app.run_jobs_until_idle().await;
    assert_eq!(count_uncounted_messages(conversation).await, 0);
    assert!(list_jobs(conversation).await.is_empty());
    conversation.verify().await;
}
