//! ClassifyError over the wire: real error responses of providers, other responses that only look
//! like overflows, and invalid requests.

use std::collections::HashMap;

use anneal_testkit::{TestApp, assert_refused, find_test_data, pb};
use pb::OverflowKind;
use serde_json::{Value, json};
use tonic::{Code, Status};

/// A request to classify a response with this status and body.
fn request_for(status: u32, body: impl Into<Vec<u8>>) -> pb::ClassifyErrorRequest {
    pb::ClassifyErrorRequest {
        status,
        body: body.into(),
        ..Default::default()
    }
}

async fn classify(
    app: &TestApp,
    ask: pb::ClassifyErrorRequest,
) -> Result<pb::ClassifyErrorResponse, Status> {
    app.contexts()
        .classify_error(ask)
        .await
        .map(tonic::Response::into_inner)
}

/// Classifies a response that must not be refused. The answer must name the rule that matched.
async fn classify_ok(app: &TestApp, ask: pb::ClassifyErrorRequest) -> pb::ClassifyErrorResponse {
    let classified = classify(app, ask).await.expect("classifies");
    assert!(!classified.rule.is_empty());
    classified
}

/// Reads real error responses and their expected classification from the folder `llm` beside the
/// real conversations. `None` if the file is missing.
fn read_real_errors() -> Option<Vec<Value>> {
    let file = find_test_data("../llm/overflow-shapes.json")?;
    let text = std::fs::read_to_string(file).expect("the file is readable");
    Some(serde_json::from_str(&text).expect("the file is a list"))
}

