//! A worker that was suspended until its job passed to another worker, or was deleted and created
//! again. Nothing that it writes after it resumes has an effect. Each new row of a job begins with
//! generation 1, so only the lease, which never repeats, tells an old row from a new one.

use anneal_core::{job::JobKind, message::MessageId};
use anneal_store::{MessageSummary, StoreError};
use anneal_testkit::{LOCK_CONVERSATION, TestApp, TestConversation, pb, user};

use crate::races::{
    claim_job, count_messages, count_uncounted_messages, end_leases, list_jobs, summary,
};
use pb::{JobKind as Kind, JobState as State};

/// Reads the generation of a conversation's counting job.
async fn read_generation(conversation: &TestConversation<'_>) -> i64 {
    let query = sqlx::query_scalar("select generation from ai_job where conversation_id = $1")
        .bind(conversation.uuid());
    query
        .fetch_one(&mut conversation.app.db().await)
        .await
        .expect("a job is there")
}

#[tokio::test]
async fn a_stalled_worker_does_not_hold_a_job_that_was_queued_again() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let stalled = claim_job(&app, JobKind::CountTokens).await;
    let stale = count_messages(&app, &stalled).await;
    assert_eq!(read_generation(&conversation).await, 1);
    end_leases(&app).await;
    assert_eq!(
        app.store.rescue_jobs(100).await.expect("rescues").waiting,
        1
    );
    app.run_jobs_until_idle().await;
    conversation.append("c").await;
    assert_eq!(
        read_generation(&conversation).await,
        1,
        "another row with the generation that the stalled worker knows"
    );
    // The new job is first waiting, then running for another worker.
    let mut running = None;
    for state in [State::Waiting, State::Running] {
        if state == State::Running {
            running = Some(claim_job(&app, JobKind::CountTokens).await);
        }
        let recorded = app.store.record_counts_of_one(&stale).await;
        assert!(
            matches!(recorded, Err(StoreError::LeaseLost)),
            "{recorded:?}"
        );
        let batch = app.store.record_counts(std::slice::from_ref(&stale)).await;
        assert!(matches!(batch, Err(StoreError::LeaseLost)), "{batch:?}");
        let finished = app.store.finish_job(&stalled).await;
        assert!(
            matches!(finished, Err(StoreError::LeaseLost)),
            "{finished:?}"
        );
        let failed = app.store.fail_job(&stalled, "failed too late", 0, 1).await;
        assert!(matches!(failed, Err(StoreError::LeaseLost)), "{failed:?}");
        assert_eq!(
            app.store
                .heartbeat(std::slice::from_ref(&stalled))
                .await
                .expect("is answered"),
            [false]
        );
        app.store
            .release_jobs(std::slice::from_ref(&stalled), 0)
            .await
            .expect("is answered");
        app.store
            .defer_job(&stalled, "failed too late", 0)
            .await
            .expect("is answered");
        // A job counts an attempt when it is claimed.
        let attempts = i32::from(state == State::Running);
        assert_eq!(
            list_jobs(&conversation).await,
            [(Kind::CountTokens, state, attempts)]
        );
        assert_eq!(count_uncounted_messages(&conversation).await, 1);
    }
    let holder = running.expect("was claimed by the second worker");
    let fresh = count_messages(&app, &holder).await;
    app.store
        .record_counts_of_one(&fresh)
        .await
        .expect("has the lease");
    assert!(list_jobs(&conversation).await.is_empty());
    conversation.verify().await;
}

/// Creates a conversation with the same request id each time, and therefore the same id, and
/// appends a message.
async fn recreate_with_message<'a>(app: &'a TestApp, text: &str) -> TestConversation<'a> {
    let conversation = recreate_empty(app).await;
    conversation.append_all(vec![user(text)]).await;
    conversation
}

/// As [`recreate_with_message`], without a message.
async fn recreate_empty(app: &TestApp) -> TestConversation<'_> {
    let ask = pb::CreateConversationRequest {
        request_id: "the same".into(),
        policy: Some(pb::Policy {
            large_message_threshold: Some(1),
            ..Default::default()
        }),
        ..Default::default()
    };
    app.conversation_with(ask).await
}

#[tokio::test]
async fn counts_of_messages_that_a_recreated_conversation_lacks_are_refused_as_a_lost_lease() {
    let app = TestApp::counted_by_workers().await;
    let old = recreate_with_message(&app, "what was said before").await;
    let stalled = claim_job(&app, JobKind::CountTokens).await;
    let stale = count_messages(&app, &stalled).await;
    let ask = pb::DeleteConversationRequest {
        conversation_id: old.id.clone(),
        ..Default::default()
    };
    app.conversations()
        .delete_conversation(ask)
        .await
        .expect("deletes");
    let new = recreate_empty(&app).await;
    assert_eq!(new.id, old.id);
    let batch = app.store.record_counts(std::slice::from_ref(&stale)).await;
    assert!(matches!(batch, Err(StoreError::LeaseLost)), "{batch:?}");
    let single = app.store.record_counts_of_one(&stale).await;
    assert!(matches!(single, Err(StoreError::LeaseLost)), "{single:?}");
    new.verify().await;
}

