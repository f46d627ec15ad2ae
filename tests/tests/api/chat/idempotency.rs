//! A turn has one effect, even if it is repeated, abandoned, interrupted or requested concurrently.

use std::time::Duration;

use anneal_testkit::{
    Gate, Say, Script, ScriptedModel, TestApp, TurnOutcome, assert_refused, eventually, pb,
    status_details, user,
};
use pb::chat_response::Event;
use sqlx::Connection as _;
use tonic::Code;

/// Waits for the future's output. Panics after 30 seconds.
async fn within_half_a_minute<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), what)
        .await
        .expect("half a minute is enough")
}

#[tokio::test]
async fn the_prompt_is_stored_before_the_model_is_called() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| Script::says(request, [Say::text("yes")]).after(&gate)
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let conversation = app.conversation().await;
    let stream = conversation
        .chat("Is it stored?")
        .open()
        .await
        .expect("begins");
    model.wait_for_calls(1).await;
    assert_eq!(
        conversation.texts_by_role().await,
        [(pb::Role::User, "Is it stored?".to_owned())]
    );
    gate.open_for_ever();
    TurnOutcome::read(stream).await.done();
}

#[tokio::test]
async fn a_repeated_turn_is_replayed_without_calling_the_model() {
    let model = ScriptedModel::saying("Once.").await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let conversation = app.conversation().await;
    let first = conversation.chat("Say it once.").request_id("turn-1").await;
    // The model and the tools may differ: the messages alone must be the same.
    let again = conversation
        .chat("Say it once.")
        .request_id("turn-1")
        .with_model("no-such-model")
        .with_tool("look")
        .await;
    assert_eq!(model.requests().len(), 1);
    let replayed_start = pb::chat_response::Started {
        replayed: true,
        ..first.started().clone()
    };
    assert_eq!(
        (again.text(), again.started()),
        (first.text(), &replayed_start)
    );
    let replayed_done = pb::chat_response::Done {
        replayed: true,
        attempts: 0,
        ..first.done().clone()
    };
    assert_eq!(again.done(), &replayed_done);
    assert_eq!(conversation.messages().await.len(), 2);
    let usage = pb::GetContextUsageRequest {
        conversation_id: conversation.id.clone(),
        economics: true,
        ..Default::default()
    };
    let usage = app
        .contexts()
        .get_context_usage(usage)
        .await
        .expect("answers")
        .into_inner();
    let reported = usage
        .economics
        .and_then(|economics| economics.reported)
        .expect("reported");
    assert_eq!(reported.calls, 1, "the cost is recorded once");
}

