//! Connections that have had their time.

use std::time::{Duration, Instant};

use anneal_server::LimitSettings;
use anneal_tests::{House, RawHttp2, kind, pb};
use pb::conversation_service_client::ConversationServiceClient;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tonic::Code;

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_has_had_its_time_is_left_and_what_was_sent_on_it_is_answered() {
    let limits = LimitSettings { connection_age_seconds: 1, connection_grace_seconds: 5, ..Default::default() };
    let house = House::within(limits).await;
    let mut idle = RawHttp2::connect(house.addresses.grpc, &[]).await;
    let mut kept = TcpStream::connect(house.addresses.http).await.expect("connects");
    kept.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("is taken");

    let calls = (0..4).map(|_| async {
        let mut client = ConversationServiceClient::new(house.channel());
        let (begun, mut answered) = (Instant::now(), 0);
        while begun.elapsed() < Duration::from_secs(4) {
            match client.list_conversations(pb::ListConversationsRequest::default()).await {
                Ok(_) => answered += 1,
                // This client takes a call back that it was about to send on a connection that has just been left.
                Err(status) => {
                    assert_eq!((status.code(), status.message()), (Code::Cancelled, "operation was canceled"));
                }
            }
        }
        answered
    });
    let answered: Vec<u32> = futures::future::join_all(calls).await;
    assert!(answered.iter().all(|count| *count > 10), "{answered:?}");

    let goaway = tokio::time::timeout(PATIENCE, idle.next_of(kind::GOAWAY)).await.expect("in time");
    assert_eq!(goaway.and_then(|frame| frame.goaway_code()), Some(0), "it was asked to leave, and did nothing wrong");
    let mut rest = String::new();
    let read = tokio::time::timeout(PATIENCE, kept.read_to_string(&mut rest)).await;
    read.expect("over HTTP it is closed too").expect("in good order");
    assert!(rest.starts_with("HTTP/1.1 200"), "{rest}");
}

#[tokio::test]
async fn a_call_that_outlasts_the_grace_ends_with_its_connection() {
    let limits = LimitSettings { connection_age_seconds: 1, connection_grace_seconds: 1, ..Default::default() };
    let house = House::within(limits).await;
    let talk = house.conversation().await;
    let mut watch = anneal_tests::Watch::open_on(
        house.channel(),
        pb::WatchConversationRequest { conversation_id: talk.id.clone(), ..Default::default() },
    )
    .await
    .expect("is let in");
    let ended = tokio::time::timeout(PATIENCE, async { while watch.try_next().await.is_ok() {} }).await;
    assert!(ended.is_ok(), "a watch goes on for ever");
    talk.append("what comes next").await;
    let position = watch.position;
    let ask = pb::WatchConversationRequest { conversation_id: talk.id.clone(), position, ..Default::default() };
    let mut again = anneal_tests::Watch::open_on(house.channel(), ask).await.expect("is let in");
    let told = again.until(|event| matches!(event, pb::conversation_event::Event::MessageAppended(_))).await;
    assert_eq!(anneal_tests::appended(&told), [1], "nothing is lost");
}
