//! Resuming a turn over HTTP: after whichever event the connection was lost, the reader gets the
//! rest of the answer and nothing twice. Only reasoning that is not stored may be missing.

use anneal_testkit::{
    Gate, HttpResponse, Say, Script, ScriptedModel, SseEvent, TestApp, eventually, text_of,
};
use serde_json::{Value, json};

use crate::http::session_of;

/// The answer that a reader received: its text and its reasoning, each joined, the inputs of its
/// tool calls, and the numbers of `started` and `done` events.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
struct ReceivedAnswer {
    text: String,
    reasoning: String,
    call_inputs: Vec<String>,
    started_events: usize,
    done_events: usize,
}

impl ReceivedAnswer {
    fn of<'t>(received: impl IntoIterator<Item = &'t SseEvent>) -> Self {
        let mut answer = Self::default();
        for event in received {
            let text = || event.data["text"].as_str().unwrap_or_default();
            match event.kind() {
                "started" => answer.started_events += 1,
                "text" => answer.text.push_str(text()),
                "reasoning" => answer.reasoning.push_str(text()),
                "tool_call" => answer.call_inputs.push(event.data["input"].to_string()),
                // Everything before it is void: another answer follows.
                "attempt" => {
                    (answer.text, answer.reasoning, answer.call_inputs) = Default::default();
                }
                "done" => answer.done_events += 1,
                other => panic!("an event {other}: {event:?}"),
            }
        }
        answer
    }
}

/// An answer with reasoning, text in several scripts and tool calls, in small pieces.
fn mixed_answer() -> Vec<Say> {
    let words = [
        "Grüße, ",
        "世界",
        "! ",
        "👩‍👩‍👧 ",
        "and\n\n",
        "more.",
        "data: not an event\n\n",
    ];
    let mut says = vec![Say::thought("Let me "), Say::thought("think… ")];
    says.extend(Say::texts(&words));
    says.extend([
        Say::tool("1", "look", r#"{"q":"世"}"#),
        Say::tool("2", "look", "{}"),
    ]);
    says
}

/// Starts a model that answers with three words. Each opening of the gate lets it send one piece:
/// first the role alone, which is OpenAI's first event, then one word each.
pub(super) async fn start_model_with_gated_words() -> (Gate, ScriptedModel) {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |sent_request| {
            Script::says(sent_request, Say::texts(&["one ", "two ", "three"])).gated(&gate)
        }
    })
    .await;
    (gate, model)
}

/// The user's message of every turn.
const MESSAGE: &str = "Tell me.";

fn request_body() -> Value {
    json!({"message": MESSAGE})
}

#[tokio::test]
async fn a_reader_cut_off_at_any_event_gets_exactly_the_rest_at_both_servers() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |sent_request| Script::says(sent_request, mixed_answer()).gated(&gate)
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let second_server = app.second_server().await;
    let mut events = app.http_client().open_chat("a", &request_body()).await;
    let mut received = events.take(1).await;
    // One piece at a time, so that each is an event of its own.
    while received.last().is_none_or(|event| event.kind() != "done") {
        gate.open(1);
        if let Ok(event) =
            tokio::time::timeout(std::time::Duration::from_secs(1), events.next()).await
        {
            received.push(event.expect("`done` comes last"));
        }
    }
    let whole = ReceivedAnswer::of(&received);
    assert!(
        received.len() > 9 && whole.started_events == 1 && whole.done_events == 1,
        "{received:?}"
    );
    for cut in 0..received.len() - 1 {
        for (web, server) in [
            (app.http_client(), "first server"),
            (second_server.http_client(), "second server"),
        ] {
            // At every second cut, the reader sends the message again. At the others it sends no
            // body.
            let body = request_body();
            let body = (cut % 2 == 0).then_some(&body);
            let rest = web.resume("a", &received[cut].id, body).await.rest().await;
            assert!(
                rest.iter().all(|event| event.kind() != "attempt"),
                "no event declares the answer void: {rest:?}"
            );
            let answer = ReceivedAnswer::of(received[..=cut].iter().chain(&rest));
            // Reasoning without a provider's signature is not stored and cannot be replayed.
            let expected = ReceivedAnswer {
                reasoning: answer.reasoning.clone(),
                ..whole.clone()
            };
            assert_eq!(answer, expected, "{server}, cut off after {cut}");
            assert!(
                whole.reasoning.starts_with(&answer.reasoning),
                "{server}, cut off after {cut}: {answer:?}"
            );
        }
    }
    let last = received.last().expect("done").id.clone();
    let path = "/api/agents/a/chat";
    let nothing = HttpResponse::send(
        app.http_client()
            .request("POST", path)
            .header("last-event-id", last),
    )
    .await;
    assert_eq!((nothing.status, nothing.text.as_str()), (204, ""));
    assert_eq!(model.requests().len(), 1, "the model was called once");
}

