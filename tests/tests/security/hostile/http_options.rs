//! The cases of the catalogue over HTTP that give options of turns and results of tools.

use serde_json::json;

use super::http::{HttpCase, JSON, invalid, limit, post, post_json};

/// Options of turns and results of tools in JSON bodies.
pub(crate) fn options() -> Vec<HttpCase> {
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
            "a text for a result",
            &json!({"toolResults": ["done"]}),
            invalid("toolResults[0]"),
        ),
    ]
}
