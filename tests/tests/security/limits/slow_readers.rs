//! Clients that do not read their answers.

use std::time::Duration;

use anneal_core::caller::Verb;
use anneal_server::LimitSettings;
use anneal_testkit::{
    TestApp, assert_refused, call_raw, eventually, pb,
    raw_http2::{RawHttp2, kind, unary},
    user,
};
use pb::{
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use prost::Message as _;
use tonic::Code;

/// Deadline for an answer or a disconnection by the server.
const DEADLINE: Duration = Duration::from_secs(30);
const READ_AND_APPEND: [Verb; 2] = [Verb::Read, Verb::Append];

/// A unary gRPC request on a stream with this credential.
fn request(stream: u32, path: &str, authorization: &str, message: &[u8]) -> Vec<u8> {
    unary(stream, path, &[("authorization", authorization)], message)
}

#[tokio::test]
async fn a_stalled_reader_is_disconnected_and_an_idle_watcher_is_not() {
    let limits = LimitSettings {
        stall_seconds: 1,
        ..Default::default()
    };
    let app = TestApp::with_keys_and_limits(limits).await;
    let key = app.key("eve", &READ_AND_APPEND).await;
    let authorization = format!("Bearer {}", key.text);
    let channel = app.authorized_channel(&authorization);
    let mut conversations = ConversationServiceClient::new(channel.clone());
    let made = conversations.create_conversation(pb::CreateConversationRequest::default());
    let id = made.await.expect("creates").into_inner().conversation_id;

    // An idle watch, whose client reads.
    let ask = pb::WatchConversationRequest {
        conversation_id: id.clone(),
        ..Default::default()
    }
    .encode_to_vec();
    let mut watcher = RawHttp2::connect(app.addresses.grpc, &[]).await;
    let path = "/anneal.v1.MessageService/WatchConversation";
    watcher
        .send(&request(1, path, &authorization, &ask))
        .await
        .expect("is sent");
    watcher
        .next_of(kind::DATA)
        .await
        .expect("the watch has begun");

    let path = "/anneal.v1.ConversationService/GetConversation";
    let ask = pb::GetConversationRequest {
        conversation_id: id.clone(),
    }
    .encode_to_vec();
    for window in [0, 20] {
        let mut reader =
            RawHttp2::connect(app.addresses.grpc, &[(kind::INITIAL_WINDOW_SIZE, window)]).await;
        if window == 0 {
            reader
                .send(&request(1, path, &authorization, &ask))
                .await
                .expect("is sent");
        } else {
            // The server can send only the first 20 bytes of this answer, which has several chunks.
            let append = pb::AppendMessagesRequest {
                conversation_id: id.clone(),
                messages: vec![user(&"x".repeat(100_000))],
                ..Default::default()
            };
            MessageServiceClient::new(channel.clone())
                .append_messages(append)
                .await
                .expect("appends");
            let ask = pb::GetMessageRequest {
                conversation_id: id.clone(),
                message_id: 1,
                ..Default::default()
            };
            let path = "/anneal.v1.MessageService/GetMessage";
            reader
                .send(&request(1, path, &authorization, &ask.encode_to_vec()))
                .await
                .expect("is sent");
        }
        reader
            .next_of(kind::HEADERS)
            .await
            .expect("the answer has begun");
        let closed = tokio::time::timeout(DEADLINE, reader.read_to_close()).await;
        assert!(
            closed.is_ok(),
            "with a window of {window} the reader stays connected"
        );
    }

    // The idle watcher receives the next event.
    let append = pb::AppendMessagesRequest {
        conversation_id: id,
        messages: vec![user("news")],
        ..Default::default()
    };
    MessageServiceClient::new(channel)
        .append_messages(append)
        .await
        .expect("appends");
    watcher
        .next_of(kind::DATA)
        .await
        .expect("the watch still delivers");
}

#[tokio::test]
async fn one_slow_reader_does_not_end_the_calls_of_others_on_its_connection() {
    let app = TestApp::with_keys_and_limits(LimitSettings {
        stall_seconds: 1,
        ..Default::default()
    })
    .await;
    let key = app.key("eve", &READ_AND_APPEND).await;
    let authorization = format!("Bearer {}", key.text);
    let channel = app.authorized_channel(&authorization);
    let create = pb::CreateConversationRequest::default();
    let made = ConversationServiceClient::new(channel.clone())
        .create_conversation(create)
        .await
        .expect("creates");
    let conversation_id = made.into_inner().conversation_id;
    let messages = vec![user(&"x".repeat(1_000_000))];
    let append = pb::AppendMessagesRequest {
        conversation_id: conversation_id.clone(),
        messages,
        ..Default::default()
    };
    MessageServiceClient::new(channel)
        .append_messages(append)
        .await
        .expect("appends");
    // A proxy that makes the calls of two clients on one connection.
    let mut proxy = RawHttp2::connect(app.addresses.grpc, &[]).await;
    let watch = pb::WatchConversationRequest {
        conversation_id: conversation_id.clone(),
        ..Default::default()
    };
    let path = "/anneal.v1.MessageService/WatchConversation";
    proxy
        .send(&request(1, path, &authorization, &watch.encode_to_vec()))
        .await
        .expect("is sent");
    proxy
        .next_of(kind::DATA)
        .await
        .expect("the watch has begun");
    let read = pb::GetMessageRequest {
        conversation_id,
        message_id: 1,
        ..Default::default()
    };
    let path = "/anneal.v1.MessageService/GetMessage";
    proxy
        .send(&request(3, path, &authorization, &read.encode_to_vec()))
        .await
        .expect("is sent");
    proxy
        .next_of(kind::DATA)
        .await
        .expect("the answer has begun, and the window is used up");
    // Four times `stall_seconds`.
    let closed = tokio::time::timeout(Duration::from_secs(4), proxy.read_to_close()).await;
    assert!(
        closed.is_err(),
        "the watch was ended because of the other call"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_answers_take_at_most_half_of_waiting_bytes() {
    let limits = LimitSettings {
        waiting_bytes: 4_000_000,
        bytes_per_second: 0,
        ..Default::default()
    };
    let ask = |conversation_id| pb::GetConversationRequest { conversation_id }.encode_to_vec();
    // Each of the 20 answers begins with a HEADERS frame. Half of `waiting_bytes` holds ten answers
    // of 200,000 bytes, so at least ten are refused. A refused answer ends with trailers: a second
    // HEADERS frame, which needs no window.
    leave_answers_unread(
        limits,
        "/anneal.v1.ConversationService/GetConversation",
        ask,
        20 + 10,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_content_takes_at_most_half_of_content_bytes() {
    let limits = LimitSettings {
        content_bytes: 8_000_000,
        bytes_per_second: 0,
        ..Default::default()
    };
    let ask = |conversation_id| {
        pb::GetMessageRequest {
            conversation_id,
            message_id: 1,
            ..Default::default()
        }
        .encode_to_vec()
    };
    // A call above the limit is refused before content is read, in its only HEADERS frame. So each
    // of the 20 answers has one.
    leave_answers_unread(limits, "/anneal.v1.MessageService/GetMessage", ask, 20).await;
}

/// Makes 20 calls whose answers exceed a tenant's share of these limits, and reads only this number
/// of HEADERS frames. Meanwhile another tenant must be answered. After the reader has disconnected,
/// its tenant must be answered again.
async fn leave_answers_unread(
    limits: LimitSettings,
    path: &str,
    ask: impl Fn(String) -> Vec<u8>,
    headers: usize,
) {
    let app = TestApp::with_keys_and_limits(limits).await;
    let (eve, anna) = (
        app.key("eve", &READ_AND_APPEND).await,
        app.key("anna", &READ_AND_APPEND).await,
    );
    let (eves, annas) = (
        format!("Bearer {}", eve.text),
        format!("Bearer {}", anna.text),
    );
    let mut asks = Vec::new();
    for authorization in [&eves, &annas] {
        let channel = app.authorized_channel(authorization);
        let create = pb::CreateConversationRequest {
            system_prompt: "x".repeat(200_000),
            ..Default::default()
        };
        let made = ConversationServiceClient::new(channel.clone())
            .create_conversation(create)
            .await
            .expect("creates");
        let conversation_id = made.into_inner().conversation_id;
        let messages = vec![user(&"x".repeat(900_000))];
        let append = pb::AppendMessagesRequest {
            conversation_id: conversation_id.clone(),
            messages,
            ..Default::default()
        };
        MessageServiceClient::new(channel)
            .append_messages(append)
            .await
            .expect("appends");
        asks.push(ask(conversation_id));
    }
    let mut reader = RawHttp2::connect(app.addresses.grpc, &[(kind::INITIAL_WINDOW_SIZE, 0)]).await;
    for n in 0..20 {
        reader
            .send(&request(2 * n + 1, path, &eves, &asks[0]))
            .await
            .expect("is sent");
    }
    let answered = async {
        for _ in 0..headers {
            reader
                .next_of(kind::HEADERS)
                .await
                .expect("the connection stays");
        }
    };
    tokio::time::timeout(DEADLINE, answered)
        .await
        .expect("some are refused");
    let read = |authorization: &str, ask: &[u8]| {
        call_raw(app.authorized_channel(authorization), path, ask.to_vec())
    };
    assert_refused(
        read(&eves, &asks[0]).await.map(drop),
        Code::ResourceExhausted,
        "OVERLOADED",
        "",
    );
    read(&annas, &asks[1])
        .await
        .expect("another tenant is answered");
    drop(reader);
    eventually("disconnecting releases the memory", async || {
        read(&eves, &asks[0]).await.is_ok()
    })
    .await;
    read(&eves, &asks[0])
        .await
        .expect("the memory stays released");
}
