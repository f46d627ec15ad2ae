//! Readers of answers who do not read.

use std::time::Duration;

use anneal_core::caller::Verb;
use anneal_server::LimitSettings;
use anneal_tests::{House, RawHttp2, assert_refused, call_raw, eventually, kind, pb, unary, user};
use pb::{conversation_service_client::ConversationServiceClient, message_service_client::MessageServiceClient};
use prost::Message as _;
use tonic::Code;

const PATIENCE: Duration = Duration::from_secs(30);
const ALL: [Verb; 2] = [Verb::Read, Verb::Append];

/// A unary request of gRPC on a stream, by whoever shows this.
fn asked(stream: u32, path: &str, authorization: &str, message: &[u8]) -> Vec<u8> {
    unary(stream, path, &[("authorization", authorization)], message)
}

#[tokio::test]
async fn a_reader_who_gives_no_leave_to_send_is_shown_out_and_one_whom_nobody_has_anything_for_is_not() {
    let limits = LimitSettings { stall_seconds: 1, ..Default::default() };
    let house = House::limited(limits).await;
    let key = house.key("eve", &ALL).await;
    let shown = format!("Bearer {}", key.text);
    let guest = house.showing(&shown);
    let mut conversations = ConversationServiceClient::new(guest.clone());
    let made = conversations.create_conversation(pb::CreateConversationRequest::default());
    let id = made.await.expect("creates").into_inner().conversation_id;

    // A watch that has nothing to say, read by somebody who would take it.
    let ask = pb::WatchConversationRequest { conversation_id: id.clone(), ..Default::default() }.encode_to_vec();
    let mut watcher = RawHttp2::connect(house.addresses.grpc, &[]).await;
    let path = "/anneal.v1.MessageService/WatchConversation";
    watcher.send(&asked(1, path, &shown, &ask)).await.expect("is taken");
    watcher.next_of(kind::DATA).await.expect("the watch has begun");

    let path = "/anneal.v1.ConversationService/GetConversation";
    let ask = pb::GetConversationRequest { conversation_id: id.clone() }.encode_to_vec();
    for window in [0, 20] {
        let mut reader = RawHttp2::connect(house.addresses.grpc, &[(kind::INITIAL_WINDOW_SIZE, window)]).await;
        if window == 0 {
            reader.send(&asked(1, path, &shown, &ask)).await.expect("is taken");
        } else {
            // Some of it is taken, and then no more: the answer is longer than one piece.
            let message = pb::AppendMessagesRequest {
                conversation_id: id.clone(),
                messages: vec![user(&"x".repeat(100_000))],
                ..Default::default()
            };
            MessageServiceClient::new(guest.clone()).append_messages(message).await.expect("appends");
            let ask = pb::GetMessageRequest { conversation_id: id.clone(), message_id: 1, range: None };
            let path = "/anneal.v1.MessageService/GetMessage";
            reader.send(&asked(1, path, &shown, &ask.encode_to_vec())).await.expect("is taken");
        }
        reader.next_of(kind::HEADERS).await.expect("the answer has begun");
        let closed = tokio::time::timeout(PATIENCE, reader.closed()).await;
        assert!(closed.is_ok(), "with a window of {window} it stays for ever");
    }

    // The one whom nobody had anything for is told what happens next.
    let message = pb::AppendMessagesRequest { conversation_id: id, messages: vec![user("news")], ..Default::default() };
    MessageServiceClient::new(guest).append_messages(message).await.expect("appends");
    watcher.next_of(kind::DATA).await.expect("it is still told");
}

