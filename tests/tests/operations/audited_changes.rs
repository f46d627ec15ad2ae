//! An audit and a verification find rows that a change of messages should have changed as well, or
//! should have left alone.

use std::{future::poll_fn, pin::pin};

use anneal_core::caller::{Caller, ConversationId, TenantId};
use anneal_testkit::{TestApp, TestConversation, pb, prose, user};

use crate::auditor::{NONE, audit, broken_promises, create_healthy_conversation, execute};

/// The message that is edited to a large one, which has a summary.
const LARGE: i64 = 11;

/// Adds to a healthy conversation an erased message (1), withdrawn ones (3 and 4), and edited ones
/// (5 and [`LARGE`]). The first checkpoint was set aside by the erasure, which has emptied it, the
/// second by the edit of message 5. The third stands, and ends later than the second.
async fn create_changed_conversation(app: &TestApp) -> TestConversation<'_> {
    let conversation = create_healthy_conversation(app).await;
    conversation.erase(&[1]).await;
    conversation.withdraw(&[3, 4]).await;
    conversation.edit(LARGE, user(&prose(7, 40))).await;
    app.run_jobs_until_idle().await;
    add_turns_until_checkpoint(&conversation).await;
    conversation.edit(5, user(&prose(200, 2))).await;
    conversation.turn("And then?", &prose(210, 2)).await;
    app.run_jobs_until_idle().await;
    add_turns_until_checkpoint(&conversation).await;
    assert_eq!(conversation.checkpoints_with_void().await.len(), 3);
    conversation
}

/// Appends turns and runs jobs until a checkpoint stands.
async fn add_turns_until_checkpoint(conversation: &TestConversation<'_>) {
    for n in 300..310 {
        if !conversation.checkpoints().await.is_empty() {
            return;
        }
        conversation.turn(&prose(n, 2), &prose(n + 50, 2)).await;
        conversation.app.run_jobs_until_idle().await;
    }
    panic!("no checkpoint was made");
}

/// Verifies the conversation. Returns the numbers of the promises that are broken.
async fn promises_found_by_verification(conversation: &TestConversation<'_>) -> Vec<i32> {
    let ask = pb::VerifyConversationRequest {
        conversation_id: conversation.id.clone(),
    };
    let verified = conversation.app.operators().verify_conversation(ask).await;
    let verified = verified.expect("verifies").into_inner();
    let violations = verified.violations.iter();
    violations.map(|violation| violation.promise).collect()
}

/// The number of a promise (0: inconsistent figures), and a statement that breaks it.
const VIOLATIONS: [(i32, &str); 10] = [
    // The content of a withdrawn message is put back.
    (
        16,
        "update ai_message as m set content = v.content, content_digest = v.content_digest
         from ai_message_version as v
         where m.conversation_id = $1 and m.message_id = 3 and v.conversation_id = $1 and v.message_id = 3",
    ),
    (
        16,
        "update ai_message set withdrawn_ts = null where conversation_id = $1 and message_id = 4",
    ),
    // A version of the erased message.
    (
        16,
        "update ai_message_version set message_id = 1 where conversation_id = $1 and message_id = 3",
    ),
    // The text of the checkpoint whose range has the erased message.
    (
        16,
        "update ai_void_checkpoint set summary = 'They talked.' where conversation_id = $1 and summary = ''",
    ),
    // The checkpoint that was made before message 5 was edited is put back.
    (
        17,
        "insert into ai_conversation_checkpoint (tenant_id, conversation_id, first_message_id, last_message_id,
            previous_message_id, summary, token_usage, kind, model, prompt_version, source_first_message_id, source_digest,
            tokens_before, tokens_after, generation, trigger_kind, focus, duration_ms, model_calls, input_tokens,
            output_tokens, created_ts)
         select tenant_id, conversation_id, first_message_id, last_message_id, previous_message_id, summary, token_usage, kind,
            model, prompt_version, source_first_message_id, source_digest, tokens_before, tokens_after, generation,
            trigger_kind, focus, duration_ms, model_calls, input_tokens, output_tokens, created_ts
         from ai_void_checkpoint where conversation_id = $1 and summary <> ''",
    ),
    // A checkpoint, and the summary of a message, that are older than an edit.
    (
        17,
        "update ai_conversation_checkpoint set change_id = 1 where conversation_id = $1",
    ),
    (
        17,
        "update ai_message set summary_change_id = 1 where conversation_id = $1 and message_id = 11 and summary_cache is not null",
    ),
    // A checkpoint that was set aside is gone, the version that stands is also kept as an earlier
    // one, and a wrong number of withdrawn messages.
    (
        0,
        "delete from ai_void_checkpoint where conversation_id = $1 and summary <> ''",
    ),
    (
        0,
        "update ai_message_version set version = 2 where conversation_id = $1 and message_id = 5",
    ),
    (
        0,
        "update ai_conversation set withdrawn_messages = withdrawn_messages - 1 where conversation_id = $1",
    ),
];

