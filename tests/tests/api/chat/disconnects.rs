//! Callers that go away during a turn: what becomes of it is what they have asked for.

use std::time::Duration;

use anneal_testkit::{
    Gate, Say, Script, ScriptedModel, TestApp, TurnOutcome, eventually, pb, read_until_text,
};
use pb::OnDisconnect;

/// A model that says a text, and then nothing more, without an end.
async fn model_that_stalls() -> ScriptedModel {
    ScriptedModel::start(|request| {
        Script::says(request, [Say::text("Half of it")]).hanging_after(2)
    })
    .await
}

/// A model that answers when the gate is opened.
async fn model_behind(gate: &Gate) -> ScriptedModel {
    let gate = gate.clone();
    ScriptedModel::start(move |request| Script::says(request, [Say::text("Whole.")]).after(&gate))
        .await
}

#[tokio::test]
async fn an_answer_whose_caller_goes_away_is_kept_or_dropped_as_the_caller_wanted() {
    let model = model_that_stalls().await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    for (nth, on_disconnect, kept) in [
        (1, OnDisconnect::Unspecified, false),
        (2, OnDisconnect::Stop, false),
        (3, OnDisconnect::StopAndKeep, true),
    ] {
        let conversation = app.conversation().await;
        let turn = conversation.chat("Tell me.").on_disconnect(on_disconnect);
        let mut stream = turn.open().await.expect("begins");
        read_until_text(&mut stream, "Half of it").await;
        drop(stream);
        model.wait_for_closed_calls(nth).await;
        eventually("the turn's lease has ended", async || {
            let leases: i64 = sqlx::query_scalar("select count(*) from ai_model_lease")
                .fetch_one(&mut app.db().await)
                .await
                .expect("counts");
            leases == 0
        })
        .await;
        let messages = conversation.messages().await;
        assert_eq!(messages.len(), 1 + usize::from(kept), "{on_disconnect:?}");
        assert_eq!(
            messages.last().is_some_and(|last| last.stopped),
            kept,
            "{on_disconnect:?}"
        );
    }
}

#[tokio::test]
async fn a_turn_of_which_nothing_could_be_kept_is_answered_when_it_is_repeated() {
    let gate = Gate::default();
    let model = model_behind(&gate).await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let conversation = app.conversation().await;
    let turn = conversation
        .chat("Tell me.")
        .request_id("r")
        .on_disconnect(OnDisconnect::StopAndKeep);
    let stream = turn.clone().open().await.expect("begins");
    model.wait_for_calls(1).await;
    drop(stream);
    model.wait_for_closed_calls(1).await;
    gate.open_for_ever();
    eventually("the turn can be repeated", async || {
        turn.clone().await.end.is_ok_and(|done| !done.stopped)
    })
    .await;
    assert_eq!(conversation.texts_by_role().await[1].1, "Whole.");
}

#[tokio::test]
async fn a_turn_that_finishes_stores_its_answer_without_its_caller() {
    let gate = Gate::default();
    let model = model_behind(&gate).await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let conversation = app.conversation().await;
    let turn = conversation
        .chat("Tell me.")
        .on_disconnect(OnDisconnect::Finish);
    let stream = turn.open().await.expect("begins");
    model.wait_for_calls(1).await;
    drop(stream);
    let closed = tokio::time::timeout(Duration::from_secs(1), model.wait_for_closed_calls(1)).await;
    assert!(closed.is_err(), "the call goes on without the caller");
    gate.open_for_ever();
    eventually("the answer is stored", async || {
        conversation.messages().await.len() == 2
    })
    .await;
    let messages = conversation.messages().await;
    assert!(!messages[1].stopped);
}

#[tokio::test]
async fn a_turn_that_finishes_outlives_the_deadline_of_its_caller() {
    let gate = Gate::default();
    let model = model_behind(&gate).await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let conversation = app.conversation().await;
    let turn = conversation
        .chat("Tell me.")
        .on_disconnect(OnDisconnect::Finish)
        .with_deadline(Duration::from_millis(500));
    let stream = turn.open().await.expect("begins");
    model.wait_for_calls(1).await;
    let closed = tokio::time::timeout(Duration::from_secs(1), model.wait_for_closed_calls(1)).await;
    assert!(closed.is_err(), "the caller's deadline ends the turn");
    gate.open_for_ever();
    assert_eq!(TurnOutcome::read(stream).await.text(), "Whole.");
}

#[tokio::test]
async fn an_answer_is_kept_at_the_deadline_if_its_caller_wanted_that() {
    let model = model_that_stalls().await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let conversation = app.conversation().await;
    let turn = conversation
        .chat("Tell me.")
        .on_disconnect(OnDisconnect::StopAndKeep)
        .with_deadline(Duration::from_secs(3));
    let outcome = turn.await;
    let done = outcome.done();
    assert!(done.stopped, "{done:?}");
    assert_eq!(outcome.text(), "Half of it");
    assert_eq!(conversation.texts_by_role().await[1].1, "Half of it");
}
