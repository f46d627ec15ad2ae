//! Requests that are refused. None of them calls the model or stores anything.

use anneal_core::caller::Verb;
use anneal_testkit::{MODEL, Script, ScriptedModel, TestApp};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{CONVERSATION, ask, assistant, send, system, user, with};
use crate::openai::{CONVERSATIONS, assert_error, post};

#[tokio::test]
async fn parameters_that_cannot_be_honoured_are_refused_one_by_one() {
    let model = ScriptedModel::saying("Hello.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    for (name, value) in [
        ("n", json!(2)),
        ("logprobs", json!(true)),
        ("top_logprobs", json!(1)),
        ("modalities", json!(["audio"])),
        ("audio", json!({"voice": "alloy", "format": "wav"})),
        ("functions", json!([{"name": "f"}])),
        ("function_call", json!({"name": "f"})),
        ("frequency_penalty", json!(0.1)),
        ("presence_penalty", json!(-2)),
        ("seed", json!(7)),
        ("logit_bias", json!({"1": 1})),
        ("prediction", json!({"type": "content", "content": "a"})),
        ("web_search_options", json!({})),
        ("service_tier", json!("priority")),
        ("verbosity", json!("high")),
        ("metadata", json!({"a": "b"})),
    ] {
        let mut body = ask(&[user("Hi.")]);
        body[name] = value;
        let refused = send(&web, &body, &[]).await;
        assert_error(&refused, 400, name, "unsupported_parameter");
    }
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn requests_that_are_not_understood_are_refused_by_name() {
    let model = ScriptedModel::saying("Hello.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let tool = |function: Value| json!({"tools": [{"type": "function", "function": function}]});
    for (more, param, code) in [
        (
            json!({"model": null}),
            "model",
            "missing_required_parameter",
        ),
        (
            json!({"messages": null}),
            "messages",
            "missing_required_parameter",
        ),
        (
            json!({"messages": [system("a")]}),
            "messages",
            "empty_array",
        ),
        (
            json!({"messages": [user("a"), assistant("b")]}),
            "messages[1].role",
            "invalid_value",
        ),
        (
            json!({"messages": [{"role": "user", "content": "a", "name": "bob"}]}),
            "messages[0].name",
            "unsupported_parameter",
        ),
        (
            json!({"messages": [system("a"), {"role": "tool", "tool_call_id": "", "content": "a"}]}),
            "messages[1]",
            "invalid_value",
        ),
        (json!({"temperature": 3}), "temperature", "invalid_value"),
        (json!({"top_p": 2}), "top_p", "invalid_value"),
        (json!({"stop": ["a", ""]}), "stop[1]", "invalid_value"),
        (
            json!({"max_tokens": 0}),
            "max_tokens",
            "integer_below_min_value",
        ),
        (
            json!({"tool_choice": "required"}),
            "tool_choice",
            "invalid_value",
        ),
        (
            json!({"tools": [{"type": "web_search"}]}),
            "tools[0].type",
            "unsupported_tool",
        ),
        (
            tool(json!({"name": "a b"})),
            "tools[0].function.name",
            "invalid_value",
        ),
        (
            json!({"stream_options": {"include_usage": true}}),
            "stream_options",
            "invalid_value",
        ),
    ] {
        let refused = send(&web, &with(ask(&[user("Hi.")]), &more), &[]).await;
        assert_error(&refused, 400, param, code);
    }
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn an_unknown_model_is_not_found_and_no_conversation_is_left() {
    let model = ScriptedModel::saying("Hello.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    for more in [
        json!({"model": "gpt-unknown"}),
        json!({"model": "gpt-unknown", "stream": true}),
        json!({"model": "gpt-unknown", "store": true}),
    ] {
        let refused = send(&web, &with(ask(&[user("Hi.")]), &more), &[]).await;
        assert_error(&refused, 404, "model", "model_not_found");
        assert_eq!(refused.header(CONVERSATION), "");
    }
    let listed = app
        .conversations()
        .list_conversations(anneal_testkit::pb::ListConversationsRequest::default())
        .await
        .expect("are listed")
        .into_inner();
    assert!(listed.conversations.is_empty());
}

#[tokio::test]
async fn messages_that_are_too_long_for_the_model_are_refused_and_none_is_left_out() {
    let model = ScriptedModel::start(|_| {
        let error = json!({"error": {
            "message": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
            "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded",
        }});
        Script::status(400, &[], &error.to_string())
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let long = ask(&[
        user(&"word ".repeat(8_000)),
        assistant("Yes."),
        user("And?"),
    ]);
    for more in [json!({}), json!({"stream": true})] {
        let refused = send(&web, &with(long.clone(), &more), &[]).await;
        assert_error(&refused, 400, "messages", "context_length_exceeded");
    }
}

#[tokio::test]
async fn a_failure_before_the_answer_begins_has_its_own_status_also_in_a_stream() {
    let model = ScriptedModel::start(|_| Script::status(401, &[], "{}")).await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    for more in [json!({}), json!({"stream": true})] {
        let failed = send(&web, &with(ask(&[user("Hi.")]), &more), &[]).await;
        assert!(failed.status >= 400, "{failed:?}");
        assert!(failed.json()["error"]["code"].is_string(), "{failed:?}");
    }
}

#[tokio::test]
async fn a_foreign_conversation_answers_like_a_missing_one() {
    let model = ScriptedModel::saying("Hello.").await;
    let app = TestApp::with_models_and_keys(model.settings(&[MODEL]), MODEL).await;
    let web = app.http_client();
    let anna = format!("Bearer {}", app.key("anna", &Verb::ALL).await.text);
    let bert = format!("Bearer {}", app.key("bert", &Verb::ALL).await.text);
    let body = ask(&[user("Hi.")]);
    let stored = with(body.clone(), &json!({"store": true}));
    let created = send(&web, &stored, &[("authorization", &bert)]).await;
    let foreign = created.header(CONVERSATION).to_owned();
    assert!(foreign.starts_with("conv_"), "{created:?}");
    let missing = format!("conv_{}", Uuid::nil().as_simple());
    for name in [foreign.as_str(), &missing, "conv_x", "x"] {
        let headers = [("authorization", anna.as_str()), (CONVERSATION, name)];
        let refused = send(&web, &body, &headers).await;
        assert_error(&refused, 404, "", "");
        let text = format!("Conversation with id '{name}' not found.");
        assert_eq!(refused.json()["error"]["message"], text);
        assert_eq!(refused.header(CONVERSATION), "");
    }
    let refused = send(&web, &body, &[("authorization", "Bearer x")]).await;
    assert_error(&refused, 401, "", "invalid_api_key");
    let reader = app.key("anna", &[Verb::Read]).await.text;
    let refused = send(
        &web,
        &body,
        &[("authorization", &format!("Bearer {reader}"))],
    )
    .await;
    assert_error(&refused, 403, "", "insufficient_permissions");
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn a_request_that_names_a_conversation_cannot_ask_for_no_storing() {
    let model = ScriptedModel::saying("Hello.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let created = post(&web, CONVERSATIONS, &json!({})).await.json();
    let id = created["id"].as_str().expect("an id");
    let body = with(ask(&[user("Hi.")]), &json!({"store": false}));
    let refused = send(&web, &body, &[(CONVERSATION, id)]).await;
    assert_error(&refused, 400, "store", "invalid_value");
    let body = with(ask(&[user("Hi.")]), &json!({"metadata": {"a": "b"}}));
    let refused = send(&web, &body, &[(CONVERSATION, id)]).await;
    assert_error(&refused, 400, "metadata", "unsupported_parameter");
    assert!(model.requests().is_empty());
}
