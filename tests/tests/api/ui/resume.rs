//! Resuming a chat: the whole answer from its beginning, at any server, for several readers.

use anneal_core::caller::Verb;
use anneal_testkit::{Gate, HttpResponse, Say, Script, ScriptedModel, TestApp, eventually, pb};
use serde_json::{Value, json};

use super::{
    ChunkStream, UI, kinds, message_id, messages, outline, regenerate, resume_path, run, submit,
    text, user,
};

/// A model whose answers come word by word, as the gate opens. The first piece is the role alone.
async fn gated_model() -> (Gate, ScriptedModel) {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| Script::says(request, Say::texts(&["one ", "two ", "three"])).gated(&gate)
    })
    .await;
    (gate, model)
}

async fn assert_nothing_to_resume(app: &TestApp, chat: &str) {
    let nothing = app.http_client().get(&resume_path(chat)).await;
    assert_eq!((nothing.status, nothing.text.as_str()), (204, ""));
}

#[tokio::test]
async fn readers_that_come_back_get_the_whole_answer_and_what_is_still_to_come() {
    let (gate, model) = gated_model().await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let second_server = app.second_server().await;
    let web = app.http_client();
    let mut stream = ChunkStream::post(&web, &submit("c", &[user("u1", "Tell me.")])).await;
    // The role and the first word.
    gate.open(2);
    let before = stream.read_until("text-delta").await;
    drop(stream);
    let resume = |web: &anneal_testkit::HttpClient| web.request("GET", &resume_path("c"));
    let mut first = ChunkStream::open(resume(&web)).await;
    let replayed = first.read_until("text-delta").await;
    assert_eq!(replayed, before, "the replay has the same beginning");
    let second = ChunkStream::open(resume(&web)).await;
    let elsewhere = ChunkStream::open(resume(&second_server.http_client())).await;
    gate.open_for_ever();
    let mut chunks = replayed;
    chunks.extend(first.rest().await);
    assert_eq!(text(&chunks), "one two three");
    for other in [second.rest().await, elsewhere.rest().await] {
        assert_eq!(
            (text(&other), message_id(&other), kinds(&other)),
            (text(&chunks), message_id(&chunks), kinds(&chunks))
        );
    }
    assert_eq!(model.requests().len(), 1);
    for app in [&app, &second_server] {
        assert_nothing_to_resume(app, "c").await;
    }
}

