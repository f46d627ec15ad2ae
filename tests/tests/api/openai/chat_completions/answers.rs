//! Whole and streamed answers of which nothing is stored.

use anneal_llm::provider::Api;
use anneal_testkit::{Canary, MODEL, ReportedUsage, Say, Script, ScriptedModel, TestApp};
use serde_json::{Value, json};

use super::{CONVERSATION, ask, assistant, chunks_of, message_of, send, system, user, with};

#[tokio::test]
async fn the_model_gets_the_messages_of_the_request_and_the_answer_has_its_usage() {
    let usage = ReportedUsage {
        input: 40,
        cached: 8,
        output: 5,
        reasoning: 3,
        ..ReportedUsage::default()
    };
    let model = ScriptedModel::start(move |_| Script::openai(&["Hel", "lo."], usage)).await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let messages = [
        system("Be brief."),
        json!({"role": "developer", "content": [{"type": "text", "text": "Be kind."}]}),
        user("Hi."),
        assistant("Hello?"),
        user("Hi again."),
    ];
    let body = with(
        ask(&messages),
        &json!({"temperature": 0.5, "max_tokens": 20}),
    );
    let answer = send(&web, &body, &[]).await;
    assert_eq!(
        message_of(&answer),
        json!({"role": "assistant", "content": "Hello.", "refusal": null, "annotations": []})
    );
    let completion = answer.json();
    assert_eq!(
        (&completion["object"], &completion["model"]),
        (&json!("chat.completion"), &json!(MODEL))
    );
    assert_eq!(completion["choices"][0]["finish_reason"], "stop");
    assert!(completion["created"].as_i64() > Some(1_700_000_000));
    assert_eq!(
        completion["usage"],
        json!({
            "prompt_tokens": 40, "completion_tokens": 5, "total_tokens": 45,
            "prompt_tokens_details": {"cached_tokens": 8},
            "completion_tokens_details": {"reasoning_tokens": 3},
        })
    );
    assert_eq!(answer.header(CONVERSATION), "");
    assert_eq!(answer.header("x-anneal-ignored-parameters"), "");
    let sent = &model.requests()[0];
    assert_eq!(
        sent.texts(),
        ["Be brief.\n\nBe kind.", "Hi.", "Hello?", "Hi again."]
    );
    assert_eq!(sent.body["temperature"], 0.5);
}

#[tokio::test]
async fn an_answer_is_streamed_in_chunks_and_with_its_usage_if_that_is_asked_for() {
    let usage = ReportedUsage {
        input: 7,
        output: 3,
        ..ReportedUsage::default()
    };
    let says = [
        Say::thought("Hm."),
        Say::text("I "),
        Say::text("look."),
        Say::tool("call-1", "look", "{\"b\": 1.0}"),
    ];
    let model =
        ScriptedModel::start(move |_| Script::says_counted(Api::OpenAi, &says, usage)).await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let tools = json!({"stream": true, "tools": [
        {"type": "function", "function": {"name": "look", "strict": true}},
    ]});
    let body = with(ask(&[user("Look.")]), &tools);
    let answer = send(&web, &body, &[]).await;
    assert_eq!(
        answer.header("x-anneal-ignored-parameters"),
        "tools[].function.strict"
    );
    let chunks = chunks_of(&answer);
    let text: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(text, "I look.");
    assert_eq!(
        chunks[0]["choices"][0]["delta"],
        json!({"role": "assistant", "content": "", "refusal": null})
    );
    let calls: Vec<&Value> = chunks
        .iter()
        .map(|chunk| &chunk["choices"][0]["delta"]["tool_calls"])
        .filter(|calls| !calls.is_null())
        .collect();
    assert_eq!(
        calls,
        [&json!([{
            "index": 0, "id": "call-1", "type": "function",
            "function": {"name": "look", "arguments": "{\"b\": 1.0}"},
        }])]
    );
    let last = chunks.last().expect("there are chunks");
    assert_eq!(last["choices"][0]["finish_reason"], "tool_calls");
    for chunk in &chunks {
        assert_eq!(
            (&chunk["id"], &chunk["object"], &chunk["model"]),
            (&last["id"], &json!("chat.completion.chunk"), &json!(MODEL))
        );
        assert_eq!(chunk.get("usage"), None);
    }

    let asks_usage = json!({"stream_options": {"include_usage": true}});
    let chunks = chunks_of(&send(&web, &with(body, &asks_usage), &[]).await);
    let (last, others) = chunks.split_last().expect("there are chunks");
    assert_eq!(
        (&last["choices"], &last["usage"]["total_tokens"]),
        (&json!([]), &json!(10))
    );
    assert!(
        others
            .iter()
            .all(|chunk| chunk.get("usage") == Some(&Value::Null))
    );
}

