//! Fields and RPCs of the interface that this version does not serve: each is refused by its name,
//! and nothing is stored.

use anneal_testkit::{ScriptedModel, TestApp, assert_refused, pb};
use tonic::Code;

#[tokio::test]
async fn options_that_are_served_reach_the_model_from_either_place_but_not_from_both() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    let options = pb::ChatOptions {
        temperature: Some(0.5),
        max_output_tokens: Some(11),
        ..Default::default()
    };
    let mut request = conversation.chat("hello");
    request.ask.options = Some(options.clone());
    request.await.end.expect("is answered");
    let body = &model.requests()[0].body;
    assert_eq!(body["temperature"], 0.5, "{body}");
    assert!(
        body["max_tokens"] == 11 || body["max_completion_tokens"] == 11,
        "{body}"
    );
    let mut request = conversation.chat("hello");
    request.ask.options = Some(options);
    request.ask.temperature = Some(0.5);
    let ended = request.await.end;
    assert_refused(
        ended,
        Code::InvalidArgument,
        "INVALID_FIELD",
        "options.temperature",
    );
}

#[tokio::test]
async fn options_of_a_conversation_are_refused_by_their_name() {
    let app = TestApp::start().await;
    let ask = pb::CreateConversationRequest {
        chat_options: Some(pb::ChatOptions::default()),
        ..Default::default()
    };
    let refused = app.conversations().create_conversation(ask).await;
    assert_refused(
        refused,
        Code::InvalidArgument,
        "INVALID_FIELD",
        "chat_options",
    );
}
