//! A real model behind a real server is called in both its protocols.

use std::sync::Arc;

use anneal_core::tokens::Tokens;
use anneal_llm::provider::{Api, Call, CallFailure, CallableModels, Model, StopReason};
use anneal_tests::{hear, plain_call, start_llm};
use serde_json::json;

const WINDOW: u32 = 8_192;
const APIS: [Api; 2] = [Api::OpenAi, Api::Anthropic];

fn model(url: &str, api: Api) -> Arc<Model> {
    let providers = serde_json::from_value(json!({"local": {"api": api, "url": url}})).expect("settings");
    let models = json!({"any": {"provider": "local", "window_tokens": WINDOW}});
    let models = serde_json::from_value(models).expect("settings");
    CallableModels::new(&providers, &models).expect("these settings can work").find("any").expect("configured").clone()
}

fn asking(text: &str) -> String {
    json!({"messages": [{"role": "user", "content": text}]}).to_string()
}

#[tokio::test]
async fn a_real_model_answers_in_pieces_and_is_left_in_the_middle() {
    let Some(llm) = start_llm(WINDOW) else { return };
    let context = asking("Say hello and count from one to one hundred.");
    for api in APIS {
        let model = model(&llm.url, api);
        let call = Call { output: Tokens::new(24), temperature: Some(0.0), ..plain_call(&context) };
        let heard = hear(&model, &call).await.expect("it answers");
        assert!(!heard.text.trim().is_empty());
        let usage = heard.end.usage;
        assert!(usage.input.get() > 10 && (1..=24).contains(&usage.output.get()), "{usage:?}");
        println!("{api:?}: {:?}, {:?}", heard.text, heard.end);

        let call = Call { output: Tokens::new(2_000), ..call };
        let mut pieces = model.stream(&call).await.expect("it answers");
        pieces.next().await.expect("a piece").expect("no failure");
        drop(pieces);
        // One slot: a second call is answered only because the first one has ended.
        let again = Call { output: Tokens::new(2), ..call };
        let heard = hear(&model, &again).await.expect("it answers");
        assert_eq!(heard.end.stop, StopReason::OutputLimit);
    }
}

#[tokio::test]
async fn a_real_overflow_names_the_window_in_both_protocols() {
    let Some(llm) = start_llm(512) else { return };
    let context = asking(&"word ".repeat(2_000));
    for api in APIS {
        let failure = hear(&model(&llm.url, api), &plain_call(&context)).await.expect_err("it does not fit");
        let CallFailure::Overflow { window, prompt, rule } = failure else { panic!("{failure:?}") };
        assert_eq!(window, Some(Tokens::new(512)), "{rule}");
        assert!(prompt.is_some_and(|tokens| tokens.get() > 512), "{prompt:?}");
        println!("{api:?}: {prompt:?} by {rule}");
    }
}
