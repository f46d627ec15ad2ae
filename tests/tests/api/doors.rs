//! One conversation through all protocols: each door reads, continues and counts what the others
//! have written, and the model gets the same context through each.

use anneal_testkit::{
    Built, HttpClient, HttpResponse, ImportFolder, MODEL, ModelRequest, Rendered, Say, Script,
    ScriptedModel, TestApp, TestConversation, appended_ids, pb,
};
use pb::{Format, conversation_event::Event};
use serde_json::{Value, json};

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

/// The chat of the AI SDK whose conversation it is.
const CHAT: &str = "c";

/// A model that calls a tool first, and then numbers its answers.
async fn start_model() -> ScriptedModel {
    ScriptedModel::start(|request| {
        let says = if request.nth == 0 {
            vec![
                Say::text("I look."),
                Say::tool("call_1", "look", r#"{"at":"世界"}"#),
            ]
        } else {
            vec![Say::text(&format!("Answer {}.", request.nth))]
        };
        Script::says(request, says)
    })
    .await
}

async fn post(web: &HttpClient, path: &str, body: &Value) -> HttpResponse {
    let answer = HttpResponse::send(web.json("POST", path, body)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer
}

/// The context that ends with these messages, recorded nowhere.
async fn preview(
    conversation: &TestConversation<'_>,
    input: &[pb::NewMessage],
    format: Format,
) -> Built {
    let ask = pb::BuildContextRequest {
        current_input: input.to_vec(),
        format: format.into(),
        dry_run: true,
        ..Default::default()
    };
    conversation.build(ask).await.expect("is built")
}

/// A conversation that several doors continue.
struct Doors<'a> {
    model: &'a ScriptedModel,
    web: HttpClient,
    conversation: TestConversation<'a>,
    /// The same one at another server.
    elsewhere: TestConversation<'a>,
}

impl Doors<'_> {
    /// The id of the conversation in OpenAI's protocol.
    fn id(&self) -> String {
        format!("conv_{}", self.conversation.uuid().as_simple())
    }

    /// Asserts that contexts with this question are the same at both servers, and in all formats
    /// say the same. Then asks it through a door, and asserts that the model got this context.
    async fn ask(
        &self,
        question: pb::NewMessage,
        input: &Value,
        send: impl AsyncFnOnce(&Self) -> HttpResponse,
    ) -> HttpResponse {
        let question = [question];
        let neutral = preview(&self.conversation, &question, Format::Unspecified).await;
        let elsewhere = preview(&self.elsewhere, &question, Format::Unspecified).await;
        assert!(neutral == elsewhere, "{neutral:#?} {elsewhere:#?}");
        let formats = [
            Format::OpenaiChat,
            Format::AnthropicMessages,
            Format::GeminiContents,
        ];
        for format in formats {
            let built = preview(&self.elsewhere, &question, format).await;
            let rendered = Rendered::read(&built, format).expect("is rendered");
            assert_eq!(rendered.refusals(), Vec::<String>::new(), "{format:?}");
            assert_eq!(built.0.manifest, neutral.0.manifest, "{format:?}");
            for (_, text) in neutral.texts_by_role() {
                for text in text.split("\n\n").filter(|text| !text.starts_with('{')) {
                    assert!(rendered.says(text), "{format:?}: {text}");
                }
            }
        }
        let count = json!({"conversation": self.id(), "input": [input]});
        let counted = post(&self.web, "/v1/responses/input_tokens", &count).await;
        assert_eq!(counted.json()["input_tokens"], neutral.0.total_tokens);
        let openai = preview(&self.elsewhere, &question, Format::OpenaiChat).await;
        let rendered = Rendered::read(&openai, Format::OpenaiChat).expect("is rendered");
        let answer = send(self).await;
        let asked: ModelRequest = self.model.requests().pop().expect("the model was asked");
        assert_eq!(asked.body["messages"], rendered.body["messages"]);
        answer
    }
}

