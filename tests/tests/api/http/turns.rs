//! Turns over HTTP: their events, repeated requests, readers that stall or disconnect, failures and
//! refusals.

#![expect(non_snake_case, reason = "test names begin with a row of docs/rows.md")]

use anneal_testkit::{
    AnnealBinary, Folder, Gate, HttpClient, HttpResponse, Say, Script, ScriptedModel, SseEvent,
    TestApp, TestConversation, eventually, pb, text_of,
};
use serde_json::json;

use crate::http::{BINARY, CHAT, list_sessions, session_of};

fn event_kinds(received: &[SseEvent]) -> Vec<&str> {
    received.iter().map(SseEvent::kind).collect()
}

async fn get_conversation(app: &TestApp, id: &str) -> pb::Conversation {
    let ask = pb::GetConversationRequest {
        conversation_id: id.to_owned(),
    };
    app.conversations()
        .get_conversation(ask)
        .await
        .expect("is there")
        .into_inner()
}

async fn read_texts(app: &TestApp, id: &str) -> Vec<(pb::Role, String)> {
    TestConversation {
        app,
        id: id.to_owned(),
    }
    .texts_by_role()
    .await
}

#[tokio::test]
async fn row_P1_a_client_sends_message_and_session_id_only_and_the_server_owns_the_history() {
    let model = ScriptedModel::saying("Understood.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let first = app
        .http_client()
        .chat("reviewer", &json!({"message": "My name is Ada."}))
        .await;
    assert_eq!(event_kinds(&first), ["started", "text", "done"]);
    let session = session_of(&first);
    assert_eq!(
        get_conversation(&app, &session).await.agent_id,
        "reviewer",
        "without a session id, a session of this agent is created"
    );
    let second = app
        .http_client()
        .chat(
            "reviewer",
            &json!({"message": "Who am I?", "sessionId": session}),
        )
        .await;
    assert_eq!(session_of(&second), session);
    let texts = model.requests()[1].texts();
    assert_eq!(
        texts,
        ["My name is Ada.", "Understood.", "Who am I?"],
        "the client sent no history"
    );
    assert_eq!(get_conversation(&app, &session).await.message_count, 4);
}

#[tokio::test]
async fn row_P2_a_turn_streams_events_and_ends_with_done_which_has_session_id_and_token_estimate() {
    let says = [
        Say::text("Let me "),
        Say::text("look."),
        Say::tool("call-1", "look", r#"{"b":1,"a":1.0}"#),
    ];
    let model = ScriptedModel::start(move |request| Script::says(request, says.clone())).await;
    let app = TestApp::with_scripted_model(&model).await;
    let received = app
        .http_client()
        .chat("a", &json!({"message": "Look!"}))
        .await;
    assert_eq!(
        (
            text_of(&received).as_str(),
            received.iter().all(|event| !event.id.is_empty())
        ),
        ("Let me look.", true)
    );
    let call = received
        .iter()
        .find(|event| event.kind() == "tool_call")
        .expect("the tool call is streamed");
    assert_eq!(
        call.data,
        json!({"type": "tool_call", "id": "call-1", "name": "look", "input": r#"{"b":1,"a":1.0}"#})
    );
    let session = session_of(&received);
    let done = &received.last().expect("there are events").data;
    let stored = get_conversation(&app, &session).await;
    let total = stored.token_total.expect("there is one").tokens;
    assert_eq!(
        (&done["type"], &done["sessionId"]),
        (&json!("done"), &json!(session))
    );
    assert_eq!(
        (&done["tokenEstimate"], &done["messageIds"]),
        (&json!(total), &json!([1, 2]))
    );
    assert_eq!(
        (&done["answerMessageId"], &done["stopReason"]),
        (&json!(2), &json!("tool_use"))
    );
    assert!(
        done["usage"]["inputTokens"]
            .as_u64()
            .is_some_and(|tokens| tokens > 0),
        "{done}"
    );
    assert_eq!(done["model"], json!(anneal_testkit::MODEL));
}

#[tokio::test]
async fn message_context_and_images_of_a_request_become_the_parts_of_one_message() {
    let model = ScriptedModel::saying("Seen.").await;
    let app = TestApp::with_scripted_model_and_media(&model).await;
    let picture = "data:image/png;base64,iVBORw0KGgo=";
    let body = json!({
        "message": "What is\u{0} this?", "context": "File: payment.py", "images": [picture, "https://cdn.example/a.webp"]
    });
    let received = app.http_client().chat("a", &body).await;
    let conversation = TestConversation {
        app: &app,
        id: session_of(&received),
    };
    let parts: Vec<_> = conversation.messages().await[0]
        .parts
        .iter()
        .filter_map(|part| part.part.clone())
        .collect();
    let text = |text: &str| pb::part::Part::Text(pb::TextPart { text: text.into() });
    let media = |uri: &str, media_type: &str| {
        pb::part::Part::Media(pb::MediaPart {
            uri: uri.into(),
            media_type: media_type.into(),
            ..Default::default()
        })
    };
    let pictures = [
        media(picture, "image/png"),
        media("https://cdn.example/a.webp", "image/webp"),
    ];
    assert_eq!(
        parts,
        [
            vec![text("What is\0 this?"), text("File: payment.py")],
            pictures.to_vec()
        ]
        .concat()
    );
}

#[tokio::test]
async fn a_repeated_request_runs_one_turn_in_one_session() {
    let model = ScriptedModel::saying("Once.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let body = json!({"message": "Say it.", "requestId": "r1"});
    let first = app.http_client().chat("a", &body).await;
    let repeated = app.http_client().chat("a", &body).await;
    assert_eq!(
        (session_of(&repeated), text_of(&repeated)),
        (session_of(&first), "Once.".to_owned())
    );
    assert_eq!(
        (
            &repeated.last().expect("done").data["replayed"],
            model.requests().len()
        ),
        (&json!(true), 1)
    );
    let other =
        json!({"message": "Something else.", "requestId": "r1", "sessionId": session_of(&first)});
    let refused =
        HttpResponse::send(app.http_client().json("POST", "/api/agents/a/chat", &other)).await;
    refused.assert_problem(409, "REQUEST_ID_REUSED", "");
}

#[tokio::test]
async fn turns_at_their_concurrency_limit_do_not_block_other_calls() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| Script::says(request, [Say::text("done")]).after(&gate)
    })
    .await;
    let (folder, app) = (Folder::new(), TestApp::start().await);
    let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
    folder.file("anneal.toml", "[server]\nconcurrent_turns = 0\n");
    let refused = anneal.run(&["server"]).await;
    assert!(
        refused.code == Some(1) && refused.err.contains("server.concurrent_turns is 0"),
        "{refused:?}"
    );
    folder.file(
        "anneal.toml",
        &format!(
            "[server]\nconcurrent_turns = 2\nconcurrent_calls = 2\n{}",
            model.server_settings()
        ),
    );
    let (server, _) = anneal.server().await;
    let line = server.wait_for_line("\"http\":\"").await;
    let address = line
        .split("\"http\":\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .expect("an address");
    let web = HttpClient::at(address.parse().expect("an address"));
    let body = json!({"message": "Go."});
    let mut turns = [
        web.open_chat("b", &body).await,
        web.open_chat("b", &body).await,
    ];
    for turn in &mut turns {
        turn.take(1).await;
    }
    let refused = HttpResponse::send(web.json("POST", CHAT, &body)).await;
    refused.assert_problem(429, "OVERLOADED", "");
    assert_eq!(
        list_sessions(&web, "a").await,
        json!([]),
        "other calls are served, and the refused turn created no session"
    );
    assert_eq!(
        list_sessions(&web, "b").await.as_array().map(Vec::len),
        Some(2)
    );
    gate.open_for_ever();
    for turn in turns {
        assert_eq!(turn.rest().await.last().map(SseEvent::kind), Some("done"));
    }
}

#[tokio::test]
async fn a_turn_read_to_its_end_leaves_no_task() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    app.http_client()
        .chat("a", &json!({"message": "warm"}))
        .await;
    let before = tasks();
    for _ in 0..20 {
        app.http_client().chat("a", &json!({"message": "x"})).await;
    }
    // If the tasks of the 20 turns stayed, there would be at least 20 more.
    eventually("the turns' tasks have ended", async || {
        tasks() < before + 10
    })
    .await;
}

#[tokio::test]
async fn an_answer_is_stored_after_its_reader_disconnects() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| Script::says(request, Say::texts(&["half ", "and half"])).gated(&gate)
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let mut events = app
        .http_client()
        .open_chat("a", &json!({"message": "Go."}))
        .await;
    let started = events.take(1).await;
    drop(events);
    gate.open_for_ever();
    let session = session_of(&started);
    let whole = vec![
        (pb::Role::User, "Go.".to_owned()),
        (pb::Role::Assistant, "half and half".to_owned()),
    ];
    eventually("the answer is stored", async || {
        read_texts(&app, &session).await == whole
    })
    .await;
}

#[tokio::test]
async fn a_stalled_reader_does_not_slow_its_turn() {
    let piece = "x".repeat(64 * 1024);
    let model = ScriptedModel::start(move |request| {
        let pieces: Vec<Say> = (0..128).map(|_| Say::text(&piece)).collect();
        Script::says(request, pieces)
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let mut events = app
        .http_client()
        .open_chat("a", &json!({"message": "Much."}))
        .await;
    let started = events.take(1).await;
    let session = session_of(&started);
    eventually(
        "the answer of 8 MiB is stored although nobody reads it",
        async || get_conversation(&app, &session).await.message_count == 2,
    )
    .await;
    assert_eq!(
        text_of(&events.rest().await).len(),
        128 * 64 * 1024,
        "the reader gets the whole answer later"
    );
}

#[tokio::test]
async fn a_model_failure_keeps_the_question_and_sends_an_error_event() {
    let model = ScriptedModel::start(|request| match request.nth {
        0 => Script::status(500, &[], "{}"),
        _ => Script::says(request, [Say::text("Now.")]),
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let received = app
        .http_client()
        .chat("a", &json!({"message": "Now?"}))
        .await;
    assert_eq!(event_kinds(&received), ["started", "error"]);
    let problem = &received[1].data["problem"];
    assert_eq!(
        (&problem["reason"], &problem["status"]),
        (&json!("MODEL_UNAVAILABLE"), &json!(503))
    );
    assert!(problem["retryAfterMs"].is_u64(), "{problem}");
    let session = session_of(&received);
    assert_eq!(
        read_texts(&app, &session).await,
        [(pb::Role::User, "Now?".to_owned())]
    );
    let resumed = app
        .http_client()
        .resume("a", &received[1].id, None)
        .await
        .rest()
        .await;
    assert_eq!(
        (event_kinds(&resumed), text_of(&resumed)),
        (vec!["text", "done"], "Now.".to_owned())
    );
    assert_eq!(read_texts(&app, &session).await.len(), 2);
}

#[tokio::test]
async fn a_refusal_before_the_stream_begins_is_a_plain_response() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| Script::says(request, [Say::text("done")]).after(&gate)
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let mut events = app
        .http_client()
        .open_chat("a", &json!({"message": "one"}))
        .await;
    let session = session_of(&events.take(1).await);
    let second = json!({"message": "two", "sessionId": session});
    let refused = HttpResponse::send(
        app.http_client()
            .json("POST", "/api/agents/a/chat", &second),
    )
    .await;
    refused.assert_problem(409, "TURN_IN_PROGRESS", "");
    assert_eq!(
        (
            refused.header("retry-after"),
            &refused.json()["retryAfterMs"]
        ),
        ("1", &json!(1_000))
    );
    let unknown_model = json!({"message": "x", "model": "no-such-model"});
    let refused = HttpResponse::send(app.http_client().json(
        "POST",
        "/api/agents/a/chat",
        &unknown_model,
    ))
    .await;
    refused.assert_problem(422, "MODEL_NOT_CONFIGURED", "");
    assert_eq!(refused.json()["facts"], json!({"model": "no-such-model"}));
    gate.open_for_ever();
    assert_eq!(text_of(&events.rest().await), "done");
}

#[tokio::test]
async fn another_agents_session_answers_like_a_missing_one() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let session = session_of(
        &app.http_client()
            .chat("a", &json!({"message": "Mine."}))
            .await,
    );
    let mut answers = Vec::new();
    for id in [session.as_str(), "00000000-0000-4000-8000-000000000000"] {
        let body = json!({"message": "Theirs?", "sessionId": id});
        let refused =
            HttpResponse::send(app.http_client().json("POST", "/api/agents/b/chat", &body)).await;
        refused.assert_problem(404, "CONVERSATION_NOT_FOUND", "");
        answers.push(refused.text);
    }
    assert_eq!(
        (answers[0] == answers[1], model.requests().len()),
        (true, 1)
    );
}
