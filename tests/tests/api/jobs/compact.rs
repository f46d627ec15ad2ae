//! Compact: a checkpoint on request.

#![expect(non_snake_case, reason = "test names begin with a row of docs/rows.md")]

use anneal_core::{caller::TenantId, job::JobKind, message::MessageId};
use anneal_store::FinishOutcome;
use anneal_testkit::{
    TestApp, TestConversation, assert_refused, assistant, pb, prose, sentence, user,
};
use pb::{CheckpointTrigger, CompactOutcome};
use tonic::{Code, Status};
use uuid::Uuid;

/// Creates a conversation with this many counted messages, in alternating roles.
async fn create_counted_conversation(app: &TestApp, messages: usize) -> TestConversation<'_> {
    let conversation = app.conversation().await;
    for n in 0..messages {
        conversation
            .append_all(vec![if n % 2 == 0 {
                user(&sentence(n))
            } else {
                assistant(&sentence(n))
            }])
            .await;
    }
    app.run_jobs_until_idle().await;
    conversation
}

/// Creates a conversation with claw0's profile and this many counted messages of about 440 tokens,
/// in alternating roles.
async fn create_claw0_conversation(app: &TestApp, messages: usize) -> TestConversation<'_> {
    let policy = pb::Policy {
        profile: "claw0".into(),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    for n in 0..messages {
        let text = prose(n * 20, 20);
        let message = if n % 2 == 0 {
            user(&text)
        } else {
            assistant(&text)
        };
        conversation.append_all(vec![message]).await;
    }
    app.run_jobs_until_idle().await;
    conversation
}

/// Compacts a conversation of claw0 with this many messages on request, and asserts that exactly
/// the first `summarized` are summarized; 0: the outcome is NO_PROGRESS.
async fn assert_summarizes(app: &TestApp, messages: usize, summarized: i64) {
    let conversation = create_claw0_conversation(app, messages).await;
    let done = conversation.compact("r1", "").await;
    if summarized == 0 {
        assert_eq!(
            done.outcome(),
            CompactOutcome::NoProgress,
            "{messages} messages: four of them stay"
        );
        assert_eq!(conversation.checkpoints().await, []);
    } else {
        assert_eq!(
            done.outcome(),
            CompactOutcome::Created,
            "{messages} messages"
        );
        let checkpoint = done.checkpoint.expect("CREATED has a checkpoint");
        assert_eq!(
            checkpoint.last_message_id, summarized,
            "{messages} messages"
        );
        assert!(checkpoint.tokens_after < checkpoint.tokens_before);
        assert_eq!(checkpoint.trigger(), CheckpointTrigger::Manual);
        assert_eq!(conversation.checkpoints().await, [checkpoint]);
    }
    let built = conversation.context().await;
    built.assert_covers(messages as i64);
    conversation.verify().await;
    assert!(conversation.jobs().await.is_empty());
}

#[tokio::test]
async fn row_C4_of_up_to_five_messages_only_the_first_of_five_is_summarized() {
    let app = TestApp::start().await;
    for (messages, summarized) in [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 1)] {
        assert_summarizes(&app, messages, summarized).await;
    }
}

#[tokio::test]
async fn row_C4_the_oldest_half_is_summarized_and_at_least_four_messages_stay() {
    let app = TestApp::start().await;
    for (messages, summarized) in [(6, 2), (7, 3), (10, 5), (20, 10)] {
        assert_summarizes(&app, messages, summarized).await;
    }
}

#[tokio::test]
async fn a_short_conversation_is_compacted_on_request() {
    let app = TestApp::start().await;
    let conversation = create_counted_conversation(&app, 14).await;
    assert!(
        conversation.checkpoints().await.is_empty(),
        "no threshold is reached"
    );
    let done = conversation.compact("r1", "").await;
    assert_eq!(done.outcome(), CompactOutcome::Created);
    let checkpoint = done.checkpoint.expect("CREATED has a checkpoint");
    assert_eq!(checkpoint.last_message_id, 4, "five turns are kept");
    conversation.context().await.assert_covers(14);
    conversation.verify().await;
}

#[tokio::test]
async fn a_summary_keeps_the_sentences_of_its_focus() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    for n in 0..23 {
        let text = if n == 9 {
            "The locker code is 90210-K.".to_owned()
        } else {
            sentence(n)
        };
        conversation
            .append_all(vec![user(&text), assistant(&sentence(n + 1))])
            .await;
    }
    app.run_jobs_until_idle().await;
    let checkpoint = conversation
        .compact("r1", "the locker code")
        .await
        .checkpoint
        .expect("CREATED has a checkpoint");
    assert_eq!(checkpoint.focus, "the locker code");
    assert!(
        checkpoint.summary.contains("90210-K"),
        "{}",
        checkpoint.summary
    );
}

#[tokio::test]
async fn a_repeated_request_gives_the_same_checkpoint() {
    let app = TestApp::start().await;
    let conversation = create_counted_conversation(&app, 14).await;
    let first = conversation.compact("r1", "").await;
    assert_eq!(conversation.compact("r1", "").await, first);
    assert_eq!(
        conversation.start_compaction("r1").await,
        first,
        "a call that does not wait gets the same answer"
    );
    assert_eq!(conversation.checkpoints().await.len(), 1);
    let second = conversation.compact("r2", "").await;
    assert_eq!(
        second.outcome(),
        CompactOutcome::Created,
        "a request with another id compacts again"
    );
    let checkpoint = second.checkpoint.expect("CREATED has a checkpoint");
    assert_eq!(checkpoint.generation, 2);
    conversation.context().await.assert_covers(14);
    conversation.verify().await;
}

