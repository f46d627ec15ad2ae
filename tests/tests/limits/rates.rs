//! Calls and bytes of one tenant a second.

use std::time::Duration;

use anneal_core::caller::Verb;
use anneal_server::LimitSettings;
use anneal_tests::{Answered, Guest, House, assert_refused, pb, user};
use pb::{
    append_large_message_request::{Frame, Header},
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// More calls than a burst of five and the seconds that they take allow.
const MANY: usize = 50;
const ALL: [Verb; 2] = [Verb::Read, Verb::Append];

async fn list(guest: &Guest) -> Result<(), Status> {
    let ask = pb::ListConversationsRequest::default();
    ConversationServiceClient::new(guest.clone()).list_conversations(ask).await.map(drop)
}

async fn create(guest: &Guest) -> String {
    let mut conversations = ConversationServiceClient::new(guest.clone());
    let made = conversations.create_conversation(pb::CreateConversationRequest::default());
    made.await.expect("creates").into_inner().conversation_id
}

/// When a refusal for this limit says that the caller may come back.
fn told_to_wait(refused: Status, limit: &str) -> Duration {
    let details = refused.get_error_details();
    assert_eq!(details.error_info().expect("a reason").metadata["limit"], limit, "{refused:?}");
    let wait = details.retry_info().and_then(|retry| retry.retry_delay).expect("a time");
    assert_refused::<()>(Err(refused), Code::ResourceExhausted, "TENANT_RATE_EXCEEDED", "");
    wait
}

/// Lets a time pass that a server has named.
async fn pass(wait: Duration) {
    let mut ticks = tokio::time::interval(wait);
    ticks.tick().await;
    ticks.tick().await;
}

#[tokio::test]
async fn a_tenant_that_calls_too_often_is_told_when_to_return_and_is_served_then() {
    let limits = LimitSettings { calls_per_second: 1, calls_burst: 5, ..Default::default() };
    let house = House::limited(limits).await;
    let (eve, anna) = (house.key("eve", &ALL).await, house.key("anna", &ALL).await);
    let shown = |key: &anneal_server::NewSecret| format!("Bearer {}", key.text);
    let (eves, annas) = (house.showing(&shown(&eve)), house.showing(&shown(&anna)));
    let mut refused = Ok(());
    for _ in 0..MANY {
        refused = refused.and(list(&eves).await);
    }
    let refused = refused.expect_err("so many calls are too many");
    let wait = told_to_wait(refused, "calls_per_second");
    assert!(wait <= Duration::from_secs(1), "{wait:?}");

    // The other door counts the same calls.
    let asked = |key| house.web().request("GET", "/api/agents/a/sessions").header("authorization", shown(key));
    let mut refused = Answered::to(asked(&eve)).await;
    for _ in 0..MANY {
        if refused.status == 200 {
            refused = Answered::to(asked(&eve)).await;
        }
    }
    refused.assert_problem(429, "TENANT_RATE_EXCEEDED", "");
    assert_eq!(refused.header("retry-after"), "1");
    assert!(refused.json()["retryAfterMs"].as_u64().is_some_and(|wait| wait > 0 && wait <= 1_000), "{refused:?}");

    for path in ["/healthz", "/openapi.json"] {
        assert_eq!(house.web().get(path).await.status, 200, "{path} asks nobody who they are");
    }
    list(&annas).await.expect("another tenant is not disturbed");
    assert_eq!(Answered::to(asked(&anna)).await.status, 200, "over HTTP neither");

    // What is named counts from when it is said.
    let refused = async || loop {
        if let Err(refused) = list(&eves).await {
            break refused;
        }
    };
    pass(told_to_wait(refused().await, "calls_per_second")).await;
    list(&eves).await.expect("is served at the time that was named");
}

#[tokio::test]
async fn bytes_that_came_and_went_delay_the_next_call_of_their_tenant() {
    const BYTES: usize = 600_000;
    let limits = LimitSettings { bytes_per_second: 100_000, bytes_burst: 5_000, ..Default::default() };
    let house = House::limited(limits).await;
    let (eve, anna) = (house.key("eve", &ALL).await, house.key("anna", &ALL).await);
    let shown = |key: &anneal_server::NewSecret| format!("Bearer {}", key.text);
    let (eves, annas) = (house.showing(&shown(&eve)), house.showing(&shown(&anna)));
    let id = create(&eves).await;
    let mut messages = MessageServiceClient::new(eves.clone());

    // One message at once, and one in pieces: both are taken in, and what follows waits.
    let whole = pb::AppendMessagesRequest {
        conversation_id: id.clone(),
        messages: vec![user(&"x".repeat(BYTES))],
        ..Default::default()
    };
    messages.append_messages(whole).await.expect("what has come is stored");
    let wait = told_to_wait(list(&eves).await.expect_err("has sent too much"), "bytes_per_second");
    assert!(wait <= Duration::from_secs(7), "{wait:?}: what has come is paid off in six seconds");
    list(&annas).await.expect("another tenant is not disturbed");
    pass(wait).await;

    let header = Header { conversation_id: id.clone(), message: Some(user("")), ..Default::default() };
    let chunks = (0..4).map(|_| Frame::Chunk("y".repeat(BYTES / 4).into_bytes()));
    let frames = std::iter::once(Frame::Header(header)).chain(chunks);
    let frames: Vec<_> = frames.map(|frame| pb::AppendLargeMessageRequest { frame: Some(frame) }).collect();
    messages.append_large_message(futures::stream::iter(frames)).await.expect("a stream is taken in whole");
    let wait = told_to_wait(list(&eves).await.expect_err("has sent too much"), "bytes_per_second");
    pass(wait).await;

    let ask = pb::GetMessageRequest { conversation_id: id, message_id: 1, range: None };
    messages.get_message(ask).await.expect("an answer is given whole");
    let wait = told_to_wait(list(&eves).await.expect_err("has read too much"), "bytes_per_second");
    pass(wait).await;
    list(&eves).await.expect("is served at the time that was named");
}

#[tokio::test]
async fn who_needs_no_credential_has_no_tenant_to_count_for() {
    let settings = "[limits]\ncalls_per_second = 1\ncalls_burst = 1\n";
    let (house, folder) = (House::start().await, anneal_tests::Folder::new());
    folder.file("anneal.toml", settings);
    let (_server, port) = anneal_tests::Anneal::new(crate::BINARY, &folder, &house.url).server().await;
    let channel = tonic::transport::Channel::from_shared(format!("http://127.0.0.1:{port}")).expect("an address");
    let mut client = ConversationServiceClient::new(channel.connect_lazy());
    for _ in 0..5 {
        client.list_conversations(pb::ListConversationsRequest::default()).await.expect("is let in");
    }
}
