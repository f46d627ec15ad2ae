//! Calls of a real model through a real model server, in the two protocols of that server.

use std::sync::Arc;

use anneal_core::tokens::Tokens;
use anneal_llm::provider::{
    Api, Call, CallFailure, CallableModels, ChatOptions, Model, StopReason,
};
use anneal_testkit::{plain_call, read_answer, start_llm};
use serde_json::json;

/// The context window in the model's settings, in tokens.
const WINDOW: u32 = 8_192;
const APIS: [Api; 2] = [Api::OpenAi, Api::Anthropic];

fn model(url: &str, api: Api) -> Arc<Model> {
    let providers =
        serde_json::from_value(json!({"local": {"api": api, "url": url}})).expect("settings");
    let models = json!({"any": {"provider": "local", "window_tokens": WINDOW}});
    let models = serde_json::from_value(models).expect("settings");
    CallableModels::new(&providers, &models)
        .expect("these settings can work")
        .find("any")
        .expect("configured")
        .clone()
}

fn request_with(text: &str) -> String {
    json!({"messages": [{"role": "user", "content": text}]}).to_string()
}

#[tokio::test]
async fn a_real_model_streams_its_answer_and_stops_when_the_call_is_dropped() {
    let Some(llm) = start_llm(WINDOW) else { return };
    let context = request_with("Say hello and count from one to one hundred.");
    for api in APIS {
        let model = model(&llm.url, api);
        let options = ChatOptions {
            temperature: Some(0.0),
            ..ChatOptions::default()
        };
        let call = Call {
            output: Tokens::new(24),
            options: &options,
            ..plain_call(&context)
        };
        let answer = read_answer(&model, &call).await.expect("it answers");
        assert!(!answer.text.trim().is_empty());
        let usage = answer.end.usage;
        assert!(
            usage.input.get() > 10 && (1..=24).contains(&usage.output.get()),
            "{usage:?}"
        );
        println!("{api:?}: {:?}, {:?}", answer.text, answer.end);

        let call = Call {
            output: Tokens::new(2_000),
            ..call
        };
        let mut pieces = model.stream(&call).await.expect("it answers");
        pieces.next().await.expect("a piece").expect("no failure");
        drop(pieces);
        // The server has one slot: it answers a second call only after the first one has ended.
        let second_call = Call {
            output: Tokens::new(2),
            ..call
        };
        let answer = read_answer(&model, &second_call).await.expect("it answers");
        assert_eq!(answer.end.stop, StopReason::OutputLimit);
    }
}

#[tokio::test]
async fn a_real_overflow_names_the_window_in_both_protocols() {
    let Some(llm) = start_llm(512) else { return };
    let context = request_with(&"word ".repeat(2_000));
    for api in APIS {
        let failure = read_answer(&model(&llm.url, api), &plain_call(&context))
            .await
            .expect_err("it does not fit");
        let CallFailure::Overflow {
            window,
            prompt,
            rule,
            ..
        } = failure
        else {
            panic!("{failure:?}")
        };
        assert_eq!(window, Some(Tokens::new(512)), "{rule}");
        assert!(
            prompt.is_some_and(|tokens| tokens.get() > 512),
            "{prompt:?}"
        );
        println!("{api:?}: {prompt:?} by {rule}");
    }
}
