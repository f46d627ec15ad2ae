//! A deletion against operations that run at the same time. No row of the conversation is left,
//! whichever comes first.

use anneal_core::{job::JobKind, message::MessageId};
use anneal_store::{ClaimedJob, MessageSummary, StoreError};
use anneal_testkit::{
    LOCK_CONVERSATION, LOCK_DEAD_JOBS, LOCK_JOBS, TestApp, TestConversation, pb, prose,
};
use tonic::Code;

use crate::races::{
    claim_due_jobs, claim_job, count_messages, count_rows_left, insert_dead_job, summary,
};

async fn delete_conversation(conversation: &TestConversation<'_>) {
    let ask = pb::DeleteConversationRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    };
    conversation
        .app
        .conversations()
        .delete_conversation(ask)
        .await
        .expect("deletes");
}

/// Creates a conversation with a large message, claims the job that summarizes it, and returns the
/// summary to be recorded.
async fn claim_summary_job(app: &TestApp) -> (TestConversation<'_>, ClaimedJob, MessageSummary) {
    let policy = pb::Policy {
        large_message_threshold: Some(100),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    conversation.append(&prose(0, 30)).await;
    let job = claim_job(app, JobKind::CountTokens).await;
    let mut counted = count_messages(app, &job).await;
    // Above the threshold of 100 tokens, so that the message is large.
    counted.counts[0].1 = anneal_core::tokens::Tokens::new(700);
    let caused = app
        .store
        .record_counts_of_one(&counted)
        .await
        .expect("records")
        .caused;
    assert_eq!(caused, [JobKind::SummarizeMessages]);
    let job = claim_job(app, JobKind::SummarizeMessages).await;
    (
        conversation,
        job,
        MessageSummary {
            message: MessageId(1),
            summary: Some(summary("Reports were filed.")),
        },
    )
}

#[tokio::test]
async fn a_summary_that_comes_before_a_deletion_is_deleted() {
    let app = TestApp::counted_by_workers().await;
    let (conversation, job, summary) = claim_summary_job(&app).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let summaries = [summary];
    let (recorded, (), ()) = tokio::join!(
        // The worker has stored the summary and waits for the job's row.
        app.store.record_summaries(&job, &summaries, false),
        async {
            app.wait_for_lock_waiters(1).await;
            delete_conversation(&conversation).await;
        },
        async {
            app.wait_for_lock_waiters(2).await;
            held.rollback().await;
        },
    );
    recorded.expect("precedes the deletion");
    assert_eq!(count_rows_left(&conversation).await, 0);
}

#[tokio::test]
async fn a_summary_that_comes_after_a_deletion_leaves_nothing_behind() {
    let app = TestApp::counted_by_workers().await;
    let (conversation, job, summary) = claim_summary_job(&app).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let summaries = [summary];
    let part_digest = [7; 32];
    let ((), recorded, partial, ()) = tokio::join!(
        // The deletion has deleted the messages and waits for the job's row.
        delete_conversation(&conversation),
        async {
            app.wait_for_lock_waiters(1).await;
            app.store.record_summaries(&job, &summaries, false).await
        },
        async {
            app.wait_for_lock_waiters(2).await;
            app.store
                .store_partial_summary(
                    &job,
                    &part_digest,
                    "Half of it.",
                    anneal_store::ModelSpend::default(),
                )
                .await
        },
        async {
            app.wait_for_lock_waiters(3).await;
            held.rollback().await;
        },
    );
    assert!(
        matches!(recorded, Err(StoreError::NotFound(_))),
        "{recorded:?}"
    );
    // Whether the partial summary is refused does not matter, only that no row is stored.
    drop(partial);
    assert_eq!(count_rows_left(&conversation).await, 0);
    let stored = app.store.store_summaries(&job, &summaries).await;
    assert!(matches!(stored, Err(StoreError::NotFound(_))), "{stored:?}");
    // This call succeeds and stores nothing.
    let repeated = app
        .store
        .store_partial_summary(
            &job,
            &part_digest,
            "Half of it.",
            anneal_store::ModelSpend::default(),
        )
        .await;
    assert!(repeated.is_ok(), "{repeated:?}");
    assert_eq!(count_rows_left(&conversation).await, 0);
}

#[tokio::test]
async fn a_claim_skips_a_job_that_is_being_deleted() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    // The deletion will delete the job, and then wait for the dead job's row, which the test locks.
    insert_dead_job(&conversation, JobKind::CountTokens).await;
    let held = app.hold_lock(LOCK_DEAD_JOBS, conversation.uuid()).await;
    let ((), claimed) = tokio::join!(delete_conversation(&conversation), async {
        app.wait_for_lock_waiters(1).await;
        let claimed = claim_due_jobs(&app, JobKind::CountTokens).await;
        held.rollback().await;
        claimed
    });
    assert!(
        claimed.is_empty(),
        "the claim skips the locked job without waiting"
    );
    assert_eq!(count_rows_left(&conversation).await, 0);
    assert!(claim_due_jobs(&app, JobKind::CountTokens).await.is_empty());
}

