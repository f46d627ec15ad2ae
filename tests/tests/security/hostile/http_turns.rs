//! Cases over HTTP of the body of a turn.

use serde_json::{Value, json};

use crate::hostile::http::{HttpCase, JSON, invalid, limit, post, post_json};

/// Messages, pictures, ids and limits.
pub(crate) fn messages() -> Vec<HttpCase> {
    let long = "x".repeat(129);
    vec![
        post_json(
            "a number for a message",
            &json!({"message": 7}),
            invalid("message"),
        ),
        post_json(
            "an empty message",
            &json!({"message": ""}),
            invalid("message"),
        ),
        post_json(
            "a text for pictures",
            &json!({"message": "x", "images": "http://x.example/a.png"}),
            invalid("images"),
        ),
        post_json(
            "a number for a picture",
            &json!({"message": "x", "images": ["https://x.example/a", 1]}),
            invalid("images[1]"),
        ),
        post_json(
            "a script for a picture",
            &json!({"message": "x", "images": ["javascript:alert(1)"]}),
            invalid("images[0]"),
        ),
        post_json(
            "a file for a picture",
            &json!({"message": "x", "images": ["file:///etc/passwd"]}),
            invalid("images[0]"),
        ),
        post_json(
            "NUL in a picture",
            &json!({"message": "x", "images": ["https://x.example/\u{0}"]}),
            invalid("images[0]"),
        ),
        post_json(
            "300 pictures",
            &json!({"message": "x", "images": vec!["https://x.example/a"; 300]}),
            limit("images"),
        ),
        post_json(
            "-1 tokens",
            &json!({"message": "x", "maxOutputTokens": -1}),
            invalid("maxOutputTokens"),
        ),
        post_json(
            "half a token",
            &json!({"message": "x", "maxOutputTokens": 0.5}),
            invalid("maxOutputTokens"),
        ),
        post(
            "2^64 tokens",
            JSON,
            "{\"message\":\"x\",\"maxOutputTokens\":18446744073709551616}",
            invalid("maxOutputTokens"),
        ),
        post_json(
            "a path for a session",
            &json!({"message": "x", "sessionId": "../../etc/passwd"}),
            invalid("sessionId"),
        ),
        post_json(
            "NUL for a session",
            &json!({"message": "x", "sessionId": "\u{0}"}),
            invalid("sessionId"),
        ),
        post_json(
            "NUL for a request",
            &json!({"message": "x", "requestId": "\u{0}"}),
            invalid("requestId"),
        ),
        post_json(
            "a request of 129 bytes",
            &json!({"message": "x", "requestId": long}),
            limit("requestId"),
        ),
        post_json(
            "a model of 129 bytes",
            &json!({"message": "x", "model": long}),
            limit("model"),
        ),
        post_json(
            "NUL for a model",
            &json!({"message": "x", "model": "\u{0}"}),
            invalid("model"),
        ),
        post_json(
            "NUL for a user",
            &json!({"message": "x", "userId": "\u{0}"}),
            invalid("userId"),
        ),
    ]
}

/// Results of tools, questions that are answered anew, and models.
pub(crate) fn results_and_models() -> Vec<HttpCase> {
    let long = "x".repeat(129);
    vec![
        post_json(
            "a text for a result",
            &json!({"toolResults": ["done"]}),
            invalid("toolResults[0]"),
        ),
        post_json(
            "a result of no call",
            &json!({"toolResults": [{"text": "done"}]}),
            invalid("toolResults[0].toolUseId"),
        ),
        post_json(
            "300 results",
            &json!({"toolResults": vec![json!({"toolUseId": "a"}); 300]}),
            limit("toolResults"),
        ),
        post_json(
            "300 pictures of a result",
            &json!({"toolResults": [{
                "toolUseId": "a",
                "media": vec![json!({"uri": "https://x.example/a", "mediaType": "image/png"}); 300],
            }]}),
            limit("toolResults[0].media"),
        ),
        post_json(
            "a result in the place of a question",
            &json!({"editMessageId": 1, "toolResults": [{"toolUseId": "a"}]}),
            invalid("message"),
        ),
        post_json(
            "an edit of message 0",
            &json!({"message": "x", "editMessageId": 0}),
            invalid("editMessageId"),
        ),
        post_json(
            "an edit of a message in words",
            &json!({"message": "x", "editMessageId": "first"}),
            invalid("editMessageId"),
        ),
        post_json(
            "an edit without a text",
            &json!({"editMessageId": 1}),
            invalid("message"),
        ),
        post_json(
            "an edit of the question that is answered again",
            &json!({"message": "x", "editMessageId": 1, "regenerate": true}),
            invalid("editMessageId"),
        ),
        post_json(
            "a message for the question that is answered again",
            &json!({"message": "x", "regenerate": true}),
            invalid("regenerate"),
        ),
        post_json(
            "a newest message before the first",
            &json!({"message": "x", "expectedLastMessageId": -1}),
            invalid("expectedLastMessageId"),
        ),
        post_json(
            "300 models",
            &json!({"message": "x", "fallbackModels": vec!["m"; 300]}),
            limit("fallbackModels"),
        ),
        post_json(
            "a number for a model",
            &json!({"message": "x", "fallbackModels": ["m", 1]}),
            invalid("fallbackModels[1]"),
        ),
        post_json(
            "a second model of 129 bytes",
            &json!({"message": "x", "fallbackModels": ["m", long]}),
            limit("fallbackModels[1]"),
        ),
        post_json(
            "NUL for a second model",
            &json!({"message": "x", "fallbackModels": ["\u{0}"]}),
            invalid("fallbackModels[0]"),
        ),
        post_json(
            "a ping in words",
            &json!({"message": "x", "cachePing": "please"}),
            invalid("cachePing"),
        ),
    ]
}

