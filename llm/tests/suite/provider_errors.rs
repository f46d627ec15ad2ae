//! The classification of providers' answers: context overflows, and answers that only look like
//! one.

use crate::provider_messages::{OVERFLOWS, QUOTATIONS, UNRELATED};
use anneal_llm::provider_error::{
    BODY_BYTES, Classification, Confidence, Delivery,
    OverflowKind::{
        self, Bytes, Input, MessageTooLong, NotOverflow, OutputTruncated, QuotaTooSmall, Silent,
    },
    ProviderAnswer, classify,
};
use serde_json::{Value, json};

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

fn streamed(body: &str) -> Classification {
    let body = body.as_bytes();
    classify(&ProviderAnswer {
        status: 200,
        headers: &[],
        body,
        delivery: Delivery::Streamed,
        sent_tokens: None,
        window_tokens: None,
    })
}

fn error(message: &str) -> Value {
    json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": null}})
}

#[test]
fn known_wordings_are_overflows_of_their_kind_with_their_numbers() {
    for (message, kind, limit, prompt) in OVERFLOWS {
        let found = verdict(400, &error(message).to_string());
        assert_eq!(
            (found.kind, found.limit_tokens, found.prompt_tokens),
            (*kind, *limit, *prompt),
            "{message}"
        );
        assert!(found.is_overflow() && found.confidence == Confidence::Certain);
    }
}

#[test]
fn the_fields_around_a_message_do_not_matter() {
    for (message, kind, limit, prompt) in OVERFLOWS {
        let upstream = error(message).to_string();
        for body in [
            json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}, "request_id": "r"}),
            json!({"object": "error", "message": message, "type": "BadRequestError", "code": 400}),
            json!({"error": message}),
            json!({"code": "InvalidArgument", "error": message}),
            json!({"__type": "ValidationException", "message": message}),
            json!({"Message": message}),
            json!({"detail": message}),
            json!([{"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}]),
            json!({"errors": [{"message": message, "code": 7}], "success": false}),
            json!({"validationException": {"message": message}}),
            json!({"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": upstream}}}),
            json!({"error": {"message": format!("litellm.BadRequestError: OpenAIException - {upstream}"), "code": "400"}}),
            json!({"error": {"message": format!("400 {upstream}")}}),
            json!(message),
        ] {
            let found = verdict(400, &body.to_string());
            assert_eq!(
                (found.kind, found.limit_tokens, found.prompt_tokens),
                (*kind, *limit, *prompt),
                "{body}"
            );
        }
        assert_eq!(
            verdict(400, message).kind,
            *kind,
            "as plain text: {message}"
        );
        let with_status = format!("<400> InternalError.Algo.InvalidParameter: {message}");
        assert_eq!(verdict(400, &with_status).kind, *kind, "{with_status}");
        assert_eq!(
            verdict(500, &upstream).kind,
            *kind,
            "behind a gateway's 500: {message}"
        );
    }
}

#[test]
fn an_error_within_a_stream_of_status_200_counts() {
    let ok = r#"data: {"choices":[{"delta":{"content":"Hel"},"finish_reason":null}]}"#;
    for (message, kind, limit, _) in OVERFLOWS {
        let plain = error(message);
        for body in [
            plain.to_string(),
            format!("event: error\ndata: {plain}\n\n"),
            format!("{ok}\n\ndata: {plain}\n\ndata: [DONE]\n\n"),
            format!(
                "event: error\r\ndata: {}\r\n\r\n",
                json!({"message": message})
            ),
            format!(
                "data: {}\n\n",
                json!({"choices": [{"error": {"message": message}, "finish_reason": "error"}]})
            ),
            format!("error: {}\n\n", json!({"code": 500, "message": message})),
            format!(
                "event: error\ndata: {}\n\n",
                json!({"type": "error", "code": null, "message": message})
            ),
            format!(
                "data: {}\n\n",
                json!({"type": "response.failed", "response": {"error": {"message": message}}})
            ),
            format!(
                "{}\n{}\n",
                json!({"message": {"content": "Hel"}, "done": false}),
                json!({"error": message})
            ),
        ] {
            let found = streamed(&body);
            assert_eq!((found.kind, found.limit_tokens), (*kind, *limit), "{body}");
        }
    }
}

