//! Parameters of a request: sent, shown, counted, refused.

use anneal_testkit::{MODEL, ReportedUsage, Script, ScriptedModel, TestApp, pb};
use serde_json::{Value, json};

use super::{RESPONSES, create, create_stream, id_of, retrieve, tool};
use crate::openai::{assert_error, post};

/// The path of counts.
const COUNT: &str = "/v1/responses/input_tokens";

#[tokio::test]
async fn the_model_gets_only_the_tools_that_it_may_call() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let allowed = json!({
        "type": "allowed_tools", "mode": "required",
        "tools": [{"type": "function", "name": "look"}],
    });
    let body = json!({
        "input": "Look.", "tools": [tool("look"), tool("drop")], "tool_choice": allowed,
    });
    let response = create(&web, &body).await;
    let sent = &model.requests()[0].body;
    let names = |tools: &Value, path: &str| -> Vec<String> {
        let tools = tools.as_array().expect("a list").iter();
        tools
            .map(|tool| tool.pointer(path).expect("a name").to_string())
            .collect()
    };
    assert_eq!(names(&sent["tools"], "/function/name"), [r#""look""#]);
    assert_eq!(sent["tool_choice"], "required");
    assert_eq!(names(&response["tools"], "/name"), [r#""look""#]);
    assert_eq!(response["tool_choice"], allowed);
    // The model has called none, although it must.
    assert_eq!(response["status"], "failed");
}

#[tokio::test]
async fn the_tokens_of_thoughts_are_those_of_the_provider() {
    let usage = ReportedUsage {
        input: 40,
        output: 9,
        reasoning: 6,
        ..ReportedUsage::default()
    };
    let model = ScriptedModel::start(move |_| Script::openai(&["Yes."], usage)).await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let thoughts = |response: &Value| {
        let usage = &response["usage"];
        (
            usage["output_tokens"].as_u64(),
            usage["output_tokens_details"]["reasoning_tokens"].as_u64(),
        )
    };
    let expected = (Some(9), Some(6));
    let response = create(&web, &json!({"input": "a"})).await;
    assert_eq!(thoughts(&response), expected);
    assert_eq!(retrieve(&web, &id_of(&response)).await, response);
    let events = create_stream(&web, json!({"input": "a", "store": false})).await;
    let last = events.last().expect("has events");
    assert_eq!(thoughts(&last["response"]), expected);
}

#[tokio::test]
async fn what_cannot_be_honoured_is_refused_by_name() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    for (body, param, code) in [
        (json!({"input": ""}), "input", "empty_string"),
        (json!({"input": []}), "input", "empty_array"),
        (
            json!({"input": "a", "tools": [tool("look"), tool("look")]}),
            "tools[1].name",
            "invalid_value",
        ),
        (
            json!({"input": "a", "max_output_tokens": 1_u64 << 40}),
            "max_output_tokens",
            "integer_above_max_value",
        ),
        (
            json!({"input": "a", "reasoning": {"effort": "minimal"}}),
            "reasoning.effort",
            "invalid_value",
        ),
    ] {
        for path in [RESPONSES, COUNT] {
            // A count may be of nothing but the instructions and the tools.
            if path == RESPONSES || code != "empty_array" {
                assert_error(&post(&web, path, &body).await, 400, param, code);
            }
        }
    }
    let function = json!({"type": "function", "function": {"name": "look"}});
    let chat = json!({
        "model": MODEL, "messages": [{"role": "user", "content": "a"}],
        "tools": [function, function],
    });
    let refused = post(&web, "/v1/chat/completions", &chat).await;
    assert_error(&refused, 400, "tools[1].function.name", "invalid_value");
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn the_tokens_of_a_long_input_and_of_a_branch_are_counted() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let count = async |body: &Value| {
        let counted = post(&web, COUNT, body).await;
        assert_eq!(counted.status, 200, "{counted:?}");
        counted.json()["input_tokens"]
            .as_u64()
            .expect("is a number")
    };
    let messages = |number: usize| vec![json!({"role": "user", "content": "one word"}); number];
    let one = count(&json!({"input": messages(1)})).await;
    assert_eq!(count(&json!({"input": messages(101)})).await, 101 * one);
    let conversation = app
        .conversation_with(pb::CreateConversationRequest {
            system_prompt: "one word ".repeat(100),
            ..Default::default()
        })
        .await;
    let id = format!("conv_{}", conversation.uuid().as_simple());
    let body = json!({"input": messages(201), "conversation": id});
    assert!(count(&body).await > 101 * one);
    let first = create(&web, &json!({"input": "one", "conversation": id})).await;
    create(&web, &json!({"input": "two", "conversation": id})).await;
    // The conversation has gone on, so the response would be one of a fork.
    let mut body = json!({"input": "three", "previous_response_id": id_of(&first)});
    let inherited = count(&body).await;
    // Nothing of the conversation but its messages is sent if nothing is stored.
    body["store"] = json!(false);
    let unstored = count(&body).await;
    body["store"] = json!(true);
    body["instructions"] = json!("Be brief.");
    let own = count(&body).await;
    assert!(inherited > own + 100, "{inherited} {own}");
    assert!(own > unstored, "{own} {unstored}");
}
