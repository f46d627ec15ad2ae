//! The commit of a checkpoint against a separator, another checkpoint and an imported checkpoint.

use anneal_core::{cut::Trigger, digest, job::JobKind, message::MessageId, tokens::Tokens};
use anneal_store::{CheckpointDraft, ClaimedJob, FinishOutcome, StoreError};
use anneal_testkit::{LOCK_JOBS, TestApp, TestConversation, pb, sentence};
use pb::{JobKind as Kind, JobState as State};

use crate::races::{claim_job, end_leases, list_jobs, summary};

/// Creates a conversation of five turns (10 messages) whose checkpoint job is due.
pub(super) async fn create_with_due_checkpoint(app: &TestApp) -> TestConversation<'_> {
    let policy = pb::Policy {
        max_message_count: Some(10),
        keep_recent_turns: Some(1),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    for n in 0..5 {
        conversation
            .turn(&sentence(2 * n), &sentence(2 * n + 1))
            .await;
    }
    let claimed = claim_job(app, JobKind::CountTokens).await;
    let counted = crate::races::count_messages(app, &claimed).await;
    let caused = app
        .store
        .record_counts_of_one(&counted)
        .await
        .expect("records")
        .caused;
    assert_eq!(caused, [JobKind::Checkpoint]);
    conversation
}

/// The checkpoint that a worker would commit now: a summary of all turns except the last, which has
/// two messages.
pub(super) async fn draft_checkpoint(app: &TestApp, job: &ClaimedJob) -> CheckpointDraft {
    let material = app
        .store
        .read_checkpoint_material(job)
        .await
        .expect("reads")
        .expect("exists");
    let last = MessageId(material.last_message_id.0 - 2);
    let after = material
        .previous
        .as_ref()
        .map_or(material.separator.unwrap_or_default(), |previous| {
            previous.last
        });
    let sources = app
        .store
        .read_checkpoint_sources(job, &material.policy, after, last)
        .await
        .expect("reads");
    let read = sources
        .iter()
        .map(|source| (source.id, source.content_digest.as_slice()));
    CheckpointDraft {
        separator: material.separator,
        previous: material.previous.as_ref().map(|previous| previous.last),
        last,
        summary: summary("Reports were filed."),
        source_first: after.next(),
        source_digest: digest::of_sources(read),
        tokens_before: Tokens::new(200),
        tokens_after: Tokens::new(50),
        generation: material
            .previous
            .as_ref()
            .map_or(0, |previous| previous.generation)
            + 1,
        trigger: Some(Trigger::Messages),
    }
}

/// The last message of each checkpoint, and whether the checkpoint is valid.
async fn list_checkpoints(conversation: &TestConversation<'_>) -> Vec<(i64, bool)> {
    conversation
        .checkpoints()
        .await
        .iter()
        .map(|checkpoint| (checkpoint.last_message_id, checkpoint.valid))
        .collect()
}

/// Runs all jobs. Afterwards no job may be left, and the context must cover every message.
async fn run_jobs_and_check_context(conversation: &TestConversation<'_>) {
    conversation.app.run_jobs_until_idle().await;
    assert!(list_jobs(conversation).await.is_empty());
    conversation
        .context()
        .await
        .assert_covers(conversation.conversation().await.message_count);
    conversation.verify().await;
}

#[tokio::test]
async fn a_separator_that_comes_after_a_checkpoint_invalidates_it() {
    let app = TestApp::counted_by_workers().await;
    let conversation = create_with_due_checkpoint(&app).await;
    let job = claim_job(&app, JobKind::Checkpoint).await;
    let draft = draft_checkpoint(&app, &job).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (committed, separator, ()) = tokio::join!(
        // The commit has stored the checkpoint and waits for the job's row.
        app.store.commit_checkpoint(&job, &draft),
        async {
            app.wait_for_lock_waiters(1).await;
            conversation.insert_separator().await
        },
        async {
            app.wait_for_lock_waiters(2).await;
            held.rollback().await;
        },
    );
    let committed = committed.expect("commits");
    assert!(committed.results_kept);
    assert_eq!(committed.finished, FinishOutcome::Done);
    assert_eq!(separator.after_message_id, 10);
    assert_eq!(list_checkpoints(&conversation).await, [(8, false)]);
    run_jobs_and_check_context(&conversation).await;
    assert_eq!(
        conversation.delete_separator(10).await,
        8,
        "the checkpoint is valid again without the separator"
    );
    run_jobs_and_check_context(&conversation).await;
}

