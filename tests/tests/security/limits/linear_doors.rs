//! A request over a door of another protocol with ten times the items, or ten times the bytes, costs
//! at most fifteen times as much processor time.

use anneal_testkit::{HttpClient, HttpResponse, MODEL, ScriptedModel};
use serde_json::{Value, json};

use crate::limits::{
    attacked_server::{AttackedServer, UNLIMITED},
    cpu_cost::Costs,
};

/// Items of a small and of a large request. The limit of a response's input is 10,000.
const ITEMS: [usize; 2] = [1_000, 10_000];
/// Bytes of a small and of a large text. The limit of a body is 4 MiB.
const BYTES: [usize; 2] = [380_000, 3_800_000];

/// A call, the expected statuses, and its body of this size.
struct Growing {
    what: &'static str,
    path: &'static str,
    statuses: &'static [u16],
    sizes: [usize; 2],
    body: fn(usize) -> Value,
}

fn users(count: usize) -> Vec<Value> {
    vec![json!({"role": "user", "content": "a"}); count]
}

fn calls_and_outputs(count: usize) -> Vec<Value> {
    let mut items: Vec<Value> = (0..count / 2)
        .flat_map(|number| {
            let id = format!("c{number}");
            [
                json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"}),
                json!({"type": "function_call_output", "call_id": id, "output": "x"}),
            ]
        })
        .collect();
    items.extend(users(1));
    items.truncate(10_000);
    items
}

fn words(bytes: usize) -> String {
    "word ".repeat(bytes / 5)
}

fn growing() -> Vec<Growing> {
    let of = |what, path, statuses, sizes, body| Growing {
        what,
        path,
        statuses,
        sizes,
        body,
    };
    let count = "/v1/responses/input_tokens";
    let refused: &[u16] = &[400];
    let answered: &[u16] = &[200];
    let any: &[u16] = &[200, 400];
    vec![
        of(
            "items to count",
            count,
            answered,
            ITEMS,
            |size| json!({"model": MODEL, "input": users(size)}),
        ),
        of(
            "bytes to count",
            count,
            answered,
            BYTES,
            |size| json!({"model": MODEL, "input": words(size)}),
        ),
        of(
            "a response of many items",
            "/v1/responses",
            any,
            ITEMS,
            |size| json!({"model": MODEL, "store": false, "truncation": "auto", "input": users(size)}),
        ),
        of(
            "a response of many calls",
            "/v1/responses",
            any,
            ITEMS,
            |size| {
                json!({"model": MODEL, "store": false, "truncation": "auto",
                "input": calls_and_outputs(size - 1)})
            },
        ),
        of("many parts", "/v1/responses", any, ITEMS, |size| {
            let parts = vec![json!({"type": "input_text", "text": "a"}); size];
            json!({"model": MODEL, "store": false, "input": [{"role": "user", "content": parts}]})
        }),
        of(
            "a chat completion of many messages",
            "/v1/chat/completions",
            any,
            ITEMS,
            |size| json!({"model": MODEL, "messages": users(size)}),
        ),
        of(
            "too many items",
            "/v1/conversations",
            refused,
            ITEMS,
            |size| json!({"items": users(size)}),
        ),
        of("unknown parameters", count, answered, ITEMS, |size| {
            let mut body = json!({"model": MODEL, "input": "a"});
            for number in 0..size {
                body[format!("unknown{number}")] = json!(number);
            }
            body
        }),
        of(
            "a long compaction",
            "/v1/responses",
            refused,
            BYTES,
            |size| {
                let encrypted = format!("anneal-compaction-1.{}.AAAA", "A".repeat(size));
                json!({"input": [{"type": "compaction", "encrypted_content": encrypted}]})
            },
        ),
        of(
            "a history of the AI SDK",
            "/api/agents/a/ui",
            refused,
            ITEMS,
            |size| {
                let message =
                    json!({"id": "u", "role": "user", "parts": [{"type": "text", "text": "a"}]});
                let mut messages = vec![message; size];
                messages.push(json!({"id": "u", "role": "user", "parts": []}));
                json!({"id": "c", "messages": messages})
            },
        ),
        of(
            "a message of many parts",
            "/api/agents/a/ui",
            refused,
            ITEMS,
            |size| {
                let mut parts = vec![json!({"type": "text", "text": "a"}); size - 1];
                parts.push(json!({"type": "data-x"}));
                json!({"id": "c", "messages": [{"id": "u", "role": "user", "parts": parts}]})
            },
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_over_a_door_of_ten_times_the_size_costs_at_most_fifteen_times_as_much() {
    let model = ScriptedModel::saying("OK.").await;
    let server = AttackedServer::start_with_model(&model, &UNLIMITED).await;
    let (mut meter, mut costs, web) = (
        server.cpu_meter().await,
        Costs::default(),
        HttpClient::at(server.http),
    );
    for growing in growing() {
        let [small, large] = growing.sizes.map(|size| (growing.body)(size));
        let send = async |body: &Value| {
            let request = web.json("POST", growing.path, body);
            let request = request.header("authorization", &server.eve);
            let answer = HttpResponse::send(request).await;
            assert!(
                growing.statuses.contains(&answer.status),
                "{}: {} {:.300}",
                growing.what,
                answer.status,
                answer.text
            );
        };
        costs
            .compare(
                &mut meter,
                growing.what,
                async |_| send(&small).await,
                async |_| send(&large).await,
            )
            .await;
    }
    costs.assert_linear("doors");
}