#[tokio::test]
async fn real_overflow_errors_are_classified_with_their_token_numbers() {
    let Some(errors) = read_real_errors() else {
        return;
    };
    let app = TestApp::start().await;
    let mut wrong = Vec::new();
    for error in &errors {
        let id = error["id"].as_str().expect("an id");
        let status = error["http_status"].as_u64().expect("a status") as u32;
        let body = error["body"]
            .as_str()
            .map_or_else(|| error["body"].to_string(), str::to_owned);
        let events = format!("event: error\ndata: {body}\n\n");
        let in_stream = error.get("stream").is_some() && !body.is_empty();
        // An error within a stream is classified as its body alone and as an event of the stream.
        for body in [Some(body), in_stream.then_some(events)]
            .into_iter()
            .flatten()
        {
            let mut ask = request_for(status, body);
            ask.streamed = error.get("stream").is_some();
            // Ollama cuts the prompt silently and reports the tokens that it read. Only a
            // comparison with the tokens sent shows the overflow.
            ask.sent_tokens = (id == "ollama-silent").then_some(4_100);
            let classified = classify_ok(&app, ask).await;
            let kind = classified
                .kind()
                .as_str_name()
                .trim_start_matches("OVERFLOW_KIND_")
                .to_lowercase();
            let got = json!([
                kind,
                classified.is_overflow,
                classified.limit_tokens,
                classified.prompt_tokens
            ]);
            let expected = json!([
                error["kind"],
                error["is_overflow"],
                error["limit_tokens"],
                error["prompt_tokens"]
            ]);
            if got != expected {
                wrong.push(format!(
                    "{id}: {got} instead of {expected}, by {}",
                    classified.rule
                ));
            }
        }
    }
    println!("{} error responses", errors.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn an_overflow_comes_with_its_kind_numbers_and_rule() {
    let app = TestApp::start().await;
    let body =
        json!({"error": {"message": "prompt is too long: 1,000,251 tokens > 1,000,000 maximum"}})
            .to_string();
    let classified = classify_ok(&app, request_for(400, body)).await;
    let expected = pb::ClassifyErrorResponse {
        kind: OverflowKind::Input.into(),
        is_overflow: true,
        limit_tokens: Some(1_000_000),
        prompt_tokens: Some(1_000_251),
        rule: "prompt-is-too-long".into(),
        confidence: pb::Confidence::Certain.into(),
    };
    assert_eq!(classified, expected);
    let stream = "event: error\ndata: {\"type\":\"error\",\"error\":{\"code\":\"context_length_exceeded\"}}\n\n";
    let classified = classify_ok(
        &app,
        pb::ClassifyErrorRequest {
            streamed: true,
            ..request_for(200, stream)
        },
    )
    .await;
    assert_eq!(
        (
            classified.kind(),
            classified.limit_tokens,
            classified.rule.as_str()
        ),
        (OverflowKind::Input, None, "context_length_exceeded")
    );
}

#[tokio::test]
async fn other_errors_are_not_classified_as_overflow() {
    let app = TestApp::start().await;
    for (status, message) in [
        (500, "context deadline exceeded"),
        (401, "invalid API token"),
        (400, "max_tokens must be at least 1"),
        (429, "Too many tokens, please wait before trying again."),
        (
            400,
            "Invalid value: 'This model's maximum context length is 10 tokens'",
        ),
        (
            400,
            "messages.3.content: unexpected text 'prompt is too long: 5 tokens > 3 maximum'",
        ),
    ] {
        let body =
            json!({"error": {"message": message, "type": "invalid_request_error"}}).to_string();
        let classified = classify_ok(&app, request_for(status, body)).await;
        assert_eq!(
            (classified.kind(), classified.is_overflow),
            (OverflowKind::NotOverflow, false),
            "{message}"
        );
    }
}

#[tokio::test]
async fn exceeded_quotas_and_byte_limits_are_no_overflow_and_name_no_window() {
    let app = TestApp::start().await;
    let quota = "Request too large for gpt-4o in organization org_x on tokens per min (TPM): Limit 30000, Requested 342389.";
    for (status, message, kind) in [
        (429, quota, OverflowKind::QuotaTooSmall),
        (413, "Payload too large", OverflowKind::Bytes),
    ] {
        let classified = classify_ok(
            &app,
            request_for(status, json!({"error": {"message": message}}).to_string()),
        )
        .await;
        assert_eq!(
            (
                classified.kind(),
                classified.is_overflow,
                classified.limit_tokens
            ),
            (kind, false, None),
            "{message}"
        );
    }
}

#[tokio::test]
async fn odd_bodies_and_headers_are_classified() {
    let app = TestApp::start().await;
    assert_eq!(
        classify_ok(&app, request_for(502, vec![0xff; 1_000]))
            .await
            .kind(),
        OverflowKind::NotOverflow
    );
    let mut body = br#"{"error":{"code":"context_length_exceeded","message":""#.to_vec();
    body.extend([0xff, 0xfe]);
    body.extend(br#""}}"#);
    assert_eq!(
        classify_ok(&app, request_for(400, body)).await.kind(),
        OverflowKind::Input
    );
    let mut ask = request_for(400, r#"{"message":"Too many tokens, please wait"}"#);
    ask.headers
        .insert("X-Amzn-ErrorType".into(), "ThrottlingException".into());
    assert_eq!(
        classify_ok(&app, ask).await.kind(),
        OverflowKind::NotOverflow
    );
    assert_eq!(
        classify_ok(&app, request_for(500, vec![b'['; 1024 * 1024]))
            .await
            .kind(),
        OverflowKind::NotOverflow
    );
}

#[tokio::test]
async fn invalid_fields_are_refused() {
    let app = TestApp::start().await;
    for status in [0, 99, 600, u32::MAX] {
        assert_refused(
            classify(&app, request_for(status, "")).await,
            Code::InvalidArgument,
            "INVALID_FIELD",
            "status",
        );
    }
    let ask = pb::ClassifyErrorRequest {
        sent_tokens: Some(0),
        ..request_for(200, "")
    };
    assert_refused(
        classify(&app, ask).await,
        Code::InvalidArgument,
        "INVALID_FIELD",
        "sent_tokens",
    );
    // The limits: 1 MiB of body, 128 bytes of model name, 64 headers, and 16 KiB of all their names
    // and values.
    let large = request_for(400, vec![b' '; 1024 * 1024 + 1]);
    assert_refused(
        classify(&app, large).await,
        Code::InvalidArgument,
        "LIMIT_EXCEEDED",
        "body",
    );
    let ask = pb::ClassifyErrorRequest {
        model: "m".repeat(129),
        ..request_for(400, "")
    };
    assert_refused(
        classify(&app, ask).await,
        Code::InvalidArgument,
        "LIMIT_EXCEEDED",
        "model",
    );
    let many: HashMap<String, String> =
        (0..65).map(|n| (format!("x-{n}"), String::new())).collect();
    let long = HashMap::from([("x".to_owned(), "y".repeat(16 * 1024))]);
    for headers in [many, long] {
        let ask = pb::ClassifyErrorRequest {
            headers,
            ..request_for(400, "")
        };
        assert_refused(
            classify(&app, ask).await,
            Code::InvalidArgument,
            "LIMIT_EXCEEDED",
            "headers",
        );
    }
}