#[tokio::test]
async fn a_checkpoint_that_comes_after_a_separator_is_discarded() {
    let app = TestApp::counted_by_workers().await;
    let conversation = create_with_due_checkpoint(&app).await;
    let job = claim_job(&app, JobKind::Checkpoint).await;
    let draft = draft_checkpoint(&app, &job).await;
    // The separator waits for the unique index of its row.
    let separator_row = "insert into ai_separator (tenant_id, conversation_id, after_message_id)
        select tenant_id, conversation_id, 10 from ai_conversation where conversation_id = $1";
    let held = app.hold_lock(separator_row, conversation.uuid()).await;
    let (separator, committed, ()) = tokio::join!(
        conversation.insert_separator(),
        async {
            app.wait_for_lock_waiters(1).await;
            app.store.commit_checkpoint(&job, &draft).await
        },
        async {
            app.wait_for_lock_waiters(2).await;
            held.rollback().await;
        },
    );
    let committed = committed.expect("commits without a checkpoint");
    assert!(!committed.results_kept);
    assert_eq!(
        committed.finished,
        FinishOutcome::Again,
        "the job runs again on the new rows"
    );
    assert_eq!(separator.after_message_id, 10);
    assert_eq!(list_checkpoints(&conversation).await, []);
    run_jobs_and_check_context(&conversation).await;
    assert_eq!(
        list_checkpoints(&conversation).await,
        [],
        "the tail after the separator is empty"
    );
}

/// Inserts a checkpoint that ends at message 8, as the one of [`draft_checkpoint`] does.
const SAME_CHECKPOINT: &str = "insert into ai_conversation_checkpoint (tenant_id, conversation_id, first_message_id,
        last_message_id, summary, token_usage, kind, model, prompt_version, source_first_message_id, source_digest,
        tokens_before, tokens_after, generation, trigger_kind, focus, duration_ms)
    select tenant_id, conversation_id, 1, 8, 'said', 1, 2, '', 1, 1, '', 2, 1, 1, 1, '', 0
    from ai_conversation where conversation_id = $1";

/// Claims the job for one worker, which then loses it to a second worker. Returns both claims and
/// the draft that both workers have.
async fn claim_twice(app: &TestApp) -> ([ClaimedJob; 2], CheckpointDraft) {
    let lost_claim = claim_job(app, JobKind::Checkpoint).await;
    let draft = draft_checkpoint(app, &lost_claim).await;
    end_leases(app).await;
    assert_eq!(
        app.store.rescue_jobs(100).await.expect("rescues").waiting,
        1
    );
    let current_claim = claim_job(app, JobKind::Checkpoint).await;
    ([lost_claim, current_claim], draft)
}

#[tokio::test]
async fn a_checkpoint_without_a_lease_is_rolled_back_although_it_comes_first() {
    let app = TestApp::counted_by_workers().await;
    let conversation = create_with_due_checkpoint(&app).await;
    let ([lost_claim, current_claim], draft) = claim_twice(&app).await;
    let held = app.hold_lock(SAME_CHECKPOINT, conversation.uuid()).await;
    let (commit_without_lease, committed, ()) = tokio::join!(
        // This commit has locked the conversation and waits to store the checkpoint. It checks its
        // lease only after it has stored it.
        app.store.commit_checkpoint(&lost_claim, &draft),
        async {
            app.wait_for_lock_waiters(1).await;
            app.store.commit_checkpoint(&current_claim, &draft).await
        },
        async {
            app.wait_for_lock_waiters(2).await;
            held.rollback().await;
        },
    );
    assert!(
        matches!(commit_without_lease, Err(StoreError::LeaseLost)),
        "{commit_without_lease:?}"
    );
    assert!(committed.expect("commits").results_kept);
    assert_eq!(list_checkpoints(&conversation).await, [(8, true)]);
    run_jobs_and_check_context(&conversation).await;
}

