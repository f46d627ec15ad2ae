//! Every wrong behavior of a provider becomes one documented `CallFailure`. A call reads a limited
//! number of bytes.

use std::sync::Arc;

use anneal_core::{model::Models, tokens::Tokens};
use anneal_llm::{
    provider::{Api, Call, CallFailure, CallableModels, Model, Providers, StopReason},
    provider_error::Confidence,
};
use anneal_testkit::{ReportedUsage, Say, Script, ScriptedModel, plain_call, read_answer};

use crate::{APIS, CONTEXT};

/// Content in a provider's response. No failure may repeat it.
const SECRET: &str = "what-a-user-wrote";

/// The model `small` of these settings, after `change` has changed its provider's settings.
pub(crate) fn configured_model(
    settings: (Providers, Models),
    change: impl Fn(&mut anneal_llm::provider::ProviderSettings),
) -> Arc<Model> {
    let (mut providers, models) = settings;
    providers.values_mut().for_each(change);
    let callable = CallableModels::new(&providers, &models).expect("these settings can work");
    callable.find("small").expect("it was configured").clone()
}

/// The failure of a call that this script answers. The call reads at most 100,000 bytes.
async fn failure_with_api(
    api: Api,
    script: impl Fn() -> Script + Send + Sync + 'static,
) -> CallFailure {
    failure_with_settings(|settings| settings.response_bytes = 100_000, api, script).await
}

/// The failure of a call that this script answers, with changed provider settings. Asserts that the
/// failure does not repeat [`SECRET`].
pub(crate) async fn failure_with_settings(
    change: impl Fn(&mut anneal_llm::provider::ProviderSettings),
    api: Api,
    script: impl Fn() -> Script + Send + Sync + 'static,
) -> CallFailure {
    let server = ScriptedModel::start(move |_| script()).await;
    let model = configured_model(server.settings_of(api, &["small"]), change);
    let failure = read_answer(&model, &plain_call(CONTEXT))
        .await
        .expect_err("it fails");
    assert!(
        !format!("{failure:?} {failure}").contains(SECRET),
        "{failure}"
    );
    failure
}

/// As [`failure_with_api`], in OpenAI's protocol.
pub(crate) async fn openai_failure(
    script: impl Fn() -> Script + Send + Sync + 'static,
) -> CallFailure {
    failure_with_api(Api::OpenAi, script).await
}

fn broken_reason(failure: &CallFailure) -> &'static str {
    if let CallFailure::Broken(what) = failure {
        what
    } else {
        panic!("{failure:?}")
    }
}

pub(crate) fn unavailable_reason(failure: &CallFailure) -> &str {
    if let CallFailure::Unavailable { what, .. } = failure {
        what
    } else {
        panic!("{failure:?}")
    }
}

fn error_body(message: &str, code: &str) -> String {
    serde_json::json!({"error": {"message": message, "type": code, "code": code, "param": SECRET}})
        .to_string()
}

#[tokio::test]
async fn a_context_that_does_not_fit_is_an_overflow_with_its_numbers() {
    let message = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.";
    for status in [400, 413, 500] {
        let failure = openai_failure(move || {
            Script::status(status, &[], &error_body(message, "context_length_exceeded"))
        })
        .await;
        let (window, prompt) = (Some(Tokens::new(8_192)), Some(Tokens::new(9_000)));
        assert_eq!(
            failure,
            CallFailure::Overflow {
                window,
                prompt,
                read: None,
                rule: "context_length_exceeded",
                confidence: Confidence::Certain,
                status: Some(status),
                wording: None,
            },
            "{status}"
        );
        assert!(!failure.is_retryable());
    }
}

#[tokio::test]
async fn a_request_too_large_in_bytes_or_for_the_quota_is_an_overflow_without_a_window() {
    let bytes = || Script::status(413, &[], "");
    let quota = || Script::status(413, &[], &error_body("too large", "tokens_limit_reached"));
    let long = || Script::status(400, &[], &error_body("no", "string_above_max_length"));
    for (rule, status, failure) in [
        ("status-without-body", 413, openai_failure(bytes).await),
        ("tokens_limit_reached", 413, openai_failure(quota).await),
        ("string_above_max_length", 400, openai_failure(long).await),
    ] {
        assert_eq!(
            failure,
            CallFailure::Overflow {
                window: None,
                prompt: None,
                read: None,
                rule,
                confidence: Confidence::Certain,
                status: Some(status),
                wording: None,
            }
        );
    }
}

