//! Fields and RPCs of the interface that this version does not serve: each is refused by its name,
//! and nothing is stored.

use anneal_testkit::{ScriptedModel, TestApp, assert_refused, pb};
use pb::{OnDisconnect, tool_choice};
use tonic::Code;

/// A field of a turn's request that is not served, and a change that sets it.
type Unserved = (&'static str, fn(&mut pb::ChatRequest));

/// Sets an option of a turn.
fn set_option(ask: &mut pb::ChatRequest, set: fn(&mut pb::ChatOptions)) {
    set(ask.options.get_or_insert_default());
}

const FIELDS: [Unserved; 13] = [
    ("regenerate", |ask| {
        ask.messages.clear();
        ask.regenerate = true;
    }),
    ("edit_message_id", |ask| ask.edit_message_id = Some(1)),
    ("on_disconnect", |ask| {
        ask.on_disconnect = OnDisconnect::Finish.into();
    }),
    ("on_disconnect", |ask| {
        ask.on_disconnect = OnDisconnect::StopAndKeep.into();
    }),
    ("fallback_models", |ask| {
        ask.fallback_models = vec!["other".into()];
    }),
    ("cache_ping", |ask| ask.cache_ping = true),
    ("options.tool_choice", |ask| {
        set_option(ask, |options| {
            let choice = tool_choice::Choice::Mode(tool_choice::Mode::Required.into());
            options.tool_choice = Some(pb::ToolChoice {
                choice: Some(choice),
            });
        });
    }),
    ("options.parallel_tool_calls", |ask| {
        set_option(ask, |options| options.parallel_tool_calls = Some(false));
    }),
    ("options.response_format", |ask| {
        set_option(ask, |options| {
            let format = pb::response_format::Format::JsonObject(true);
            options.response_format = Some(pb::ResponseFormat {
                format: Some(format),
            });
        });
    }),
    ("options.top_p", |ask| {
        set_option(ask, |options| options.top_p = Some(0.5));
    }),
    ("options.stop", |ask| {
        set_option(ask, |options| options.stop = vec!["END".into()]);
    }),
    ("options.reasoning_effort", |ask| {
        set_option(ask, |options| {
            options.reasoning_effort = pb::ReasoningEffort::Low.into();
        });
    }),
    ("options.metadata", |ask| {
        set_option(ask, |options| {
            options.metadata.insert("team".into(), "blue".into());
        });
    }),
];

#[tokio::test]
async fn a_turn_that_asks_for_what_is_not_served_is_refused_and_stores_nothing() {
    let model = ScriptedModel::saying("Never.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    for (field, set) in FIELDS {
        let mut request = conversation.chat("hello");
        set(&mut request.ask);
        let ended = request.await.end;
        assert_refused(ended, Code::InvalidArgument, "INVALID_FIELD", field);
    }
    assert!(conversation.messages().await.is_empty() && model.requests().is_empty());
}

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
async fn cancel_turn_and_choose_alternative_are_refused_for_a_conversation_that_exists() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let ask = pb::CancelTurnRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    };
    let refused = app.chats().cancel_turn(ask).await;
    assert_refused(refused, Code::InvalidArgument, "INVALID_FIELD", "request");
    let ask = pb::ChooseAlternativeRequest {
        conversation_id: conversation.id.clone(),
        question_message_id: 1,
        number: 1,
        ..Default::default()
    };
    let refused = app.chats().choose_alternative(ask).await;
    assert_refused(refused, Code::InvalidArgument, "INVALID_FIELD", "request");
}

#[tokio::test]
async fn fields_of_other_rpcs_that_are_not_served_are_refused_by_their_name() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.turn("a", "b").await;
    let conversation_id = || conversation.id.clone();
    let ask = pb::GetMessageRequest {
        conversation_id: conversation_id(),
        message_id: 1,
        alternatives: true,
        ..Default::default()
    };
    let refused = app.messages().get_message(ask).await;
    assert_refused(
        refused,
        Code::InvalidArgument,
        "INVALID_FIELD",
        "alternatives",
    );
    let ask = pb::InsertSeparatorRequest {
        conversation_id: conversation_id(),
        part_tool_pairs: true,
        ..Default::default()
    };
    let refused = app.messages().insert_separator(ask).await;
    assert_refused(
        refused,
        Code::InvalidArgument,
        "INVALID_FIELD",
        "part_tool_pairs",
    );
    let ask = pb::BuildContextRequest {
        conversation_id: conversation_id(),
        cache_marks: true,
        ..Default::default()
    };
    let refused = app.contexts().build_context(ask).await;
    assert_refused(
        refused,
        Code::InvalidArgument,
        "INVALID_FIELD",
        "cache_marks",
    );
    let ask = pb::ReportUsageRequest {
        conversation_id: conversation_id(),
        model: "m".into(),
        input_tokens: 10,
        long_written_tokens: 1,
        ..Default::default()
    };
    let refused = app.contexts().report_usage(ask).await;
    assert_refused(
        refused,
        Code::InvalidArgument,
        "INVALID_FIELD",
        "long_written_tokens",
    );
}
