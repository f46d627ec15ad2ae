//! Requests that do not come whole.

use std::time::Duration;

use anneal_core::caller::Verb;
use anneal_server::LimitSettings;
use anneal_tests::{House, RawHttp2, assert_refused, frame, kind, pb, request_head, user};
use pb::{conversation_service_client::ConversationServiceClient, message_service_client::MessageServiceClient};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tonic::Code;

const ALL: [Verb; 2] = [Verb::Read, Verb::Append];
const PATIENCE: Duration = Duration::from_secs(30);
const APPEND: &str = "/anneal.v1.MessageService/AppendMessages";

/// The head of a request and the beginning of a message of this size.
fn begun(stream: u32, path: &str, authorization: &str, size: u32, sent: usize) -> Vec<u8> {
    let head = request_head(path, &[("authorization", authorization)]);
    let mut bytes = frame(kind::HEADERS, kind::END_HEADERS, stream, &head);
    bytes.extend(frame(kind::DATA, 0, stream, &[&[0][..], &size.to_be_bytes()].concat()));
    for _ in 0..sent / 16_000 {
        bytes.extend(frame(kind::DATA, 0, stream, &[b'x'; 16_000]));
    }
    bytes
}

#[tokio::test]
async fn half_a_request_has_its_time_and_is_refused_then_at_both_doors() {
    let limits = LimitSettings { receive_seconds: 1, ..Default::default() };
    let house = House::limited(limits).await;
    let key = house.key("eve", &ALL).await;
    let shown = format!("Bearer {}", key.text);

    let mut half = RawHttp2::connect(house.addresses.grpc, &[]).await;
    half.send(&begun(1, APPEND, &shown, 1_000_000, 32_000)).await.expect("is taken");
    let answered = tokio::time::timeout(PATIENCE, half.next_of(kind::HEADERS)).await;
    answered.expect("it is answered, though it has not asked").expect("and not just left");

    let mut half = TcpStream::connect(house.addresses.http).await.expect("connects");
    let head = format!(
        "POST /api/agents/a/chat HTTP/1.1\r\nHost: localhost\r\nAuthorization: {shown}\r\n\
         Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{\"message\":"
    );
    half.write_all(head.as_bytes()).await.expect("is taken");
    let mut answer = vec![0; 4_096];
    let read = tokio::time::timeout(PATIENCE, half.read(&mut answer)).await.expect("is answered").expect("answers");
    let answer = String::from_utf8_lossy(&answer[..read]);
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("DEADLINE_EXCEEDED"), "{answer}");
}

#[tokio::test]
async fn requests_that_wait_for_their_rest_take_half_of_the_room_at_most() {
    let limits = LimitSettings { waiting_bytes: 8_000_000, ..Default::default() };
    let house = House::limited(limits).await;
    let (eve, anna) = (house.key("eve", &ALL).await, house.key("anna", &ALL).await);
    let (eves, annas) = (format!("Bearer {}", eve.text), format!("Bearer {}", anna.text));
    let (answered, mut answers) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..10 {
        // As much as a connection may send before it is given leave.
        let mut half = RawHttp2::connect(house.addresses.grpc, &[]).await;
        for stream in [1, 3] {
            half.send(&begun(stream, APPEND, &eves, 1_000_000, 400_000)).await.expect("is taken");
        }
        let answered = answered.clone();
        tokio::spawn(
            async move { while half.next_of(kind::HEADERS).await.is_some_and(|_| answered.send(()).is_ok()) {} },
        );
    }
    // Eight million bytes were sent; half of that is room, and the rest is refused.
    for _ in 0..8 {
        let refused = tokio::time::timeout(PATIENCE, answers.recv()).await;
        refused.expect("is refused in time").expect("the connections stay");
    }
    let made = pb::CreateConversationRequest::default();
    let mut conversations = ConversationServiceClient::new(house.showing(&annas));
    let id = conversations.create_conversation(made).await.expect("others are answered").into_inner().conversation_id;
    let messages = vec![user(&"x".repeat(1_000_000))];
    let message = pb::AppendMessagesRequest { conversation_id: id, messages, ..Default::default() };
    MessageServiceClient::new(house.showing(&annas)).append_messages(message).await.expect("others have room");
    let messages = vec![user(&"x".repeat(3_900_000))];
    let message = pb::AppendMessagesRequest { messages, ..Default::default() };
    let refused = MessageServiceClient::new(house.showing(&eves)).append_messages(message).await.map(drop);
    assert_refused(refused, Code::ResourceExhausted, "OVERLOADED", "");
}

#[tokio::test]
async fn who_asks_after_health_may_not_say_more_than_a_name() {
    let house = House::start().await;
    let mut stranger = RawHttp2::connect(house.addresses.grpc, &[]).await;
    stranger.send(&begun(1, "/grpc.health.v1.Health/Check", "", 1_000_000, 0)).await.expect("is taken");
    let answered = tokio::time::timeout(Duration::from_secs(5), stranger.next_of(kind::HEADERS)).await;
    answered.expect("at once").expect("is refused");
}