/// An item of the user's text.
fn item(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// The texts of the items of a conversation, oldest first.
async fn texts_of_items(web: &HttpClient, id: &str) -> Vec<String> {
    let path = format!("/v1/conversations/{id}/items?order=asc&limit=100");
    let listed = web.get(&path).await.json();
    let items = listed["data"].as_array().expect("a list");
    let texts = items.iter().map(|item| match item["type"].as_str() {
        Some("function_call") => item["arguments"].clone(),
        Some("function_call_output") => item["output"].clone(),
        _ => item["content"][0]["text"].clone(),
    });
    texts
        .map(|text| text.as_str().expect("a text").to_owned())
        .collect()
}

/// The texts of the messages of a session over HTTP, in order.
async fn texts_of_session(web: &HttpClient, id: &str) -> Vec<String> {
    let read = web
        .get(&format!("/api/agents/a/sessions/{id}"))
        .await
        .json();
    let messages = read["messages"].as_array().expect("a list").iter();
    let parts = messages.flat_map(|message| message["content"].as_array().into_iter().flatten());
    parts
        .map(|part| {
            let text = [&part["text"], &part["input"], &part["content"]];
            match text.into_iter().find(|text| !text.is_null()) {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => panic!("a part without content: {part}"),
            }
        })
        .collect()
}

/// The texts of the parts of messages, in order.
fn texts_of_messages(messages: &[pb::Message]) -> Vec<String> {
    use pb::part::Part;
    let parts = messages.iter().flat_map(|message| &message.parts);
    parts
        .filter_map(|part| match part.part.as_ref()? {
            Part::Text(part) => Some(part.text.clone()),
            Part::ToolUse(part) => Some(part.input.clone()),
            Part::ToolResult(part) => Some(part.text.clone()),
            other => panic!("not written by any door: {other:?}"),
        })
        .collect()
}

/// Exports a conversation as lines of JSON. Asserts that they are the same conversation once they
/// are imported, and that the conversation is intact.
async fn assert_export_is_the_same(
    app: &TestApp,
    conversation: &TestConversation<'_>,
    texts: &[String],
) {
    let imports = ImportFolder::new(BINARY, app);
    let file = "exported.jsonl";
    let export = [&*conversation.id, "--format", "openai", "--output", file];
    imports.export(&export).await;
    let exported = imports
        .import_ok(&[file, "--format", "openai", "--user", "other"])
        .await;
    assert_eq!(exported.len(), 1);
    assert_eq!(texts_of_messages(&exported[0].messages().await), texts);
    let lines = imports.folder.path().join(file);
    let lines = std::fs::read_to_string(lines).expect("was written");
    for line in lines.lines() {
        serde_json::from_str::<Value>(line).expect("each line is JSON");
    }
    let same = preview(&exported[0], &[], Format::OpenaiChat).await;
    let own = preview(conversation, &[], Format::OpenaiChat).await;
    assert_eq!(same.0.rendered, own.0.rendered);
    conversation.verify().await;
    let verify = imports.arguments("verify", &[&conversation.id]);
    let verified = imports.anneal.run(&verify).await;
    assert_eq!(verified.code, Some(0), "{verified:?}");
}

#[tokio::test]
async fn one_conversation_is_written_watched_continued_exported_and_counted_through_all_doors() {
    let model = start_model().await;
    let app = TestApp::with_scripted_model(&model).await;
    let second_server = app.second_server().await;
    let scope = pb::SessionScope {
        agent_id: "a".into(),
        channel: "ai-sdk".into(),
        group_id: CHAT.into(),
        ..Default::default()
    };
    let session = app.resolve(&scope).await.expect("resolves");
    let conversation = app.conversation_of(&session);
    let elsewhere = second_server.conversation_by_id(&conversation.id);
    let mut watch = elsewhere.watch_after(0).await;
    let doors = Doors {
        model: &model,
        web: app.http_client(),
        conversation: conversation.clone(),
        elsewhere: elsewhere.clone(),
    };
    let (web, id) = (&doors.web, doors.id());

    // Responses, with a call of a tool.
    let tools = json!([{"type": "function", "name": "look", "parameters": {"type": "object"}}]);
    let body = json!({"conversation": id, "input": "How is it?", "tools": tools});
    let response = post(web, "/v1/responses", &body).await.json();
    let call_id = response["output"][1]["call_id"].clone();
    let output = json!({"type": "function_call_output", "call_id": call_id, "output": "warm"});
    let body = json!({"conversation": id, "input": [output], "tools": tools});
    let response = post(&second_server.http_client(), "/v1/responses", &body).await;
    assert_eq!(response.json()["status"], "completed", "{response:?}");

    let text = "And tomorrow?";
    doors
        .ask(anneal_testkit::user(text), &item(text), async |doors| {
            let body = json!({"conversation": doors.id(), "input": text});
            post(&doors.web, "/v1/responses", &body).await
        })
        .await;
    let text = "Shall I go?";
    let streamed = doors
        .ask(anneal_testkit::user(text), &item(text), async |doors| {
            let message =
                json!({"id": "u1", "role": "user", "parts": [{"type": "text", "text": text}]});
            let body = json!({"id": CHAT, "messages": [message], "trigger": "submit-message"});
            post(&doors.web, "/api/agents/a/ui", &body).await
        })
        .await;
    assert!(streamed.text.contains("Answer 3."), "{streamed:?}");
    assert!(streamed.text.contains(&conversation.id), "{streamed:?}");
    let text = "Now?";
    doors
        .ask(anneal_testkit::user(text), &item(text), async |doors| {
            let messages = json!([
                {"role": "assistant", "content": "Answer 3."},
                {"role": "user", "content": text},
            ]);
            let body = json!({"model": MODEL, "messages": messages});
            let request = doors.web.json("POST", "/v1/chat/completions", &body);
            let answer = HttpResponse::send(request.header("anneal-conversation", doors.id()));
            let answer = answer.await;
            assert_eq!(answer.status, 200, "{answer:?}");
            answer
        })
        .await;
    let outcome = elsewhere.chat("Sure?").await;
    assert_eq!(outcome.text(), "Answer 5.");

    // Every door reads the same.
    let stored = conversation.messages().await;
    let texts = texts_of_messages(&stored);
    assert_eq!(
        texts,
        [
            "How is it?",
            "I look.",
            r#"{"at":"世界"}"#,
            "warm",
            "Answer 1.",
            "And tomorrow?",
            "Answer 2.",
            "Shall I go?",
            "Answer 3.",
            "Now?",
            "Answer 4.",
            "Sure?",
            "Answer 5.",
        ]
    );
    assert_eq!(texts_of_items(web, &id).await, texts);
    assert_eq!(texts_of_session(web, &conversation.id).await, texts);
    let newest = stored.last().expect("has messages").message_id;
    let events = watch
        .until(|event| {
            matches!(event, Event::MessageAppended(message) if message.message_id == newest)
        })
        .await;
    let ids: Vec<i64> = stored.iter().map(|message| message.message_id).collect();
    assert_eq!(appended_ids(&events), ids);
    let watched: Vec<pb::Message> = events
        .into_iter()
        .filter_map(|event| match event {
            Event::MessageAppended(message) => Some(message),
            _ => None,
        })
        .collect();
    assert_eq!(texts_of_messages(&watched), texts);
    assert_export_is_the_same(&app, &conversation, &texts).await;
    elsewhere.verify().await;
}
