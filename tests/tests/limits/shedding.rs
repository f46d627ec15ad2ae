//! More calls at once than a server has room for, and more than a connection has streams.

use std::{collections::BTreeSet, time::Duration};

use anneal_server::{AuthSettings, ServerSettings};
use anneal_tests::{
    CONVERSATION, House, RawHttp2, call_raw, every_rpc, frame, kind, patient, pb, refusal, sound_request, unary,
};
use pb::{conversation_event::Event, conversation_service_client::ConversationServiceClient};
use prost::Message as _;
use tokio::{task::JoinSet, time::timeout};
use tonic::{Code, transport::Channel};
use tonic_types::StatusExt as _;

/// Calls that the server of these tests takes at once.
const ROOM: u32 = 4;
/// Streams that a connection has.
const STREAMS: u32 = 128;
/// The end of what comes by itself.
const PATIENCE: Duration = Duration::from_secs(30);
/// Codes of RFC 9113.
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
/// Calls with rooms of their own.
const ELSEWHERE: [&str; 2] = ["Chat", "WatchConversation"];

fn retitle(conversation_id: &str, title: String) -> pb::UpdateConversationRequest {
    let conversation = pb::Conversation { conversation_id: conversation_id.to_owned(), title, ..Default::default() };
    let update_mask = Some(prost_types::FieldMask { paths: vec!["title".into()] });
    pb::UpdateConversationRequest { conversation: Some(conversation), update_mask, ..Default::default() }
}

#[tokio::test]
async fn calls_beyond_the_servers_room_are_refused_at_once_and_those_under_way_are_answered() {
    let settings = ServerSettings { concurrent_calls: ROOM, ..ServerSettings::default() };
    let house = House::guarded(settings, AuthSettings::default()).await;
    let talk = house.conversation().await;
    let held = house.holding(CONVERSATION, talk.uuid()).await;
    let mut under_way = JoinSet::new();
    for n in 0..ROOM {
        let (mut conversations, ask) = (house.conversations(), retitle(&talk.id, format!("title {n}")));
        under_way.spawn(async move { conversations.update_conversation(patient(ask)).await });
    }
    house.waiting(ROOM.into()).await;
    // None of them goes on before these are answered: whoever waited for room would wait for ever.
    let mut refused = 0;
    for rpc in every_rpc().into_iter().filter(|rpc| !ELSEWHERE.contains(&rpc.name.as_str())) {
        let asked = call_raw(house.showing(""), &rpc.path, sound_request(&rpc.name, &talk.id, "r"));
        let status = timeout(PATIENCE, asked).await.expect("is answered at once").expect_err(&rpc.name);
        let wait = status.get_error_details().retry_info().and_then(|retry| retry.retry_delay);
        assert!(wait.is_some_and(|wait| !wait.is_zero() && wait < PATIENCE), "{}: {status:?}", rpc.name);
        let said = refusal(&status);
        assert_eq!((said.code, said.reason.as_str()), (Code::ResourceExhausted, "OVERLOADED"), "{}", rpc.name);
        refused += 1;
    }
    assert!(refused >= 25, "{refused} RPCs");
    let watch = timeout(PATIENCE, talk.watch()).await.expect("a watch has room of its own");
    assert_eq!(house.web().get("/healthz").await.status, 200);
    assert!(under_way.try_join_next().is_none(), "nobody who was let in is turned away");

    held.let_go().await;
    while let Some(answered) = under_way.join_next().await {
        let title = answered.expect("no panic").expect("was let in, and is answered").into_inner().title;
        assert!(title.starts_with("title "), "{title}");
    }
    let after = talk.conversation().await;
    assert!(after.title.starts_with("title "), "there is room again");
    assert_eq!(after.message_count, 0, "what was refused has done nothing");
    drop(watch);
}

#[tokio::test]
async fn a_client_that_opens_more_streams_than_it_may_is_refused_those_alone() {
    let house = House::start().await;
    let talk = house.conversation().await;
    let mut client = RawHttp2::connect(house.addresses.grpc, &[]).await;
    assert_eq!(client.setting(kind::MAX_CONCURRENT_STREAMS), Some(STREAMS));
    let ask = pb::WatchConversationRequest { conversation_id: talk.id.clone(), ..Default::default() }.encode_to_vec();
    let watch = |stream| unary(stream, "/anneal.v1.MessageService/WatchConversation", &[], &ask);
    let streams: BTreeSet<u32> = (0..STREAMS).map(|n| 2 * n + 1).collect();
    // A few at a time: all together they would wait for connections to the database.
    for some in streams.iter().copied().collect::<Vec<_>>().chunks(8) {
        for stream in some {
            client.send(&watch(*stream)).await.expect("is taken");
        }
        all_told(&mut client, &some.iter().copied().collect()).await;
    }

    let (beyond, later) = (2 * STREAMS + 1, 2 * STREAMS + 3);
    client.send(&watch(beyond)).await.expect("is taken");
    let refused =
        timeout(PATIENCE, client.next_of(kind::RST_STREAM)).await.expect("in time").expect("no more than that");
    assert_eq!((refused.stream, refused.payload.as_slice()), (beyond, &REFUSED_STREAM.to_be_bytes()[..]));
    talk.append("news").await;
    all_told(&mut client, &streams).await;

    client.send(&frame(kind::RST_STREAM, 0, 1, &CANCEL.to_be_bytes())).await.expect("is taken");
    client.send(&watch(later)).await.expect("is taken");
    all_told(&mut client, &BTreeSet::from([later])).await;
}

/// Reads until each of these streams has been told something.
async fn all_told(client: &mut RawHttp2, streams: &BTreeSet<u32>) {
    let mut waiting = streams.clone();
    let read = async {
        while !waiting.is_empty() {
            let told = client.next_of(kind::DATA).await.expect("the connection stays");
            waiting.remove(&told.stream);
        }
    };
    timeout(PATIENCE, read).await.unwrap_or_else(|_| panic!("{waiting:?} are told nothing"));
}

#[tokio::test]
async fn a_client_that_keeps_to_its_streams_waits_for_one_and_others_do_not() {
    let house = House::start().await;
    let talk = house.conversation().await;
    let mut watches = Vec::new();
    for _ in 0..STREAMS {
        watches.push(talk.watch().await);
    }
    let ask = || pb::GetConversationRequest { conversation_id: talk.id.clone() };
    let mut waiting = tokio::spawn({
        let (mut conversations, ask) = (house.conversations(), ask());
        async move { conversations.get_conversation(ask).await }
    });
    let early = timeout(Duration::from_millis(500), &mut waiting).await;
    assert!(early.is_err(), "there is one stream more than there are: {early:?}");
    let other = Channel::from_shared(format!("http://{}", house.addresses.grpc)).expect("an address").connect_lazy();
    let answered = timeout(PATIENCE, ConversationServiceClient::new(other).get_conversation(ask())).await;
    answered.expect("another connection does not wait").expect("is answered");
    drop(watches.pop());
    let answered = timeout(PATIENCE, waiting).await.expect("there is a stream again");
    answered.expect("no panic").expect("is answered");
    talk.append("news").await;
    for watch in &mut watches {
        assert!(matches!(watch.next().await, Event::MessageAppended(_)), "it is still told");
    }
}
