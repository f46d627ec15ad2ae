//! A response continues another one, or a conversation.

use anneal_core::chat_options::ToolChoice;
use anneal_server::{AgentSettings, Agents};
use anneal_testkit::{Gate, HttpResponse, Say, Script, ScriptedModel, TestApp, pb};
use serde_json::{Value, json};

use super::{RESPONSES, create, id_of, list_texts, retrieve, text_of, tool};
use crate::openai::{assert_error, post};

/// A model that repeats how many messages it got.
async fn counting_model() -> ScriptedModel {
    ScriptedModel::start(|request| {
        let texts = request.texts().len();
        Script::says(request, [Say::text(&format!("I see {texts}."))])
    })
    .await
}

#[tokio::test]
async fn a_chain_sends_what_came_before_but_not_the_instructions() {
    let model = counting_model().await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let first = create(&web, &json!({"input": "one", "instructions": "Be brief."})).await;
    let second = create(
        &web,
        &json!({"input": "two", "previous_response_id": id_of(&first)}),
    )
    .await;
    assert_eq!(second["previous_response_id"], first["id"]);
    assert_eq!(second["instructions"], Value::Null);
    assert_eq!(model.requests()[1].texts(), ["one", "I see 2.", "two"]);
}

#[tokio::test]
async fn two_responses_that_continue_the_same_one_do_not_see_each_other() {
    let model = counting_model().await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let root = create(&web, &json!({"input": "root"})).await;
    let body = |text: &str| json!({"input": text, "previous_response_id": id_of(&root)});
    let (left, right) = (body("left"), body("right"));
    let (left, right) = tokio::join!(create(&web, &left), create(&web, &right));
    for response in [&left, &right] {
        assert_eq!(text_of(response), "I see 3.");
    }
    let again = create(&web, &body("again")).await;
    assert_eq!(text_of(&again), "I see 3.");
    let deeper = json!({"input": "deeper", "previous_response_id": id_of(&left)});
    create(&web, &deeper).await;
    let texts = model.requests().last().expect("was asked").texts();
    assert_eq!(texts, ["root", "I see 1.", "left", "I see 3.", "deeper"]);
    // The items of each branch stay what they were.
    assert_eq!(retrieve(&web, &id_of(&right)).await, right);
}