#[tokio::test]
async fn retrying_a_failed_turn_stores_its_prompt_once() {
    let model = ScriptedModel::start(|request| match request.nth {
        0 => Script::status(500, &[], "{}"),
        _ => Script::says(request, [Say::text("Now.")]),
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let conversation = app.conversation().await;
    let request = conversation.chat("Now?").request_id("r");
    assert_refused(
        request.clone().await.end,
        Code::Unavailable,
        "MODEL_UNAVAILABLE",
        "",
    );
    assert_eq!(
        conversation.texts_by_role().await,
        [(pb::Role::User, "Now?".to_owned())],
        "the prompt stays stored"
    );
    let outcome = request.await;
    assert_eq!(
        (outcome.text().as_str(), outcome.done().replayed),
        ("Now.", false)
    );
    assert_eq!(outcome.done().message_ids, [1, 2]);
    assert_eq!(conversation.messages().await.len(), 2);
}

#[tokio::test]
async fn a_question_answered_together_with_the_next_one_is_not_answered_again() {
    let model = ScriptedModel::start(|request| match request.nth {
        0 => Script::status(500, &[], "{}"),
        _ => Script::says(request, [Say::text("Both.")]),
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let conversation = app.conversation().await;
    let first = conversation.chat("The first?").request_id("r");
    assert_refused(
        first.clone().await.end,
        Code::Unavailable,
        "MODEL_UNAVAILABLE",
        "",
    );
    conversation.chat("The second?").await.done();
    for _ in 0..2 {
        let outcome = first.clone().await;
        assert!(outcome.events.is_empty(), "{:?}", outcome.events);
        assert_refused(outcome.end, Code::Aborted, "TURN_OVERTAKEN", "");
    }
    assert_eq!(
        (conversation.messages().await.len(), model.requests().len()),
        (3, 2)
    );
    assert_eq!(
        conversation.chat("The third?").await.text(),
        "Both.",
        "the conversation accepts another turn"
    );
}

#[tokio::test]
async fn a_question_before_a_separator_is_not_answered_after_it() {
    let model = ScriptedModel::start(|request| match request.nth {
        0 | 1 => Script::status(500, &[], "{}"),
        _ => Script::says(request, [Say::text("Yes.")]),
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let conversation = app.conversation().await;
    conversation.insert_separator().await;
    let first = conversation.chat("Before?").request_id("r");
    for _ in 0..2 {
        assert_refused(
            first.clone().await.end,
            Code::Unavailable,
            "MODEL_UNAVAILABLE",
            "",
        );
    }
    let separator = conversation.insert_separator().await;
    assert_refused(first.clone().await.end, Code::Aborted, "TURN_OVERTAKEN", "");
    conversation
        .delete_separator(separator.after_message_id)
        .await;
    assert_eq!(
        first.await.text(),
        "Yes.",
        "the question is answered once the separator is deleted"
    );
}

#[tokio::test]
async fn a_request_id_of_another_request_is_refused() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let conversation = app.conversation().await;
    conversation.append("Appended.").request_id("append").await;
    conversation.chat("Asked.").request_id("chat").await.done();
    let assert_reused = |outcome: TurnOutcome| {
        assert_refused(outcome.end, Code::AlreadyExists, "REQUEST_ID_REUSED", "");
    };
    assert_reused(
        conversation
            .chat("Asked otherwise.")
            .request_id("chat")
            .await,
    );
    assert_reused(conversation.chat("Appended.").request_id("append").await);
    let appended = conversation
        .append("Asked.")
        .request_id("chat")
        .send()
        .await;
    assert_refused(appended, Code::AlreadyExists, "REQUEST_ID_REUSED", "");
    assert_eq!(
        (conversation.messages().await.len(), model.requests().len()),
        (3, 1)
    );
}

#[tokio::test]
async fn one_conversation_has_one_turn_at_a_time() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| Script::says(request, [Say::text("done")]).after(&gate)
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let (conversation, other) = (app.conversation().await, app.conversation().await);
    let request = conversation.chat("one").request_id("r1");
    let first = request.clone().open().await.expect("begins");
    model.wait_for_calls(1).await;
    let second = conversation
        .chat("two")
        .request_id("r2")
        .await
        .end
        .expect_err("a turn is in progress");
    let details = status_details(&second);
    assert_eq!(
        (details.code, details.reason.as_str(), details.retry),
        (Code::Aborted, "TURN_IN_PROGRESS", true)
    );
    assert_eq!(
        conversation.messages().await.len(),
        1,
        "a refused turn stores nothing"
    );
    let second_server = app.second_server().await;
    let third = pb::ChatRequest {
        conversation_id: conversation.id.clone(),
        messages: vec![user("three")],
        ..Default::default()
    };
    let stream = second_server
        .chats()
        .chat(third)
        .await
        .expect("begins")
        .into_inner();
    assert_refused(
        TurnOutcome::read(stream).await.end,
        Code::Aborted,
        "TURN_IN_PROGRESS",
        "",
    );
    assert_refused(request.await.end, Code::Aborted, "TURN_IN_PROGRESS", "");
    gate.open_for_ever();
    other.chat("meanwhile").await.done();
    TurnOutcome::read(first).await.done();
    assert!(
        conversation
            .chat("one")
            .request_id("r1")
            .await
            .done()
            .replayed
    );
    assert_eq!(
        conversation
            .chat("two")
            .request_id("r2")
            .await
            .done()
            .message_ids,
        [3, 4]
    );
}

#[tokio::test]
async fn a_disconnect_ends_the_model_call_and_stores_no_partial_answer() {
    let model = ScriptedModel::start(|request| match request.nth {
        // OpenAI's first event has only the role. So the model stops after the first text.
        0 => Script::says(request, Say::texts(&["half an ", "answer"])).hanging_after(2),
        _ => Script::says(request, [Say::text("whole")]),
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let conversation = app.conversation().await;
    let mut stream = conversation
        .chat("go")
        .request_id("r")
        .open()
        .await
        .expect("begins");
    while !matches!(
        stream
            .message()
            .await
            .expect("goes on")
            .and_then(|r| r.event),
        Some(Event::TextDelta(_))
    ) {}
    drop(stream);
    within_half_a_minute(model.wait_for_closed_calls(1)).await;
    assert_eq!(conversation.messages().await.len(), 1);
    eventually(
        "the turn is no longer in progress",
        async || match conversation.chat("go").request_id("r").await.end {
            Ok(done) => done.message_ids == [1, 2],
            Err(status) => status_details(&status).reason != "TURN_IN_PROGRESS",
        },
    )
    .await;
    assert_eq!(conversation.texts_by_role().await[1].1, "whole");
}

#[tokio::test]
async fn a_deadline_ends_the_model_call() {
    let model = ScriptedModel::start(|_| Script::hang()).await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let conversation = app.conversation().await;
    let outcome = conversation
        .chat("go")
        .with_deadline(Duration::from_secs(8))
        .await;
    assert_refused(outcome.end, Code::DeadlineExceeded, "DEADLINE_EXCEEDED", "");
    within_half_a_minute(model.wait_for_closed_calls(1)).await;
    assert_eq!(conversation.messages().await.len(), 1);
}

#[tokio::test]
async fn a_stopping_server_lets_its_turns_finish() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| Script::says(request, [Say::text("still here")]).after(&gate)
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let url = app.url.clone();
    let conversation = app.conversation().await;
    let id = conversation.id.clone();
    let stream = conversation.chat("Stay?").open().await.expect("begins");
    model.wait_for_calls(1).await;
    // Dropping the app stops its server.
    drop(app);
    gate.open_for_ever();
    assert_eq!(TurnOutcome::read(stream).await.text(), "still here");
    let other = TestApp::on_database(&url).await;
    let ask = pb::GetConversationRequest {
        conversation_id: id,
    };
    let stored = other
        .conversations()
        .get_conversation(ask)
        .await
        .expect("is there")
        .into_inner();
    assert_eq!(stored.message_count, 2);
}

#[tokio::test]
async fn a_turn_whose_lease_has_expired_does_not_block_the_next_turn() {
    let model = ScriptedModel::start(|request| match request.nth {
        0 => Script::hang(),
        _ => Script::says(request, [Say::text("alive")]),
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let conversation = app.conversation().await;
    let stuck = conversation.chat("one").open().await.expect("begins");
    model.wait_for_calls(1).await;
    let mut db = app.db().await;
    sqlx::query("update ai_model_lease set lease_until_ts = now() - interval '1 second'")
        .execute(&mut db)
        .await
        .expect("expires the lease");
    assert_eq!(conversation.chat("two").await.text(), "alive");
    let interrupted = within_half_a_minute(TurnOutcome::read(stuck))
        .await
        .end
        .expect_err("the lease was lost");
    assert_eq!(interrupted.message(), "the turn was interrupted");
    assert_refused(
        Err::<(), _>(interrupted),
        Code::Unavailable,
        "MODEL_UNAVAILABLE",
        "",
    );
    assert_eq!(conversation.messages().await.len(), 3);
}

#[tokio::test]
async fn a_turn_with_a_wrong_expected_last_message_stores_nothing() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let conversation = app.conversation().await;
    let mut request = conversation.chat("first").request_id("r");
    request.ask.expected_last_message_id = Some(7);
    assert_refused(
        request.clone().await.end,
        Code::Aborted,
        "LAST_MESSAGE_MISMATCH",
        "",
    );
    assert!(conversation.messages().await.is_empty() && model.requests().is_empty());
    request.ask.expected_last_message_id = Some(0);
    request.clone().await.done();
    assert!(
        request.await.done().replayed,
        "the expectation is checked when the prompt is stored"
    );
}

#[tokio::test]
async fn a_complete_answer_is_stored_although_its_caller_disconnects() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| Script::says(request, [Say::text("All of it.")]).after(&gate)
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let conversation = app.conversation().await;
    let stream = conversation
        .chat("go")
        .request_id("r")
        .open()
        .await
        .expect("begins");
    within_half_a_minute(model.wait_for_calls(1)).await;
    let mut db = app.db().await;
    let mut lock = db.begin().await.expect("begins");
    sqlx::query("select from ai_conversation for update")
        .execute(&mut *lock)
        .await
        .expect("locks");
    gate.open_for_ever();
    eventually("storing the answer waits for the lock", async || {
        let query = "select count(*) from pg_stat_activity \
                     where datname = current_database() and wait_event_type = 'Lock'";
        let waiting: i64 = sqlx::query_scalar(query)
            .fetch_one(&mut app.db().await)
            .await
            .expect("reads");
        waiting > 0
    })
    .await;
    drop(stream);
    lock.commit().await.expect("commits");
    eventually("the answer is stored", async || {
        conversation.messages().await.len() == 2
    })
    .await;
    eventually("the cost of the turn is recorded", async || {
        let outcome = conversation.chat("go").request_id("r").await;
        outcome.done().replayed && outcome.done().usage.is_some()
    })
    .await;
}
