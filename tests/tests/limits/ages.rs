//! Connections that have had their time.

use std::time::{Duration, Instant};

use anneal_server::LimitSettings;
use anneal_tests::{House, RawHttp2, Talk, kind, pb, user};
use pb::message_service_client::MessageServiceClient;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

const PATIENCE: Duration = Duration::from_secs(30);

/// Whether this client had a call in hand when it was told that the connection is left, and took it back. Which of the two it
/// says depends on how far it was; the server, which gives a reason with every refusal, has said neither.
fn was_never_sent(status: &Status) -> bool {
    let is_of_the_client = matches!(status.code(), Code::Cancelled | Code::Internal);
    is_of_the_client && status.get_error_details().error_info().is_none()
}

/// The texts that a conversation holds, without a call that its connection may give back.
async fn stored(house: &House, talk: &Talk<'_>) -> Vec<String> {
    let texts = "select content -> 0 ->> 'text' from ai_message
        where conversation_id = $1::text::uuid order by message_id";
    sqlx::query_scalar(texts).bind(&talk.id).fetch_all(&mut house.db().await).await.expect("reads")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_has_had_its_time_is_left_and_what_was_sent_on_it_is_answered() {
    let limits = LimitSettings { connection_age_seconds: 1, connection_grace_seconds: 5, ..Default::default() };
    let house = House::within(limits).await;
    let mut idle = RawHttp2::connect(house.addresses.grpc, &[]).await;
    let mut kept = TcpStream::connect(house.addresses.http).await.expect("connects");
    kept.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("is taken");

    let talks = [house.conversation().await, house.conversation().await, house.conversation().await];
    let calls = talks.iter().map(|talk| async {
        let mut client = MessageServiceClient::new(house.channel());
        let (begun, mut answered) = (Instant::now(), Vec::new());
        for number in 0.. {
            if begun.elapsed() > Duration::from_secs(4) && answered.len() > 10 {
                break;
            }
            let text = format!("said {number}");
            let ask = pb::AppendMessagesRequest {
                conversation_id: talk.id.clone(),
                messages: vec![user(&text)],
                ..Default::default()
            };
            match client.append_messages(ask).await {
                Ok(_) => answered.push(text),
                Err(status) => assert!(was_never_sent(&status), "{status:?}"),
            }
        }
        answered
    });
    let answered: Vec<Vec<String>> = futures::future::join_all(calls).await;
    for (talk, answered) in talks.iter().zip(answered) {
        assert!(answered.len() > 10, "{answered:?}");
        assert_eq!(stored(&house, talk).await, answered, "what the server took up was answered");
    }

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
    // At a server whose connections do not age.
    let other = House::at(&house.url).await;
    Talk { house: &other, id: talk.id.clone() }.append("what comes next").await;
    let position = watch.position;
    let ask = pb::WatchConversationRequest { conversation_id: talk.id.clone(), position, ..Default::default() };
    let mut again = anneal_tests::Watch::open(&other, ask).await.expect("is let in");
    let told = again.until(|event| matches!(event, pb::conversation_event::Event::MessageAppended(_))).await;
    assert_eq!(anneal_tests::appended(&told), [1], "nothing is lost");
}
