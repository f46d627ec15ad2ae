//! Responses over a WebSocket.

use anneal_server::{AuthSettings, ServerSettings};
use anneal_testkit::{MODEL, Say, Script, ScriptedModel, TestApp};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Error, Message, client::IntoClientRequest as _},
};

use super::assert_error;

/// A client's end of a connection.
pub(super) struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    pub(super) async fn open(app: &TestApp) -> Self {
        let url = format!("ws://{}/v1/responses", app.addresses.http);
        let (socket, _) = connect_async(url).await.expect("connects");
        Self(socket)
    }

    async fn send(&mut self, frame: &Value) {
        let sent = self.0.send(Message::text(frame.to_string())).await;
        sent.expect("is sent");
    }

    /// The next frame. None: the connection is closed.
    async fn next(&mut self) -> Option<Value> {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => {
                    return Some(serde_json::from_str(&text).expect("is JSON"));
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(_)) => {}
            }
        }
    }

    /// Creates a response with this input. Returns its events.
    pub(super) async fn create(&mut self, body: Value) -> Vec<Value> {
        self.send(&create(body)).await;
        self.read_response().await
    }

    /// The frames up to the last one of a response.
    async fn read_response(&mut self) -> Vec<Value> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            let kind = frame["type"].as_str().unwrap_or_default().to_owned();
            frames.push(frame);
            if matches!(
                &*kind,
                "response.completed" | "response.failed" | "response.incomplete" | "error"
            ) {
                return frames;
            }
        }
        panic!("the connection was closed after {frames:?}");
    }
}

fn create(mut body: Value) -> Value {
    body["type"] = json!("response.create");
    body["model"] = json!(MODEL);
    body
}

/// The last frame.
fn last(frames: &[Value]) -> &Value {
    frames.last().expect("has frames")
}

/// Asserts that the response has completed. Returns its id.
#[track_caller]
fn assert_completed(frames: &[Value]) -> Value {
    assert_eq!(frames[0]["type"], "response.created", "{frames:?}");
    assert_eq!(last(frames)["type"], "response.completed", "{frames:?}");
    last(frames)["response"]["id"].clone()
}

#[track_caller]
fn assert_refused(frames: &[Value], status: u16, code: &str) {
    let [error] = frames else {
        panic!("more than an error: {frames:?}");
    };
    let found = (&error["type"], &error["status"], &error["error"]["code"]);
    assert_eq!(
        found,
        (&json!("error"), &json!(status), &json!(code)),
        "{error}"
    );
}