#[tokio::test]
async fn a_checkpoint_without_a_lease_changes_nothing_when_it_comes_second() {
    let app = TestApp::counted_by_workers().await;
    let conversation = create_with_due_checkpoint(&app).await;
    let ([lost_claim, current_claim], draft) = claim_twice(&app).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (committed, commit_without_lease, ()) = tokio::join!(
        app.store.commit_checkpoint(&current_claim, &draft),
        async {
            app.wait_for_lock_waiters(1).await;
            app.store.commit_checkpoint(&lost_claim, &draft).await
        },
        async {
            app.wait_for_lock_waiters(2).await;
            held.rollback().await;
        },
    );
    assert!(committed.expect("commits").results_kept);
    assert!(
        matches!(commit_without_lease, Err(StoreError::LeaseLost)),
        "{commit_without_lease:?}"
    );
    assert_eq!(list_checkpoints(&conversation).await, [(8, true)]);
    assert!(
        list_jobs(&conversation).await.is_empty(),
        "the worker without a lease queued no job"
    );
    run_jobs_and_check_context(&conversation).await;
}

async fn import_checkpoint(
    conversation: &TestConversation<'_>,
    last_message_id: i64,
) -> Result<pb::Checkpoint, tonic::Status> {
    let ask = pb::ImportCheckpointRequest {
        conversation_id: conversation.id.clone(),
        last_message_id,
        summary: "They spoke.".into(),
        model: "elsewhere-1".into(),
        request_id: "r".into(),
        ..Default::default()
    };
    Ok(conversation
        .app
        .contexts()
        .import_checkpoint(ask)
        .await?
        .into_inner())
}

#[tokio::test]
async fn a_checkpoint_that_comes_after_an_imported_one_is_discarded() {
    let app = TestApp::counted_by_workers().await;
    let conversation = create_with_due_checkpoint(&app).await;
    let job = claim_job(&app, JobKind::Checkpoint).await;
    let draft = draft_checkpoint(&app, &job).await;
    // The import waits where it stores its request id.
    let request = "insert into ai_request (tenant_id, conversation_id, method, request_id, request_digest)
        select tenant_id, conversation_id, 'import_checkpoint', 'r', '' from ai_conversation where conversation_id = $1";
    let held = app.hold_lock(request, conversation.uuid()).await;
    let (imported, committed, ()) = tokio::join!(
        import_checkpoint(&conversation, 4),
        async {
            app.wait_for_lock_waiters(1).await;
            app.store.commit_checkpoint(&job, &draft).await
        },
        async {
            app.wait_for_lock_waiters(2).await;
            held.rollback().await;
        },
    );
    assert_eq!(imported.expect("imports").last_message_id, 4);
    assert!(
        !committed
            .expect("commits without a checkpoint")
            .results_kept
    );
    assert_eq!(list_checkpoints(&conversation).await, [(4, true)]);
    assert_eq!(
        list_jobs(&conversation).await,
        [(Kind::Checkpoint, State::Waiting, 0)]
    );
    // The job looks again: the six messages after the imported checkpoint reach no threshold.
    run_jobs_and_check_context(&conversation).await;
    assert_eq!(list_checkpoints(&conversation).await, [(4, true)]);
}

#[tokio::test]
async fn an_import_that_comes_after_a_checkpoint_at_the_same_message_is_refused() {
    let app = TestApp::counted_by_workers().await;
    let conversation = create_with_due_checkpoint(&app).await;
    let job = claim_job(&app, JobKind::Checkpoint).await;
    let draft = draft_checkpoint(&app, &job).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (committed, imported, ()) = tokio::join!(
        app.store.commit_checkpoint(&job, &draft),
        async {
            app.wait_for_lock_waiters(1).await;
            import_checkpoint(&conversation, 8).await
        },
        async {
            app.wait_for_lock_waiters(2).await;
            held.rollback().await;
        },
    );
    assert!(committed.expect("commits").results_kept);
    imported.expect_err("a checkpoint ends at this message already");
    assert_eq!(list_checkpoints(&conversation).await, [(8, true)]);
    run_jobs_and_check_context(&conversation).await;
}
