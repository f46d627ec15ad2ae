//! Marks of what a provider should cache, what is expected in its cache then, and which stored
//! messages the messages of a rendered context are.

use anneal_core::{
    model::Models,
    policy::{PolicyOverrides, SessionSettings},
};
use anneal_testkit::{
    Built, TestApp, TestConversation, assert_refused, assistant, call, pb, prose, result, user,
};
use pb::{BreakReason, CachePointKind, CacheRetention, Format};
use serde_json::Value;
use tonic::Code;

/// A model whose cache needs 512 tokens.
const CLAUDE: &str = "claude-opus-5";

/// A context with marks. Its system prompt has about 1,300 tokens.
async fn build_with_marks(
    conversation: &TestConversation<'_>,
    format: Format,
    model: &str,
) -> Built {
    let ask = pb::BuildContextRequest {
        format: format.into(),
        model: model.into(),
        system_prompt: Some(prose(5_000, 60)),
        cache_marks: true,
        ..Default::default()
    };
    conversation.build(ask).await.expect("builds")
}

/// Kind, index and seconds of each mark.
fn marks(built: &Built) -> Vec<(CachePointKind, i32, u32)> {
    let marks = built.0.cache_marks.iter();
    marks
        .map(|mark| (mark.kind(), mark.index, mark.ttl_seconds))
        .collect()
}

fn rendered(built: &Built) -> Value {
    let rendered = built.0.rendered.as_deref().expect("a provider's request");
    serde_json::from_str(rendered).expect("a request is JSON")
}

/// A conversation of one turn with a tool call, and a question.
async fn conversation_with_question(app: &TestApp, policy: pb::Policy) -> TestConversation<'_> {
    let conversation = app.conversation_with_policy(policy).await;
    let found = vec![user("Look."), call("c1", "{}"), result("c1", "The sea.")];
    conversation.append_all(found).await;
    conversation.turn("And there?", "Sand.").await;
    conversation.append("And now?").await;
    app.run_jobs_until_idle().await;
    conversation
}

#[tokio::test]
async fn anthropic_gets_a_mark_at_the_end_of_the_system_prompt_and_of_the_context() {
    let app = TestApp::start().await;
    let conversation = conversation_with_question(&app, pb::Policy::default()).await;
    let built = build_with_marks(&conversation, Format::AnthropicMessages, CLAUDE).await;
    let body = rendered(&built);
    let last = body["messages"].as_array().expect("a list").len() - 1;
    assert_eq!(
        marks(&built),
        [
            (CachePointKind::System, -1, 300),
            (CachePointKind::End, last as i32, 300)
        ]
    );
    let ephemeral = serde_json::json!({"type": "ephemeral"});
    assert_eq!(body["system"][0]["cache_control"], ephemeral);
    let content = body["messages"][last]["content"].as_array();
    let block = content.and_then(|blocks| blocks.last()).expect("a block");
    assert_eq!(block["cache_control"], ephemeral);
    assert_eq!(body.to_string().matches("cache_control").count(), 2);
    assert_eq!(built.0.cache_marks[1].tokens, built.0.total_tokens);
}

#[tokio::test]
async fn the_next_call_expects_everything_up_to_the_last_mark_unless_the_model_is_another() {
    let app = TestApp::start().await;
    let conversation = conversation_with_question(&app, pb::Policy::default()).await;
    let first = build_with_marks(&conversation, Format::AnthropicMessages, CLAUDE).await;
    assert_eq!(first.0.expected_cached_tokens, 0, "the first call");
    conversation
        .append_all(vec![assistant("Wind."), user("Is it cold?")])
        .await;
    app.run_jobs_until_idle().await;
    let second = build_with_marks(&conversation, Format::AnthropicMessages, CLAUDE).await;
    assert_eq!(second.0.expected_cached_tokens, first.0.total_tokens);
    assert_eq!(second.0.cache_break, None);
    let other = build_with_marks(
        &conversation,
        Format::AnthropicMessages,
        "claude-sonnet-4-5",
    )
    .await;
    assert_eq!(other.0.expected_cached_tokens, 0);
    let broken = other.0.cache_break.as_ref().expect("another model");
    assert_eq!(broken.reason(), BreakReason::Model);
    let again = build_with_marks(
        &conversation,
        Format::AnthropicMessages,
        "claude-sonnet-4-5",
    )
    .await;
    assert_eq!(again.0.cache_break, None, "the new model is recorded");
}

