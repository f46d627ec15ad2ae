//! Messages are withdrawn or restored while another call changes the conversation: an append, the
//! answer of a turn, another change, a deletion. The rows are those of one order of the two.

use anneal_core::{job::JobKind, message::MessageId};
use anneal_store::{ChangeAsk, MessageChange, Selection, StoreError};
use anneal_testkit::{
    Gate, LOCK_CONVERSATION, LOCK_JOBS, Say, Script, ScriptedModel, TestApp, TestConversation,
    TurnOutcome, assert_refused,
};
use tonic::Code;

use crate::races::{
    CALLER,
    changes::{ask, one, range, restore, run_in_order, run_jobs_and_verify, withdraw},
    checkpoints::{create_with_due_checkpoint, draft_checkpoint},
    claim_job,
    deletions::{assert_no_rows, delete_conversation},
};

fn everything() -> ChangeAsk {
    ask(Selection::After(MessageId::NONE))
}

/// Ids of the messages that stand.
async fn standing(conversation: &TestConversation<'_>) -> Vec<i64> {
    let messages = conversation.messages().await;
    messages.iter().map(|message| message.message_id).collect()
}

#[tokio::test]
async fn an_append_that_comes_before_a_rewind_is_withdrawn() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (appended, change) = run_in_order(
        &app,
        held,
        conversation.append("c").send(),
        withdraw(&conversation, ask(Selection::After(MessageId(1)))),
    )
    .await;
    assert_eq!(appended.expect("appends").messages[0].message_id, 3);
    assert_eq!(change.expect("withdraws").changed, [range(2, 3)]);
    assert_eq!(standing(&conversation).await, [1]);
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn an_append_that_comes_after_a_rewind_continues_what_is_left() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (change, appended) = run_in_order(
        &app,
        held,
        withdraw(&conversation, everything()),
        conversation.append("c").send(),
    )
    .await;
    assert_eq!(change.expect("withdraws").changed, [range(1, 2)]);
    let appended = &appended.expect("appends").messages[0];
    assert_eq!(
        (appended.message_id, appended.turn),
        (3, 1),
        "ids are not used again, turns are"
    );
    assert_eq!(standing(&conversation).await, [3]);
    run_jobs_and_verify(&conversation).await;
}

/// Starts an app whose model answers once the gate is open.
async fn start_with_gate() -> (TestApp, ScriptedModel, Gate) {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| Script::says(request, [Say::text("Yes.")]).after(&gate)
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    (app, model, gate)
}

