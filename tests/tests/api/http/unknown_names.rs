//! Fields and parameters that the API does not know are refused by name, at every level of every
//! body and at every route.

use anneal_testkit::{HttpResponse, TestApp, pb};
use serde_json::{Value, json};

use crate::http::{CHAT, list_sessions};

/// A name that no body and no route has. The refusal must not convert it to camel case, as it does
/// with names of gRPC fields.
const UNKNOWN: &str = "system_prompt";

/// An operation of `/openapi.json`.
struct Operation {
    method: String,
    /// With `{id}`, `{sid}`, `{mid}` and `{n}` filled in.
    path: String,
    /// The names of its query parameters.
    parameters: Vec<String>,
    /// The schema of its body.
    body: Option<Value>,
}

/// All operations of the document, without those of probes and metrics.
fn operations(document: &Value, session: &str) -> Vec<Operation> {
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        if ["/healthz", "/readyz", "/metrics"].contains(&path.as_str()) {
            continue;
        }
        for (method, described) in methods.as_object().expect("methods") {
            let parameters = described["parameters"].as_array();
            let parameters = parameters.into_iter().flatten();
            let schema = &described["requestBody"]["content"]["application/json"]["schema"];
            operations.push(Operation {
                method: method.to_uppercase(),
                path: path
                    .replace("{id}", "a")
                    .replace("{sid}", session)
                    .replace("{mid}", "1")
                    .replace("{n}", "1"),
                parameters: parameters
                    .filter(|parameter| parameter["in"] == "query")
                    .filter_map(|parameter| parameter["name"].as_str().map(str::to_owned))
                    .collect(),
                body: schema["$ref"]
                    .as_str()
                    .and_then(|reference| document.pointer(reference.trim_start_matches('#')))
                    .cloned(),
            });
        }
    }
    operations
}

/// A value for a field of this schema with an unknown field inside, and the path at which it is
/// refused.
fn nested_unknown(document: &Value, name: &str, schema: &Value) -> (Value, String) {
    let kinds = &schema["type"];
    let is = |kind: &str| {
        kinds == kind
            || kinds
                .as_array()
                .is_some_and(|kinds| kinds.iter().any(|one| one == kind))
    };
    let unknown = json!({UNKNOWN: 1});
    if is("array") {
        let of_objects = schema["items"]["$ref"].is_string();
        let inside = if of_objects {
            format!(".{UNKNOWN}")
        } else {
            String::new()
        };
        (json!([unknown]), format!("{name}[0]{inside}"))
    } else if may_be_object(document, schema) {
        (unknown, format!("{name}.{UNKNOWN}"))
    } else if is("object") {
        // Labels have any names, and texts as values.
        (json!({UNKNOWN: unknown}), format!("{name}.{UNKNOWN}"))
    } else {
        (unknown, name.to_owned())
    }
}

/// Whether a field of this schema is optional, and an object of a type with a name of its own.
fn may_be_object(document: &Value, schema: &Value) -> bool {
    let choices = schema["oneOf"].as_array();
    choices
        .into_iter()
        .flatten()
        .filter_map(|choice| choice["$ref"].as_str())
        .filter_map(|reference| document.pointer(reference.trim_start_matches('#')))
        .any(|named| named["type"] == "object")
}

/// Asserts that the request is refused because of this field, and that the refusal lists the known
/// names. Of more than ten it may be cut off behind the tenth.
#[track_caller]
fn assert_refused(refused: &HttpResponse, field: &str, known: &[String]) {
    refused.assert_problem(400, "INVALID_FIELD", field);
    let problem = refused.json();
    let detail = problem["detail"].as_str().expect("a detail");
    let listed = |name: &&String| detail.contains(&format!("`{name}`"));
    let count = known.iter().filter(listed).count();
    let is_cut_off = detail.ends_with('…') && count >= 10;
    assert!(count == known.len() || is_cut_off, "{known:?}: {detail}");
}

#[tokio::test]
async fn every_route_refuses_unknown_fields_and_parameters_by_name() {
    let app = TestApp::start().await;
    let ask = pb::CreateConversationRequest {
        agent_id: "a".into(),
        title: "Kept".into(),
        ..Default::default()
    };
    let created = app.conversations().create_conversation(ask).await;
    let session = created.expect("creates").into_inner().conversation_id;
    let web = app.http_client();
    let document = web.get("/openapi.json").await.json();
    let operations = operations(&document, &session);
    let bodies = operations.iter().filter(|one| one.body.is_some()).count();
    assert_eq!((operations.len(), bodies), (15, 7));
    for operation in operations {
        let (method, path) = (&operation.method, &operation.path);
        let unknown = web.request(method, &format!("{path}?{UNKNOWN}=x"));
        let refused = HttpResponse::send(unknown).await;
        assert_refused(&refused, UNKNOWN, &operation.parameters);
        let Some(schema) = operation.body else {
            continue;
        };
        assert_eq!(schema["additionalProperties"], json!(false), "{schema}");
        let fields = schema["properties"].as_object().expect("fields");
        let known: Vec<String> = fields.keys().cloned().collect();
        let unknown = web.json(method, path, &json!({UNKNOWN: {UNKNOWN: 1}}));
        assert_refused(&HttpResponse::send(unknown).await, UNKNOWN, &known);
        for (name, schema) in fields {
            let (value, field) = nested_unknown(&document, name, schema);
            let unknown = web.json(method, path, &json!({name: value}));
            assert_refused(&HttpResponse::send(unknown).await, &field, &[]);
        }
    }
    let listed = list_sessions(&web, "a").await;
    assert_eq!(
        (listed.as_array().map(Vec::len), &listed[0]["title"]),
        (Some(1), &json!("Kept")),
        "nothing was changed, deleted or created"
    );
}

#[tokio::test]
async fn fields_and_parameters_of_other_apis_are_refused_and_not_ignored() {
    let app = TestApp::start().await;
    let web = app.http_client();
    for field in ["max_tokens", "systemPrompt", "tool_choice", "messages"] {
        let body = json!({"message": "Hello.", field: []});
        let refused = HttpResponse::send(web.json("POST", CHAT, &body)).await;
        refused.assert_problem(400, "INVALID_FIELD", field);
    }
    web.get("/api/agents/a/sessions?pageSize=1&search=x")
        .await
        .assert_problem(400, "INVALID_FIELD", "search");
    // A name may hold what separates the parts of an error's text.
    web.get("/api/agents/a/sessions?query%20string:%20a:%20b=x")
        .await
        .assert_problem(400, "INVALID_FIELD", "query string: a: b");
    assert_eq!(list_sessions(&web, "a").await, json!([]));
}
