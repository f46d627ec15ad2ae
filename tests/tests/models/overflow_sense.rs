//! Overflows that no list of wordings has, and other errors with the same words. Each entry of the
//! two files says where it was reported, or that it was composed in the tone of such servers. Names
//! of accounts in them are shortened.

use anneal_core::tokens::Tokens;
use anneal_llm::{
    provider::{Api, Call, CallFailure},
    provider_error::{
        Classification, Confidence, Delivery, OverflowKind, ProviderAnswer, classify,
    },
};
use anneal_testkit::{Script, ScriptedModel, TestApp, pb, plain_call, read_answer};
use serde_json::{Value, json};

use crate::{CONTEXT, providers_failures::configured_model};

/// Errors that are overflows. They were collected without a look at the rules.
const OVERFLOWS: &str = include_str!("overflow_wordings.json");

/// Errors that are not overflows.
const OTHERS: &str = include_str!("not_overflows.json");

/// Statuses with which an error is judged by its sense.
const STATUSES: [u16; 6] = [400, 413, 422, 500, 502, 503];

/// An error of one of the files.
struct Entry {
    status: u16,
    message: String,
    body: String,
}

/// The entries of a file.
fn entries(file: &str) -> Vec<Entry> {
    let list: Vec<Value> = serde_json::from_str(file).expect("the file is a list");
    let entries = list.iter().map(|entry| {
        let status = entry["status"].as_u64().expect("a status");
        let message = entry["message"].as_str().expect("a message");
        assert!(entry["source"].is_string(), "{message}");
        let body = entry["body"].as_str();
        Entry {
            status: status as u16,
            message: message.to_owned(),
            body: body.map_or_else(|| body_of(message), str::to_owned),
        }
    });
    entries.collect()
}

/// An error with this message in the form that most providers use.
fn body_of(message: &str) -> String {
    json!({"error": {"message": message, "type": "invalid_request_error"}}).to_string()
}

fn verdict(status: u16, body: &str) -> Classification {
    classify(&ProviderAnswer {
        status,
        headers: &[],
        body: body.as_bytes(),
        delivery: Delivery::Whole,
        sent_tokens: None,
        window_tokens: None,
    })
}

#[test]
fn nine_of_ten_overflows_in_unknown_words_are_recognized() {
    let entries = entries(OVERFLOWS);
    let missed: Vec<&str> = entries
        .iter()
        .filter(|entry| !verdict(entry.status, &entry.body).is_overflow())
        .map(|entry| entry.body.as_str())
        .collect();
    println!(
        "{} wordings, {} missed: {missed:#?}",
        entries.len(),
        missed.len()
    );
    assert!(entries.len() >= 90);
    assert!(missed.len() * 10 <= entries.len(), "{missed:#?}");
    for entry in &entries {
        let found = verdict(entry.status, &entry.body);
        let is_certain = found.confidence == Confidence::Certain;
        let names_nothing = (found.limit_tokens, found.prompt_tokens) == (None, None);
        assert!(is_certain || names_nothing, "{}", entry.message);
    }
}

#[test]
fn no_other_error_is_taken_for_an_overflow() {
    let entries = entries(OTHERS);
    assert!(entries.len() >= 200);
    let mut taken = Vec::new();
    for entry in &entries {
        for status in STATUSES.iter().chain([&entry.status]) {
            let found = verdict(*status, &entry.body);
            if found.is_overflow() {
                taken.push(format!("{status} {}: {}", entry.message, found.rule));
            }
        }
    }
    assert!(taken.is_empty(), "{taken:#?}");
}

#[test]
fn an_overflow_that_an_error_quotes_is_none() {
    for entry in entries(OVERFLOWS) {
        let message = entry.message;
        for quoting in [
            format!("Invalid value: '{message}'. Supported values are: 'text'."),
            format!("Unexpected part \u{201c}{message}\u{201d} in the list"),
            format!("messages.3.content: {message}"),
            format!("the user wrote: {message}"),
            format!("Could not parse: {{\"text\": \"{message}\"}}"),
            format!("Invalid value: 'The users' text: {message}'. Supported values are: 'text'."),
            format!("Invalid prompt: {message}"),
            format!("Invalid query: {message}"),
            format!("prompt: {message}"),
            format!("Rejected by guardrail 'x': {message}"),
            format!("Error rendering prompt with jinja template: {message}"),
            format!("content policy violation: {message}"),
            format!("Template error near ({message})"),
        ] {
            for status in STATUSES {
                let found = verdict(status, &body_of(&quoting));
                assert!(!found.is_overflow(), "{status} {quoting}: {}", found.rule);
            }
        }
    }
}