#[tokio::test]
async fn resuming_a_running_turn_streams_the_rest_as_it_arrives() {
    let (gate, model) = start_model_with_gated_words().await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let mut events = app.http_client().open_chat("a", &request_body()).await;
    let mut received = events.take(1).await;
    // The role and the first word.
    gate.open(2);
    while text_of(&received) != "one " {
        received.extend(events.take(1).await);
        if text_of(&received).is_empty() {
            gate.open(1);
        }
    }
    drop(events);
    let mut resumed = app
        .http_client()
        .resume("a", &received.last().expect("some").id, None)
        .await;
    let other_reader = app
        .http_client()
        .resume("a", &received[0].id, Some(&request_body()))
        .await;
    gate.open_for_ever();
    let first = resumed.take(1).await;
    assert_eq!(first[0].kind(), "text", "{first:?}");
    received.extend(first);
    received.extend(resumed.rest().await);
    let answer = ReceivedAnswer::of(&received);
    assert_eq!(
        (
            answer.text.as_str(),
            answer.started_events,
            answer.done_events
        ),
        ("one two three", 1, 1)
    );
    let other = other_reader.rest().await;
    assert_eq!(
        text_of(&other),
        "one two three",
        "two readers both get all events"
    );
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn a_turn_whose_only_reader_goes_away_is_answered_and_can_be_resumed() {
    // After `started`, and after the first word.
    for seen in [1, 2] {
        let (gate, model) = start_model_with_gated_words().await;
        let app = TestApp::with_scripted_model_without_timeouts(&model).await;
        let web = app.http_client();
        let mut events = web.open_chat("a", &request_body()).await;
        let mut received = events.take(1).await;
        if seen == 2 {
            // The role and the first word.
            gate.open(2);
            received.extend(events.take(1).await);
        }
        drop(events);
        model.wait_for_calls(1).await;
        let closed = tokio::time::timeout(
            std::time::Duration::from_secs(1),
            model.wait_for_closed_calls(1),
        )
        .await;
        assert!(closed.is_err(), "the call goes on without a reader");
        gate.open_for_ever();
        let session = session_of(&received);
        let path = format!("/api/agents/a/sessions/{session}");
        eventually("the answer is stored", async || {
            web.get(&path).await.json()["messageCount"] == json!(2)
        })
        .await;
        let last = &received.last().expect("started").id;
        let rest = web.resume("a", last, None).await.rest().await;
        received.extend(rest);
        let answer = ReceivedAnswer::of(&received);
        assert_eq!(
            (
                answer.text.as_str(),
                answer.started_events,
                answer.done_events
            ),
            ("one two three", 1, 1),
            "{seen}"
        );
        assert_eq!(model.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_reader_that_resumes_at_another_process_gets_the_rest_when_the_turn_has_ended() {
    let (gate, model) = start_model_with_gated_words().await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let second_server = app.second_server().await;
    let mut events = app.http_client().open_chat("a", &request_body()).await;
    let mut received = events.take(1).await;
    // The role and two words.
    gate.open(3);
    while text_of(&received).is_empty() {
        received.extend(events.take(1).await);
    }
    drop(events);
    let resumed = second_server
        .http_client()
        .resume("a", &received.last().expect("some").id, None)
        .await;
    gate.open_for_ever();
    received.extend(resumed.rest().await);
    let answer = ReceivedAnswer::of(&received);
    assert_eq!(
        (
            answer.text.as_str(),
            answer.started_events,
            answer.done_events,
            model.requests().len()
        ),
        ("one two three", 1, 1, 1)
    );
}

#[tokio::test]
async fn reasoning_that_is_not_stored_is_not_declared_void_at_another_process() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |sent_request| {
            Script::says(
                sent_request,
                [
                    Say::thought("Let me "),
                    Say::thought("think."),
                    Say::text("one "),
                    Say::text("two"),
                ],
            )
            .gated(&gate)
        }
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let second_server = app.second_server().await;
    let mut events = app.http_client().open_chat("a", &request_body()).await;
    let mut received = events.take(1).await;
    // The role, both pieces of reasoning and the first text.
    gate.open(4);
    while text_of(&received).is_empty() {
        received.extend(events.take(1).await);
    }
    drop(events);
    let resumed = second_server
        .http_client()
        .resume("a", &received.last().expect("some").id, None)
        .await;
    // The turn still runs when the second server is asked for it. That server accepts the reader
    // and answers other calls before the turn ends.
    second_server
        .http_client()
        .get("/api/agents/a/sessions")
        .await;
    gate.open_for_ever();
    let rest = resumed.rest().await;
    assert!(
        rest.iter().all(|event| event.kind() != "attempt"),
        "no event declares the answer void: {rest:?}"
    );
    received.extend(rest);
    let answer = ReceivedAnswer::of(&received);
    assert_eq!(
        (
            answer.text.as_str(),
            answer.done_events,
            model.requests().len()
        ),
        ("one two", 1, 1)
    );
    assert!(answer.reasoning.starts_with("Let me "), "{answer:?}");
}

#[tokio::test]
async fn a_regenerated_answer_declares_the_earlier_events_void() {
    let model = ScriptedModel::start(|sent_request| match sent_request.nth {
        // Cut off after the role and both texts.
        0 => Script::says(sent_request, Say::texts(&["The first ", "answer"])).cut_after(3),
        _ => Script::says(sent_request, Say::texts(&["Quite ", "another one."])),
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let mut received = app.http_client().chat("a", &request_body()).await;
    let error = received.pop().expect("it failed");
    assert_eq!(
        (error.kind(), text_of(&received).as_str()),
        ("error", "The first answer"),
        "{error:?}"
    );
    let rest = app
        .http_client()
        .resume("a", &error.id, None)
        .await
        .rest()
        .await;
    assert_eq!(
        (rest[0].kind(), &rest[0].data["reason"]),
        ("attempt", &json!("answered_anew"))
    );
    received.extend(rest);
    let answer = ReceivedAnswer::of(&received);
    assert_eq!(
        (
            answer.text.as_str(),
            answer.started_events,
            answer.done_events
        ),
        ("Quite another one.", 1, 1)
    );
}

#[tokio::test]
async fn resuming_with_another_message_is_refused() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let received = app
        .http_client()
        .chat("a", &json!({"message": MESSAGE, "context": "file"}))
        .await;
    let sent_request = |body: Value| {
        app.http_client()
            .json("POST", "/api/agents/a/chat", &body)
            .header("last-event-id", &received[0].id)
    };
    for other in [
        json!({"message": "Something else.", "context": "file"}),
        json!({"message": MESSAGE}),
        json!({"message": MESSAGE, "context": "file", "images": ["https://x.example/a.png"]}),
    ] {
        HttpResponse::send(sent_request(other))
            .await
            .assert_problem(409, "REQUEST_ID_REUSED", "");
    }
    HttpResponse::send(sent_request(json!({"context": "file"})))
        .await
        .assert_problem(400, "INVALID_FIELD", "message");
    for same in [
        json!({"message": MESSAGE, "context": "file"}),
        json!({"message": "", "images": []}),
        json!({}),
    ] {
        let rest = anneal_testkit::SseStream::open(sent_request(same))
            .await
            .rest()
            .await;
        assert_eq!(text_of(&rest), "Yes.");
    }
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn a_regenerated_answer_with_other_reasoning_is_streamed_as_it_arrives() {
    for other_reasoning in ["Hm, no: ", "Hm."] {
        let gate = Gate::default();
        let model = ScriptedModel::start({
            let gate = gate.clone();
            move |sent_request| match sent_request.nth {
                // Cut off after the role and both pieces of reasoning.
                0 => Script::says(
                    sent_request,
                    [Say::thought("Let me "), Say::thought("think.")],
                )
                .cut_after(3),
                _ => Script::says(
                    sent_request,
                    [
                        Say::thought(other_reasoning),
                        Say::thought("Or not. "),
                        Say::text("so "),
                        Say::text("it is"),
                    ],
                )
                .gated(&gate),
            }
        })
        .await;
        let app = TestApp::with_scripted_model_without_timeouts(&model).await;
        let mut received = app.http_client().chat("a", &request_body()).await;
        let error = received.pop().expect("it failed");
        assert_eq!(
            (
                error.kind(),
                ReceivedAnswer::of(&received).reasoning.is_empty()
            ),
            ("error", false),
            "{error:?}"
        );
        let mut resumed = app.http_client().resume("a", &error.id, None).await;
        // The role, both pieces of reasoning and the first text: all pieces but the last.
        gate.open(4);
        let mut rest = resumed.take(1).await;
        assert_eq!(
            (rest[0].kind(), &rest[0].data["reason"]),
            ("attempt", &json!("answered_anew"))
        );
        while text_of(&rest).is_empty() {
            rest.extend(resumed.take(1).await);
        }
        assert!(
            rest.iter().all(|event| event.kind() != "done"),
            "the answer is still being written: {rest:?}"
        );
        gate.open_for_ever();
        rest.extend(resumed.rest().await);
        received.extend(rest);
        let answer = ReceivedAnswer::of(&received);
        assert_eq!(
            (answer.text.as_str(), answer.reasoning, answer.done_events),
            ("so it is", format!("{other_reasoning}Or not. "), 1)
        );
    }
}

#[tokio::test]
async fn a_stopping_server_streams_running_turns_to_their_end() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |sent_request| Script::says(sent_request, Say::texts(&["still ", "here"])).after(&gate)
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let web = app.http_client();
    let mut events = web.open_chat("a", &request_body()).await;
    let mut received = events.take(1).await;
    model.wait_for_calls(1).await;
    drop(app);
    let path = "/api/agents/a/sessions";
    eventually("the server refuses requests", async || {
        web.get(path).await.status == 503
    })
    .await;
    web.get(path)
        .await
        .assert_problem(503, "SERVER_STOPPING", "");
    gate.open_for_ever();
    received.extend(events.rest().await);
    assert_eq!(
        (
            text_of(&received).as_str(),
            received.last().expect("some").kind()
        ),
        ("still here", "done")
    );
    let is_closed = || async { web.request("GET", "/healthz").send().await.is_err() };
    eventually("the port is closed", async || is_closed().await).await;
}
