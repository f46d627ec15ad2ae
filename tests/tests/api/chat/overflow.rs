//! The overflow guard of Chat: if a model refuses a context as too long, a shorter one is sent, and
//! the window named in the refusal is stored.

#![expect(non_snake_case, reason = "test names begin with a row of docs/rows.md")]

use anneal_core::tokens::Encoding;
use anneal_testkit::{
    MODEL, ModelRequest, ReportedUsage, Say, Script, ScriptedModel, TestApp, assert_refused,
    assistant, pb, prose, status_details,
};
use pb::{AttemptReason, Pressure, chat_response::Event};
use serde_json::json;
use tonic::Code;
use tonic_types::StatusExt as _;

// Attempts, as their events describe them: number (0 is the first context, which has no event),
// what shortened the context, why.
const TRUNCATED: (i32, Pressure, AttemptReason) =
    (1, Pressure::TruncateToolResults, AttemptReason::Overflow);
const COMPACTED: (i32, Pressure, AttemptReason) = (2, Pressure::Compact, AttemptReason::Overflow);

/// OpenAI's overflow error with this message.
fn overflow(message: &str) -> Script {
    let error = json!({"error": {
        "message": message, "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded",
    }});
    Script::status(400, &[], &error.to_string())
}

/// OpenAI's overflow error that names the window and the tokens of the request.
fn too_long(window: u64, sent: u64) -> Script {
    overflow(&format!(
        "This model's maximum context length is {window} tokens. However, your messages resulted in {sent} tokens. \
         Please reduce the length of the messages."
    ))
}

fn found_it(request: &ModelRequest) -> Script {
    Script::says(request, [Say::text("Found it.")])
}

