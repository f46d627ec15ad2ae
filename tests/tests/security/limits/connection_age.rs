//! The maximum age of a connection: the server answers the calls on an old connection and closes
//! it.

use std::time::{Duration, Instant};

use anneal_server::LimitSettings;
use anneal_testkit::{
    TestApp, TestConversation, pb,
    raw_http2::{RawHttp2, kind},
    user,
};
use pb::message_service_client::MessageServiceClient;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// The server must close a connection within this time.
const DEADLINE: Duration = Duration::from_secs(30);

/// Whether the client library ended the call itself because the connection was closing. The code
/// depends on how far the call was. The server gives a reason with every refusal, so a status
/// without a reason comes from the client library.
fn was_ended_by_client_library(status: &Status) -> bool {
    let is_client_code = matches!(status.code(), Code::Cancelled | Code::Internal);
    is_client_code && status.get_error_details().error_info().is_none()
}

/// The texts of a conversation's messages, read from the database.
async fn stored_texts(app: &TestApp, conversation: &TestConversation<'_>) -> Vec<String> {
    let texts = "select content -> 0 ->> 'text' from ai_message
        where conversation_id = $1::text::uuid order by message_id";
    sqlx::query_scalar(texts)
        .bind(&conversation.id)
        .fetch_all(&mut app.db().await)
        .await
        .expect("reads")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aged_connection_is_closed_and_its_calls_are_answered() {
    let limits = LimitSettings {
        connection_age_seconds: 1,
        connection_grace_seconds: 5,
        ..Default::default()
    };
    let app = TestApp::with_limits(limits).await;
    let mut idle = RawHttp2::connect(app.addresses.grpc, &[]).await;
    let mut keep_alive = TcpStream::connect(app.addresses.http)
        .await
        .expect("connects");
    keep_alive
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .expect("is sent");

    // A server whose connections have no maximum age: the set-up may take longer than a second.
    let second_server = TestApp::on_database(&app.url).await;
    let conversations = [
        second_server.conversation().await,
        second_server.conversation().await,
        second_server.conversation().await,
    ];
    let calls = conversations.iter().map(|conversation| async {
        let mut client = MessageServiceClient::new(app.channel());
        let (begun, mut answered) = (Instant::now(), Vec::new());
        for number in 0.. {
            if begun.elapsed() > Duration::from_secs(4) && answered.len() > 10 {
                break;
            }
            let text = format!("said {number}");
            let ask = pb::AppendMessagesRequest {
                conversation_id: conversation.id.clone(),
                messages: vec![user(&text)],
                ..Default::default()
            };
            match client.append_messages(ask).await {
                Ok(_) => answered.push(text),
                Err(status) => assert!(was_ended_by_client_library(&status), "{status:?}"),
            }
        }
        answered
    });
    let answered: Vec<Vec<String>> = futures::future::join_all(calls).await;
    for (conversation, answered) in conversations.iter().zip(answered) {
        assert!(answered.len() > 10, "{answered:?}");
        assert_eq!(
            stored_texts(&app, conversation).await,
            answered,
            "every stored message was answered"
        );
    }

    let goaway = tokio::time::timeout(DEADLINE, idle.next_of(kind::GOAWAY))
        .await
        .expect("in time");
    assert_eq!(
        goaway.and_then(|frame| frame.goaway_code()),
        Some(0),
        "GOAWAY with NO_ERROR"
    );
    let mut rest = String::new();
    let read = tokio::time::timeout(DEADLINE, keep_alive.read_to_string(&mut rest)).await;
    read.expect("the HTTP connection is closed too")
        .expect("without an error");
    assert!(rest.starts_with("HTTP/1.1 200"), "{rest}");
}

#[tokio::test]
async fn a_call_that_outlasts_the_grace_period_ends_with_its_connection() {
    let limits = LimitSettings {
        connection_age_seconds: 1,
        connection_grace_seconds: 1,
        ..Default::default()
    };
    let app = TestApp::with_limits(limits).await;
    let conversation = app.conversation().await;
    let mut watch = anneal_testkit::Watch::open_on(
        app.channel(),
        pb::WatchConversationRequest {
            conversation_id: conversation.id.clone(),
            ..Default::default()
        },
    )
    .await
    .expect("is accepted");
    let ended =
        tokio::time::timeout(DEADLINE, async { while watch.try_next().await.is_ok() {} }).await;
    assert!(ended.is_ok(), "the watch outlasts the grace period");
    // A server whose connections have no maximum age.
    let second_server = TestApp::on_database(&app.url).await;
    TestConversation {
        app: &second_server,
        id: conversation.id.clone(),
    }
    .append("what comes next")
    .await;
    let position = watch.position;
    let ask = pb::WatchConversationRequest {
        conversation_id: conversation.id.clone(),
        position,
        ..Default::default()
    };
    let mut resumed = anneal_testkit::Watch::open(&second_server, ask)
        .await
        .expect("is accepted");
    let events = resumed
        .until(|event| matches!(event, pb::conversation_event::Event::MessageAppended(_)))
        .await;
    assert_eq!(
        anneal_testkit::appended_ids(&events),
        [1],
        "the resumed watch misses nothing"
    );
}
