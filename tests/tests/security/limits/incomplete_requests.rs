//! Requests of which only the beginning arrives.

use std::{convert::Infallible, future::poll_fn, time::Duration};

use anneal_core::caller::Verb;
use anneal_server::LimitSettings;
use anneal_testkit::{
    AuthorizedChannel, TestApp, assert_refused, pb,
    raw_http2::{RawHttp2, frame, kind, request_head},
    user,
};
use axum::http::{Request, Version};
use futures::{StreamExt as _, stream};
use pb::{
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tonic::{Code, Status, body::Body, client::GrpcService};

const READ_AND_APPEND: [Verb; 2] = [Verb::Read, Verb::Append];
/// Deadline for an answer of the server.
const DEADLINE: Duration = Duration::from_secs(30);
const APPEND: &str = "/anneal.v1.MessageService/AppendMessages";

/// The head of a gRPC request, and the first `sent` bytes (a multiple of 16,000) of its message,
/// which claims `size` bytes.
fn partial_request(
    stream: u32,
    path: &str,
    authorization: &str,
    size: u32,
    sent: usize,
) -> Vec<u8> {
    let head = request_head(path, &[("authorization", authorization)]);
    let mut bytes = frame(kind::HEADERS, kind::END_HEADERS, stream, &head);
    bytes.extend(frame(
        kind::DATA,
        0,
        stream,
        &[&[0][..], &size.to_be_bytes()].concat(),
    ));
    for _ in 0..sent / 16_000 {
        bytes.extend(frame(kind::DATA, 0, stream, &[b'x'; 16_000]));
    }
    bytes
}

/// Sends a request whose message claims `size` bytes, and of which only `sent` bytes arrive. Waits
/// for the answer. Returns the status of a refusal.
async fn send_partial_request(
    mut channel: AuthorizedChannel,
    path: &str,
    size: u32,
    sent: usize,
) -> Result<(), Status> {
    let beginning = [&[0][..], &size.to_be_bytes(), &vec![b'x'; sent]].concat();
    let body = stream::iter([Ok::<_, Infallible>(beginning)]).chain(stream::pending());
    let request = Request::post(path)
        .version(Version::HTTP_2)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(axum::body::Body::from_stream(body)))
        .expect("the request is valid");
    poll_fn(|context| GrpcService::<Body>::poll_ready(&mut channel, context))
        .await
        .expect("the server accepts the connection");
    let answer = tokio::time::timeout(DEADLINE, GrpcService::call(&mut channel, request))
        .await
        .expect("it is answered before it is complete")
        .expect("with a status");
    // A refusal has its status in the headers: no message follows.
    Status::from_header_map(answer.headers()).map_or(Ok(()), Err)
}

#[tokio::test]
async fn an_incomplete_request_is_refused_after_receive_seconds() {
    let limits = LimitSettings {
        receive_seconds: 1,
        ..Default::default()
    };
    let app = TestApp::with_keys_and_limits(limits).await;
    let key = app.key("eve", &READ_AND_APPEND).await;
    let authorization = format!("Bearer {}", key.text);

    let refused = send_partial_request(
        app.authorized_channel(&authorization),
        APPEND,
        1_000_000,
        32_000,
    )
    .await;
    assert_refused(refused, Code::DeadlineExceeded, "DEADLINE_EXCEEDED", "");

    let mut half = TcpStream::connect(app.addresses.http)
        .await
        .expect("connects");
    let head = format!(
        "POST /api/agents/a/chat HTTP/1.1\r\nHost: localhost\r\nAuthorization: {authorization}\r\n\
         Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{\"message\":"
    );
    half.write_all(head.as_bytes()).await.expect("is sent");
    let mut answer = vec![0; 4_096];
    let read = tokio::time::timeout(DEADLINE, half.read(&mut answer))
        .await
        .expect("is answered")
        .expect("answers");
    let answer = String::from_utf8_lossy(&answer[..read]);
    assert!(
        answer.starts_with("HTTP/1.1 408") && answer.contains("DEADLINE_EXCEEDED"),
        "{answer}"
    );
}

#[tokio::test]
async fn incomplete_requests_take_at_most_half_of_waiting_bytes() {
    let limits = LimitSettings {
        waiting_bytes: 8_000_000,
        ..Default::default()
    };
    let app = TestApp::with_keys_and_limits(limits).await;
    let (eve, anna) = (
        app.key("eve", &READ_AND_APPEND).await,
        app.key("anna", &READ_AND_APPEND).await,
    );
    let (eves, annas) = (
        format!("Bearer {}", eve.text),
        format!("Bearer {}", anna.text),
    );
    let (answer_sender, mut answers) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..10 {
        // As much as the initial flow-control window of a connection allows.
        let mut half = RawHttp2::connect(app.addresses.grpc, &[]).await;
        for stream in [1, 3] {
            half.send(&partial_request(stream, APPEND, &eves, 1_000_000, 400_000))
                .await
                .expect("is sent");
        }
        let answer_sender = answer_sender.clone();
        tokio::spawn(async move {
            while half
                .next_of(kind::HEADERS)
                .await
                .is_some_and(|_| answer_sender.send(()).is_ok())
            {}
        });
    }
    // Eight million bytes were sent, and four million fit. So about half of the 20 requests are
    // refused.
    for _ in 0..8 {
        let refused = tokio::time::timeout(DEADLINE, answers.recv()).await;
        refused
            .expect("is refused in time")
            .expect("the connections stay");
    }
    let ask = pb::CreateConversationRequest::default();
    let mut conversations = ConversationServiceClient::new(app.authorized_channel(&annas));
    let id = conversations
        .create_conversation(ask)
        .await
        .expect("other tenants are answered")
        .into_inner()
        .conversation_id;
    let messages = vec![user(&"x".repeat(1_000_000))];
    let ask = pb::AppendMessagesRequest {
        conversation_id: id,
        messages,
        ..Default::default()
    };
    MessageServiceClient::new(app.authorized_channel(&annas))
        .append_messages(ask)
        .await
        .expect("other tenants can append");
    let messages = vec![user(&"x".repeat(3_900_000))];
    let ask = pb::AppendMessagesRequest {
        messages,
        ..Default::default()
    };
    let refused = MessageServiceClient::new(app.authorized_channel(&eves))
        .append_messages(ask)
        .await
        .map(drop);
    assert_refused(refused, Code::ResourceExhausted, "OVERLOADED", "");
}

#[tokio::test]
async fn an_oversized_health_check_is_refused() {
    let app = TestApp::start().await;
    let refused = send_partial_request(
        app.authorized_channel(""),
        "/grpc.health.v1.Health/Check",
        1_000_000,
        0,
    )
    .await;
    assert_refused(refused, Code::InvalidArgument, "LIMIT_EXCEEDED", "request");
}
