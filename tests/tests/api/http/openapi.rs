//! The OpenAPI description matches the routes of the server.

use anneal_testkit::{HttpResponse, TestApp, request_fields::every_field};
use serde_json::{Value, json};

#[tokio::test]
async fn every_path_allows_exactly_the_methods_that_are_described() {
    let app = TestApp::start().await;
    let web = app.http_client();
    let described = web.get("/openapi.json").await;
    assert_eq!(
        (described.status, described.header("content-type")),
        (200, "application/json")
    );
    let described = described.json();
    assert!(
        described["openapi"]
            .as_str()
            .is_some_and(|version| version.starts_with("3.")),
        "{described}"
    );
    let paths = described["paths"].as_object().expect("paths");
    // Twelve of the API, and `/healthz`, `/readyz` and `/metrics`.
    assert_eq!(paths.len(), 15, "{:?}", paths.keys());
    for (path, methods) in paths {
        let path = path
            .replace("{id}", "a")
            .replace("{sid}", "00000000-0000-4000-8000-000000000000")
            .replace("{mid}", "1")
            .replace("{n}", "1");
        let methods: Vec<&String> = methods.as_object().expect("methods").keys().collect();
        let refused = HttpResponse::send(web.request("TRACE", &path)).await;
        refused.assert_problem(405, "MALFORMED_REQUEST", "");
        let allowed = refused.header("allow").to_lowercase();
        let mut allowed: Vec<&str> = allowed
            .split(',')
            .map(str::trim)
            .filter(|method| *method != "head")
            .collect();
        allowed.sort_unstable();
        assert_eq!(allowed, methods, "{path}");
        for method in methods {
            let answered =
                HttpResponse::send(web.json(&method.to_uppercase(), &path, &json!({"title": "x"})))
                    .await;
            let reason = answered.json_or_null()["reason"].clone();
            assert_ne!(
                reason,
                json!("MALFORMED_REQUEST"),
                "{method} {path}: {answered:?}"
            );
        }
    }
}

#[tokio::test]
async fn every_reference_in_the_description_resolves() {
    let app = TestApp::start().await;
    let described = app.http_client().get("/openapi.json").await.json();
    let mut references = Vec::new();
    collect_references(&described, &mut references);
    assert!(references.len() > 10, "{references:?}");
    for reference in references {
        let target = described.pointer(reference.trim_start_matches('#'));
        assert!(
            target.is_some_and(Value::is_object),
            "{reference} does not resolve"
        );
    }
    let schemas = &described["components"]["schemas"];
    for (schema, field) in [
        ("Session", "messageCount"),
        ("Session", "chatOptions"),
        ("SessionPatch", "chatOptions"),
        ("ChatOptions", "maxOutputTokens"),
        ("ChatBody", "toolResults"),
        ("TurnDone", "fallbacks"),
        ("CancelledTurn", "answerMessageId"),
        ("Alternative", "questionVersion"),
        ("MessageChange", "voidCheckpoints"),
        ("MessagePatch", "expectedVersion"),
        ("SessionHistory", "compactions"),
        ("Problem", "retryAfterMs"),
    ] {
        let text = schemas[schema].to_string();
        assert!(
            text.contains(&format!("\"{field}\"")),
            "{schema} lacks {field}: {text}"
        );
    }
}

#[tokio::test]
async fn every_field_of_a_turns_request_is_in_its_body() {
    // The session has another name, messages and options are fields of their own, the system prompt
    // is the session's, and a turn always goes on without its reader.
    const OTHERS: [&str; 5] = [
        "conversation_id",
        "messages",
        "options",
        "system_prompt",
        "on_disconnect",
    ];
    let app = TestApp::start().await;
    let described = app.http_client().get("/openapi.json").await.json();
    let body = &described["components"]["schemas"]["ChatBody"]["properties"];
    let mut compared = 0;
    for field in every_field().iter().filter(|field| field.rpc == "Chat") {
        let path = field.path();
        let name = path.strip_prefix("options.").unwrap_or(&path);
        if name.contains('.') || OTHERS.contains(&name) {
            continue;
        }
        let name = camel(name);
        assert!(body[&name].is_object(), "{path}: {body}");
        compared += 1;
    }
    assert!(compared >= 20, "{compared}");
}

/// `expectedLastMessageId` for `expected_last_message_id`.
fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let (initial, rest) = word.split_at(1);
        name + initial.to_uppercase().as_str() + rest
    })
}

fn collect_references(value: &Value, references: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            references.extend(
                fields
                    .get("$ref")
                    .and_then(Value::as_str)
                    .map(str::to_owned),
            );
            fields
                .values()
                .for_each(|field| collect_references(field, references));
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| collect_references(item, references)),
        _ => {}
    }
}