#[tokio::test]
async fn another_answer_an_edit_and_a_continued_message_are_resumed_too() {
    // One for each answer: what one turn leaves open must not let the next one pass.
    let gates: [Gate; 3] = std::array::from_fn(|_| Gate::default());
    let model = ScriptedModel::start({
        let gates = gates.clone();
        move |request| match request.nth.checked_sub(1) {
            None => Script::says(request, [Say::tool("call_1", "look", "{}")]),
            Some(nth) => Script::says(request, [Say::text(&format!("{nth}."))]).gated(&gates[nth]),
        }
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let web = app.http_client();
    let tools = json!([{"name": "look", "description": "", "inputSchema": {"type": "object"}}]);
    let u1 = user("u1", "Tell me.");
    let mut body = submit("c", std::slice::from_ref(&u1));
    body["tools"] = tools.clone();
    let id = message_id(&run(&web, &body).await);
    let answer = json!({"id": id, "role": "assistant", "parts": [
        {"type": "step-start"},
        {"type": "tool-look", "toolCallId": "call_1", "state": "output-available", "input": {}, "output": "x"},
    ]});
    let mut continued = submit("c", &[u1.clone(), answer]);
    continued["tools"] = tools;
    let mut edited = submit("c", &[user("u1", "Tell me more.")]);
    edited["messageId"] = json!("u1");
    let anew = regenerate("c", std::slice::from_ref(&u1), &id);
    let bodies = [(continued, "0."), (anew, "1."), (edited, "2.")];
    for ((body, expected), gate) in bodies.into_iter().zip(&gates) {
        let mut stream = ChunkStream::post(&web, &body).await;
        let begun = stream.read_until("start").await;
        drop(stream);
        let resumed = ChunkStream::open(web.request("GET", &resume_path("c"))).await;
        gate.open_for_ever();
        let chunks = resumed.rest().await;
        assert_eq!(
            (text(&chunks), message_id(&chunks)),
            (expected.to_owned(), message_id(&begun)),
            "{body}"
        );
        assert_nothing_to_resume(&app, "c").await;
    }
    assert_eq!(model.requests().len(), 4);
}

#[tokio::test]
async fn the_turn_goes_on_when_its_reader_leaves() {
    let (gate, model) = gated_model().await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let web = app.http_client();
    let mut stream = ChunkStream::post(&web, &submit("c", &[user("u1", "Tell me.")])).await;
    let begun = stream.read_until("start").await;
    drop(stream);
    gate.open_for_ever();
    eventually("the answer is stored", async || {
        messages(&web, &begun).await.len() == 2
    })
    .await;
    let stored = messages(&web, &begun).await;
    assert_eq!(outline(&stored)[1], ("assistant", "one two three"));
}

#[tokio::test]
async fn a_turn_whose_server_has_died_is_run_again() {
    let model = ScriptedModel::start(|request| {
        if request.nth == 0 {
            Script::hang()
        } else {
            Script::says(request, [Say::text("Here it is.")])
        }
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let second_server = app.second_server().await;
    let mut stream =
        ChunkStream::post(&app.http_client(), &submit("c", &[user("u1", "Tell me.")])).await;
    let begun = stream.read_until("start").await;
    model.wait_for_calls(1).await;
    // The lease of a server that has died is not renewed.
    sqlx::query("delete from ai_model_lease")
        .execute(&mut app.db().await)
        .await
        .expect("deletes");
    let web = second_server.http_client();
    let resumed = ChunkStream::open(web.request("GET", &resume_path("c"))).await;
    let chunks = resumed.rest().await;
    assert_eq!(
        (text(&chunks), message_id(&chunks)),
        ("Here it is.".to_owned(), message_id(&begun))
    );
    assert_nothing_to_resume(&second_server, "c").await;
}

#[tokio::test]
async fn nothing_is_to_be_resumed_where_no_turn_of_this_door_waits_for_its_answer() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    for chat in ["unknown", "%00", "%2F", &"x".repeat(200)] {
        assert_nothing_to_resume(&app, chat).await;
    }
    let answered = run(&web, &submit("c", &[user("u1", "Well?")])).await;
    assert_nothing_to_resume(&app, "c").await;
    let other_agent = web.get("/api/agents/b/ui/c/stream").await;
    assert_eq!(other_agent.status, 204);
    // A message that was appended is no turn.
    let id = answered[0]["messageMetadata"]["conversationId"]
        .as_str()
        .expect("an id");
    let appended = pb::AppendMessagesRequest {
        conversation_id: id.to_owned(),
        messages: vec![anneal_proto::convert::message::text_message(
            pb::Role::User,
            "Hm.",
        )],
        ..Default::default()
    };
    app.messages()
        .append_messages(appended)
        .await
        .expect("appends");
    assert_nothing_to_resume(&app, "c").await;
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn a_chat_of_another_tenant_is_unknown() {
    let model = ScriptedModel::saying("Secret.").await;
    let app = TestApp::with_models_and_keys(model.settings(&["m"]), "m").await;
    let web = app.http_client();
    let verbs = [Verb::Read, Verb::Append];
    let anna = app.key("anna", &verbs).await;
    let bert = app.key("bert", &verbs).await;
    let post = |key: &str, message: Value| {
        let request = web.json("POST", UI, &submit("c", &[message]));
        ChunkStream::open(request.bearer_auth(key))
    };
    let first = post(&anna.text, user("u1", "Well?")).await.rest().await;
    let foreign = web
        .request("GET", &resume_path("c"))
        .bearer_auth(&bert.text);
    assert_eq!(HttpResponse::send(foreign).await.status, 204);
    let other = post(&bert.text, user("u1", "Well?")).await.rest().await;
    assert_ne!(
        message_id(&first),
        message_id(&other),
        "another conversation"
    );
    assert_eq!(model.requests().len(), 2);
    let reader = app.key("anna", &[Verb::Read]).await;
    for (method, path) in [("POST", UI.to_owned()), ("GET", resume_path("c"))] {
        let refused = web.json(method, &path, &submit("c", &[user("u2", "Hm?")]));
        let refused = HttpResponse::send(refused.bearer_auth(&reader.text)).await;
        assert_eq!(refused.status, 403, "{refused:?}");
    }
}
