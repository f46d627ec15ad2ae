//! ClassifyError over the wire: real error responses of providers, similar responses, and invalid
//! requests.

use std::{collections::HashMap, path::PathBuf};

use anneal_testkit::{TestApp, TranscriptFolder, assert_refused, pb};
use pb::OverflowKind;
use serde_json::{Value, json};
use tonic::{Code, Status};

/// A request to classify a response with this status and body.
fn answer(status: u32, body: impl Into<Vec<u8>>) -> pb::ClassifyErrorRequest {
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

async fn verdict(app: &TestApp, ask: pb::ClassifyErrorRequest) -> pb::ClassifyErrorResponse {
    let classified = classify(app, ask).await.expect("classifies");
    assert!(!classified.rule.is_empty());
    classified
}

/// Real error responses from the folder `llm` beside the real conversations. `None` if it is
/// missing.
fn shapes(data: &TranscriptFolder) -> Option<Vec<Value>> {
    let file: PathBuf = data.path("../llm/overflow-shapes.json");
    let Ok(text) = std::fs::read_to_string(&file) else {
        println!("skipped: shapes of providers' answers are not here");
        return None;
    };
    serde_json::from_str(&text).expect("the file is a list")
}

#[tokio::test]
async fn real_shapes_of_overflows_are_classified_with_their_numbers() {
    let Some(shapes) = TranscriptFolder::find().as_ref().and_then(shapes) else {
        return;
    };
    let app = TestApp::start().await;
    let mut wrong = Vec::new();
    for shape in &shapes {
        let id = shape["id"].as_str().expect("an id");
        let status = shape["http_status"].as_u64().expect("a status") as u32;
        let body = shape["body"]
            .as_str()
            .map_or_else(|| shape["body"].to_string(), str::to_owned);
        let events = format!("event: error\ndata: {body}\n\n");
        let in_stream = shape.get("stream").is_some() && !body.is_empty();
        for body in [Some(body), in_stream.then_some(events)]
            .into_iter()
            .flatten()
        {
            let mut ask = answer(status, body);
            ask.streamed = shape.get("stream").is_some();
            // Ollama reports only the tokens that it read. The overflow shows only against the
            // tokens sent.
            ask.sent_tokens = (id == "ollama-silent").then_some(4_100);
            let classified = verdict(&app, ask).await;
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
                shape["kind"],
                shape["is_overflow"],
                shape["limit_tokens"],
                shape["prompt_tokens"]
            ]);
            if got != expected {
                wrong.push(format!(
                    "{id}: {got} instead of {expected}, by {}",
                    classified.rule
                ));
            }
        }
    }
    println!("{} shapes", shapes.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn an_overflow_comes_with_its_kind_numbers_and_rule() {
    let app = TestApp::start().await;
    let body =
        json!({"error": {"message": "prompt is too long: 1,000,251 tokens > 1,000,000 maximum"}})
            .to_string();
    let classified = verdict(&app, answer(400, body)).await;
    let expected = pb::ClassifyErrorResponse {
        kind: OverflowKind::Input.into(),
        is_overflow: true,
        limit_tokens: Some(1_000_000),
        prompt_tokens: Some(1_000_251),
        rule: "prompt-is-too-long".into(),
    };
    assert_eq!(classified, expected);
    let stream = "event: error\ndata: {\"type\":\"error\",\"error\":{\"code\":\"context_length_exceeded\"}}\n\n";
    let classified = verdict(
        &app,
        pb::ClassifyErrorRequest {
            streamed: true,
            ..answer(200, stream)
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
        let classified = verdict(&app, answer(status, body)).await;
        assert_eq!(
            (classified.kind(), classified.is_overflow),
            (OverflowKind::NotOverflow, false),
            "{message}"
        );
    }
}

#[tokio::test]
async fn quotas_and_bytes_name_no_window() {
    let app = TestApp::start().await;
    let quota = "Request too large for gpt-4o in organization org_x on tokens per min (TPM): Limit 30000, Requested 342389.";
    for (status, message, kind) in [
        (429, quota, OverflowKind::QuotaTooSmall),
        (413, "Payload too large", OverflowKind::Bytes),
    ] {
        let classified = verdict(
            &app,
            answer(status, json!({"error": {"message": message}}).to_string()),
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
async fn bodies_that_are_not_utf8_are_classified() {
    let app = TestApp::start().await;
    assert_eq!(
        verdict(&app, answer(502, vec![0xff; 1_000])).await.kind(),
        OverflowKind::NotOverflow
    );
    let mut body = br#"{"error":{"code":"context_length_exceeded","message":""#.to_vec();
    body.extend([0xff, 0xfe]);
    body.extend(br#""}}"#);
    assert_eq!(
        verdict(&app, answer(400, body)).await.kind(),
        OverflowKind::Input
    );
    let mut ask = answer(400, r#"{"message":"Too many tokens, please wait"}"#);
    ask.headers
        .insert("X-Amzn-ErrorType".into(), "ThrottlingException".into());
    assert_eq!(verdict(&app, ask).await.kind(), OverflowKind::NotOverflow);
    assert_eq!(
        verdict(&app, answer(500, vec![b'['; 1024 * 1024]))
            .await
            .kind(),
        OverflowKind::NotOverflow
    );
}

#[tokio::test]
async fn invalid_statuses_and_bodies_are_refused() {
    let app = TestApp::start().await;
    for status in [0, 99, 600, u32::MAX] {
        assert_refused(
            classify(&app, answer(status, "")).await,
            Code::InvalidArgument,
            "INVALID_FIELD",
            "status",
        );
    }
    let ask = pb::ClassifyErrorRequest {
        sent_tokens: Some(0),
        ..answer(200, "")
    };
    assert_refused(
        classify(&app, ask).await,
        Code::InvalidArgument,
        "INVALID_FIELD",
        "sent_tokens",
    );
    let large = answer(400, vec![b' '; 1024 * 1024 + 1]);
    assert_refused(
        classify(&app, large).await,
        Code::InvalidArgument,
        "LIMIT_EXCEEDED",
        "body",
    );
    let ask = pb::ClassifyErrorRequest {
        model: "m".repeat(129),
        ..answer(400, "")
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
            ..answer(400, "")
        };
        assert_refused(
            classify(&app, ask).await,
            Code::InvalidArgument,
            "LIMIT_EXCEEDED",
            "headers",
        );
    }
}
