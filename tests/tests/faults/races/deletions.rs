//! A deletion against operations that run at the same time. No row of the conversation is left,
//! whichever comes first.

use anneal_core::{
    admission::{CallLimits, CallPurpose},
    cache::RequestIdentity,
    caller::ConversationId,
    context::{BreakReason, NewVersion, PrefixVersion},
    job::JobKind,
    message::MessageId,
    tokens::Tokens,
    usage::Usage,
};
use anneal_store::{
    CallAsk, CallOutcome, ClaimedJob, MessageSummary, ReportedCall, StoreError, UsageReport,
    Verdict,
};
use anneal_testkit::{
    LOCK_CONVERSATION, LOCK_DEAD_JOBS, LOCK_JOBS, TestApp, TestConversation, pb, prose,
};
use tonic::Code;

use crate::races::{CALLER, claim_due_jobs, claim_job, count_messages, insert_dead_job, summary};

/// Asserts that no table has a row of the conversation.
pub(super) async fn assert_no_rows(conversation: &TestConversation<'_>) {
    let left = conversation
        .app
        .list_tables_with_rows(conversation.uuid())
        .await;
    assert_eq!(left, [""; 0]);
}

pub(super) async fn delete_conversation(conversation: &TestConversation<'_>) {
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
pub(super) async fn claim_summary_job(
    app: &TestApp,
) -> (TestConversation<'_>, ClaimedJob, MessageSummary) {
    let policy = pb::Policy {
        large_message_threshold: Some(100),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    conversation.append(&prose(0, 30)).await;
    let job = claim_job(app, JobKind::CountTokens).await;
    let mut counted = count_messages(app, &job).await;
    // Above the threshold of 100 tokens, so that the message is large.
    counted.counts[0].1 = Tokens::new(700);
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
    assert_no_rows(&conversation).await;
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
    assert!(partial.is_ok(), "nothing was stored: {partial:?}");
    assert_no_rows(&conversation).await;
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
    assert_no_rows(&conversation).await;
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
    assert_no_rows(&conversation).await;
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
    assert_no_rows(&conversation).await;
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
    assert_no_rows(&conversation).await;
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
    assert_no_rows(&conversation).await;
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
    assert_no_rows(&conversation).await;
}

#[tokio::test]
async fn of_two_concurrent_deletions_one_succeeds() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let held = app.hold_lock(LOCK_CONVERSATION, conversation.uuid()).await;
    let delete = || {
        app.store
            .delete_conversation(CALLER, ConversationId(conversation.uuid()))
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
    assert_no_rows(&conversation).await;
}

fn call(conversation: ConversationId) -> CallAsk<'static> {
    CallAsk {
        model: "a model",
        conversation,
        is_stored: true,
        purpose: CallPurpose::Summary,
        tokens: Tokens::new(100),
        limits: CallLimits::default(),
        request_id: None,
        replaces: None,
    }
}

fn first_version() -> NewVersion {
    NewVersion {
        version: PrefixVersion {
            epoch: 1,
            hash: [1; 32],
            boundary: MessageId(0),
            system_prompt: [2; 32],
            swapped: Vec::new(),
            cut: false,
            change_epoch: 0,
            pending: None,
            identity: RequestIdentity::default(),
        },
        last_message_id: MessageId(2),
        reason: BreakReason::First,
        broken_at: MessageId(1),
        rewritten: Tokens::ZERO,
        saved: Tokens::ZERO,
    }
}

fn report() -> UsageReport {
    UsageReport {
        request_id: "report".into(),
        digest: [3; 32],
        model: "a model".into(),
        usage: Usage::default(),
        stop_reason: None,
        call: ReportedCall::Answer,
    }
}

#[tokio::test]
async fn calls_and_reports_and_versions_of_contexts_that_come_after_a_deletion_are_not_stored() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let id = ConversationId(conversation.uuid());
    let (call, version, report) = (call(id), first_version(), report());
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let ((), recorded, reported, admitted, ()) = tokio::join!(
        // The deletion has locked the conversation and waits for the job's row.
        delete_conversation(&conversation),
        async {
            app.wait_for_lock_waiters(1).await;
            app.store.record_prefix(CALLER, id, &version).await
        },
        async {
            app.wait_for_lock_waiters(1).await;
            app.store.report_usage(CALLER, id, &report).await
        },
        async {
            app.wait_for_lock_waiters(1).await;
            app.store.admit_call(CALLER, &call).await
        },
        async {
            app.wait_for_lock_waiters(4).await;
            held.rollback().await;
        },
    );
    assert!(matches!(recorded, Ok(false)), "{recorded:?}");
    assert!(
        matches!(reported, Err(StoreError::NotFound(_))),
        "{reported:?}"
    );
    assert!(
        matches!(admitted, Err(StoreError::NotFound(_))),
        "{admitted:?}"
    );
    assert_no_rows(&conversation).await;
}

#[tokio::test]
async fn a_failed_call_is_settled_while_its_conversation_is_being_deleted() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let call = call(ConversationId(conversation.uuid()));
    let lease = app.store.admit_call(CALLER, &call).await;
    let lease = lease.expect("the store answers").expect("is admitted");
    let failed = CallOutcome {
        input: Tokens::new(30),
        output: Tokens::ZERO,
        calls: 1,
        failed_calls: 1,
        verdict: Verdict::FailsConversation("too late".into()),
    };
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let ((), settled) = tokio::join!(delete_conversation(&conversation), async {
        app.wait_for_lock_waiters(1).await;
        let settled = app.store.settle_call(&lease, &failed).await;
        held.rollback().await;
        settled
    });
    // A settlement that changes a breaker locks the model's row, for which other conversations wait.
    settled.expect("it does not wait for the deletion");
    assert_no_rows(&conversation).await;
}

#[tokio::test]
async fn rows_that_are_stored_while_a_deletion_waits_are_deleted() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let lock = "select from ai_conversation where conversation_id = $1 for key share";
    let mut writing = app.hold_lock(lock, conversation.uuid()).await;
    let ((), ()) = tokio::join!(delete_conversation(&conversation), async {
        app.wait_for_lock_waiters(1).await;
        for statement in [
            "insert into ai_separator (tenant_id, conversation_id, after_message_id)
             select tenant_id, conversation_id, 1 from ai_conversation where conversation_id = $1",
            "insert into ai_request (tenant_id, conversation_id, method, request_id, request_digest)
             select tenant_id, conversation_id, 'm', 'r', 'd' from ai_conversation where conversation_id = $1",
            "insert into ai_summary_part (tenant_id, conversation_id, kind, part_digest, summary, model_calls, input_tokens,
                 output_tokens)
             select tenant_id, conversation_id, 2, 'd', 's', 1, 1, 1 from ai_conversation where conversation_id = $1",
            "insert into ai_response (tenant_id, response_id, conversation_id, request_id, after_message_id, is_chain,
                 background, request, request_digest)
             select tenant_id, gen_random_uuid(), conversation_id, 'r', 0, false, false, '{}', 'd'
             from ai_conversation where conversation_id = $1",
        ] {
            assert_eq!(writing.run(statement, conversation.uuid()).await, 1);
        }
        writing.commit().await;
    });
    assert_no_rows(&conversation).await;
}