#[tokio::test]
async fn a_response_that_is_not_stored_is_continued_on_its_connection_alone() {
    let model = ScriptedModel::saying("OK.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let mut socket = Socket::open(&app).await;
    let first = socket
        .create(json!({"store": false, "input": "The word is cobalt."}))
        .await;
    let id = assert_completed(&first);
    let body = json!({"store": false, "previous_response_id": id, "input": "Which word?"});
    let second = assert_completed(&socket.create(body.clone()).await);
    let sent = model.requests()[1].texts();
    assert_eq!(sent, ["The word is cobalt.", "OK.", "Which word?"]);
    let mut other = Socket::open(&app).await;
    assert_refused(
        &other.create(body.clone()).await,
        404,
        "previous_response_not_found",
    );
    let stands_alone = json!({"store": false, "input": "Never mind."});
    assert_completed(&other.create(stands_alone).await);
    // Only the newest response is remembered.
    assert_refused(
        &socket.create(body).await,
        404,
        "previous_response_not_found",
    );
    let of_second = json!({"store": false, "previous_response_id": second, "input": "So?"});
    assert_completed(&socket.create(of_second).await);
}

#[tokio::test]
async fn a_failed_continuation_evicts_the_response_that_it_named() {
    let model = ScriptedModel::saying("OK.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let mut socket = Socket::open(&app).await;
    let first = socket
        .create(json!({"store": false, "input": "The word is ember."}))
        .await;
    let id = assert_completed(&first);
    let output = json!([{"type": "function_call_output", "call_id": "none", "output": "x"}]);
    let failed = socket
        .create(json!({"store": false, "previous_response_id": id, "input": output}))
        .await;
    assert_refused(&failed, 400, "invalid_request_error");
    let again = socket
        .create(json!({"store": false, "previous_response_id": id, "input": "Again."}))
        .await;
    assert_refused(&again, 404, "previous_response_not_found");
}

#[tokio::test]
async fn a_stored_response_is_found_over_every_connection_and_over_http() {
    let model = ScriptedModel::saying("OK.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let mut socket = Socket::open(&app).await;
    let id = assert_completed(&socket.create(json!({"input": "Hello."})).await);
    let mut other = Socket::open(&app).await;
    let next = json!({"previous_response_id": id, "input": "And?"});
    assert_completed(&other.create(next).await);
    let path = format!("/v1/responses/{}", id.as_str().expect("an id"));
    assert_eq!(
        app.http_client().get(&path).await.json()["status"],
        "completed"
    );
}

#[tokio::test]
async fn frames_that_arrive_meanwhile_are_served_in_turn() {
    let model = ScriptedModel::start(|request| {
        let asked = request.texts().pop().unwrap_or_default();
        Script::says(request, [Say::text(&format!("Answer to {asked}"))])
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let mut socket = Socket::open(&app).await;
    for n in 0..12 {
        socket
            .send(&create(json!({"store": false, "input": format!("{n}")})))
            .await;
    }
    for n in 0..12 {
        let frames = socket.read_response().await;
        assert_completed(&frames);
        let text = &last(&frames)["response"]["output"][0]["content"][0]["text"];
        assert_eq!(text, &format!("Answer to {n}"));
    }
}

#[tokio::test]
async fn frames_that_are_refused_leave_the_connection_open() {
    let model = ScriptedModel::saying("OK.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let mut socket = Socket::open(&app).await;
    for (frame, code) in [
        (json!({"type": "response.steer"}), "invalid_value"),
        (json!({}), "missing_required_parameter"),
        (
            create(json!({"input": "a", "stream": true})),
            "unsupported_parameter",
        ),
        (
            create(json!({"input": "a", "background": true})),
            "unsupported_parameter",
        ),
        (create(json!({"input": 1})), "invalid_type"),
        (create(json!({"input": vec![0; 300_000]})), "invalid_value"),
    ] {
        socket.send(&frame).await;
        assert_refused(&socket.read_response().await, 400, code);
    }
    let binary = Message::Binary(b"{}".to_vec().into());
    socket.0.send(binary).await.expect("is sent");
    assert_refused(&socket.read_response().await, 400, "invalid_type");
    assert_completed(&socket.create(json!({"store": false, "input": "a"})).await);
}

#[tokio::test]
async fn a_message_that_is_too_large_ends_the_connection() {
    let model = ScriptedModel::saying("OK.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let mut socket = Socket::open(&app).await;
    let large = "a".repeat(anneal_core::limits::REQUEST_BYTES);
    // The server may close the connection before all of it is sent.
    let frame = create(json!({"input": large})).to_string();
    let _ = socket.0.send(Message::text(frame)).await;
    let told = socket.next().await;
    if let Some(told) = told {
        assert_eq!(told["status"], 413, "{told}");
        assert_eq!(socket.next().await, None);
    }
}

#[tokio::test]
async fn a_handshake_needs_an_upgrade_a_credential_and_no_foreign_page() {
    let model = ScriptedModel::saying("OK.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let plain = app.http_client().get("/v1/responses").await;
    assert_error(&plain, 426, "", "");
    assert_eq!(plain.header("upgrade"), "websocket");
    let url = format!("ws://{}/v1/responses", app.addresses.http);
    let mut request = url.into_client_request().expect("is a request");
    let origin = "https://elsewhere.example".parse().expect("is a value");
    request.headers_mut().insert("origin", origin);
    let refused = connect_async(request).await.expect_err("is refused");
    assert!(
        matches!(&refused, Error::Http(answer) if answer.status() == 400),
        "{refused:?}"
    );
    let auth = AuthSettings {
        api_keys: true,
        ..AuthSettings::default()
    };
    let closed = TestApp::with_auth(ServerSettings::default(), auth).await;
    let url = format!("ws://{}/v1/responses", closed.addresses.http);
    let refused = connect_async(url).await.expect_err("is refused");
    assert!(
        matches!(&refused, Error::Http(answer) if answer.status() == 401),
        "{refused:?}"
    );
}