#[tokio::test]
async fn row_C3_a_refused_context_is_retried_with_truncated_results_then_compacted() {
    let model = ScriptedModel::start(|request| match request.nth {
        0 | 1 => overflow("Your input exceeds the context window of this model."),
        _ => found_it(request),
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation_with_tools().await;
    let outcome = conversation.chat("And the thirteenth?").await;
    assert_eq!(
        (outcome.text().as_str(), outcome.done().attempts),
        ("Found it.", 3)
    );
    assert_eq!(outcome.attempts(), [TRUNCATED, COMPACTED]);
    let [whole, truncated, compacted] = model.requests().try_into().expect("three calls");
    let messages = |request: &ModelRequest| request.body["messages"].as_array().map_or(0, Vec::len);
    assert_eq!(messages(&whole), messages(&truncated));
    assert!(
        truncated.raw.len() * 2 < whole.raw.len() && messages(&compacted) < messages(&truncated)
    );
    assert!(compacted.texts()[0].starts_with("[Summary of the conversation up to message"));
    assert!(
        compacted
            .texts()
            .last()
            .is_some_and(|last| last.ends_with("And the thirteenth?"))
    );
    app.run_jobs_until_idle().await;
    assert_eq!(
        conversation.checkpoints().await.len(),
        1,
        "the compaction is stored"
    );
    // The 48 messages of `conversation_with_tools`, the question and the answer.
    assert_eq!(conversation.messages().await.len(), 50);
    conversation.verify().await;
}

#[tokio::test]
async fn a_model_that_refuses_every_context_is_called_three_times_and_the_question_is_kept() {
    let model =
        ScriptedModel::start(|_| overflow("Your input exceeds the context window of this model."))
            .await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation_with_tools().await;
    let outcome = conversation.chat("Anything?").request_id("r").await;
    assert_eq!(outcome.attempts(), [TRUNCATED, COMPACTED]);
    let status = outcome.end.expect_err("no context fits");
    assert_refused(
        Err::<(), _>(status.clone()),
        Code::FailedPrecondition,
        "CONTEXT_OVERFLOW",
        "",
    );
    assert!(!status_details(&status).retry);
    let facts = status
        .get_error_details()
        .error_info()
        .expect("facts")
        .metadata
        .clone();
    let fact = |name: &str| facts[name].parse::<u64>().expect("a number");
    assert_eq!(
        (
            fact("window_tokens"),
            fact("output_tokens"),
            fact("attempts")
        ),
        (8_192, 2_048, 3)
    );
    // At most 95 % of the 6,144 tokens (8,192 - 2,048) that the output leaves in the window.
    assert!((1..=5_836).contains(&fact("context_tokens")));
    assert_eq!(
        (model.requests().len(), conversation.messages().await.len()),
        (3, 49),
        "three calls; the 48 messages of `conversation_with_tools` and the question"
    );
}

#[tokio::test]
async fn a_provider_that_cuts_contexts_without_an_error_is_named_as_the_cause() {
    let model = ScriptedModel::start(|_| {
        let counted = ReportedUsage {
            input: 50,
            output: 3,
            ..ReportedUsage::default()
        };
        Script::openai(&["Found it."], counted)
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    let outcome = conversation.chat(&prose(0, 60)).await;
    assert_eq!(outcome.attempts(), [TRUNCATED, COMPACTED]);
    let status = outcome.end.expect_err("the provider reads too little");
    assert!(
        status
            .message()
            .contains("by its own count it has read only 50 of"),
        "{status:?}"
    );
    let details = status.get_error_details();
    let info = details.error_info().expect("facts");
    assert_eq!(
        (info.reason.as_str(), info.metadata["read_tokens"].as_str()),
        ("CONTEXT_OVERFLOW", "50")
    );
}

#[tokio::test]
async fn a_window_named_in_a_refusal_applies_at_once_and_in_later_turns() {
    let model = ScriptedModel::start(|request| {
        if request.nth == 0 {
            too_long(4_096, 15_000)
        } else {
            found_it(request)
        }
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation_with_tools().await;
    // The truncated context of attempt 1 still exceeds the learned window. So it is not sent, and
    // attempt 2 compacts at once.
    let compacted_at_once = (2, Pressure::Compact, AttemptReason::OverLearntWindow);
    let first = conversation.chat("And the thirteenth?").await;
    assert_eq!(first.attempts(), [TRUNCATED, compacted_at_once]);
    assert_eq!(
        (first.done().attempts, model.requests().len()),
        (2, 2),
        "a context known to exceed the window is not sent"
    );
    // A token has about four bytes.
    let fits_window = |request: &ModelRequest| request.raw.len() / 4 < 4_096;
    assert!(fits_window(&model.requests()[1]));
    let second = conversation.chat("And the fourteenth?").await;
    assert_eq!(
        second.attempts(),
        [
            (
                1,
                Pressure::TruncateToolResults,
                AttemptReason::OverLearntWindow
            ),
            compacted_at_once
        ]
    );
    assert_eq!((second.done().attempts, model.requests().len()), (1, 3));
    assert!(fits_window(&model.requests()[2]));
}

#[tokio::test]
async fn an_overflow_within_an_answer_discards_the_partial_answer() {
    let model = ScriptedModel::start(|request| match request.nth {
        0 => {
            let delta = json!({"choices": [{"index": 0, "delta": {"content": "Half an"}, "finish_reason": null}]});
            let error =
                json!({"error": {"message": "context size has been exceeded", "code": "context_length_exceeded"}});
            Script::events([format!("data: {delta}\n\n"), format!("data: {error}\n\n")])
        }
        _ => found_it(request),
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation_with_tools().await;
    let outcome = conversation.chat("And the thirteenth?").await;
    assert!(outcome.events.contains(&Event::TextDelta("Half an".into())));
    assert_eq!(
        (outcome.attempts(), outcome.text().as_str()),
        (vec![TRUNCATED], "Found it.")
    );
    let answer = conversation.messages().await.pop().expect("the answer");
    assert_eq!(answer.parts, assistant("Found it.").parts);
}

#[tokio::test]
async fn a_context_that_the_provider_counts_as_too_long_is_retried_smaller() {
    // The provider counts about twice as many tokens as anneal.
    let model = ScriptedModel::start(|request| match request.raw.len() as u64 / 2 {
        counted @ 8_193.. => too_long(8_192, counted),
        counted => Script::openai(
            &["Found it."],
            ReportedUsage {
                input: counted,
                output: 3,
                ..ReportedUsage::default()
            },
        ),
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation_with_tools().await;
    let ask = pb::ClassifyErrorRequest {
        status: 400,
        body: br#"{"error":{"message":"This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.","code":"context_length_exceeded"}}"#.to_vec(),
        model: MODEL.into(),
        ..Default::default()
    };
    app.contexts()
        .classify_error(ask)
        .await
        .expect("learns the window");
    let big = prose(900, 220);
    let outcome = conversation.chat(&big).await;
    let over_window = AttemptReason::OverLearntWindow;
    let attempts = [
        (1, Pressure::TruncateToolResults, over_window),
        (2, Pressure::Compact, over_window),
        (3, Pressure::Compact, AttemptReason::RetrySmaller),
    ];
    assert_eq!(outcome.attempts(), attempts);
    assert_eq!(
        (outcome.done().attempts, outcome.text().as_str()),
        (2, "Found it.")
    );
    let [refused, smaller] = model.requests().try_into().expect("two calls");
    assert!(
        smaller.raw.len() * 2 < refused.raw.len(),
        "{} and {} bytes",
        smaller.raw.len(),
        refused.raw.len()
    );
}

#[tokio::test]
async fn a_system_prompt_above_the_window_is_reported_as_an_overflow() {
    let model =
        ScriptedModel::start(|_| overflow("Your input exceeds the context window of this model."))
            .await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    let mut request = conversation.chat("hello");
    request.ask.system_prompt = Some(prose(0, 500));
    assert_refused(
        request.await.end,
        Code::FailedPrecondition,
        "CONTEXT_OVERFLOW",
        "",
    );
    assert_eq!(
        model.requests().len(),
        2,
        "the third context could not be built"
    );
}

#[tokio::test]
async fn a_wrong_token_ratio_does_not_make_a_provider_seem_to_truncate_prompts() {
    let model = ScriptedModel::start(|request| {
        let count = |text: &String| Encoding::default().counter().count(text).get();
        let counted = ReportedUsage {
            input: request.texts().iter().map(count).sum(),
            output: 3,
            ..ReportedUsage::default()
        };
        Script::openai(&["Found it."], counted)
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    let report = pb::ReportUsageRequest {
        conversation_id: conversation.id.clone(),
        model: MODEL.into(),
        input_tokens: 1_600,
        context_tokens: 1_000,
        ..Default::default()
    };
    let learned = app
        .contexts()
        .report_usage(report)
        .await
        .expect("accepts the report")
        .into_inner();
    assert!((learned.tokens_ratio - 1.6).abs() < 0.01, "{learned:?}");
    let outcome = conversation.chat(&prose(0, 120)).await;
    assert_eq!(
        (outcome.attempts(), outcome.done().attempts),
        (Vec::new(), 1)
    );
    let usage = outcome.done().usage.expect("counted");
    // Prompts below 256 tokens are not checked for truncation. This one is far longer.
    assert!(usage.input_tokens > 2_048, "{usage:?}");
}

/// An error with this status and an overflow in words that no list has.
fn likely_too_long(status: u16) -> Script {
    likely_overflow(status, 9_100, 8_192)
}

/// As [`likely_too_long`], with these numbers of tokens.
fn likely_overflow(status: u16, sent: usize, limit: usize) -> Script {
    let message = format!(
        "Sorry, {sent} tokens were sent, and this deployment reads {limit} tokens at most."
    );
    let error = json!({"error": {"message": message, "type": "invalid_request_error"}});
    Script::status(status, &[], &error.to_string())
}

#[tokio::test]
async fn after_a_likely_overflow_tool_results_are_truncated_once() {
    let model = ScriptedModel::start(|request| match request.nth {
        0 => likely_too_long(422),
        _ => found_it(request),
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation_with_tools().await;
    let outcome = conversation.chat("And the thirteenth?").await;
    assert_eq!(
        (outcome.attempts(), outcome.text().as_str()),
        (vec![TRUNCATED], "Found it.")
    );
    // The window that the error names is not learnt: the next context is sent whole.
    let next = conversation.chat("And the fourteenth?").await;
    assert_eq!(next.attempts(), []);
    let [whole, truncated, next] = model.requests().try_into().expect("three calls");
    assert!(truncated.raw.len() * 2 < whole.raw.len() && next.raw.len() > whole.raw.len());
}

#[tokio::test]
async fn a_second_likely_overflow_ends_the_turn_with_the_refusal() {
    let model = ScriptedModel::start(|_| likely_too_long(422)).await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation_with_tools().await;
    let outcome = conversation.chat("And the thirteenth?").await;
    assert_eq!(outcome.attempts(), [TRUNCATED]);
    let status = outcome.end.expect_err("is refused twice");
    let facts = status
        .get_error_details()
        .error_info()
        .expect("facts")
        .metadata
        .clone();
    assert_eq!(facts["provider_status"], "422");
    assert_refused(
        Err::<(), _>(status),
        Code::FailedPrecondition,
        "MODEL_REFUSED",
        "",
    );
    app.run_jobs_until_idle().await;
    assert_eq!(
        (
            model.requests().len(),
            conversation.checkpoints().await.len()
        ),
        (2, 0),
        "nothing is compacted"
    );
}

#[tokio::test]
async fn a_likely_overflow_without_anything_to_truncate_is_not_repeated() {
    let model = ScriptedModel::start(|_| likely_too_long(400)).await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation().await;
    let outcome = conversation.chat(&prose(0, 500)).await;
    assert_eq!(
        outcome.attempts(),
        [TRUNCATED],
        "a try that changes nothing"
    );
    assert_refused(outcome.end, Code::FailedPrecondition, "MODEL_REFUSED", "");
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn the_tokens_that_were_sent_confirm_a_likely_overflow() {
    let model = ScriptedModel::start(|request| match request.nth {
        0 => {
            // A token of these texts has about four characters.
            let sent = request.raw.len() / 4;
            likely_overflow(422, sent, sent - 1_000)
        }
        _ => found_it(request),
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let conversation = app.conversation_with_tools().await;
    let outcome = conversation.chat("And the thirteenth?").await;
    assert_eq!(outcome.attempts(), [TRUNCATED]);
    let metrics = app.http_client().get("/metrics").await.text;
    let counted = r#"anneal_overflows_likely_total{rule="sense-measured"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test]
async fn an_error_about_far_more_tokens_than_were_sent_is_a_refusal() {
    let model = ScriptedModel::start(|_| likely_too_long(400)).await;
    let app = TestApp::with_scripted_model(&model).await;
    let outcome = app.conversation().await.chat("Anything?").await;
    assert_eq!(outcome.attempts(), [], "it is no overflow");
    assert_refused(outcome.end, Code::FailedPrecondition, "MODEL_REFUSED", "");
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn the_window_of_the_model_confirms_or_refutes_a_likely_overflow() {
    let model = ScriptedModel::start(|request| match request.nth {
        0 | 1 => {
            let message =
                "The conversation does not fit into the context window of this deployment.";
            Script::status(
                400,
                &[],
                &json!({"error": {"message": message}}).to_string(),
            )
        }
        _ => found_it(request),
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let small = app.conversation().await.chat("Anything?").await;
    assert_eq!(small.attempts(), [], "far less than the window was sent");
    assert_refused(small.end, Code::FailedPrecondition, "MODEL_REFUSED", "");
    let conversation = app.conversation_with_tools().await;
    let large = conversation.chat("And the thirteenth?").await;
    assert_eq!(
        (large.attempts(), large.text().as_str()),
        (vec![TRUNCATED], "Found it.")
    );
    let metrics = app.http_client().get("/metrics").await.text;
    let counted = r#"anneal_overflows_likely_total{rule="sense-measured"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
}
