//! Chat requests that are refused before anything is stored.

use anneal_llm::provider::Api;
use anneal_testkit::{
    MODEL, ScriptedModel, TestApp, TestConversation, assert_refused, assistant, pb, text, user,
};
use tonic::Code;
use tonic_types::StatusExt as _;

/// Asserts that a chat with this change to its request is refused.
async fn assert_chat_refusal(
    conversation: &TestConversation<'_>,
    change: impl Fn(&mut pb::ChatRequest),
    reason: &str,
    field: &str,
) {
    let mut request = conversation.chat("hello");
    change(&mut request.ask);
    assert_refused(request.await.end, Code::InvalidArgument, reason, field);
}

#[tokio::test]
async fn invalid_chat_requests_are_refused_and_name_their_field() {
    let model = ScriptedModel::saying("Never.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    assert_chat_refusal(
        &conversation,
        |ask| ask.conversation_id = "x".into(),
        "INVALID_FIELD",
        "conversation_id",
    )
    .await;
    assert_chat_refusal(
        &conversation,
        |ask| ask.request_id = "r".repeat(129),
        "LIMIT_EXCEEDED",
        "request_id",
    )
    .await;
    assert_chat_refusal(
        &conversation,
        |ask| ask.messages.clear(),
        "INVALID_FIELD",
        "messages",
    )
    .await;
    assert_chat_refusal(
        &conversation,
        |ask| ask.messages = vec![user("x"); 101],
        "LIMIT_EXCEEDED",
        "messages",
    )
    .await;
    assert_chat_refusal(
        &conversation,
        |ask| ask.messages.insert(0, assistant("x")),
        "INVALID_FIELD",
        "messages[0].role",
    )
    .await;
    assert_chat_refusal(
        &conversation,
        |ask| ask.messages.push(text(pb::Role::System, "x")),
        "INVALID_FIELD",
        "messages[1].role",
    )
    .await;
    assert_chat_refusal(
        &conversation,
        |ask| ask.model = "m".repeat(129),
        "LIMIT_EXCEEDED",
        "model",
    )
    .await;
    assert_chat_refusal(
        &conversation,
        |ask| ask.system_prompt = Some("a\0b".into()),
        "INVALID_FIELD",
        "system_prompt",
    )
    .await;
    assert_chat_refusal(
        &conversation,
        |ask| ask.temperature = Some(f32::NAN),
        "INVALID_FIELD",
        "temperature",
    )
    .await;
    assert_chat_refusal(
        &conversation,
        |ask| ask.temperature = Some(2.1),
        "INVALID_FIELD",
        "temperature",
    )
    .await;
    assert_chat_refusal(
        &conversation,
        |ask| ask.max_output_tokens = Some(0),
        "INVALID_FIELD",
        "max_output_tokens",
    )
    .await;
    assert_chat_refusal(
        &conversation,
        |ask| ask.expected_last_message_id = Some(-1),
        "INVALID_FIELD",
        "expected_last_message_id",
    )
    .await;
    let mut missing = conversation.chat("hello");
    missing.ask.conversation_id = "00000000-0000-7000-8000-000000000000".into();
    assert_refused(
        missing.await.end,
        Code::NotFound,
        "CONVERSATION_NOT_FOUND",
        "",
    );
    assert!(conversation.messages().await.is_empty() && model.requests().is_empty());
}

#[tokio::test]
async fn invalid_tools_of_a_chat_are_refused_and_name_their_field() {
    let model = ScriptedModel::saying("Never.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    let tool = |name: &str, schema: &str| pb::Tool {
        name: name.into(),
        input_schema: schema.into(),
        ..Default::default()
    };
    assert_chat_refusal(
        &conversation,
        |ask| ask.tools = vec![tool("t", ""); 129],
        "LIMIT_EXCEEDED",
        "tools",
    )
    .await;
    assert_chat_refusal(
        &conversation,
        |ask| ask.tools = vec![tool("t", &" ".repeat(300_000))],
        "LIMIT_EXCEEDED",
        "tools",
    )
    .await;
    assert_chat_refusal(
        &conversation,
        |ask| ask.tools = vec![tool("t", ""), tool("t", "")],
        "INVALID_FIELD",
        "tools[1].name",
    )
    .await;
    assert_chat_refusal(
        &conversation,
        |ask| ask.tools = vec![tool("two words", "")],
        "INVALID_FIELD",
        "tools[0].name",
    )
    .await;
    assert_chat_refusal(
        &conversation,
        |ask| ask.tools = vec![tool("t", "[]")],
        "INVALID_FIELD",
        "tools[0].input_schema",
    )
    .await;
    assert!(conversation.messages().await.is_empty() && model.requests().is_empty());
}

#[tokio::test]
async fn a_tool_name_that_gemini_refuses_is_refused_before_anything_is_stored() {
    let model = ScriptedModel::saying("Never.").await;
    let app = TestApp::with_models(model.settings_of(Api::Gemini, &[MODEL]), MODEL).await;
    let conversation = app.conversation().await;
    let tool = |name: &str| pb::Tool {
        name: name.into(),
        ..Default::default()
    };
    assert_chat_refusal(
        &conversation,
        |ask| ask.tools = vec![tool("look"), tool("3d_view")],
        "INVALID_FIELD",
        "tools[1].name",
    )
    .await;
    assert!(conversation.messages().await.is_empty() && model.requests().is_empty());
}

#[tokio::test]
async fn a_turn_without_a_model_names_the_setting_that_is_at_fault() {
    let model = ScriptedModel::saying("Never.").await;
    for (default, named, message) in [
        ("absent", "absent", "the model absent cannot be called"),
        (
            "",
            "gpt-4o",
            "chat.model is not set, and the conversation's model gpt-4o is not configured",
        ),
    ] {
        let app = TestApp::with_models(model.settings(&[MODEL]), default).await;
        let policy = pb::Policy {
            model: "gpt-4o".into(),
            ..Default::default()
        };
        let conversation = app.conversation_with_policy(policy).await;
        let refused = conversation.chat("hello").await.end;
        let status = refused.expect_err("no model can be called");
        assert!(status.message().contains(message), "{status:?}");
        let details = status.get_error_details();
        let facts = details.error_info().expect("facts");
        assert_eq!(facts.metadata["model"], named);
        assert!(conversation.messages().await.is_empty());
    }
    assert!(model.requests().is_empty());
}
