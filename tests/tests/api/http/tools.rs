//! Turns over HTTP with options, tool calls and results of tools.

use anneal_testkit::{HttpResponse, Say, Script, ScriptedModel, SseEvent, TestApp, text_of};
use serde_json::{Value, json};

use crate::http::{CHAT, list_sessions, session_of};

/// A model that calls a tool twice, and answers once it has the results.
async fn model_with_two_calls() -> ScriptedModel {
    ScriptedModel::start(|request| {
        let has_results = request.raw.contains("tool_call_id");
        let says = if has_results {
            vec![Say::text("At nine.")]
        } else {
            vec![
                Say::tool("call_1", "time_in", r#"{"zone":"Europe/Oslo"}"#),
                Say::tool("call_2", "time_in", r#"{"zone":"../lima"}"#),
            ]
        };
        Script::says(request, says)
    })
    .await
}

fn tools() -> Value {
    json!([{"name": "time_in", "description": "Time", "inputSchema": {"type": "object"}}])
}

/// The results of both calls, in the session.
fn results(session: &str) -> Value {
    json!({
        "sessionId": session,
        "tools": tools(),
        "toolResults": [
            {"toolUseId": "call_1", "text": "09:00"},
            {"toolUseId": "call_2", "text": "no such zone", "isError": true},
        ],
    })
}

fn calls(received: &[SseEvent]) -> Vec<&Value> {
    let calls = received.iter().filter(|event| event.kind() == "tool_call");
    calls.map(|event| &event.data["id"]).collect()
}

#[tokio::test]
async fn a_turn_takes_the_results_of_both_calls_in_one_request() {
    let model = model_with_two_calls().await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let body = json!({"message": "What time is it?", "tools": tools(), "temperature": 0.5});
    let asked = web.chat("a", &body).await;
    assert_eq!(calls(&asked), [&json!("call_1"), &json!("call_2")]);
    let session = session_of(&asked);
    let answered = web.chat("a", &results(&session)).await;
    assert_eq!(text_of(&answered), "At nine.");
    let done = &answered.last().expect("there are events").data;
    assert_eq!(
        (&done["messageIds"], &done["stopReason"]),
        (&json!([3, 4]), &json!("done"))
    );
    let requests = model.requests();
    assert_eq!(
        (
            &requests[0].body["tools"][0]["function"]["name"],
            &requests[0].body["temperature"],
            &requests[1].body["temperature"],
        ),
        (&json!("time_in"), &json!(0.5), &Value::Null),
        "options are of one turn"
    );
    let sent = requests[1].body["messages"].as_array().expect("messages");
    let sent: Vec<&Value> = sent
        .iter()
        .filter(|message| message["role"] == "tool")
        .collect();
    assert_eq!(sent.len(), 2);
    assert_eq!(
        (&sent[0]["tool_call_id"], &sent[1]["tool_call_id"]),
        (&json!("call_1"), &json!("call_2"))
    );
    assert!(sent[0].to_string().contains("09:00"), "{sent:?}");
}

#[tokio::test]
async fn a_turn_of_results_is_resumed_without_a_body() {
    let model = model_with_two_calls().await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let body = json!({"message": "What time is it?", "tools": tools()});
    let session = session_of(&web.chat("a", &body).await);
    let body = results(&session);
    let whole = web.chat("a", &body).await;
    for repeated in [None, Some(&body)] {
        let rest = web.resume("a", &whole[0].id, repeated).await.rest().await;
        assert_eq!(text_of(&rest), "At nine.");
        assert_eq!(rest.last().map(SseEvent::kind), Some("done"));
    }
    assert_eq!(model.requests().len(), 2, "a resumption calls no model");
    let other = json!({"sessionId": session, "toolResults": [{"toolUseId": "call_1"}]});
    let refused = web.json("POST", CHAT, &other);
    let refused = HttpResponse::send(refused.header("last-event-id", &whole[0].id)).await;
    refused.assert_problem(409, "REQUEST_ID_REUSED", "");
}

#[tokio::test]
async fn a_question_is_answered_again_and_an_edited_one_is_answered() {
    let model = ScriptedModel::start(|request| {
        Script::says(request, [Say::text(&format!("{}.", request.nth + 1))])
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let first = web.chat("a", &json!({"message": "Well?"})).await;
    assert!(first[0].data.get("alternatives").is_none(), "{first:?}");
    let session = session_of(&first);
    let again = web
        .chat("a", &json!({"sessionId": session, "regenerate": true}))
        .await;
    assert_eq!(
        (text_of(&again).as_str(), &again[0].data["alternatives"]),
        ("2.", &json!(1))
    );
    let rest = web.resume("a", &again[0].id, None).await.rest().await;
    assert_eq!(text_of(&rest), "2.", "the id names the second answer");
    let edit = json!({"sessionId": session, "editMessageId": 1, "message": "And now?"});
    let edited = web.chat("a", &edit).await;
    assert_eq!(text_of(&edited), "3.");
    assert_eq!(model.requests()[2].texts(), ["And now?"]);
    let rest = web.resume("a", &edited[0].id, Some(&edit)).await;
    assert_eq!(text_of(&rest.rest().await), "3.");
    let other = json!({"sessionId": session, "editMessageId": 1, "message": "And then?"});
    for body in [other, json!({})] {
        let refused = web.json("POST", CHAT, &body);
        let refused = HttpResponse::send(refused.header("last-event-id", &edited[0].id)).await;
        refused.assert_problem(409, "REQUEST_ID_REUSED", "");
    }
    let message = web.json("POST", CHAT, &json!({"message": "And then?"}));
    let refused = HttpResponse::send(message.header("last-event-id", &edited[0].id)).await;
    refused.assert_problem(400, "INVALID_FIELD", "Last-Event-ID");
    let read = web.get(&format!("/api/agents/a/sessions/{session}")).await;
    assert_eq!(read.json()["messageCount"], 4, "nothing is stored");
    assert_eq!(model.requests().len(), 3, "a resumption calls no model");
}

#[tokio::test]
async fn refused_options_are_named_as_the_body_names_them() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    for (options, field) in [
        (json!({"tools": [{"name": "a b"}]}), "tools[0].name"),
        (
            json!({"tools": [{"name": "a"}, {"name": "a"}]}),
            "tools[1].name",
        ),
        (
            json!({"tools": [{"name": "a", "inputSchema": []}]}),
            "tools[0].inputSchema",
        ),
        (json!({"toolChoice": {}}), "toolChoice"),
        (
            json!({"toolChoice": {"mode": "auto", "name": "a"}}),
            "toolChoice",
        ),
        (json!({"toolChoice": {"mode": "any"}}), "toolChoice.mode"),
        (json!({"responseFormat": {}}), "responseFormat"),
        (
            json!({"responseFormat": {"jsonObject": false}}),
            "responseFormat.jsonObject",
        ),
        (
            json!({"responseFormat": {"jsonSchema": {"name": "a b", "schema": {}}}}),
            "responseFormat.jsonSchema.name",
        ),
        (json!({"temperature": 2.5}), "temperature"),
        (json!({"topP": -0.5}), "topP"),
        (json!({"stop": [""]}), "stop[0]"),
        (json!({"maxOutputTokens": 0}), "maxOutputTokens"),
        (json!({"reasoningEffort": "vast"}), "reasoningEffort"),
    ] {
        let mut body = options;
        body["message"] = json!("Well?");
        let refused = app.http_client().json("POST", CHAT, &body);
        HttpResponse::send(refused)
            .await
            .assert_problem(400, "INVALID_FIELD", field);
    }
    let listed = list_sessions(&app.http_client(), "a").await;
    assert_eq!(listed, json!([]), "nothing is stored");
    assert!(model.requests().is_empty());
}
