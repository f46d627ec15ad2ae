//! Chat with a real model: its answers are streamed, and turns whose context exceeds its window are
//! answered with a shorter context.

use anneal_core::model::Models;
use anneal_llm::provider::Providers;
use anneal_testkit::{
    Llm, TestApp, TestConversation, TranscriptFolder, assistant, call, pb, prose, result,
    start_llm, user,
};
use pb::{AttemptReason, Pressure, chat_response::Event};
use serde_json::json;

/// The model's name in the settings.
const MODEL: &str = "smollm2";
/// Limit of an answer in tokens. It is low because the model is slow on a busy processor.
const OUTPUT_TOKENS: u64 = 24;

/// Starts an app whose settings give the model a window of 8,192 tokens, whatever its real window
/// is.
async fn start_app(llm: &Llm) -> TestApp {
    let provider =
        json!({"local": {"api": "openai", "url": llm.url, "first_byte_timeout_ms": 300_000}});
    let providers: Providers = serde_json::from_value(provider).expect("settings");
    let model = json!({
        MODEL: {"provider": "local", "window_tokens": 8_192, "output_tokens": OUTPUT_TOKENS},
    });
    let models: Models = serde_json::from_value(model).expect("settings");
    TestApp::with_models((providers, models), MODEL).await
}

async fn create_conversation(app: &TestApp) -> TestConversation<'_> {
    let policy = pb::Policy {
        model: MODEL.into(),
        max_message_count: Some(0),
        ..Default::default()
    };
    app.conversation_with_policy(policy).await
}

/// Reads the model's window in tokens, as GetContextUsage reports it.
async fn read_model_window(conversation: &TestConversation<'_>) -> u64 {
    let ask = pb::GetContextUsageRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    };
    conversation
        .app
        .contexts()
        .get_context_usage(ask)
        .await
        .expect("answers")
        .into_inner()
        .model_window_tokens
}

#[tokio::test]
async fn a_real_model_streams_its_answer_through_chat() {
    let Some(llm) = start_llm(8_192) else { return };
    let app = start_app(&llm).await;
    let conversation = create_conversation(&app).await;
    let outcome = conversation.chat("Name three colors.").await;
    let deltas = outcome
        .events
        .iter()
        .filter(|event| matches!(event, Event::TextDelta(_)))
        .count();
    assert!(deltas > 1, "{:?}", outcome.events);
    let usage = outcome.done().usage.expect("the server counts");
    assert!(
        usage.input_tokens > 5 && (1..=OUTPUT_TOKENS).contains(&usage.output_tokens),
        "{usage:?}"
    );
    let answer = conversation.messages().await.pop().expect("the answer");
    assert_eq!(answer.parts, assistant(&outcome.text()).parts);
    println!("{} pieces, {usage:?}: {:?}", deltas, outcome.text());
}

#[tokio::test]
async fn a_conversation_above_a_real_window_is_truncated_compacted_and_answered() {
    let Some(llm) = start_llm(512) else { return };
    let app = start_app(&llm).await;
    let conversation = create_conversation(&app).await;
    for n in 0..6 {
        let id = format!("c{n}");
        let text = prose(n * 60, 1);
        conversation
            .append_all(vec![
                user(&text),
                call(&id, "{}"),
                result(&id, &prose(n * 60, 30)),
                assistant("Found."),
            ])
            .await;
    }
    app.run_jobs_until_idle().await;
    let outcome = conversation.chat("Say ok.").await;
    let attempts = outcome.attempts();
    println!("{attempts:?}, {:?}: {:?}", outcome.end, outcome.text());
    assert_eq!(
        attempts[0],
        (1, Pressure::TruncateToolResults, AttemptReason::Overflow)
    );
    assert_eq!((attempts[1].0, attempts[1].1), (2, Pressure::Compact));
    // The answer follows the question and 24 messages.
    assert!(!outcome.text().is_empty() && outcome.done().answer_message_id == 26);
    assert_eq!(
        read_model_window(&conversation).await,
        512,
        "the window is the one that the refusal named"
    );
    let next = conversation.chat("Again.").await;
    println!("{:?}, {:?}: {:?}", next.attempts(), next.end, next.text());
    assert_eq!(
        next.done().attempts,
        1,
        "a context known to overflow is not sent"
    );
    conversation.verify().await;
}

#[tokio::test]
async fn a_real_session_that_overflowed_in_pi_continues() {
    let (Some(folder), Some(llm)) = (TranscriptFolder::find(), start_llm(2_048)) else {
        return;
    };
    let session = folder
        .pi_sessions()
        .into_iter()
        .find(|chat| chat.name == "pi-0")
        .expect("the session is there");
    let app = start_app(&llm).await;
    let policy = pb::Policy {
        model: MODEL.into(),
        ..Default::default()
    };
    let imported = app
        .append_chats(std::slice::from_ref(&session), &policy)
        .await;
    let conversation = &imported[0].conversation;
    let outcome = conversation.chat("Say ok.").await;
    println!(
        "{:?}, {:?}: {:?}",
        outcome.attempts(),
        outcome.end,
        outcome.text()
    );
    assert!(
        !outcome.text().is_empty() && outcome.done().attempts > 1,
        "the turn overflows and is answered"
    );
    assert_eq!(read_model_window(conversation).await, 2_048);
}
