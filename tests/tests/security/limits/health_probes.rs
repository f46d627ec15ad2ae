//! Health checks are answered when the memory for requests is used up, and a truncated answer does
//! not look complete.

use std::time::Duration;

use anneal_server::LimitSettings;
use anneal_testkit::{
    TestApp, pb,
    raw_http2::{RawHttp2, frame, kind, request_head},
    user,
};
use tonic::transport::Endpoint;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

/// Deadline for a refusal. It is shorter than the ten seconds after which the server refuses an
/// incomplete request in any case.
const DEADLINE: Duration = Duration::from_secs(5);

#[tokio::test]
async fn health_watches_and_incomplete_calls_do_not_block_health_checks() {
    // Unauthenticated callers have a sixteenth of `waiting_bytes`: enough for four waiting
    // requests.
    let app = TestApp::with_keys_and_limits(LimitSettings {
        waiting_bytes: 1024 * 1024,
        ..Default::default()
    })
    .await;
    let mut watching = Vec::new();
    for n in 0..40 {
        let ask = HealthCheckRequest {
            service: String::new(),
        };
        // A connection may have a few watches, so each gets its own.
        let channel =
            Endpoint::from_shared(format!("http://{}", app.addresses.grpc)).expect("an address");
        let watch = HealthClient::new(channel.connect_lazy()).watch(ask).await;
        let mut watch = watch
            .unwrap_or_else(|refused| panic!("watch {n}: {refused:?}"))
            .into_inner();
        watch
            .message()
            .await
            .expect("the watch is open")
            .expect("it sends the status");
        watching.push(watch);
    }
    // Incomplete requests: the ninth call of a connection is refused. The calls before it are not,
    // although unauthenticated callers have used up their memory: each closes the oldest other
    // connection of such a caller instead.
    let check = request_head("/grpc.health.v1.Health/Check", &[]);
    let mut incomplete = RawHttp2::connect(app.addresses.grpc, &[]).await;
    for stream in (1..=17).step_by(2) {
        incomplete
            .send(&frame(kind::HEADERS, kind::END_HEADERS, stream, &check))
            .await
            .expect("is sent");
    }
    let refused = tokio::time::timeout(DEADLINE, incomplete.next_of(kind::HEADERS))
        .await
        .expect("in time");
    assert!(
        refused.is_some(),
        "the ninth call of a connection was not refused"
    );
    // One more incomplete check, on another connection, waits for the used-up memory. It does not
    // delay the complete checks below.
    let mut waiting = RawHttp2::connect(app.addresses.grpc, &[]).await;
    waiting
        .send(&frame(kind::HEADERS, kind::END_HEADERS, 1, &check))
        .await
        .expect("is sent");
    let channel =
        Endpoint::from_shared(format!("http://{}", app.addresses.grpc)).expect("an address");
    let ask = HealthCheckRequest {
        service: String::new(),
    };
    HealthClient::new(channel.connect_lazy())
        .check(ask)
        .await
        .expect("a complete check is answered");
    assert_eq!(app.http_client().get("/healthz").await.status, 200);
    assert_ne!(
        app.http_client().get("/readyz").await.status,
        429,
        "readiness is reported"
    );
}

#[tokio::test]
async fn a_document_above_waiting_bytes_does_not_look_complete() {
    let app = TestApp::with_limits(LimitSettings {
        waiting_bytes: 2 * 1024 * 1024,
        ..Default::default()
    })
    .await;
    let ask = pb::CreateConversationRequest {
        agent_id: "a".into(),
        ..Default::default()
    };
    let conversation = app.conversation_with(ask).await;
    for _ in 0..7 {
        conversation
            .append_all(vec![user(&"x".repeat(900_000))])
            .await;
    }
    let path = format!("/api/agents/a/sessions/{}", conversation.id);
    let read = async {
        app.http_client()
            .request("GET", &path)
            .send()
            .await?
            .error_for_status()?
            .bytes()
            .await
    };
    if let Ok(read) = read.await {
        panic!(
            "a truncated document of {} bytes looks complete",
            read.len()
        );
    }
}
