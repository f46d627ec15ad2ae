//! Whoever asks after the server is answered, whoever else does.

use std::time::Duration;

use anneal_server::LimitSettings;
use anneal_tests::{House, RawHttp2, frame, kind, pb, request_head, user};
use tonic::transport::Endpoint;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

/// Shorter than the ten seconds after which a request that does not come whole is refused for that.
const PATIENCE: Duration = Duration::from_secs(5);

#[tokio::test]
async fn those_who_watch_the_servers_health_take_it_from_nobody() {
    // Strangers have a sixteenth of this: room for four who wait.
    let house = House::limited(LimitSettings { waiting_bytes: 1024 * 1024, ..Default::default() }).await;
    let mut watching = Vec::new();
    for n in 0..40 {
        let ask = HealthCheckRequest { service: String::new() };
        // Each connection may have a few.
        let channel = Endpoint::from_shared(format!("http://{}", house.addresses.grpc)).expect("an address");
        let watch = HealthClient::new(channel.connect_lazy()).watch(ask).await;
        let mut watch = watch.unwrap_or_else(|refused| panic!("watch {n}: {refused:?}")).into_inner();
        watch.message().await.expect("it is told").expect("how things are");
        watching.push(watch);
    }
    // Others ask, and never finish asking: a connection beyond its eight calls is refused one more, and where all strangers
    // have taken what they may, the oldest of them has to go.
    let check = request_head("/grpc.health.v1.Health/Check", &[]);
    let mut asking = RawHttp2::connect(house.addresses.grpc, &[]).await;
    for stream in (1..=17).step_by(2) {
        asking.send(&frame(kind::HEADERS, kind::END_HEADERS, stream, &check)).await.expect("is taken");
    }
    let refused = tokio::time::timeout(PATIENCE, asking.next_of(kind::HEADERS)).await.expect("in time");
    assert!(refused.is_some(), "there is room for anything");
    let mut next = RawHttp2::connect(house.addresses.grpc, &[]).await;
    next.send(&frame(kind::HEADERS, kind::END_HEADERS, 1, &check)).await.expect("is taken");
    let channel = Endpoint::from_shared(format!("http://{}", house.addresses.grpc)).expect("an address");
    let ask = HealthCheckRequest { service: String::new() };
    HealthClient::new(channel.connect_lazy()).check(ask).await.expect("whoever asks is answered");
    assert_eq!(house.web().get("/healthz").await.status, 200);
    assert_ne!(house.web().get("/readyz").await.status, 429, "ready or not, it is said");
}

#[tokio::test]
async fn a_document_for_which_there_is_no_room_does_not_look_whole() {
    let house = House::within(LimitSettings { waiting_bytes: 2 * 1024 * 1024, ..Default::default() }).await;
    let ask = pb::CreateConversationRequest { agent_id: "a".into(), ..Default::default() };
    let talk = house.conversation_with(ask).await;
    for _ in 0..7 {
        talk.append_all(vec![user(&"x".repeat(900_000))]).await;
    }
    let path = format!("/api/agents/a/sessions/{}", talk.id);
    let read = async { house.web().request("GET", &path).send().await?.error_for_status()?.bytes().await };
    if let Ok(read) = read.await {
        panic!("{} bytes that end as if they were all", read.len());
    }
}
