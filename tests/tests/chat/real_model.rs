//! Chat with a real model behind a real server: it streams, it overflows by itself, and the turn is answered all the same.

use anneal_core::model::Models;
use anneal_llm::provider::Providers;
use anneal_tests::{Data, House, Llm, Talk, assistant, call, pb, prose, result, start_llm, user};
use pb::{AttemptReason, Pressure, chat_response::Event};
use serde_json::json;

const MODEL: &str = "smollm2";
/// Room for answers: a small model on a busy processor.
const OUTPUT: u64 = 24;

/// A house that takes the model's window for 8,192 tokens, whatever it is.
async fn house_of(llm: &Llm) -> House {
    let provider = json!({"local": {"api": "openai", "url": llm.url, "first_byte_timeout_ms": 300_000}});
    let providers: Providers = serde_json::from_value(provider).expect("settings");
    let model = json!({MODEL: {"provider": "local", "window_tokens": 8_192, "output_tokens": OUTPUT}});
    let models: Models = serde_json::from_value(model).expect("settings");
    House::calling((providers, models), MODEL).await
}

async fn conversation(house: &House) -> Talk<'_> {
    let policy = pb::Policy { model: MODEL.into(), max_message_count: Some(0), ..Default::default() };
    house.conversation_under(policy).await
}

/// The model's window, as far as the conversation's contexts know.
async fn known_window(talk: &Talk<'_>) -> u64 {
    let ask = pb::GetContextUsageRequest { conversation_id: talk.id.clone(), ..Default::default() };
    talk.house.contexts().get_context_usage(ask).await.expect("answers").into_inner().model_window_tokens
}

#[tokio::test]
async fn a_real_model_streams_through_chat() {
    let Some(llm) = start_llm(8_192) else { return };
    let house = house_of(&llm).await;
    let talk = conversation(&house).await;
    let told = talk.chat("Name three colours.").await;
    let deltas = told.events.iter().filter(|event| matches!(event, Event::TextDelta(_))).count();
    assert!(deltas > 1, "{:?}", told.events);
    let usage = told.done().usage.expect("the server counts");
    assert!(usage.input_tokens > 5 && (1..=OUTPUT).contains(&usage.output_tokens), "{usage:?}");
    let answer = talk.messages().await.pop().expect("the answer");
    assert_eq!(answer.parts, assistant(&told.text()).parts);
    println!("{} pieces, {usage:?}: {:?}", deltas, told.text());
}

#[tokio::test]
async fn a_conversation_above_a_real_window_is_truncated_compacted_and_answered() {
    let Some(llm) = start_llm(512) else { return };
    let house = house_of(&llm).await;
    let talk = conversation(&house).await;
    for n in 0..6 {
        let id = format!("c{n}");
        let said = prose(n * 60, 1);
        talk.append_all(vec![user(&said), call(&id, "{}"), result(&id, &prose(n * 60, 30)), assistant("Found.")]).await;
    }
    house.run_jobs_until_idle().await;
    let told = talk.chat("Say ok.").await;
    let attempts = told.attempts();
    println!("{attempts:?}, {:?}: {:?}", told.end, told.text());
    assert_eq!(attempts[0], (1, Pressure::TruncateToolResults, AttemptReason::Overflow));
    assert_eq!((attempts[1].0, attempts[1].1), (2, Pressure::Compact));
    assert!(!told.text().is_empty() && told.done().answer_message_id == 26);
    assert_eq!(known_window(&talk).await, 512, "the refusal has named it");
    let next = talk.chat("Again.").await;
    println!("{:?}, {:?}: {:?}", next.attempts(), next.end, next.text());
    assert_eq!(next.done().attempts, 1, "what is known to overflow is not sent");
    talk.verify().await;
}

#[tokio::test]
async fn a_session_that_its_own_agent_could_not_rescue_goes_on() {
    let (Some(data), Some(llm)) = (Data::find(), start_llm(2_048)) else { return };
    let session = data.pi_sessions().into_iter().find(|chat| chat.name == "pi-0").expect("the session is there");
    let house = house_of(&llm).await;
    let policy = pb::Policy { model: MODEL.into(), ..Default::default() };
    let imported = house.import(std::slice::from_ref(&session), &policy).await;
    let talk = &imported[0].talk;
    let told = talk.chat("Say ok.").await;
    println!("{:?}, {:?}: {:?}", told.attempts(), told.end, told.text());
    assert!(!told.text().is_empty() && told.done().attempts > 1, "it overflows, and is answered");
    assert_eq!(known_window(talk).await, 2_048);
}