#[tokio::test]
async fn a_compaction_that_is_not_waited_for_is_pending_until_the_worker_has_run() {
    let app = TestApp::start().await;
    let conversation = create_counted_conversation(&app, 14).await;
    assert_eq!(
        conversation.start_compaction("r1").await.outcome(),
        CompactOutcome::Pending
    );
    assert_eq!(
        conversation.start_compaction("r1").await.outcome(),
        CompactOutcome::Pending
    );
    let waiting = conversation.jobs().await;
    assert_eq!(waiting.len(), 1);
    assert_eq!(
        (waiting[0].kind(), waiting[0].state()),
        (pb::JobKind::Checkpoint, pb::JobState::Waiting)
    );
    app.run_jobs_until_idle().await;
    let done = conversation.start_compaction("r1").await;
    assert_eq!(done.outcome(), CompactOutcome::Created);
    assert_eq!(
        conversation.checkpoints().await,
        [done.checkpoint.expect("CREATED has a checkpoint")]
    );
}

#[tokio::test]
async fn a_single_message_cannot_be_compacted() {
    let app = TestApp::start().await;
    let conversation = create_counted_conversation(&app, 1).await;
    for request in ["r1", "r1", "r2"] {
        assert_eq!(
            conversation.compact(request, "").await.outcome(),
            CompactOutcome::NoProgress
        );
    }
    assert!(conversation.checkpoints().await.is_empty() && conversation.jobs().await.is_empty());
    assert_eq!(
        conversation.context().await.texts_by_role()[0].1,
        sentence(0)
    );
}

/// Requests a checkpoint with a focus, and does not wait for it.
async fn request(
    conversation: &TestConversation<'_>,
    request_id: &str,
    focus: &str,
) -> Result<pb::CompactResponse, Status> {
    let ask = pb::CompactRequest {
        conversation_id: conversation.id.clone(),
        request_id: request_id.into(),
        focus: focus.into(),
        ..Default::default()
    };
    Ok(conversation.app.contexts().compact(ask).await?.into_inner())
}

#[tokio::test]
async fn two_requests_before_the_worker_runs_share_one_checkpoint_and_both_find_it() {
    let app = TestApp::start().await;
    let conversation = create_counted_conversation(&app, 14).await;
    for (id, focus) in [("r1", "names"), ("r2", "dates")] {
        let queued = request(&conversation, id, focus).await.expect("is queued");
        assert_eq!(queued.outcome(), CompactOutcome::Pending);
    }
    app.run_jobs_until_idle().await;
    let [checkpoint] = &conversation.checkpoints().await[..] else {
        panic!("one checkpoint")
    };
    assert_eq!(checkpoint.focus, "names\n\ndates");
    for id in ["r1", "r2"] {
        let found = conversation.start_compaction(id).await;
        assert_eq!(found.outcome(), CompactOutcome::Created, "{id}");
        assert_eq!(found.checkpoint.as_ref(), Some(checkpoint), "{id}");
    }
    assert!(conversation.jobs().await.is_empty());
    assert_eq!(conversation.checkpoints().await.len(), 1);
    conversation.verify().await;
}

#[tokio::test]
async fn a_request_while_the_job_runs_is_made_alone_afterwards() {
    let app = TestApp::start().await;
    let conversation = create_counted_conversation(&app, 14).await;
    conversation.start_compaction("r1").await;
    let from_start = TenantId(Uuid::nil());
    let claim = app
        .store
        .claim_jobs(JobKind::Checkpoint, 1, 1, from_start, "by hand", &[])
        .await
        .expect("claims");
    let [job] = &claim.jobs[..] else {
        panic!("one job")
    };
    conversation.start_compaction("r2").await;
    let ended = app.store.record_no_progress(job, MessageId(14)).await;
    assert_eq!(ended.expect("ends").finished, FinishOutcome::Again);
    let claim = app
        .store
        .claim_jobs(JobKind::Checkpoint, 1, 1, from_start, "by hand", &[])
        .await
        .expect("claims");
    let queued = claim.jobs[0].manual.as_ref().expect("a caller's job");
    assert_eq!(queued.request_ids().collect::<Vec<_>>(), ["r2"]);
}

#[tokio::test]
async fn at_most_sixteen_requests_wait_for_one_checkpoint() {
    let app = TestApp::start().await;
    let conversation = create_counted_conversation(&app, 14).await;
    for number in 0..16 {
        conversation.start_compaction(&format!("r{number}")).await;
    }
    let refused = request(&conversation, "one more", "").await;
    assert_refused(refused, Code::ResourceExhausted, "OVERLOADED", "");
    let again = request(&conversation, "r3", "")
        .await
        .expect("waits already");
    assert_eq!(again.outcome(), CompactOutcome::Pending);
    app.run_jobs_until_idle().await;
    assert_eq!(conversation.checkpoints().await.len(), 1);
}
