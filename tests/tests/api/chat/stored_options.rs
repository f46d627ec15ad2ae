//! Options of turns: of a conversation or its agent, and of a call that overrides them.

use anneal_testkit::{MODEL, Say, Script, ScriptedModel, TestApp, assert_refused, pb};
use pb::tool_choice::{Choice, Mode};
use serde_json::{Value, json};
use tonic::Code;

fn tool(name: &str) -> pb::Tool {
    pb::Tool {
        name: name.into(),
        description: String::new(),
        input_schema: r#"{"type":"object", "properties":{}}"#.into(),
    }
}

fn options() -> pb::ChatOptions {
    pb::ChatOptions {
        tools: vec![tool("look_up")],
        temperature: Some(0.25),
        ..Default::default()
    }
}

fn create_request() -> pb::CreateConversationRequest {
    pb::CreateConversationRequest {
        model: MODEL.into(),
        chat_options: Some(options()),
        ..Default::default()
    }
}

/// The names of the tools in a request to the model, and its temperature.
fn sent(body: &Value) -> (Vec<String>, Value) {
    let tools = body["tools"].as_array().cloned().unwrap_or_default();
    let names = tools.iter().map(|tool| {
        let name = tool["function"]["name"].as_str();
        name.expect("a name").to_owned()
    });
    (names.collect(), body["temperature"].clone())
}

async fn script_app() -> (ScriptedModel, TestApp) {
    let model = ScriptedModel::start(|request| Script::says(request, [Say::text("Yes.")])).await;
    let app = TestApp::with_scripted_model(&model).await;
    (model, app)
}

#[tokio::test]
async fn a_turn_takes_the_options_of_its_conversation_where_it_names_none() {
    let (model, app) = script_app().await;
    let conversation = app.conversation_with(create_request()).await;
    assert_eq!(
        conversation.conversation().await.chat_options,
        Some(options())
    );
    conversation.chat("One?").await.done();
    conversation.chat("Two?").with_tool("other").await.done();
    let sent: Vec<_> = model
        .requests()
        .iter()
        .map(|request| sent(&request.body))
        .collect();
    assert_eq!(
        sent,
        [
            (vec!["look_up".to_owned()], json!(0.25)),
            (vec!["other".to_owned()], json!(0.25)),
        ]
    );
}

#[tokio::test]
async fn a_turn_that_calls_no_tool_still_declares_those_of_its_conversation() {
    let (model, app) = script_app().await;
    let conversation = app.conversation_with(create_request()).await;
    conversation.chat("One?").await.done();
    let mut turn = conversation.chat("Two?");
    turn.ask.options = Some(pb::ChatOptions {
        tool_choice: Some(pb::ToolChoice {
            choice: Some(Choice::Mode(Mode::None.into())),
        }),
        ..Default::default()
    });
    turn.await.done();
    let requests = model.requests();
    assert_eq!(requests[1].body["tools"], requests[0].body["tools"]);
    assert_eq!(requests[1].body["tool_choice"], "none");
}

#[tokio::test]
async fn a_refused_option_that_the_request_does_not_set_is_said_to_be_the_conversations() {
    let (model, app) = script_app().await;
    let too_many = pb::ChatOptions {
        stop: vec!["END".into(); 5],
        ..Default::default()
    };
    let create = pb::CreateConversationRequest {
        chat_options: Some(too_many.clone()),
        ..create_request()
    };
    let conversation = app.conversation_with(create).await;
    let inherited = conversation.chat("One?").await.end;
    let mut turn = conversation.chat("One?");
    turn.ask.options = Some(too_many);
    let own = turn.await.end;
    for (refused, is_inherited) in [(inherited, true), (own, false)] {
        let status = refused.as_ref().expect_err("it is refused").message();
        let is_said = status.contains("(set by the conversation)");
        assert_eq!(is_said, is_inherited, "{status}");
        assert_refused(
            refused,
            Code::InvalidArgument,
            "INVALID_FIELD",
            "options.stop",
        );
    }
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn an_update_replaces_the_options_and_lists_leave_them_out() {
    let (_model, app) = script_app().await;
    let conversation = app.conversation_with(create_request()).await;
    let update = |chat_options: Option<pb::ChatOptions>| pb::UpdateConversationRequest {
        conversation: Some(pb::Conversation {
            conversation_id: conversation.id.clone(),
            chat_options,
            ..Default::default()
        }),
        update_mask: Some(prost_types::FieldMask {
            paths: vec!["chat_options".into()],
        }),
        ..Default::default()
    };
    let warmer = pb::ChatOptions {
        temperature: Some(1.0),
        ..Default::default()
    };
    let mut client = app.conversations();
    let updated = client
        .update_conversation(update(Some(warmer.clone())))
        .await
        .expect("updates")
        .into_inner();
    assert_eq!(updated.chat_options, Some(warmer));
    let listed = client
        .list_conversations(pb::ListConversationsRequest::default())
        .await
        .expect("lists")
        .into_inner();
    assert_eq!(listed.conversations[0].chat_options, None);
    let removed = client
        .update_conversation(update(None))
        .await
        .expect("updates")
        .into_inner();
    assert_eq!(removed.chat_options, None);
    let invalid = pb::ChatOptions {
        top_p: Some(1.5),
        ..Default::default()
    };
    assert_refused(
        client.update_conversation(update(Some(invalid))).await,
        Code::InvalidArgument,
        "INVALID_FIELD",
        "conversation.chat_options.top_p",
    );
}

#[tokio::test]
async fn a_fork_keeps_the_options() {
    let (_model, app) = script_app().await;
    let conversation = app.conversation_with(create_request()).await;
    conversation.append("a").await;
    let ask = pb::ForkConversationRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    };
    let forked = app
        .conversations()
        .fork_conversation(ask)
        .await
        .expect("forks")
        .into_inner();
    assert_eq!(forked.chat_options, Some(options()));
}

#[tokio::test]
async fn a_repeated_creation_is_compared_with_its_options() {
    let (_model, app) = script_app().await;
    let ask = pb::CreateConversationRequest {
        request_id: "r".into(),
        ..create_request()
    };
    let mut client = app.conversations();
    let first = client.create_conversation(ask.clone()).await;
    let first = first.expect("creates").into_inner();
    let again = client.create_conversation(ask.clone()).await;
    assert_eq!(again.expect("repeats").into_inner(), first);
    let other = pb::CreateConversationRequest {
        chat_options: None,
        ..ask
    };
    assert_refused(
        client.create_conversation(other).await,
        Code::AlreadyExists,
        "REQUEST_ID_REUSED",
        "",
    );
}

#[tokio::test]
async fn a_request_sets_an_option_among_its_options_or_in_its_own_field_but_not_in_both() {
    let (model, app) = script_app().await;
    let conversation = app.conversation().await;
    let options = pb::ChatOptions {
        temperature: Some(0.5),
        max_output_tokens: Some(11),
        ..Default::default()
    };
    let mut request = conversation.chat("hello");
    request.ask.options = Some(options.clone());
    request.await.done();
    let body = &model.requests()[0].body;
    assert_eq!(body["temperature"], 0.5, "{body}");
    assert!(
        body["max_tokens"] == 11 || body["max_completion_tokens"] == 11,
        "{body}"
    );
    let mut request = conversation.chat("hello");
    request.ask.options = Some(options);
    request.ask.temperature = Some(0.5);
    assert_refused(
        request.await.end,
        Code::InvalidArgument,
        "INVALID_FIELD",
        "options.temperature",
    );
}
