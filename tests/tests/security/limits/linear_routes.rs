//! An HTTP request of ten times the bytes costs at most fifteen times as much processor time,
//! whichever part of the request is the large one.

use anneal_testkit::HttpClient;
use serde_json::Value;

use crate::limits::{
    attacked_server::{AttackedServer, UNLIMITED},
    cpu_cost::Costs,
};

/// Bytes of a small and of a large body. The limit of a body is 4 MiB.
const BODY_BYTES: [usize; 2] = [380_000, 3_800_000];
/// Bytes of a small and of a large head. The limit of a head is 16 KiB.
const HEAD_BYTES: [usize; 2] = [1_400, 14_000];

/// A request in one of the two sizes.
#[derive(Debug, Clone, Default)]
struct SizedRequest {
    method: String,
    path: String,
    /// Name and value.
    header: Option<(String, String)>,
    body: String,
}

/// An operation of `/openapi.json`.
struct Operation {
    method: String,
    /// With `{id}`, `{sid}`, `{mid}` and `{n}` filled in.
    path: String,
    /// Place (`query`, `header`, `path`) and name of each parameter.
    parameters: Vec<(String, String)>,
    /// Name and schema of each field of the body.
    fields: Vec<(String, Value)>,
}

/// All operations of the document.
fn operations(document: &Value, session: &str) -> Vec<Operation> {
    let paths = document["paths"].as_object().expect("paths");
    let operations = paths.iter().flat_map(|(path, methods)| {
        let path = path
            .replace("{id}", "a")
            .replace("{sid}", session)
            .replace("{mid}", "1")
            .replace("{n}", "1");
        let methods = methods.as_object().expect("methods").iter();
        methods.map(move |(method, described)| (method.to_uppercase(), path.clone(), described))
    });
    let operations = operations.map(|(method, path, described)| {
        let parameters = described["parameters"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let parameters = parameters
            .iter()
            .map(|one| (text(&one["in"]), text(&one["name"])))
            .collect();
        let schema = &described["requestBody"]["content"]["application/json"]["schema"];
        let name = schema["$ref"]
            .as_str()
            .and_then(|reference| reference.rsplit('/').next())
            .unwrap_or_default();
        let fields = document["components"]["schemas"][name]["properties"].as_object();
        let fields = fields
            .into_iter()
            .flatten()
            .map(|(name, schema)| (name.clone(), schema.clone()))
            .collect();
        Operation {
            method,
            path,
            parameters,
            fields,
        }
    });
    operations.collect()
}

impl Operation {
    /// Requests with one large part each, and the name of the part. The part has about `head` bytes
    /// in the head of a request, or `body` bytes in its body.
    fn large_requests(
        &self,
        document: &Value,
        [head, body]: [usize; 2],
    ) -> Vec<(String, SizedRequest)> {
        let with_path = |path: String| SizedRequest {
            method: self.method.clone(),
            path,
            ..SizedRequest::default()
        };
        let plain = || with_path(self.path.clone());
        let mut all = vec![(
            "a path".to_owned(),
            with_path(format!("{}{}", self.path, "/a_".repeat(head / 3))),
        )];
        all.push((
            "unknown parameters".into(),
            with_path(format!("{}?{}", self.path, "a_=1&".repeat(head / 5))),
        ));
        for (place, name) in &self.parameters {
            let value = "a_".repeat(head / 2);
            let grown = match place.as_str() {
                "query" => with_path(format!("{}?{name}={value}", self.path)),
                "header" => SizedRequest {
                    header: Some((name.clone(), value)),
                    ..plain()
                },
                _ => continue,
            };
            all.push((format!("{place} {name}"), grown));
        }
        if self.fields.is_empty() {
            return all;
        }
        let bodies = self.fields.iter().flat_map(|(name, schema)| {
            let values = values(schema, body).into_iter();
            values.map(move |(how, value)| {
                (format!("{name}: {how}"), format!(r#"{{"{name}":{value}}}"#))
            })
        });
        let text = "a_".repeat(body / 2);
        let odd = [
            (
                "an unknown field with a long name",
                format!(r#"{{"{text}":1}}"#),
            ),
            (
                "unknown fields",
                format!("{{{}\"z\":1}}", r#""a_":1,"#.repeat(body / 7)),
            ),
            ("a string instead of an object", format!(r#""{text}""#)),
            ("lists in lists", format!(r#"{{"a":{}"#, "[".repeat(body))),
            ("whitespace", format!("{}{{}}", " ".repeat(body))),
        ];
        // A turn is refused for its options only if it has a message.
        let has_message = self.fields.iter().any(|(name, _)| name == "message");
        let message = if has_message { r#""message":"x","# } else { "" };
        let objects = self
            .fields
            .iter()
            .filter(|(_, schema)| named_object(document, schema).is_some());
        let nested = objects.flat_map(|(name, schema)| {
            let values = nested_values(document, schema, body).into_iter();
            values.map(move |(inside, value)| {
                (
                    format!("{name}{inside}"),
                    format!(r#"{{{message}"{name}":{value}}}"#),
                )
            })
        });
        let bodies = bodies
            .chain(nested)
            .chain(odd.map(|(how, body)| (how.to_owned(), body)));
        all.extend(bodies.map(|(how, body)| (how, SizedRequest { body, ..plain() })));
        all
    }
}

/// The fields of the object that has this schema, or of the objects in the list that has it. None:
/// the schema is another one.
fn named_object<'d>(
    document: &'d Value,
    schema: &Value,
) -> Option<&'d serde_json::Map<String, Value>> {
    let choices = schema["oneOf"].as_array().into_iter().flatten();
    let mut references = [schema, &schema["items"]].into_iter().chain(choices);
    let reference = references.find_map(|one| one["$ref"].as_str())?;
    let named = document.pointer(reference.trim_start_matches('#'))?;
    named["properties"].as_object()
}

/// Values of a field that holds objects: in each, one field within has about this number of bytes.
/// Each value has the path of that field.
fn nested_values(document: &Value, schema: &Value, bytes: usize) -> Vec<(String, String)> {
    let Some(fields) = named_object(document, schema) else {
        let (how, value) = values(schema, bytes).swap_remove(0);
        return vec![(format!(": {how}"), value)];
    };
    let objects = fields.iter().flat_map(|(name, schema)| {
        let values = nested_values(document, schema, bytes).into_iter();
        values.map(move |(inside, value)| {
            (
                format!(".{name}{inside}"),
                format!(r#"{{"{name}":{value}}}"#),
            )
        })
    });
    if !has_type(schema, "array") {
        return objects.collect();
    }
    let lists = objects.map(|(inside, object)| (inside, format!("[{object}]")));
    let many = format!("[{}{{}}]", "{},".repeat(bytes / 3));
    lists.chain([(": many objects".to_owned(), many)]).collect()
}

fn has_type(schema: &Value, name: &str) -> bool {
    let kind = &schema["type"];
    kind == name
        || kind
            .as_array()
            .is_some_and(|kinds| kinds.iter().any(|one| one == name))
}

/// Values of this number of bytes for a field of this schema, each with a description.
fn values(schema: &Value, bytes: usize) -> Vec<(&'static str, String)> {
    let is = |name: &str| has_type(schema, name);
    let text = format!(r#""{}""#, "a_".repeat(bytes / 2));
    if is("array") {
        return vec![
            ("many", format!("[{}\"\"]", r#""","#.repeat(bytes / 3))),
            ("one", format!("[{text}]")),
        ];
    }
    if is("object") {
        // Each key has 14 bytes with its value.
        let keys = (0..bytes / 14)
            .map(|number| format!(r#""a_{number:06}":"","#))
            .collect::<Vec<_>>()
            .concat();
        return vec![
            ("many keys", format!("{{{keys}\"z\":\"\"}}")),
            ("a long key", format!("{{{text}:1}}")),
            ("a long value", format!(r#"{{"z":{text}}}"#)),
        ];
    }
    let escaped = format!(r#""{}""#, r"\u00e9".repeat(bytes / 6));
    vec![
        ("a text", text),
        ("escapes", escaped),
        ("digits", "9".repeat(bytes)),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_over_http_of_ten_times_the_bytes_costs_at_most_fifteen_times_as_much() {
    let server = AttackedServer::start(&UNLIMITED).await;
    let (mut meter, mut costs, web) = (
        server.cpu_meter().await,
        Costs::default(),
        HttpClient::at(server.http),
    );
    let document = web
        .request("GET", "/openapi.json")
        .send()
        .await
        .expect("is answered")
        .text()
        .await
        .expect("is complete");
    let document: Value = serde_json::from_str(&document).expect("is JSON");
    let session = server.create_conversation().await;
    let send = async |request: &SizedRequest| {
        let mut asked = web
            .request(&request.method, &request.path)
            .header("authorization", &server.eve);
        if let Some((name, value)) = &request.header {
            asked = asked.header(name, value);
        }
        if !request.body.is_empty() {
            asked = asked
                .header("content-type", "application/json")
                .body(request.body.clone());
        }
        // The answer may be a success or a refusal. A refusal is short.
        let mut answered = asked.send().await.expect("is answered");
        let content_type = answered
            .headers()
            .get("content-type")
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        if content_type.starts_with("text/event-stream") {
            // An event stream may not end.
            answered.chunk().await.expect("the first event arrives");
            return;
        }
        let (status, size) = (
            answered.status(),
            answered.bytes().await.expect("is complete").len(),
        );
        assert!(
            status.is_success() || size < 4_096,
            "{status}: {size} bytes"
        );
    };
    let operations = operations(&document, &session);
    assert!(
        operations
            .iter()
            .any(|operation| operation.fields.len() > 3),
        "bodies are described"
    );
    let nested = operations.iter().flat_map(|operation| &operation.fields);
    let nested = nested.filter(|(_, schema)| named_object(&document, schema).is_some());
    assert!(nested.count() > 5, "objects in bodies are described");
    // Deletions come last, because the other operations need the session.
    let (deletions, others): (Vec<_>, Vec<_>) =
        operations.iter().partition(|one| one.method == "DELETE");
    for operation in others.into_iter().chain(deletions) {
        let small = operation.large_requests(&document, [HEAD_BYTES[0], BODY_BYTES[0]]);
        let large = operation.large_requests(&document, [HEAD_BYTES[1], BODY_BYTES[1]]);
        for ((how, small), (_, large)) in small.iter().zip(&large) {
            let what = format!(
                "{} {}: {how}",
                operation.method,
                operation.path.replace(&session, "{sid}")
            );
            costs
                .compare(
                    &mut meter,
                    what,
                    async |_| send(small).await,
                    async |_| send(large).await,
                )
                .await;
        }
    }
    costs.assert_linear("routes");
}