#[tokio::test]
async fn a_tool_loop_goes_over_two_responses() {
    let model = ScriptedModel::start(|request| {
        let says = if request.nth == 0 {
            Say::tool("call_1", "look", "{}")
        } else {
            Say::text("It is warm.")
        };
        Script::says(request, [says])
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let first = create(
        &web,
        &json!({"input": "How is it?", "tools": [tool("look")]}),
    )
    .await;
    let call_id = first["output"][0]["call_id"].clone();
    let output = json!({"type": "function_call_output", "call_id": call_id, "output": "warm"});
    let body = json!({
        "previous_response_id": id_of(&first), "input": [output], "tools": [tool("look")],
    });
    let second = create(&web, &body).await;
    assert_eq!(text_of(&second), "It is warm.");
    for body in [
        json!({"input": [{"type": "function_call_output", "call_id": "no", "output": "x"}]}),
        json!({
            "previous_response_id": id_of(&first),
            "input": [{"type": "function_call_output", "call_id": "no", "output": "x"}],
        }),
    ] {
        assert_error(&post(&web, RESPONSES, &body).await, 400, "input", "");
    }
}

#[tokio::test]
async fn a_conversation_gets_the_items_of_its_responses_and_of_no_failed_one() {
    let model = ScriptedModel::start(|request| {
        if request.nth == 1 {
            Script::status(400, &[], r#"{"error": {"message": "no"}}"#)
        } else {
            Script::says(request, [Say::text("Yes.")])
        }
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let conversation = post(&web, "/v1/conversations", &json!({})).await.json();
    let id = id_of(&conversation);
    let body = |text: &str| json!({"input": text, "conversation": {"id": id}});
    let response = create(&web, &body("one")).await;
    assert_eq!(response["conversation"], json!({"id": id}));
    let failed = post(&web, RESPONSES, &body("two")).await;
    assert_ne!(failed.status, 200, "{failed:?}");
    create(&web, &body("three")).await;
    let texts = list_texts(&web, &id).await;
    assert_eq!(texts, ["one", "Yes.", "three", "Yes."]);
    let listed = web
        .get(&format!("/v1/conversations/{id}/items?order=asc"))
        .await
        .json();
    assert_eq!(listed["data"][1]["id"], response["output"][0]["id"]);
    let missing = format!("conv_{}", "0".repeat(32));
    let body = json!({"input": "a", "conversation": missing});
    assert_error(&post(&web, RESPONSES, &body).await, 404, "", "");
}

#[tokio::test]
async fn a_failed_response_takes_no_message_of_others_with_it() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| Script::says(request, [Say::text("No call.")]).after(&gate)
    })
    .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let web = app.http_client();
    let conversation = post(&web, "/v1/conversations", &json!({})).await.json();
    let id = id_of(&conversation);
    let tool = json!({"type": "function", "name": "look", "parameters": {"type": "object"}});
    let body = json!({
        "input": "one", "conversation": id, "tools": [tool], "tool_choice": "required",
    });
    let items = format!("/v1/conversations/{id}/items");
    let between = json!({"items": [{"role": "user", "content": "of another client"}]});
    let (failed, ()) = tokio::join!(post(&web, RESPONSES, &body), async {
        model.wait_for_calls(1).await;
        assert_eq!(post(&web, &items, &between).await.status, 200);
        gate.open_for_ever();
    });
    assert_eq!(failed.json()["status"], "failed", "{failed:?}");
    let texts = list_texts(&web, &id).await;
    assert_eq!(texts, ["of another client"]);
}

#[tokio::test]
async fn an_input_has_a_bounded_number_of_items_and_of_references() {
    let model = counting_model().await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let message = json!({"role": "user", "content": "a"});
    let body = json!({"input": vec![message; 10_001], "store": false});
    let refused = post(&web, RESPONSES, &body).await;
    assert_error(&refused, 400, "input", "array_above_max_length");
    let first = create(&web, &json!({"input": "one"})).await;
    let item = json!({"type": "item_reference", "id": first["output"][0]["id"]});
    let question = json!({"role": "user", "content": "a"});
    let body = json!({"input": [item, question], "store": false});
    assert_eq!(post(&web, RESPONSES, &body).await.status, 200);
    let mut input = vec![item; 101];
    input.push(question);
    let body = json!({"input": input, "store": false});
    let refused = post(&web, RESPONSES, &body).await;
    assert_error(&refused, 400, "input[100]", "invalid_value");
}

#[tokio::test]
async fn a_response_continues_a_stored_one_without_being_stored() {
    let model = counting_model().await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let first = create(&web, &json!({"input": "one"})).await;
    let body = json!({"input": "two", "previous_response_id": id_of(&first), "store": false});
    assert_eq!(text_of(&create(&web, &body).await), "I see 3.");
    let path = format!("{RESPONSES}/{}/input_items", id_of(&first));
    let items = HttpResponse::send(web.request("GET", &path)).await.json();
    assert_eq!(items["data"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn the_input_may_hold_earlier_answers() {
    let model = counting_model().await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    for store in [true, false] {
        let body = json!({"store": store, "input": [
            {"role": "user", "content": "My name is Alice."},
            {"role": "assistant", "content": "Hello Alice!"},
            {"role": "user", "content": "What is my name?"},
        ]});
        assert_eq!(text_of(&create(&web, &body).await), "I see 3.");
    }
}

#[tokio::test]
async fn the_options_of_a_conversations_agent_are_shown_and_enforced() {
    let model = ScriptedModel::saying("Yes.").await;
    let plain = TestApp::with_scripted_model(&model).await;
    let mut agent = AgentSettings::default();
    agent.chat.temperature = Some(0.5);
    agent.chat.top_p = Some(0.25);
    agent.chat.tool_choice = Some(ToolChoice::Required);
    let agents = Agents::from([("cook".to_owned(), agent)]);
    let app = plain.second_server_with_agents(agents).await;
    let web = app.http_client();
    let look = pb::Tool {
        name: "look".into(),
        ..pb::Tool::default()
    };
    let conversation = app
        .conversation_with(pb::CreateConversationRequest {
            agent_id: "cook".into(),
            chat_options: Some(pb::ChatOptions {
                tools: vec![look],
                top_p: Some(0.75),
                ..pb::ChatOptions::default()
            }),
            ..Default::default()
        })
        .await;
    let id = format!("conv_{}", conversation.id.replace('-', ""));
    let response = create(&web, &json!({"input": "Look!", "conversation": id})).await;
    assert_eq!(response["temperature"], json!(0.5));
    assert_eq!(response["top_p"], json!(0.75));
    assert_eq!(response["tool_choice"], "required");
    assert_eq!(
        response["status"], "failed",
        "the model calls no tool: {response}"
    );
    let sent = &model.requests()[0].body;
    assert_eq!(
        (&sent["temperature"], &sent["top_p"], &sent["tool_choice"]),
        (&json!(0.5), &json!(0.75), &json!("required"))
    );
    let body = json!({"input": "Go on.", "conversation": id, "tool_choice": "none"});
    let response = create(&web, &body).await;
    assert_eq!(
        (&response["tool_choice"], &response["status"]),
        (&json!("none"), &json!("completed"))
    );
}