#[tokio::test]
async fn too_many_requests_is_a_rate_limit_with_its_retry_time() {
    for status in [429, 503, 529] {
        let body = error_body(SECRET, "rate_limit_exceeded");
        let failure =
            openai_failure(move || Script::status(status, &[("retry-after", "7")], &body)).await;
        let retry_after = Some(std::time::Duration::from_secs(7));
        assert_eq!(
            failure,
            CallFailure::Limited {
                status,
                retry_after
            }
        );
        assert!(failure.is_retryable());
    }
}

#[tokio::test]
async fn the_status_decides_whether_a_call_may_be_retried() {
    for status in [408, 500, 502, 504, 599] {
        let failure = openai_failure(move || Script::status(status, &[], SECRET)).await;
        assert_eq!(unavailable_reason(&failure), format!("status {status}"));
        assert!(failure.is_retryable());
    }
    for status in [301, 307, 401, 403, 404, 422] {
        let location = [("location", "http://127.0.0.1:1/elsewhere")];
        let failure = openai_failure(move || {
            Script::status(
                status,
                &location,
                &error_body(SECRET, "invalid_request_error"),
            )
        })
        .await;
        assert_eq!(failure, CallFailure::Refused { status });
        assert!(!failure.is_retryable());
    }
}

#[tokio::test]
async fn an_error_within_a_stream_is_classified_like_an_error_response() {
    let text = "data: {\"choices\":[{\"delta\":{\"content\":\"Well, error\"}}]}\n\n";
    let openai = |message: &'static str, code: &'static str| {
        openai_failure(move || {
            Script::events([
                text.to_owned(),
                format!("data: {}\n\n", error_body(message, code)),
            ])
        })
    };
    let overflow = openai("no", "context_length_exceeded").await;
    assert!(
        matches!(
            overflow,
            CallFailure::Overflow {
                rule: "context_length_exceeded",
                ..
            }
        ),
        "{overflow:?}"
    );
    assert_eq!(
        openai(SECRET, "rate_limit_exceeded").await,
        CallFailure::Limited {
            status: 429,
            retry_after: None
        }
    );
    assert_eq!(
        openai(SECRET, "invalid_request_error").await,
        CallFailure::Refused { status: 400 }
    );
    assert_eq!(
        unavailable_reason(&openai(SECRET, "server_error").await),
        "an error within the answer"
    );

    let event = |code: &str| {
        let error =
            serde_json::json!({"type": "error", "error": {"type": code, "message": SECRET}});
        format!("event: error\ndata: {error}\n\n")
    };
    let overloaded = failure_with_api(Api::Anthropic, move || {
        Script::events([event("overloaded_error")])
    })
    .await;
    assert_eq!(
        overloaded,
        CallFailure::Limited {
            status: 529,
            retry_after: None
        }
    );
    let no_json = failure_with_api(Api::Anthropic, || {
        Script::events(["event: error\ndata: oh no\n\n"])
    })
    .await;
    assert_eq!(unavailable_reason(&no_json), "an error within the answer");
    let gemini =
        r#"data: {"error":{"code":503,"message":"what-a-user-wrote","status":"UNAVAILABLE"}}"#;
    let gemini = failure_with_api(Api::Gemini, move || {
        Script::events([format!("{gemini}\n\n")])
    })
    .await;
    assert_eq!(
        gemini,
        CallFailure::Limited {
            status: 503,
            retry_after: None
        }
    );
    let without_stream =
        openai_failure(|| Script::status(200, &[], &error_body("no", "context_length_exceeded")))
            .await;
    assert!(
        matches!(without_stream, CallFailure::Overflow { .. }),
        "{without_stream:?}"
    );
}

#[tokio::test]
async fn an_answer_about_errors_is_not_an_error() {
    let server = ScriptedModel::start(|request| {
        Script::says(request, [Say::text("{\"error\":{\"code\":400}}")])
    })
    .await;
    for api in APIS {
        let model = configured_model(server.settings_of(api, &["small"]), |_| ());
        let answer = read_answer(&model, &plain_call(CONTEXT))
            .await
            .expect("it is an answer");
        assert_eq!(answer.text, "{\"error\":{\"code\":400}}", "{api:?}");
    }
}

