//! Chat with a real model: its answers are streamed, and turns whose context exceeds its window are
//! answered with a shorter context. Turns are stopped and answered anew, and tools are called in a
//! loop.

use std::time::Instant;

use anneal_core::model::Models;
use anneal_llm::provider::Providers;
use anneal_testkit::{
    Llm, TestApp, TestConversation, TranscriptFolder, TurnOutcome, assistant, call, pb, prose,
    result, start_llm, user,
};
use pb::{
    AttemptReason, CancelOutcome, Pressure, Role,
    chat_response::Event,
    response_format::Format,
    tool_choice::{Choice, Mode},
};
use serde_json::{Value, json};

/// The model's name in the settings.
const MODEL: &str = "smollm2";
/// Limit of an answer in tokens. It is low because the model is slow on a busy processor.
const OUTPUT_TOKENS: u64 = 24;

/// Starts an app whose settings give the model a window of 8,192 tokens, whatever its real window
/// is.
async fn start_app(llm: &Llm) -> TestApp {
    start_app_with_answers_of(llm, OUTPUT_TOKENS).await
}

/// [`start_app`] with another limit of an answer in tokens.
async fn start_app_with_answers_of(llm: &Llm, output_tokens: u64) -> TestApp {
    let provider =
        json!({"local": {"api": "openai", "url": llm.url, "first_byte_timeout_ms": 300_000}});
    let providers: Providers = serde_json::from_value(provider).expect("settings");
    let model = json!({
        MODEL: {"provider": "local", "window_tokens": 8_192, "output_tokens": output_tokens},
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

#[tokio::test]
async fn a_real_turn_is_stopped_and_the_next_one_continues_after_what_has_come() {
    let Some(llm) = start_llm(2_048) else { return };
    // More than the model says before it is stopped.
    let app = start_app_with_answers_of(&llm, 1_000).await;
    let conversation = create_conversation(&app).await;
    let turn = conversation
        .chat("Tell me a long story about a fox and a raven.")
        .request_id("r");
    let mut stream = turn.clone().open().await.expect("begins");
    let mut come = Vec::new();
    while come.len() < 5 {
        let response = stream.message().await.expect("the turn goes on");
        match response.and_then(|response| response.event) {
            Some(Event::TextDelta(piece)) => come.push(piece),
            Some(Event::Done(done)) => panic!("the turn ends after {come:?}: {done:?}"),
            Some(_) => {}
            None => panic!("the turn ends after {come:?}"),
        }
    }
    let began = Instant::now();
    let cancelled = conversation.cancel_turn("r", Some(true)).await;
    println!("stopped in {:.2?}", began.elapsed());
    assert_eq!(cancelled.outcome(), CancelOutcome::Kept);
    assert!(TurnOutcome::read(stream).await.done().stopped);
    let answer = conversation.messages().await.pop().expect("the answer");
    assert!(answer.stopped && answer.message_id == cancelled.answer_message_id);
    let (_, kept) = conversation.texts_by_role().await.remove(1);
    assert!(kept.starts_with(&come.concat()), "{kept:?}, {come:?}");
    let repeated = turn.await;
    assert!(repeated.done().replayed && repeated.done().stopped);
    assert_eq!(repeated.text(), kept);

    let mut next = conversation.chat("Say ok.");
    next.ask.options = Some(pb::ChatOptions {
        max_output_tokens: Some(OUTPUT_TOKENS),
        ..Default::default()
    });
    let next = next.await;
    assert!(!next.text().is_empty(), "{:?}", next.end);
    println!("{kept:?}; {:?}", next.text());
    conversation.verify().await;
}

#[tokio::test]
async fn a_real_turn_is_answered_anew_and_its_first_answer_is_chosen() {
    let Some(llm) = start_llm(2_048) else { return };
    let app = start_app(&llm).await;
    let conversation = create_conversation(&app).await;
    let first = conversation.chat("Name three colors.").await;
    let second = conversation.regenerate().await;
    assert_eq!(first.done().message_ids, [1, 2]);
    assert_eq!(second.done().message_ids, [1, 3]);
    assert!(!first.text().is_empty() && !second.text().is_empty());
    let standing = async || conversation.texts_by_role().await;
    assert_eq!(standing().await[1..], [(Role::Assistant, second.text())]);
    conversation.choose(1, 1).await.expect("chooses");
    assert_eq!(standing().await[1..], [(Role::Assistant, first.text())]);
    let listed = conversation.alternatives(1).await;
    let numbers: Vec<_> = listed.iter().map(|one| (one.number, one.current)).collect();
    assert_eq!(numbers, [(2, false), (1, true)]);
    let next = conversation.chat("Which one is yours?").await;
    assert_eq!(next.done().answer_message_id, 5);
    println!("{:?}, {:?}: {:?}", first.text(), second.text(), next.text());
    conversation.verify().await;
}

/// The input of the tool: which of two boxes is opened.
const BOX: &str = r#"{"type":"object","properties":{"box":{"type":"string","enum":["red","blue"]}},"required":["box"],"additionalProperties":false}"#;

/// The template of this model has no tools: its server accepts them, and the model answers in
/// words. What the server does enforce, with a grammar, is the shape of an answer. So the model
/// chooses the input of the call as an answer of that shape.
#[tokio::test]
async fn a_real_turn_chooses_a_tools_input_and_answers_with_its_result() {
    let Some(llm) = start_llm(2_048) else { return };
    let app = start_app(&llm).await;
    let conversation = create_conversation(&app).await;
    let tools = pb::ChatOptions {
        tools: vec![pb::Tool {
            name: "look".into(),
            description: "Looks into a box.".into(),
            input_schema: BOX.into(),
        }],
        tool_choice: Some(pb::ToolChoice {
            choice: Some(Choice::Mode(Mode::Required.into())),
        }),
        ..Default::default()
    };
    let mut required = conversation.chat("Look into the red box.");
    required.ask.options = Some(tools.clone());
    required.await.done();

    let mut shaped = conversation.chat("Which box do you open, red or blue?");
    shaped.ask.options = Some(pb::ChatOptions {
        response_format: Some(pb::ResponseFormat {
            format: Some(Format::JsonSchema(pb::response_format::JsonSchema {
                name: "look".into(),
                schema: BOX.into(),
                strict: true,
            })),
        }),
        ..Default::default()
    });
    let input = shaped.await.text();
    let chosen: Value = serde_json::from_str(&input).expect("the grammar allows JSON only");
    assert!(chosen == json!({"box": "red"}) || chosen == json!({"box": "blue"}));

    conversation.append_all(vec![call("c1", &input)]).await;
    let found = result("c1", "There is a brass key in the box.");
    let mut answering = conversation.chat_all(vec![found]);
    answering.ask.options = Some(pb::ChatOptions {
        tool_choice: None,
        ..tools
    });
    let outcome = answering.await;
    assert!(!outcome.text().is_empty(), "{:?}", outcome.end);
    // Question and answer twice, the call, its result, and the answer to it.
    assert_eq!(outcome.done().message_ids, [6, 7]);
    println!("{input}: {:?}", outcome.text());
    conversation.verify().await;
}