#[test]
fn a_code_proves_an_overflow_without_words_and_under_any_status() {
    for body in [
        json!({"error": {"code": "context_length_exceeded"}}),
        json!({"error": {"code": "context_length_exceeded", "message": "No."}}),
        json!({"type": "error", "code": "context_length_exceeded", "message": null}),
        json!({"type": "response.failed", "response": {"error": {"code": "context_length_exceeded", "message": ""}}}),
        json!({"error": {"type": "exceed_context_size_error", "message": "zu lang"}}),
        json!({"error": "context_length_exceeded"}),
        json!({"error": {"message": "litellm.ContextWindowExceededError: sorry"}}),
    ] {
        for status in [200, 400, 413, 422, 500] {
            assert_eq!(
                verdict(status, &body.to_string()).kind,
                Input,
                "{status} {body}"
            );
        }
    }
    let sizes = json!({"error": {"type": "exceed_context_size_error", "n_prompt_tokens": 900, "n_ctx": 512}});
    let found = verdict(400, &sizes.to_string());
    assert_eq!(
        (found.limit_tokens, found.prompt_tokens, found.rule),
        (Some(512), Some(900), "exceed_context_size_error")
    );
    assert_eq!(
        verdict(400, r#"{"error":{"n_ctx":512,"message":"no such model"}}"#).limit_tokens,
        None
    );
}

#[test]
fn errors_about_something_else_are_not_overflows() {
    for (status, message) in UNRELATED {
        for body in [
            error(message),
            json!({"message": message, "type": "error"}),
            json!({"error": message}),
            json!(message),
        ] {
            let found = verdict(*status, &body.to_string());
            assert_eq!(
                (found.kind, found.limit_tokens),
                (NotOverflow, None),
                "{status} {body}"
            );
        }
        assert_eq!(verdict(*status, message).kind, NotOverflow, "{message}");
        let event = json!({"error": {"code": status, "message": message}});
        assert_eq!(
            streamed(&format!("event: error\ndata: {event}\n\n")).kind,
            NotOverflow,
            "{message}"
        );
    }
}

#[test]
fn an_error_that_quotes_a_user_is_not_an_overflow() {
    for quotation in QUOTATIONS {
        for status in [200, 400, 422, 500] {
            assert_eq!(
                verdict(status, &error(quotation).to_string()).kind,
                NotOverflow,
                "{status} {quotation}"
            );
        }
    }
    for (message, ..) in OVERFLOWS {
        for quoting in [
            format!("Invalid value: '{message}'. Supported values are: 'text'."),
            format!("messages.3.content: unexpected text '{message}'"),
            format!("Invalid request: {message}"),
            format!("user wrote: {message}"),
            format!("\"{message}\" is not a role"),
        ] {
            // The third form may be Moonshot's, whose messages begin with `Invalid request: `, and
            // may be a provider's own words in any case.
            let found = verdict(400, &error(&quoting).to_string());
            let may_be_own_words = quoting.starts_with("Invalid request: ")
                && (found.confidence == Confidence::Likely || found.rule == "moonshot-limit");
            assert!(found.kind == NotOverflow || may_be_own_words, "{quoting}");
        }
    }
}

#[test]
fn other_fields_of_a_body_are_not_read() {
    let text = "prompt is too long: 200251 tokens > 200000 maximum";
    for body in [
        json!({"error": {"message": "bad role", "param": text, "input": text, "innererror": {"message": text}}}),
        json!({"detail": [{"loc": ["body", "messages", 3], "msg": text, "input": text, "type": "literal_error"}]}),
        json!({"error": {"message": "bad role"}, "request": {"messages": [{"role": "user", "content": text}]}}),
        json!({"error": {"message": "bad role", "details": [{"description": text}]}, "trace": text}),
        json!({"message": {"detail": [{"msg": text, "input": text}]}, "object": "error"}),
        json!({"title": text, "messages": [text], "code": 400}),
        json!({"request": {"error": {"message": text}}}),
    ] {
        assert_eq!(verdict(400, &body.to_string()).kind, NotOverflow, "{body}");
    }
    for page in [
        format!("<html><head><title>{text}</title></head><body>Bad Request</body></html>"),
        format!("<html><script>{text}</script><body>Bad Request</body></html>"),
        format!("<!doctype html>\n<p class='{text}'>Bad Request</p>"),
        format!("<!-- {text} -->"),
    ] {
        assert_eq!(verdict(400, &page).kind, NotOverflow, "{page}");
        assert_eq!(verdict(413, &page).kind, Bytes, "{page}");
    }
    for answer in [
        json!({"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}], "error": null}),
        json!({"type": "message", "content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}),
        json!({"object": "response", "status": "completed", "error": null, "output": [{"content": [{"text": text}]}]}),
        json!({"candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": "STOP"}]}),
        json!({"message": {"role": "assistant", "content": text}, "done": true}),
        json!({"output": {"message": {"content": [{"text": text}]}}, "stopReason": "end_turn"}),
    ] {
        assert_eq!(
            verdict(200, &answer.to_string()).kind,
            NotOverflow,
            "{answer}"
        );
    }
}

#[test]
fn limits_other_than_the_window_have_their_own_kind_and_no_limit_tokens() {
    for (status, kind, body) in [
        (
            413,
            Bytes,
            json!({"error": {"type": "request_too_large", "message": "Request exceeds the maximum allowed number of bytes"}}),
        ),
        (
            400,
            Bytes,
            json!({"error": {"code": 400, "message": "Request payload size exceeds the limit: 20971520 bytes.", "status": "INVALID_ARGUMENT"}}),
        ),
        (413, Bytes, json!({"message": "something else"})),
        (
            500,
            Bytes,
            json!("PayloadTooLargeError: request entity too large"),
        ),
        (
            400,
            MessageTooLong,
            json!({"error": {"code": "string_above_max_length", "message": "too long"}}),
        ),
        (
            400,
            MessageTooLong,
            error(
                "Invalid 'messages[7].content': string too long. Expected a string with maximum length 1048576, but got a string with length 1540820 instead.",
            ),
        ),
        (
            400,
            MessageTooLong,
            error(
                "Malformed input request: #/inputText: expected maxLength: 50000, actual: 60120, please reformat your input and try again.",
            ),
        ),
        (
            429,
            QuotaTooSmall,
            error(
                "Request too large for gpt-4.1 in organization org-1 on tokens per min (TPM): Limit 30,000, Requested 75,120. The input or output tokens must be reduced.",
            ),
        ),
        (
            413,
            QuotaTooSmall,
            error(
                "Request too large for model `qwen/qwen3-32b` in organization `o` service tier `on_demand` on tokens per minute (TPM): Limit 6000, Requested 6001, please reduce",
            ),
        ),
        (
            429,
            QuotaTooSmall,
            error(
                "litellm.RateLimitError: GroqException - Rate limit reached for x on tokens per day (TPD): Limit 100, Used 0, Requested 101. Please try again",
            ),
        ),
        (
            413,
            QuotaTooSmall,
            json!({"error": {"code": "tokens_limit_reached", "message": "Request body too large for gpt-4o model. Max size: 8000 tokens."}}),
        ),
        (
            402,
            QuotaTooSmall,
            error("Prompt tokens limit exceeded: 52100 > 11500. To increase, visit the settings"),
        ),
    ] {
        let found = verdict(status, &body.to_string());
        assert_eq!(
            (found.kind, found.limit_tokens, found.prompt_tokens),
            (kind, None, None),
            "{body}"
        );
        assert!(!found.is_overflow());
    }
}

#[test]
fn an_empty_body_is_an_overflow_with_status_400_or_413_and_silent_with_200() {
    for (status, kind) in [
        (400, Input),
        (413, Input),
        (200, Silent),
        (401, NotOverflow),
        (429, NotOverflow),
        (500, NotOverflow),
    ] {
        assert_eq!(verdict(status, "").kind, kind, "{status}");
        assert_eq!(verdict(status, " \r\n").kind, kind, "{status}");
    }
}

#[test]
fn a_stream_that_lacks_content_or_its_end_is_silent() {
    let chunk = |delta: Value, finish: Value| {
        format!(
            "data: {}\n\n",
            json!({"choices": [{"delta": delta, "finish_reason": finish}]})
        )
    };
    let word = chunk(json!({"content": "Hello"}), Value::Null);
    let (role, stop) = (
        chunk(json!({"role": "assistant", "content": ""}), Value::Null),
        chunk(json!({}), json!("stop")),
    );
    let usage =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9000,\"completion_tokens\":0}}\n\n";
    let done = "data: [DONE]\n\n";
    for silent in [
        "",
        ": ping\n\n",
        done,
        usage,
        &role,
        &word,
        &format!("{role}{stop}{usage}{done}"),
        &format!("{role}{done}"),
    ] {
        assert_eq!(streamed(silent).kind, Silent, "{silent}");
    }
    let call = chunk(
        json!({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]}),
        json!("tool_calls"),
    );
    let started = "data: {\"type\":\"response.created\",\"response\":{\"object\":\"response\",\"status\":\"in_progress\",\"instructions\":\"Be brief\",\"output\":[]}}\n\n";
    assert_eq!(streamed(started).kind, Silent);
    for good in [
        format!("{role}{word}{stop}{done}"),
        format!("{word}{done}"),
        call,
        "data: {\"weather\":1}\n\n".into(),
    ] {
        assert_eq!(streamed(&good).kind, NotOverflow, "{good}");
    }
    let anthropic = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[],\"model\":\"m\"}}\n\n";
    assert_eq!(streamed(anthropic).kind, Silent);
    let cut = format!(
        "{anthropic}data: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"model_context_window_exceeded\"}}}}\n\n"
    );
    assert_eq!(streamed(&cut).kind, OutputTruncated);
}

#[test]
fn valid_empty_answers_are_not_silent() {
    for body in [
        json!({"choices": [{"message": {"content": null, "tool_calls": [{"function": {"name": "f"}}]}, "finish_reason": "tool_calls"}]}),
        json!({"choices": [{"message": {"content": ""}, "finish_reason": "length"}], "usage": {"completion_tokens": 900}}),
        json!({"choices": [{"message": {"content": ""}, "finish_reason": "content_filter"}]}),
        json!({"type": "message", "content": [], "stop_reason": "end_turn"}),
        json!({"candidates": [{"content": {"role": "model"}, "finishReason": "MAX_TOKENS"}]}),
        json!({"promptFeedback": {"blockReason": "SAFETY"}, "candidates": []}),
        json!({"object": "response", "status": "in_progress", "output": []}),
        json!({"data": [{"embedding": [0.5]}]}),
    ] {
        assert_eq!(verdict(200, &body.to_string()).kind, NotOverflow, "{body}");
    }
    for body in [
        json!({"choices": [{"message": {"content": ""}, "finish_reason": "stop"}]}),
        json!({"choices": [{"message": {"content": ""}, "finish_reason": "length"}], "usage": {"completion_tokens": 0}}),
        json!({"model": "m", "message": {"role": "assistant", "content": ""}, "done": true, "done_reason": "stop"}),
    ] {
        assert_eq!(verdict(200, &body.to_string()).kind, Silent, "{body}");
    }
}

#[test]
fn a_truncated_prompt_is_detected_by_the_reported_count() {
    let kind = |body: Value, sent_tokens| {
        let body = body.to_string();
        let (headers, delivery) = (&[], Delivery::Whole);
        classify(&ProviderAnswer {
            status: 200,
            headers,
            body: body.as_bytes(),
            delivery,
            sent_tokens,
            window_tokens: None,
        })
        .kind
    };
    let ollama = |read: u64| json!({"message": {"content": "Hello"}, "done": true, "prompt_eval_count": read});
    assert_eq!(kind(ollama(2_050), Some(4_100)), Silent);
    assert_eq!(kind(ollama(2_050), None), NotOverflow);
    assert_eq!(
        kind(ollama(3_300), Some(4_100)),
        NotOverflow,
        "another tokenizer"
    );
    assert_eq!(
        kind(ollama(20), Some(100)),
        NotOverflow,
        "too little to tell"
    );
    assert_eq!(kind(ollama(0), Some(4_100)), NotOverflow, "not counted");
    let cached = json!({"type": "message", "content": [{"type": "text", "text": "Hello"}], "stop_reason": "end_turn",
        "usage": {"input_tokens": 12, "cache_read_input_tokens": 8_000, "cache_creation_input_tokens": 500}});
    assert_eq!(
        kind(cached, Some(8_600)),
        NotOverflow,
        "cached tokens count too"
    );
}

#[test]
fn headers_name_the_error_where_the_body_does_not() {
    let kind = |name: &str, value: &str, body: &str| {
        let headers = [(name.to_owned(), value.to_owned())];
        let body = body.as_bytes();
        classify(&ProviderAnswer {
            status: 400,
            headers: &headers,
            body,
            delivery: Delivery::Whole,
            sent_tokens: None,
            window_tokens: None,
        })
        .kind
    };
    let body = r#"{"message":"Input is too long for requested model."}"#;
    assert_eq!(
        kind(
            "X-Amzn-ErrorType",
            "ValidationException:http://internal.amazon.com/",
            body
        ),
        Input
    );
    assert_eq!(
        kind("x-amzn-errortype", "ThrottlingException", body),
        NotOverflow
    );
    for html in ["text/html", "Text/HTML"] {
        let title = "<title>prompt is too long</title>";
        assert_eq!(kind("Content-Type", html, title), NotOverflow, "{html}");
    }
}

#[test]
fn a_huge_body_is_read_only_in_part_and_a_deeply_nested_one_is_no_overflow() {
    let mut huge =
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n".repeat(BODY_BYTES / 40);
    assert_eq!(
        streamed(&huge).kind,
        NotOverflow,
        "an event has 47 bytes, so the stream exceeds BODY_BYTES and its end is not read"
    );
    huge.push_str("event: error\ndata: {\"error\":{\"code\":\"context_length_exceeded\"}}\n\n");
    assert_eq!(streamed(&huge).kind, NotOverflow);
    let nested = "{\"error\":".repeat(100_000);
    assert_eq!(verdict(400, &nested).kind, NotOverflow);
}

#[test]
fn an_unknown_wording_is_likely_an_overflow_and_teaches_nothing() {
    let numbers = "Sorry, 9100 tokens were sent, and this deployment reads 8192 tokens at most.";
    let window = "The conversation does not fit into the context window of this deployment.";
    let together = "The prompt (6000 tokens) and max_tokens (4000) are more than the 8192 tokens of the context.";
    for (message, kind) in [
        (numbers, Input),
        (window, Input),
        (together, OverflowKind::InputPlusOutput),
    ] {
        for status in [400, 413, 422, 500, 502, 503] {
            let found = verdict(status, &error(message).to_string());
            assert_eq!(
                (found.kind, found.confidence, found.rule),
                (kind, Confidence::Likely, "sense"),
                "{status} {message}"
            );
            assert_eq!((found.limit_tokens, found.prompt_tokens), (None, None));
        }
        for status in [401, 403, 429, 504, 529] {
            let found = verdict(status, &error(message).to_string());
            assert_eq!(found.kind, NotOverflow, "{status} {message}");
        }
        let event = format!("event: error\ndata: {}\n\n", error(message));
        assert_eq!(streamed(&event).confidence, Confidence::Likely, "{message}");
        let coded = json!({"error": {"message": message, "code": "rate_limit_exceeded"}});
        assert_eq!(verdict(400, &coded.to_string()).kind, NotOverflow);
    }
    let of = |message: &str| verdict(400, &error(message).to_string()).wording;
    assert_eq!(of(numbers), of(&numbers.replace("9100", "9999")));
    assert_ne!(of(numbers), of(window));
    assert_eq!(of("prompt is too long"), None, "a known wording");
}

#[test]
fn the_tokens_that_were_sent_confirm_or_refute_an_unknown_wording() {
    let body =
        error("Sorry, 9100 tokens were sent, and this deployment reads 8192 tokens at most.")
            .to_string();
    let with_sent = |sent_tokens| {
        let found = classify(&ProviderAnswer {
            status: 400,
            headers: &[],
            body: body.as_bytes(),
            delivery: Delivery::Whole,
            sent_tokens,
            window_tokens: None,
        });
        (found.kind, found.rule)
    };
    assert_eq!(with_sent(None), (Input, "sense"));
    for near in [6_000, 9_100, 12_000] {
        assert_eq!(with_sent(Some(near)), (Input, "sense-measured"), "{near}");
    }
    assert_eq!(with_sent(Some(20_000)), (Input, "sense"));
    assert_eq!(
        with_sent(Some(4_000)),
        (NotOverflow, "other-error"),
        "less than half of the limit"
    );
}

#[test]
fn words_of_an_overflow_in_an_error_about_something_else_are_not_one() {
    for message in [
        "max_tokens (9000) exceeds the maximum of 8192 tokens.",
        "Requested 9000 output tokens, but the model supports 8192.",
        "The context length of 131072 that is configured exceeds the 32768 tokens of the model.",
        "Your input of 9000 tokens is more than your daily limit of 8192 tokens.",
        "The image has 9000 tokens, more than the 8192 tokens of the context.",
        "The input has 9000 characters, which exceeds the maximum of 8192 characters.",
        "9000 tokens, longer than the context window of 8192 tokens, said the user.",
        "The prompt has 300 tokens, and the limit is 256 tokens.",
        "The prompt has 4000 tokens, and the limit is 8192 tokens.",
        "Prompt caching: 900 tokens are below the minimum of 1024 tokens.",
        "messages.0.content: 9000 tokens exceed the context window of 8192 tokens.",
    ] {
        let found = verdict(400, &error(message).to_string());
        assert_eq!(found.kind, NotOverflow, "{message}");
    }
}