#[tokio::test]
async fn a_call_is_answered_by_the_result_in_the_next_request() {
    let model = ScriptedModel::start(|asked| match asked.nth {
        0 => Script::says(asked, [Say::tool("call-1", "add", "{\"a\": 1}")]),
        _ => Script::says(asked, [Say::text("It is 2.")]),
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let tools = json!({
        "tools": [{"type": "function", "function": {
            "name": "add", "description": "Adds.",
            "parameters": {"type": "object", "properties": {"a": {"type": "number"}}},
        }}],
        "tool_choice": "auto",
        "parallel_tool_calls": false,
    });
    let first = send(&web, &with(ask(&[user("1 + 1?")]), &tools), &[]).await;
    assert_eq!(first.json()["choices"][0]["finish_reason"], "tool_calls");
    let called = message_of(&first);
    assert_eq!(
        (
            &called["content"],
            &called["tool_calls"][0]["function"]["name"]
        ),
        (&Value::Null, &json!("add"))
    );
    let result = json!({"role": "tool", "tool_call_id": "call-1", "content": "2"});
    let second = send(
        &web,
        &with(ask(&[user("1 + 1?"), called, result]), &tools),
        &[],
    )
    .await;
    assert_eq!(message_of(&second)["content"], "It is 2.");
    let sent = &model.requests()[1].body;
    assert_eq!(sent["tools"][0]["function"]["description"], "Adds.");
    assert_eq!(sent["tool_choice"], "auto");
    let messages = sent["messages"].as_array().expect("a list");
    let roles = messages
        .iter()
        .filter_map(|message| message["role"].as_str());
    let roles: Vec<&str> = roles.collect();
    assert_eq!(roles, ["user", "assistant", "tool"]);
    assert_eq!(messages[2]["tool_call_id"], "call-1");
}

#[tokio::test]
async fn nothing_is_stored_unless_the_request_says_so() {
    const CANARY: Canary = Canary("zyxCanary71");
    let model = ScriptedModel::start(|asked| {
        if asked.raw.contains("fail") {
            Script::status(500, &[], r#"{"error": {"message": "zyxCanary71"}}"#)
        } else {
            let says = [
                Say::text("zyxCanary71 answered"),
                Say::tool("zyxCanary71", "look", "{}"),
            ];
            Script::says(asked, says)
        }
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let messages = |last: &str| {
        [
            system(&CANARY.in_text("system")),
            user(&CANARY.in_text("first")),
            assistant(&CANARY.in_text("answer")),
            user(&CANARY.in_text(last)),
        ]
    };
    let tools = json!({
        "tools": [{"type": "function", "function": {
            "name": "look", "description": CANARY.in_text("tool"),
        }}],
        "store": false,
        "user": CANARY.in_text("user"),
    });
    for more in [json!({}), json!({"stream": true})] {
        let body = with(with(ask(&messages("last")), &tools), &more);
        let answer = send(&web, &body, &[("idempotency-key", "zyxCanary71")]).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(
            answer.header("x-anneal-ignored-parameters"),
            "user, Idempotency-Key"
        );
    }
    for more in [json!({}), json!({"stream": true})] {
        let body = with(with(ask(&messages("fail")), &tools), &more);
        let failed = send(&web, &body, &[]).await;
        assert!(failed.status >= 500, "{failed:?}");
    }
    let tables = CANARY.find_tables(&app.url).await;
    assert!(tables.is_empty(), "{tables:?}");
}