#[tokio::test]
async fn one_slow_reader_does_not_end_the_calls_of_others_on_its_connection() {
    let house = House::limited(LimitSettings { stall_seconds: 1, ..Default::default() }).await;
    let key = house.key("eve", &ALL).await;
    let shown = format!("Bearer {}", key.text);
    let guest = house.showing(&shown);
    let made = pb::CreateConversationRequest::default();
    let made = ConversationServiceClient::new(guest.clone()).create_conversation(made).await.expect("creates");
    let conversation_id = made.into_inner().conversation_id;
    let messages = vec![user(&"x".repeat(1_000_000))];
    let message =
        pb::AppendMessagesRequest { conversation_id: conversation_id.clone(), messages, ..Default::default() };
    MessageServiceClient::new(guest).append_messages(message).await.expect("appends");
    let mut proxy = RawHttp2::connect(house.addresses.grpc, &[]).await;
    let watch = pb::WatchConversationRequest { conversation_id: conversation_id.clone(), ..Default::default() };
    let path = "/anneal.v1.MessageService/WatchConversation";
    proxy.send(&asked(1, path, &shown, &watch.encode_to_vec())).await.expect("is taken");
    proxy.next_of(kind::DATA).await.expect("the watch has begun");
    let read = pb::GetMessageRequest { conversation_id, message_id: 1, range: None };
    let path = "/anneal.v1.MessageService/GetMessage";
    proxy.send(&asked(3, path, &shown, &read.encode_to_vec())).await.expect("is taken");
    proxy.next_of(kind::DATA).await.expect("the answer has begun, and nobody gives leave for its end");
    let closed = tokio::time::timeout(Duration::from_secs(4), proxy.closed()).await;
    assert!(closed.is_err(), "the watch was ended for the other's sake");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_nobody_reads_take_half_of_the_room_at_most() {
    let limits = LimitSettings { waiting_bytes: 4_000_000, bytes_per_second: 0, ..Default::default() };
    let ask = |conversation_id| pb::GetConversationRequest { conversation_id }.encode_to_vec();
    // Those that find no room are refused with their trailers, which need no leave; their heads have gone.
    read_nothing(limits, "/anneal.v1.ConversationService/GetConversation", ask, 20 + 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_that_nobody_reads_takes_half_of_its_room_at_most() {
    let limits = LimitSettings { content_bytes: 8_000_000, bytes_per_second: 0, ..Default::default() };
    let ask = |conversation_id| pb::GetMessageRequest { conversation_id, message_id: 1, range: None }.encode_to_vec();
    // Those that find no room are refused before they are read.
    read_nothing(limits, "/anneal.v1.MessageService/GetMessage", ask, 20).await;
}

/// Asks 20 times for what is too much for a tenant's share of these limits, and reads none of the answers but so many heads.
/// Meanwhile another tenant is answered.
async fn read_nothing(limits: LimitSettings, path: &str, ask: impl Fn(String) -> Vec<u8>, heads: usize) {
    let house = House::limited(limits).await;
    let (eve, anna) = (house.key("eve", &ALL).await, house.key("anna", &ALL).await);
    let (eves, annas) = (format!("Bearer {}", eve.text), format!("Bearer {}", anna.text));
    let mut asks = Vec::new();
    for shown in [&eves, &annas] {
        let guest = house.showing(shown);
        let made = pb::CreateConversationRequest { system_prompt: "x".repeat(200_000), ..Default::default() };
        let made = ConversationServiceClient::new(guest.clone()).create_conversation(made).await.expect("creates");
        let conversation_id = made.into_inner().conversation_id;
        let messages = vec![user(&"x".repeat(900_000))];
        let message =
            pb::AppendMessagesRequest { conversation_id: conversation_id.clone(), messages, ..Default::default() };
        MessageServiceClient::new(guest).append_messages(message).await.expect("appends");
        asks.push(ask(conversation_id));
    }
    let mut reader = RawHttp2::connect(house.addresses.grpc, &[(kind::INITIAL_WINDOW_SIZE, 0)]).await;
    for n in 0..20 {
        reader.send(&asked(2 * n + 1, path, &eves, &asks[0])).await.expect("is taken");
    }
    let answered = async {
        for _ in 0..heads {
            reader.next_of(kind::HEADERS).await.expect("the connection stays");
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.expect("some are refused");
    let read = |shown: &str, ask: &[u8]| call_raw(house.showing(shown), path, ask.to_vec());
    assert_refused(read(&eves, &asks[0]).await.map(drop), Code::ResourceExhausted, "OVERLOADED", "");
    read(&annas, &asks[1]).await.expect("another tenant has room");
    drop(reader);
    eventually("leaving makes room", async || read(&eves, &asks[0]).await.is_ok()).await;
    read(&eves, &asks[0]).await.expect("and it stays");
}