#[tokio::test]
async fn an_answer_that_comes_before_a_rewind_is_withdrawn() {
    let (app, model, gate) = start_with_gate().await;
    let conversation = app.conversation().await;
    let stream = conversation.chat("Is it so?").open().await.expect("begins");
    model.wait_for_calls(1).await;
    let held = app.hold_lock(LOCK_CONVERSATION, conversation.uuid()).await;
    let (answered, change) = run_in_order(
        &app,
        held,
        async {
            gate.open_for_ever();
            TurnOutcome::read(stream).await
        },
        withdraw(&conversation, everything()),
    )
    .await;
    assert_eq!(answered.done().message_ids, [1, 2]);
    assert_eq!(change.expect("withdraws").changed, [range(1, 2)]);
    assert!(standing(&conversation).await.is_empty());
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn an_answer_that_comes_after_a_rewind_is_not_stored() {
    let (app, model, gate) = start_with_gate().await;
    let conversation = app.conversation().await;
    let turn = conversation.chat("Is it so?").request_id("r");
    let stream = turn.clone().open().await.expect("begins");
    model.wait_for_calls(1).await;
    let held = app.hold_lock(LOCK_CONVERSATION, conversation.uuid()).await;
    let (change, answered) =
        run_in_order(&app, held, withdraw(&conversation, everything()), async {
            gate.open_for_ever();
            TurnOutcome::read(stream).await
        })
        .await;
    assert_eq!(change.expect("withdraws").changed, [range(1, 1)]);
    assert_refused(answered.end, Code::Unavailable, "MODEL_UNAVAILABLE", "");
    assert!(standing(&conversation).await.is_empty());
    assert_eq!(conversation.conversation().await.message_count, 1);
    assert_refused(
        turn.await.end,
        Code::FailedPrecondition,
        "MESSAGE_WITHDRAWN",
        "",
    );
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn a_restoration_that_comes_after_a_withdrawal_restores_what_it_withdrew() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (withdrawn, restored) = run_in_order(
        &app,
        held,
        withdraw(&conversation, everything()),
        restore(&conversation, everything()),
    )
    .await;
    assert_eq!(withdrawn.expect("withdraws").withdrawn, 2);
    assert_eq!(restored.expect("restores").changed, [range(1, 2)]);
    assert_eq!(standing(&conversation).await, [1, 2]);
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn a_restoration_that_comes_before_a_withdrawal_is_undone_by_it() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    withdraw(&conversation, one(2)).await.expect("withdraws");
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (restored, withdrawn) = run_in_order(
        &app,
        held,
        restore(&conversation, one(2)),
        withdraw(&conversation, everything()),
    )
    .await;
    assert_eq!(restored.expect("restores").withdrawn, 0);
    assert_eq!(withdrawn.expect("withdraws").changed, [range(1, 2)]);
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn a_withdrawal_repeated_while_it_is_made_waits_and_returns_the_same() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let repeatable = || ChangeAsk {
        request_id: Some("r".into()),
        ..one(2)
    };
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (first, again) = run_in_order(
        &app,
        held,
        withdraw(&conversation, repeatable()),
        withdraw(&conversation, repeatable()),
    )
    .await;
    let first = first.expect("withdraws");
    let expected = MessageChange {
        replayed: true,
        caused: Vec::new(),
        ..first
    };
    assert_eq!(again.expect("is answered"), expected);
}

#[tokio::test]
async fn of_two_withdrawals_of_one_message_the_second_has_nothing_to_do() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (first, second) = run_in_order(
        &app,
        held,
        withdraw(&conversation, one(2)),
        withdraw(&conversation, one(2)),
    )
    .await;
    assert_eq!(first.expect("withdraws").id, 1);
    let second = second.expect("is answered");
    assert_eq!(
        (second.id, second.changed.len(), second.withdrawn),
        (0, 0, 1)
    );
    run_jobs_and_verify(&conversation).await;
}

#[tokio::test]
async fn a_withdrawal_that_comes_before_a_deletion_leaves_nothing_behind() {
    let app = TestApp::counted_by_workers().await;
    let conversation = create_with_due_checkpoint(&app).await;
    let job = claim_job(&app, JobKind::Checkpoint).await;
    let draft = draft_checkpoint(&app, &job).await;
    let committed = app.store.commit_checkpoint(&job, &draft).await;
    committed.expect("commits");
    conversation.append("c").await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let (change, ()) = run_in_order(
        &app,
        held,
        withdraw(&conversation, one(4)),
        delete_conversation(&conversation),
    )
    .await;
    assert_eq!(change.expect("withdraws").void_checkpoints.len(), 1);
    assert_no_rows(&conversation).await;
    let usage = app.store.read_tenant_usage(CALLER).await.expect("reads");
    assert_eq!((usage.messages, usage.content_bytes), (0, 0));
}

#[tokio::test]
async fn a_withdrawal_that_comes_after_a_deletion_finds_no_conversation() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let held = app.hold_lock(LOCK_JOBS, conversation.uuid()).await;
    let ((), change) = run_in_order(
        &app,
        held,
        delete_conversation(&conversation),
        withdraw(&conversation, one(2)),
    )
    .await;
    assert!(matches!(change, Err(StoreError::NotFound(_))), "{change:?}");
    assert_no_rows(&conversation).await;
}