#[tokio::test]
async fn a_deletion_waits_for_a_claim_and_deletes_the_claimed_job() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    // The test performs the update of a claim itself, so that it decides when the claim commits.
    let claim = "update ai_job set state = 1, attempts = attempts + 1, lease = '00000000-0000-7000-8000-00000000000a',
            lease_until_ts = now() + interval '15 s', worker = 'by hand'
        where conversation_id = $1";
    let claiming = app.hold_lock(claim, conversation.uuid()).await;
    let ((), ()) = tokio::join!(delete_conversation(&conversation), async {
        app.wait_for_lock_waiters(1).await;
        claiming.commit().await;
    });
    assert_eq!(count_rows_left(&conversation).await, 0);
}

#[tokio::test]
async fn a_counting_job_claimed_before_a_deletion_records_nothing_after_it() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let job = claim_job(&app, JobKind::CountTokens).await;
    let counted = count_messages(&app, &job).await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let ((), recorded, ()) = tokio::join!(
        delete_conversation(&conversation),
        async {
            app.wait_for_lock_waiters(1).await;
            app.store.record_counts_of_one(&counted).await
        },
        async {
            app.wait_for_lock_waiters(2).await;
            held.rollback().await;
        },
    );
    assert!(
        matches!(recorded, Err(StoreError::NotFound(_))),
        "{recorded:?}"
    );
    assert_eq!(count_rows_left(&conversation).await, 0);
}

#[tokio::test]
async fn an_append_that_comes_after_a_deletion_is_answered_not_found() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let ((), appended, ()) = tokio::join!(
        delete_conversation(&conversation),
        async {
            app.wait_for_lock_waiters(1).await;
            conversation.append("c").request_id("r").send().await
        },
        async {
            app.wait_for_lock_waiters(2).await;
            held.rollback().await;
        },
    );
    assert_eq!(appended.expect_err("is deleted").code(), Code::NotFound);
    assert_eq!(count_rows_left(&conversation).await, 0);
}

#[tokio::test]
async fn an_append_that_comes_before_a_deletion_is_deleted() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (appended, (), ()) = tokio::join!(
        conversation.append("c").request_id("r").send(),
        async {
            app.wait_for_lock_waiters(1).await;
            delete_conversation(&conversation).await;
        },
        async {
            app.wait_for_lock_waiters(2).await;
            held.rollback().await;
        },
    );
    assert_eq!(
        appended.expect("precedes the deletion").messages[0].message_id,
        3
    );
    assert_eq!(count_rows_left(&conversation).await, 0);
}

#[tokio::test]
async fn of_two_concurrent_deletions_one_succeeds() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let held = app.hold_lock(LOCK_CONVERSATION, conversation.uuid()).await;
    let delete = || {
        app.store.delete_conversation(
            crate::races::CALLER,
            anneal_core::caller::ConversationId(conversation.uuid()),
        )
    };
    let (first, second, ()) = tokio::join!(delete(), delete(), async {
        app.wait_for_lock_waiters(2).await;
        held.rollback().await;
    });
    let outcomes = [first, second];
    assert_eq!(
        outcomes.iter().filter(|outcome| outcome.is_ok()).count(),
        1,
        "{outcomes:?}"
    );
    assert_eq!(count_rows_left(&conversation).await, 0);
}
