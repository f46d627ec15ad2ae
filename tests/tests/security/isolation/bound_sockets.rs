//! Over the WebSocket of responses, a bound key continues nothing that is foreign to it.

use anneal_core::caller::Verb;
use anneal_testkit::{HttpResponse, MODEL, ScriptedModel, TestApp};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Message, client::IntoClientRequest as _},
};
use uuid::Uuid;

use crate::isolation::{bound_keys::Kind, unfiltered::rows_of};

const TENANT: &str = "firm";

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

async fn open_socket(app: &TestApp, key: &str) -> Socket {
    let url = format!("ws://{}/v1/responses", app.addresses.http);
    let mut request = url.into_client_request().expect("is a request");
    let authorization = format!("Bearer {key}").parse().expect("is a value");
    request.headers_mut().insert("authorization", authorization);
    connect_async(request).await.expect("connects").0
}

/// Sends a frame. Returns the first one that ends or refuses the response.
async fn create(socket: &mut Socket, mut body: Value) -> Value {
    body["type"] = json!("response.create");
    let frame = Message::text(body.to_string());
    socket.send(frame).await.expect("is sent");
    loop {
        let message = socket.next().await.expect("goes on").expect("is read");
        let Message::Text(text) = message else {
            continue;
        };
        let frame: Value = serde_json::from_str(&text).expect("is JSON");
        let kind = frame["type"].as_str().unwrap_or_default();
        if ["error", "response.completed", "response.failed"].contains(&kind) {
            return frame;
        }
    }
}

#[tokio::test]
async fn a_bound_key_continues_over_a_socket_only_what_is_its_own() {
    let model = ScriptedModel::saying("The secret is safe with me.").await;
    let app = TestApp::with_models_and_keys(model.settings(&[MODEL]), MODEL).await;
    let whole = app.key(TENANT, &Verb::ALL).await.text;
    let make = async |path: &str, body: Value| {
        let request = app.http_client().json("POST", path, &body);
        let request = request.header("authorization", format!("Bearer {whole}"));
        let made = HttpResponse::send(request).await.json();
        made["id"].as_str().expect("is named").to_owned()
    };
    let conversation = make("/v1/conversations", json!({})).await;
    let input = json!({"input": "What is the secret?", "conversation": conversation});
    make("/v1/responses", input).await;
    let response = make("/v1/responses", json!({"input": "What is it?"})).await;
    let tenant = app.tenant(TENANT).await.0;
    let before = rows_of(&app, tenant).await;
    let missing = Uuid::now_v7().simple().to_string();
    for kind in Kind::ALL {
        let bound = kind.bound(&Uuid::now_v7().to_string());
        let key = app.bound_key(TENANT, &Verb::ALL, bound).await.text;
        let mut socket = open_socket(&app, &key).await;
        for (field, foreign, missing) in [
            ("previous_response_id", &response, format!("resp_{missing}")),
            ("conversation", &conversation, format!("conv_{missing}")),
        ] {
            let mut seen = Vec::new();
            for id in [foreign, &missing] {
                let body = json!({"model": MODEL, "input": "And now?", field: id});
                let frame = create(&mut socket, body).await;
                assert_eq!(frame["type"], "error", "{kind:?} {field}: {frame}");
                seen.push(frame.to_string().replace(id.as_str(), "ID"));
            }
            assert_eq!(seen[0], seen[1], "{kind:?} {field}");
        }
    }
    assert_eq!(before, rows_of(&app, tenant).await);
}
