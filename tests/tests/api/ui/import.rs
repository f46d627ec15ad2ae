//! A chat that begins with a history which the server does not know.

use anneal_testkit::{Say, Script, ScriptedModel, TestApp};
use serde_json::{Value, json};

use super::{
    ChunkStream, UI, check_refusal, message_id, messages, outline, regenerate, run, submit, text,
    user,
};

fn answer(id: &str, parts: &Value) -> Value {
    json!({"id": id, "role": "assistant", "parts": parts})
}

/// A history with a file, a tool call and two answers.
fn history() -> Vec<Value> {
    vec![
        json!({"id": "s", "role": "system", "parts": [{"type": "text", "text": "Be brief."}]}),
        json!({"id": "u1", "role": "user", "metadata": {"at": 1}, "parts": [
            {"type": "text", "text": "What time is it?"},
            {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AA==", "filename": "a.png"},
        ]}),
        answer(
            "a1",
            &json!([
                {"type": "step-start"},
                {"type": "text", "text": "I look."},
                {"type": "tool-time", "toolCallId": "c1", "state": "output-available", "input": {"z": 1}, "output": "09:00"},
                {"type": "step-start"},
                {"type": "text", "text": "Nine."},
            ]),
        ),
        user("u2", "Thanks."),
        answer("a2", &json!([{"type": "text", "text": "Welcome."}])),
    ]
}

#[tokio::test]
async fn a_history_is_kept_before_the_first_turn_and_once() {
    let model = ScriptedModel::saying("Bye.").await;
    let app = TestApp::with_scripted_model_and_media(&model).await;
    let web = app.http_client();
    let mut all = history();
    all.push(user("u3", "See you."));
    for _ in 0..2 {
        let chunks = run(&web, &submit("c", &all)).await;
        let stored = messages(&web, &chunks).await;
        assert_eq!(
            outline(&stored),
            [
                ("system", "Be brief."),
                ("user", "What time is it?"),
                ("assistant", "I look."),
                ("tool", "09:00"),
                ("assistant", "Nine."),
                ("user", "Thanks."),
                ("assistant", "Welcome."),
                ("user", "See you."),
                ("assistant", "Bye."),
            ]
        );
        let labels = &stored[1]["metadata"];
        assert_eq!(
            (&labels["ai_sdk.metadata"], &labels["ai_sdk.file_names"]),
            (&json!(r#"{"at":1}"#), &json!(r#"["a.png"]"#))
        );
    }
    assert_eq!(model.requests().len(), 1);
    assert!(
        model.requests()[0].raw.contains("Welcome."),
        "the model has the history"
    );
    // An answer of the client's own is answered anew.
    let again = run(&web, &regenerate("c", &history()[..4], "a2")).await;
    let stored = messages(&web, &again).await;
    assert_eq!(outline(&stored).last(), Some(&("assistant", "Bye.")));
    assert_eq!(stored.len(), 7, "{stored:?}");
}

#[tokio::test]
async fn a_history_that_ends_in_outputs_of_tools_is_continued() {
    let model = ScriptedModel::start(|request| {
        let says = if request.raw.contains("09:00") {
            "Nine."
        } else {
            "Unknown."
        };
        Script::says(request, [Say::text(says)])
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let called = answer(
        "a1",
        &json!([
            {"type": "step-start"},
            {"type": "tool-time", "toolCallId": "c1", "state": "output-available", "input": {}, "output": "09:00"},
        ]),
    );
    let chunks = run(
        &web,
        &submit("c", &[user("u1", "What time is it?"), called]),
    )
    .await;
    assert_eq!(
        (text(&chunks), message_id(&chunks)),
        ("Nine.".into(), "a1".into())
    );
    let stored = messages(&web, &chunks).await;
    let roles: Vec<&Value> = stored.iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
}

#[tokio::test]
async fn a_long_history_is_kept_whole() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let mut all = Vec::new();
    for number in 0..120 {
        all.push(user(&format!("u{number}"), "a"));
        all.push(answer(
            &format!("a{number}"),
            &json!([{"type": "text", "text": "b"}]),
        ));
    }
    all.push(user("last", "Well?"));
    let mut stream = ChunkStream::post(&web, &submit("c", &all)).await;
    let chunks = stream.read_until("finish").await;
    assert_eq!(messages(&web, &chunks).await.len(), 242);
}

#[tokio::test]
async fn a_history_with_parts_that_are_not_modelled_is_refused_and_nothing_is_kept() {
    let model = ScriptedModel::saying("never").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    for (part, words) in [
        (
            json!({"type": "source-url", "sourceId": "1", "url": "https://e.org"}),
            "source-url",
        ),
        (json!({"type": "data-weather", "data": {}}), "data-weather"),
        (
            json!({"type": "reasoning-file", "mediaType": "a/b", "url": "data:,"}),
            "reasoning-file",
        ),
        (
            json!({"type": "tool-x", "toolCallId": "1", "state": "approval-requested", "input": {}}),
            "approvals",
        ),
        (
            json!({"type": "tool-x", "toolCallId": "1", "state": "output-available",
                   "providerExecuted": true, "input": {}, "output": 1}),
            "provider",
        ),
    ] {
        let all = [
            user("u1", "One?"),
            answer("a1", &json!([part])),
            user("u2", "Two?"),
        ];
        check_refusal(web.json("POST", UI, &submit("c", &all)), 400, words).await;
    }
    assert!(model.requests().is_empty());
}