#[test]
fn the_text_of_a_page_is_read_for_its_sense() {
    let text = "prompt is too long: 200251 tokens > 200000 maximum";
    for page in [
        format!("<html><body>{text}</body></html>"),
        format!("<!doctype html>\n<pre>{text}</pre>"),
        format!("<html><head><title>400</title></head><h1>Bad Request</h1><p>{text}</p></html>"),
    ] {
        let found = verdict(400, &page);
        assert_eq!(found.confidence, Confidence::Likely, "{page}");
        assert_eq!(found.kind, OverflowKind::Input, "{page}");
        assert_eq!(found.limit_tokens, None, "{page}");
    }
}

#[tokio::test]
async fn a_likely_overflow_is_answered_as_one_and_its_window_is_not_learnt() {
    let app = TestApp::start().await;
    let message = "Prompt is 11543 tokens but the model context window is 4096 tokens.";
    let ask = pb::ClassifyErrorRequest {
        status: 400,
        body: json!({"error": {"message": message}}).to_string().into(),
        model: "a-model".into(),
        ..Default::default()
    };
    let answer = app
        .contexts()
        .classify_error(ask)
        .await
        .expect("classifies")
        .into_inner();
    let expected = pb::ClassifyErrorResponse {
        kind: pb::OverflowKind::Input.into(),
        is_overflow: true,
        limit_tokens: None,
        prompt_tokens: None,
        rule: "sense".into(),
        confidence: pb::Confidence::Likely.into(),
    };
    assert_eq!(answer, expected);
    let learnt: i64 = sqlx::query_scalar("select count(*) from ai_model")
        .fetch_one(&mut app.db().await)
        .await
        .expect("counts");
    assert_eq!(learnt, 0);
    assert_eq!(verdict(400, &body_of(message)).kind, OverflowKind::Input);
}

#[tokio::test]
async fn a_learnt_window_confirms_or_refutes_an_error_in_unknown_words() {
    let app = TestApp::start().await;
    let classify = async |message: &str, model: &str, sent_tokens: Option<u64>| {
        let ask = pb::ClassifyErrorRequest {
            status: 400,
            body: body_of(message).into(),
            model: model.into(),
            sent_tokens,
            ..Default::default()
        };
        let answer = app.contexts().classify_error(ask).await;
        let answer = answer.expect("classifies").into_inner();
        answer.is_overflow.then_some(answer.rule)
    };
    let unknown = "The conversation does not fit into the context window of this deployment.";
    let known = "This model's maximum context length is 8192 tokens. However, your messages \
                 resulted in 9000 tokens.";
    let sense = Some("sense".to_owned());
    assert_eq!(classify(unknown, "a-model", Some(100)).await, sense);
    let certain = classify(known, "a-model", None).await;
    assert!(certain.is_some(), "it is learnt");
    for (sent, expected) in [
        (None, Some("sense")),
        (Some(100), None),
        (Some(4_200), Some("sense")),
        (Some(8_000), Some("sense-measured")),
        (Some(20_000), Some("sense-measured")),
    ] {
        let found = classify(unknown, "a-model", sent).await;
        assert_eq!(found.as_deref(), expected, "{sent:?}");
    }
    // The window is that of this model, and it does not weigh in on a known wording.
    assert_eq!(classify(unknown, "another-model", Some(100)).await, sense);
    assert_eq!(classify(unknown, "", Some(100)).await, sense);
    assert_eq!(classify(known, "a-model", Some(100)).await, certain);
}

#[tokio::test]
async fn the_tokens_of_a_call_confirm_or_refute_an_error_in_unknown_words() {
    let message = "Sorry, 9100 tokens were sent, and this deployment reads 8192 tokens at most.";
    let error = json!({"error": {"message": message, "type": "invalid_request_error"}}).to_string();
    let event = format!("data: {error}\n\n");
    for is_within_answer in [false, true] {
        let (error, event) = (error.clone(), event.clone());
        let server = ScriptedModel::start(move |_| {
            if is_within_answer {
                Script::events([event.as_str()])
            } else {
                Script::status(400, &[], &error)
            }
        })
        .await;
        let model = configured_model(server.settings_of(Api::OpenAi, &["small"]), |_| ());
        for (sent, expected) in [
            (0, Some("sense")),
            (8_000, Some("sense-measured")),
            (100, None),
        ] {
            let call = Call {
                input: Tokens::new(sent),
                ..plain_call(CONTEXT)
            };
            let rule = match read_answer(&model, &call).await.expect_err("it fails") {
                CallFailure::Overflow { rule, .. } => Some(rule),
                _ => None,
            };
            assert_eq!(rule, expected, "{sent} tokens, {is_within_answer}");
        }
    }
}