#[tokio::test]
async fn audits_and_verifications_find_rows_that_do_not_fit_a_change() {
    let app = TestApp::start().await;
    for (promise, statement) in VIOLATIONS {
        let conversation = create_changed_conversation(&app).await;
        assert_eq!(
            broken_promises(&conversation).await,
            NONE,
            "no promise is broken before the statement"
        );
        conversation.verify().await;
        execute(&conversation, statement).await;
        let report = audit(&conversation).await;
        let mut audited = report.violations.iter().map(|violation| violation.promise);
        assert!(
            audited.any(|found| found == promise),
            "{statement}: {report:?}"
        );
        let verified = promises_found_by_verification(&conversation).await;
        assert!(verified.contains(&promise), "{statement}: {verified:?}");
    }
}

#[tokio::test]
async fn a_verification_reads_the_content_of_earlier_versions_and_an_audit_does_not() {
    let app = TestApp::start().await;
    let conversation = create_changed_conversation(&app).await;
    execute(
        &conversation,
        "update ai_message_version set content_digest = 'x' where conversation_id = $1 and message_id = 5",
    )
    .await;
    assert_eq!(broken_promises(&conversation).await, NONE);
    assert_eq!(promises_found_by_verification(&conversation).await, [12]);
}

#[tokio::test]
async fn a_checkpoint_that_a_fork_has_copied_is_older_than_every_change_in_its_range() {
    let app = TestApp::start().await;
    let source = create_changed_conversation(&app).await;
    let fork = source.fork(0).await;
    app.run_jobs_until_idle().await;
    fork.verify().await;
    assert_eq!(broken_promises(&fork).await, NONE, "the copies are sound");
    // The copied checkpoint and the copied summary have no change numbers.
    let last = fork.checkpoints().await[0].last_message_id;
    fork.withdraw(&[last + 1]).await;
    assert_eq!(
        promises_found_by_verification(&fork).await,
        NONE,
        "the message is after the range of the checkpoint"
    );
    execute(
        &fork,
        "update ai_message_change set first_ids = '{6}', last_ids = '{6}' where conversation_id = $1",
    )
    .await;
    assert!(
        promises_found_by_verification(&fork).await.contains(&17),
        "the copied checkpoint is older than this change of a message in its range"
    );
}

/// Runs the future to its end. Returns how often it was polled for that.
async fn count_polls<T>(future: impl Future<Output = T>) -> (T, u32) {
    let mut future = pin!(future);
    let mut polls = 0;
    let output = poll_fn(|context| {
        polls += 1;
        future.as_mut().poll(context)
    });
    let output = output.await;
    (output, polls)
}

#[tokio::test]
async fn other_tasks_run_between_the_changes_that_a_verification_checks() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.turns(1).await;
    execute(
        &conversation,
        "insert into ai_message_change (tenant_id, conversation_id, change_id, kind, first_ids, last_ids, void_checkpoints)
         select tenant_id, conversation_id, n, 2, '{1}', '{1}', 0
         from ai_conversation, generate_series(1, 1000) as n where conversation_id = $1",
    )
    .await;
    let id = ConversationId(conversation.uuid());
    let verify = app.store.verify(Caller::of(TenantId::DEFAULT), id);
    let (report, polls) = count_polls(verify).await;
    assert!(report.expect("verifies").violations.is_empty());
    // A statement is answered within a few polls, and reads 100 of the changes.
    assert!(polls > 1_000, "{polls} polls for 1,000 changes");
}