#[tokio::test]
async fn the_retention_of_the_policy_decides_for_how_long_marks_are_kept() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        cache_retention: CacheRetention::LongHead.into(),
        ..Default::default()
    };
    let conversation = conversation_with_question(&app, policy).await;
    let built = build_with_marks(&conversation, Format::AnthropicMessages, CLAUDE).await;
    let seconds: Vec<u32> = marks(&built).iter().map(|mark| mark.2).collect();
    assert_eq!(seconds, [3_600, 300]);
    let body = rendered(&built);
    assert_eq!(body["system"][0]["cache_control"]["ttl"], "1h");
}

#[tokio::test]
async fn openai_gets_explicit_breakpoints_from_gpt_5_6_on() {
    let app = TestApp::start().await;
    let conversation = conversation_with_question(&app, pb::Policy::default()).await;
    let new = build_with_marks(&conversation, Format::OpenaiChat, "gpt-5.6").await;
    assert_eq!(marks(&new), [(CachePointKind::System, 0, 300)]);
    let body = rendered(&new);
    let part = &body["messages"][0]["content"][0];
    assert_eq!(part["prompt_cache_breakpoint"]["mode"], "explicit");
    let old = build_with_marks(&conversation, Format::OpenaiChat, "gpt-5.5").await;
    assert!(marks(&old).is_empty());
    assert!(rendered(&old)["messages"][0]["content"].is_string());
}

#[tokio::test]
async fn the_providers_name_of_a_model_decides_its_marks() {
    let models: Models =
        serde_json::from_str(r#"{"writer": {"served_as": "gpt-5.6"}}"#).expect("reads");
    let session = SessionSettings::new(PolicyOverrides::default(), models);
    let app = TestApp::with_session(session).await;
    let conversation = conversation_with_question(&app, pb::Policy::default()).await;
    let built = build_with_marks(&conversation, Format::OpenaiChat, "writer").await;
    assert_eq!(marks(&built), [(CachePointKind::System, 0, 300)]);
    let unknown = build_with_marks(&conversation, Format::OpenaiChat, "reader").await;
    assert!(marks(&unknown).is_empty());
}

#[tokio::test]
async fn every_stored_message_is_among_those_of_the_rendered_context() {
    let app = TestApp::start().await;
    let conversation = conversation_with_question(&app, pb::Policy::default()).await;
    for (format, list, prompt_index) in [
        (Format::OpenaiChat, "messages", 0),
        (Format::AnthropicMessages, "messages", -1),
        (Format::GeminiContents, "contents", -1),
    ] {
        let built = build_with_marks(&conversation, format, "a-model").await;
        let rows = &built.0.rendered_messages;
        assert_eq!(rows[0].index, prompt_index, "{format:?}");
        assert_eq!(rows[0].segment(), pb::Segment::SystemPrompt);
        let ids: Vec<i64> = rows
            .iter()
            .flat_map(|row| row.message_ids.iter().copied())
            .collect();
        assert_eq!(ids, [1, 2, 3, 4, 5, 6], "{format:?}");
        let tokens: u64 = rows.iter().map(|row| row.tokens).sum();
        assert_eq!(tokens, built.0.total_tokens, "{format:?}");
        let items = rendered(&built)[list].as_array().expect("a list").len();
        let last = rows.last().expect("there are rows");
        assert_eq!(last.index as usize, items - 1, "{format:?}");
    }
}

#[tokio::test]
async fn marks_need_a_providers_format() {
    let app = TestApp::start().await;
    let conversation = conversation_with_question(&app, pb::Policy::default()).await;
    let ask = pb::BuildContextRequest {
        cache_marks: true,
        ..Default::default()
    };
    assert_refused(
        conversation.build(ask).await,
        Code::InvalidArgument,
        "INVALID_FIELD",
        "cache_marks",
    );
}