#[tokio::test]
async fn an_answer_cut_off_before_its_end_is_broken() {
    for api in APIS {
        for events in 0..4 {
            let says = [
                Say::text("One."),
                Say::text("Two."),
                Say::text("Three."),
                Say::text("Four."),
            ];
            let script = move || {
                Script::says_counted(api, &says, ReportedUsage::default()).cut_after(events)
            };
            assert_eq!(
                broken_reason(&failure_with_api(api, script).await),
                "it was cut off",
                "{api:?}, after {events} events"
            );
        }
    }
}

#[tokio::test]
async fn a_stream_without_its_final_event_is_broken() {
    for (api, event) in [
        (Api::OpenAi, r#"{"choices":[{"delta":{"content":"One."}}]}"#),
        (
            Api::Anthropic,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"One."}}"#,
        ),
        (
            Api::Gemini,
            r#"{"candidates":[{"content":{"parts":[{"text":"One."}]}}]}"#,
        ),
    ] {
        let failure =
            failure_with_api(api, move || Script::events([format!("data: {event}\n\n")])).await;
        assert_eq!(
            broken_reason(&failure),
            "it ended without a stop reason",
            "{api:?}"
        );
    }
}

#[tokio::test]
async fn a_response_that_violates_the_protocol_is_broken() {
    let stream = |body: &'static str| {
        move || Script::status(200, &[("content-type", "text/event-stream")], body)
    };
    for (body, what) in [
        ("", "it is empty"),
        ("\n\n \u{feff}", "it is empty"),
        ("<!DOCTYPE html>", "it is an HTML page"),
        (
            "Service will be back soon",
            "it does not follow the protocol",
        ),
        (
            "data: {\"choices\":[{\"delta\":{\"content\":\"On",
            "an event does not follow the protocol",
        ),
        ("data: [1]\n\n", "an event does not follow the protocol"),
        (
            "data: {\"choices\":7}\n\n",
            "an event does not follow the protocol",
        ),
        ("data: soon\n\n", "an event does not follow the protocol"),
        (
            ": nothing but a comment\n\n",
            "it ended without a stop reason",
        ),
        (
            "{\"choices\":[{\"message\":{\"content\":\"On",
            "an event does not follow the protocol",
        ),
        ("{\"id\":\"7\"}", "it ended without a stop reason"),
        (
            "\u{feff}\u{feff}data: [DONE]\n\n",
            "it ended without a stop reason",
        ),
    ] {
        assert_eq!(
            broken_reason(&openai_failure(stream(body)).await),
            what,
            "{body}"
        );
    }
    let page = || {
        Script::status(
            200,
            &[("content-type", "Text/HTML; charset=utf-8")],
            "Sorry",
        )
    };
    assert_eq!(
        broken_reason(&openai_failure(page).await),
        "it is an HTML page"
    );
    let latin = || {
        Script::raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\ndata: {\"a\":\"\xe9\"}\n\n")
    };
    assert_eq!(
        broken_reason(&openai_failure(latin).await),
        "it is not UTF-8"
    );
    let deep = format!("data: {{\"choices\":{}\n\n", "[".repeat(50_000));
    let deep = openai_failure(move || Script::events([deep.as_str()])).await;
    assert_eq!(
        broken_reason(&deep),
        "an event does not follow the protocol"
    );
    let many = format!("data: {{\"choices\":[{}{{}}]}}\n\n", "{},".repeat(20_000));
    let many = openai_failure(move || Script::events([many.as_str()])).await;
    assert_eq!(
        broken_reason(&many),
        "an event does not follow the protocol"
    );
}

#[tokio::test]
async fn an_empty_answer_is_broken() {
    for api in APIS {
        for says in [
            vec![],
            Say::texts(&[" \n", "\t"]),
            vec![Say::thought("Hm.")],
            vec![Say::OutputLimit],
        ] {
            let script = move || Script::says_counted(api, &says, ReportedUsage::default());
            assert_eq!(
                broken_reason(&failure_with_api(api, script).await),
                "it has no content",
                "{api:?}"
            );
        }
    }
    let no_name = || {
        Script::says_counted(
            Api::OpenAi,
            &[Say::tool("a", "", "{}")],
            ReportedUsage::default(),
        )
    };
    assert_eq!(
        broken_reason(&openai_failure(no_name).await),
        "a call of a tool has no name"
    );
}

