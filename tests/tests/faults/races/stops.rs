//! A turn is stopped at another server than the one that runs it, or after a change of messages has
//! ended its lease. Both promises are broken on purpose as well, which must be noticed.

use anneal_testkit::{
    LOCK_CONVERSATION, Say, Script, ScriptedModel, TestApp, TurnOutcome, chaos::Sabotage, pb,
    read_until_text,
};
use pb::CancelOutcome;

use crate::races::changes::run_in_order;

/// A model that says "Once" and then nothing until its caller has gone.
async fn stalling_model() -> ScriptedModel {
    ScriptedModel::start(|request| {
        // The start of the answer and its first piece.
        Script::says(request, Say::texts(&["Once", " upon a time"])).hanging_after(2)
    })
    .await
}

/// Stops a turn at another server than the one that runs it. Waits for at most three seconds.
async fn stop_elsewhere(app: &TestApp) -> CancelOutcome {
    let conversation = app.conversation().await;
    let turn = conversation.chat("Tell me.").open().await;
    let mut stream = turn.expect("begins");
    read_until_text(&mut stream, "Once").await;
    let other = app.second_server().await;
    let ask = pb::CancelTurnRequest {
        conversation_id: conversation.id.clone(),
        wait: Some(prost_types::Duration {
            seconds: 3,
            nanos: 0,
        }),
        ..Default::default()
    };
    let cancelled = other.chats().cancel_turn(ask).await;
    cancelled.expect("is answered").into_inner().outcome()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_that_the_turns_server_does_not_read_is_noticed() {
    let model = stalling_model().await;
    let app = TestApp::with_scripted_model(&model).await;
    assert_eq!(stop_elsewhere(&app).await, CancelOutcome::Kept);
    let (app, _proxy) = TestApp::with_sabotage(&model, Sabotage::UNREAD_STOP).await;
    assert_eq!(stop_elsewhere(&app).await, CancelOutcome::Pending);
}

/// Withdraws the question of a turn, and then stops the turn. Both wait for the conversation's row.
/// Returns the messages that stand afterwards.
async fn stop_after_a_change(app: &TestApp) -> Vec<String> {
    let conversation = app.conversation().await;
    let turn = conversation.chat("Tell me.").request_id("r").open().await;
    let mut stream = turn.expect("begins");
    read_until_text(&mut stream, "Once").await;
    let held = app.hold_lock(LOCK_CONVERSATION, conversation.uuid()).await;
    let (withdrawn, _) = run_in_order(
        app,
        held,
        conversation.withdraw(&[1]).send(),
        conversation.cancel_turn("r", Some(true)),
    )
    .await;
    withdrawn.expect("withdraws");
    TurnOutcome::read(stream).await;
    let texts = conversation.texts_by_role().await;
    texts.into_iter().map(|(_, text)| text).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_answer_that_is_stored_after_its_lease_has_ended_is_noticed() {
    let model = stalling_model().await;
    let app = TestApp::with_scripted_model(&model).await;
    assert!(stop_after_a_change(&app).await.is_empty());
    let (app, _proxy) = TestApp::with_sabotage(&model, Sabotage::UNCHECKED_ANSWER).await;
    assert_eq!(stop_after_a_change(&app).await, ["Once"]);
}