/// Options: tools, the shape of the answer, sampling.
pub(crate) fn options() -> Vec<HttpCase> {
    let long = "x".repeat(129);
    vec![
        post_json(
            "300 tools",
            &json!({"message": "x", "tools": vec![json!({"name": "a"}); 300]}),
            limit("tools"),
        ),
        post_json(
            "a tool without a name",
            &json!({"message": "x", "tools": [{"inputSchema": {}}]}),
            invalid("tools[0]"),
        ),
        post_json(
            "tools of 300 KiB",
            &json!({"message": "x", "tools": [{"name": "a", "description": "x".repeat(300 << 10)}]}),
            limit("tools"),
        ),
        post(
            "a schema of 1,000 levels",
            JSON,
            format!(
                r#"{{"message":"x","tools":[{{"name":"a","inputSchema":{}{}}}]}}"#,
                r#"{"a":"#.repeat(1_000) + "1",
                "}".repeat(1_000)
            ),
            invalid("tools[0].inputSchema"),
        ),
        post_json(
            "300 texts to stop at",
            &json!({"message": "x", "stop": vec!["a"; 300]}),
            limit("stop"),
        ),
        post_json(
            "a temperature in words",
            &json!({"message": "x", "temperature": "warm"}),
            invalid("temperature"),
        ),
        post_json(
            "an effort without bounds",
            &json!({"message": "x", "reasoningEffort": "vast"}),
            invalid("reasoningEffort"),
        ),
        post_json(
            "a choice of two tools",
            &json!({"message": "x", "toolChoice": {"mode": "auto", "name": "a"}}),
            invalid("toolChoice"),
        ),
        post_json(
            "a choice of a tool with a name of 129 bytes",
            &json!({"message": "x", "toolChoice": {"name": long}}),
            limit("toolChoice.name"),
        ),
        post_json(
            "two shapes of an answer",
            &json!({"message": "x", "responseFormat": {
                "jsonObject": true, "jsonSchema": {"name": "a", "schema": {}},
            }}),
            invalid("responseFormat"),
        ),
        post_json(
            "a list for a schema",
            &json!({"message": "x", "responseFormat": {"jsonSchema": {"name": "a", "schema": []}}}),
            invalid("responseFormat.jsonSchema.schema"),
        ),
        post_json(
            "a schema of 70 KiB",
            &json!({"message": "x", "responseFormat": {
                "jsonSchema": {"name": "a", "schema": {"title": "x".repeat(70 << 10)}},
            }}),
            limit("responseFormat.jsonSchema.schema"),
        ),
        post_json(
            "300 labels of a turn",
            &json!({"message": "x", "metadata": labels(300)}),
            limit("metadata"),
        ),
        post_json(
            "labels of 5 KiB",
            &json!({"message": "x", "metadata": {"k": "x".repeat(5 << 10)}}),
            limit("metadata"),
        ),
        post_json(
            "a share below 0",
            &json!({"message": "x", "topP": -1}),
            invalid("topP"),
        ),
        post(
            "a temperature above every number",
            JSON,
            "{\"message\":\"x\",\"temperature\":1e39}",
            invalid("temperature"),
        ),
    ]
}

/// This number of labels.
fn labels(count: usize) -> Value {
    let labels = (0..count).map(|number| (format!("k{number}"), Value::from("x")));
    Value::Object(labels.collect())
}