#[tokio::test]
async fn a_filtered_answer_may_be_empty() {
    let server = ScriptedModel::start(|_| {
        Script::events(["data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}\r\n\r\n"])
    });
    let server = server.await;
    let model = configured_model(server.settings_of(Api::Gemini, &["small"]), |_| ());
    let answer = read_answer(&model, &plain_call(CONTEXT))
        .await
        .expect("it is an answer");
    assert_eq!(
        (answer.text.as_str(), answer.end.stop),
        ("", StopReason::Filtered)
    );
}

#[tokio::test]
async fn a_prompt_silently_truncated_by_the_provider_is_an_overflow() {
    for api in APIS {
        let server = ScriptedModel::start(move |_| {
            let counted = ReportedUsage {
                input: 2_000,
                ..ReportedUsage::default()
            };
            Script::says_counted(api, &[Say::text("Sure!")], counted)
        });
        let server = server.await;
        let model = configured_model(server.settings_of(api, &["small"]), |_| ());
        let sent = |tokens| Call {
            least_sent_tokens: Some(Tokens::new(tokens)),
            ..plain_call(CONTEXT)
        };
        let failure = read_answer(&model, &sent(6_000))
            .await
            .expect_err("two thirds of the prompt are missing");
        let rule = "prompt-shortened";
        assert_eq!(
            failure,
            CallFailure::Overflow {
                window: None,
                prompt: None,
                read: Some(Tokens::new(2_000)),
                rule,
                confidence: Confidence::Certain,
                status: None,
                wording: None,
            },
            "{api:?}"
        );
        assert!(
            read_answer(&model, &sent(2_500)).await.is_ok(),
            "{api:?}: a count that differs a little is no overflow, because tokenizers differ"
        );
    }
}

#[tokio::test]
async fn an_answer_above_the_size_limit_is_broken_and_not_read_to_its_end() {
    for api in APIS {
        for event in [": still there\n\n", "data:", "\n"] {
            let server = ScriptedModel::start(move |_| Script::endless(event)).await;
            let model = configured_model(server.settings_of(api, &["small"]), |settings| {
                settings.response_bytes = 100_000;
            });
            let failure = read_answer(&model, &plain_call(CONTEXT))
                .await
                .expect_err("the answer never ends");
            assert_eq!(
                broken_reason(&failure),
                "it is larger than response_bytes",
                "{api:?}, {event:?}"
            );
            server.wait_for_closed_calls(1).await;
        }
    }
    let announced = openai_failure(|| Script::bytes(200, 100_001)).await;
    assert_eq!(
        broken_reason(&announced),
        "it is larger than response_bytes"
    );
}

#[tokio::test]
async fn only_the_beginning_of_an_error_body_is_read() {
    let server = ScriptedModel::start(|_| {
        Script::raw(b"HTTP/1.1 400 Bad\r\ntransfer-encoding: chunked\r\n\r\n")
            .then_endless(&"x".repeat(1_000))
    });
    let server = server.await;
    let model = configured_model(server.settings(&["small"]), |_| ());
    let failure = read_answer(&model, &plain_call(CONTEXT))
        .await
        .expect_err("it fails");
    assert_eq!(failure, CallFailure::Refused { status: 400 });
    server.wait_for_closed_calls(1).await;
}

#[tokio::test]
async fn too_many_tool_calls_end_the_answer_at_the_limit() {
    let call = |n: usize| {
        let part = format!(
            "{{\"index\":{n},\"id\":\"c{n}\",\"function\":{{\"name\":\"look\",\"arguments\":\"{{}}\"}}}}"
        );
        format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{part}]}}}}]}}\n\n")
    };
    // An answer may have 256 tool calls. The stream has no final event, so without this limit the
    // failure would be another one.
    let failure_after = |calls: usize| {
        openai_failure(move || Script::events([(0..calls).map(call).collect::<String>()]))
    };
    assert_eq!(
        broken_reason(&failure_after(256).await),
        "it ended without a stop reason"
    );
    assert_eq!(
        broken_reason(&failure_after(257).await),
        "it calls too many tools"
    );
}