#[tokio::test]
async fn a_recreated_conversation_gets_no_counts_or_summaries_of_the_deleted_one() {
    let app = TestApp::counted_by_workers().await;
    let old = recreate_with_message(&app, "what was said before, at some length").await;
    let stalled = claim_job(&app, JobKind::CountTokens).await;
    let stale = count_messages(&app, &stalled).await;
    let ask = pb::DeleteConversationRequest {
        conversation_id: old.id.clone(),
        ..Default::default()
    };
    app.conversations()
        .delete_conversation(ask)
        .await
        .expect("deletes");
    let new = recreate_with_message(&app, "something else").await;
    assert_eq!(new.id, old.id);
    let recorded = app.store.record_counts_of_one(&stale).await;
    assert!(
        matches!(recorded, Err(StoreError::LeaseLost)),
        "{recorded:?}"
    );
    assert_eq!(count_uncounted_messages(&new).await, 1);
    let holder = claim_job(&app, JobKind::CountTokens).await;
    let recorded = app.store.record_counts_of_one(&stale).await;
    assert!(
        matches!(recorded, Err(StoreError::LeaseLost)),
        "{recorded:?}"
    );
    let fresh = count_messages(&app, &holder).await;
    app.store
        .record_counts_of_one(&fresh)
        .await
        .expect("has the lease");
    // A summary of the deleted conversation's message is refused for the deleted job, and for the
    // new conversation's summary job once its lease has ended.
    let summary_job = claim_job(&app, JobKind::SummarizeMessages).await;
    let summaries = [MessageSummary {
        message: MessageId(1),
        summary: Some(summary("of what was said before")),
    }];
    for job in [&stalled, &summary_job] {
        if job.kind == JobKind::SummarizeMessages {
            end_leases(&app).await;
            assert_eq!(
                app.store.rescue_jobs(100).await.expect("rescues").waiting,
                1
            );
        }
        let stored = app.store.store_summaries(job, &summaries).await;
        assert!(matches!(stored, Err(StoreError::LeaseLost)), "{stored:?}");
        let recorded = app.store.record_summaries(job, &summaries, false).await;
        assert!(
            matches!(recorded, Err(StoreError::LeaseLost)),
            "{recorded:?}"
        );
    }
    let cached = sqlx::query_scalar(
        "select count(summary_cache) from ai_message where conversation_id = $1",
    );
    let cached: i64 = cached
        .bind(new.uuid())
        .fetch_one(&mut app.db().await)
        .await
        .expect("is answered");
    assert_eq!(cached, 0);
    new.verify().await;
}

#[tokio::test]
async fn a_stalled_worker_that_waits_while_its_conversation_is_recreated_writes_nothing() {
    let app = TestApp::counted_by_workers().await;
    let conversation = recreate_with_message(&app, "what was said before, at some length").await;
    let id = conversation.uuid();
    let stalled = claim_job(&app, JobKind::CountTokens).await;
    let stale = count_messages(&app, &stalled).await;
    let mut deleting = app.hold_lock(LOCK_CONVERSATION, id).await;
    let (recorded, ()) = tokio::join!(app.store.record_counts_of_one(&stale), async {
        app.wait_for_lock_waiters(1).await;
        // The rows of the conversation and of its counting job (kind 1) are deleted and inserted
        // again before the stalled worker gets the lock. The message stays.
        for statement in [
            "create temporary table old_conversation on commit drop as select * from ai_conversation where conversation_id = $1",
            "delete from ai_job where conversation_id = $1",
            "delete from ai_conversation where conversation_id = $1",
            "insert into ai_conversation select * from old_conversation where conversation_id = $1",
            "insert into ai_job (tenant_id, kind, conversation_id)
                select tenant_id, 1, conversation_id from ai_conversation where conversation_id = $1",
        ] {
            assert_eq!(deleting.run(statement, id).await, 1, "{statement}");
        }
        deleting.commit().await;
    });
    assert!(
        matches!(
            recorded,
            Err(StoreError::NotFound(_) | StoreError::LeaseLost)
        ),
        "{recorded:?}"
    );
    assert_eq!(
        list_jobs(&conversation).await,
        [(Kind::CountTokens, State::Waiting, 0)]
    );
    assert_eq!(count_uncounted_messages(&conversation).await, 1);
}
