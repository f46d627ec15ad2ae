//! Responses, UI streams and WebSockets that are under way end when their key is revoked, and
//! nothing of their answers is kept.

use std::time::Duration;

use anneal_core::caller::Verb;
use anneal_server::GeneratedKey;
use anneal_store::{OwnerConnection, StoreSettings};
use anneal_testkit::{Gate, HttpResponse, MODEL, Say, Script, ScriptedModel, TestApp, eventually};
use futures::{SinkExt as _, StreamExt as _};
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Message, client::IntoClientRequest as _},
};

/// Longer than a revoked key stays accepted.
const REVOKED_WITHIN: Duration = Duration::from_secs(40);

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// An app with this model and a key of anna. No call of the model times out.
async fn start(model: &ScriptedModel) -> (TestApp, GeneratedKey) {
    let (mut providers, models) = model.settings(&[MODEL]);
    for provider in providers.values_mut() {
        (provider.first_byte_timeout_ms, provider.total_timeout_ms) = (3_600_000, 3_600_000);
    }
    let app = TestApp::with_models_and_keys((providers, models), MODEL).await;
    let key = app.key("anna", &[Verb::Read, Verb::Append]).await;
    (app, key)
}

async fn revoke(app: &TestApp, key: &GeneratedKey) {
    let owner = OwnerConnection::connect(&StoreSettings::at(&app.url)).await;
    let mut owner = owner.expect("connects");
    assert!(owner.revoke_key(key.id).await.expect("revokes"));
}

async fn open_socket(app: &TestApp, key: &GeneratedKey) -> Socket {
    let url = format!("ws://{}/v1/responses", app.addresses.http);
    let mut request = url.into_client_request().expect("is a request");
    let authorization = format!("Bearer {}", key.text).parse().expect("is a value");
    request.headers_mut().insert("authorization", authorization);
    connect_async(request).await.expect("connects").0
}

/// Reads the frames up to the end of the connection.
async fn read_to_end(socket: &mut Socket) -> Vec<Value> {
    let mut frames = Vec::new();
    while let Some(Ok(message)) = socket.next().await {
        match message {
            Message::Text(text) => frames.push(serde_json::from_str(&text).expect("is JSON")),
            Message::Close(_) => break,
            _ => {}
        }
    }
    frames
}

/// How many messages of the model are stored.
async fn count_answers(app: &TestApp) -> i64 {
    sqlx::query_scalar("select count(*) from ai_message where role = 2")
        .fetch_one(&mut app.db().await)
        .await
        .expect("counts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_websockets_end_when_their_key_is_revoked() {
    let gate = Gate::default();
    let behind = gate.clone();
    let model = ScriptedModel::start(move |request| {
        Script::says(request, Say::texts(&["one ", "two"])).gated(&behind)
    })
    .await;
    let (app, key) = start(&model).await;
    let (mut idle, mut busy) = (open_socket(&app, &key).await, open_socket(&app, &key).await);
    let other = app.key("anna", &[Verb::Read, Verb::Append]).await;
    let mut valid = open_socket(&app, &other).await;
    let create = json!({"type": "response.create", "model": MODEL, "input": "a"});
    let create = || Message::text(create.to_string());
    busy.send(create()).await.expect("is sent");
    model.wait_for_calls(1).await;
    revoke(&app, &key).await;
    for (what, socket) in [("idle", &mut idle), ("busy", &mut busy)] {
        let frames = tokio::time::timeout(REVOKED_WITHIN, read_to_end(socket)).await;
        let frames = frames.expect("the connection ends");
        let last = frames.last().expect("says why");
        assert_eq!(
            last["error"]["code"], "invalid_api_key",
            "{what}: {frames:?}"
        );
        let is_complete = |frame: &Value| frame["type"] == "response.completed";
        assert!(!frames.iter().any(is_complete), "{what}: {frames:?}");
    }
    let closed = tokio::time::timeout(REVOKED_WITHIN, model.wait_for_closed_calls(1));
    closed.await.expect("the turn ends, too");
    // A connection of another key goes on.
    gate.open_for_ever();
    valid.send(create()).await.expect("is sent");
    loop {
        let message = valid.next().await.expect("goes on").expect("is read");
        if let Message::Text(text) = message
            && text.contains("response.completed")
        {
            break;
        }
    }
}

/// Begins to read a stream.
async fn begin(request: RequestBuilder, key: &GeneratedKey) -> reqwest::Response {
    let request = request.header("authorization", format!("Bearer {}", key.text));
    let response = request.send().await.expect("is answered");
    assert_eq!(response.status(), 200);
    response
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_a_door_end_when_their_key_is_revoked_and_no_answer_is_kept() {
    // The model says a word, and then nothing more.
    let model =
        ScriptedModel::start(|request| Script::says(request, [Say::text("Half")]).hanging_after(2))
            .await;
    let (app, key) = start(&model).await;
    let web = app.http_client();
    let message = json!({"id": "u", "role": "user", "parts": [{"type": "text", "text": "a"}]});
    let chat = json!({"id": "c", "messages": [message]});
    let stream = json!({"input": "a", "stream": true});
    let unstored = json!({"input": "a", "stream": true, "store": false});
    let completion = json!({"model": MODEL, "messages": [{"role": "user", "content": "a"}],
        "stream": true, "store": true});
    let mut streams = Vec::new();
    for (path, body) in [
        ("/v1/responses", &stream),
        ("/v1/responses", &unstored),
        ("/v1/chat/completions", &completion),
        ("/api/agents/a/ui", &chat),
    ] {
        streams.push((path, begin(web.json("POST", path, body), &key).await));
    }
    let background = web.json(
        "POST",
        "/v1/responses",
        &json!({"input": "a", "background": true}),
    );
    let background = begin(background, &key).await.json::<Value>().await;
    let background = background.expect("is JSON")["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    model.wait_for_calls(5).await;
    revoke(&app, &key).await;
    for (path, response) in streams {
        let text = tokio::time::timeout(REVOKED_WITHIN, response.text()).await;
        let text = text.expect("the stream ends").unwrap_or_default();
        assert!(!text.contains("response.completed"), "{path}: {text}");
        assert!(
            !text.contains("\"finish_reason\":\"stop\""),
            "{path}: {text}"
        );
    }
    let reader = app.key("anna", &[Verb::Read]).await;
    let path = format!("/v1/responses/{background}");
    eventually("the response in the background has ended", async || {
        let request = web.request("GET", &path);
        let request = request.header("authorization", format!("Bearer {}", reader.text));
        let status = HttpResponse::send(request).await.json()["status"].clone();
        assert_ne!(status, "completed");
        status == "failed"
    })
    .await;
    model.wait_until_idle().await;
    assert_eq!(count_answers(&app).await, 0);
    for (method, path) in [
        ("GET", "/v1/models"),
        ("POST", "/v1/responses"),
        ("GET", "/v1/responses"),
    ] {
        let request = web.request(method, path);
        let request = request.header("authorization", format!("Bearer {}", key.text));
        assert_eq!(
            HttpResponse::send(request).await.status,
            401,
            "{method} {path}"
        );
    }
}
