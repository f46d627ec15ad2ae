//! Limits of a tenant's calls and bytes per second.

use std::time::Duration;

use anneal_core::caller::Verb;
use anneal_server::LimitSettings;
use anneal_testkit::{AuthorizedChannel, HttpResponse, TestApp, assert_refused, pb, user};
use pb::{
    append_large_message_request::{Frame, Header},
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// More calls than a burst of five plus one call per second allows.
const MANY: usize = 50;
const READ_AND_APPEND: [Verb; 2] = [Verb::Read, Verb::Append];

async fn list(channel: &AuthorizedChannel) -> Result<(), Status> {
    let ask = pb::ListConversationsRequest::default();
    ConversationServiceClient::new(channel.clone())
        .list_conversations(ask)
        .await
        .map(drop)
}

async fn create(channel: &AuthorizedChannel) -> String {
    let mut conversations = ConversationServiceClient::new(channel.clone());
    let made = conversations.create_conversation(pb::CreateConversationRequest::default());
    made.await.expect("creates").into_inner().conversation_id
}

/// Asserts that a call was refused because of this limit. Returns the retry delay.
fn retry_delay(refused: Status, limit: &str) -> Duration {
    let details = refused.get_error_details();
    assert_eq!(
        details.error_info().expect("a reason").metadata["limit"],
        limit,
        "{refused:?}"
    );
    let wait = details
        .retry_info()
        .and_then(|retry| retry.retry_delay)
        .expect("a time");
    assert_refused::<()>(
        Err(refused),
        Code::ResourceExhausted,
        "TENANT_RATE_EXCEEDED",
        "",
    );
    wait
}

/// Waits for the retry delay that the server has sent.
async fn wait_for_retry_delay(wait: Duration) {
    let mut ticks = tokio::time::interval(wait);
    ticks.tick().await;
    ticks.tick().await;
}

#[tokio::test]
async fn a_rate_limited_tenant_gets_a_retry_delay_and_is_served_after_it() {
    let limits = LimitSettings {
        calls_per_second: 1,
        calls_burst: 5,
        ..Default::default()
    };
    let app = TestApp::with_keys_and_limits(limits).await;
    let (eve, anna) = (
        app.key("eve", &READ_AND_APPEND).await,
        app.key("anna", &READ_AND_APPEND).await,
    );
    let authorization = |key: &anneal_server::GeneratedKey| format!("Bearer {}", key.text);
    let (eves, annas) = (
        app.authorized_channel(&authorization(&eve)),
        app.authorized_channel(&authorization(&anna)),
    );
    let mut all_answered = Ok(());
    for _ in 0..MANY {
        all_answered = all_answered.and(list(&eves).await);
    }
    let refused = all_answered.expect_err("some call is refused");
    let wait = retry_delay(refused, "calls_per_second");
    assert!(wait <= Duration::from_secs(1), "{wait:?}");

    // HTTP counts against the same limit.
    let asked = |key| {
        app.http_client()
            .request("GET", "/api/agents/a/sessions")
            .header("authorization", authorization(key))
    };
    let mut answer = HttpResponse::send(asked(&eve)).await;
    for _ in 0..MANY {
        if answer.status == 200 {
            answer = HttpResponse::send(asked(&eve)).await;
        }
    }
    answer.assert_problem(429, "TENANT_RATE_EXCEEDED", "");
    assert_eq!(answer.header("retry-after"), "1");
    assert!(
        answer.json()["retryAfterMs"]
            .as_u64()
            .is_some_and(|wait| wait > 0 && wait <= 1_000),
        "{answer:?}"
    );

    for path in ["/healthz", "/openapi.json"] {
        assert_eq!(
            app.http_client().get(path).await.status,
            200,
            "{path} needs no credential"
        );
    }
    list(&annas).await.expect("another tenant is not disturbed");
    assert_eq!(
        HttpResponse::send(asked(&anna)).await.status,
        200,
        "another tenant is not disturbed over HTTP"
    );

    // The retry delay counts from its refusal, and those above are old.
    let new_refusal = async || loop {
        if let Err(refused) = list(&eves).await {
            break refused;
        }
    };
    wait_for_retry_delay(retry_delay(new_refusal().await, "calls_per_second")).await;
    list(&eves).await.expect("is served after the retry delay");
}

#[tokio::test]
async fn sent_and_received_bytes_delay_the_tenants_next_call() {
    const BYTES: usize = 600_000;
    let limits = LimitSettings {
        bytes_per_second: 100_000,
        bytes_burst: 5_000,
        ..Default::default()
    };
    let app = TestApp::with_keys_and_limits(limits).await;
    let (eve, anna) = (
        app.key("eve", &READ_AND_APPEND).await,
        app.key("anna", &READ_AND_APPEND).await,
    );
    let authorization = |key: &anneal_server::GeneratedKey| format!("Bearer {}", key.text);
    let (eves, annas) = (
        app.authorized_channel(&authorization(&eve)),
        app.authorized_channel(&authorization(&anna)),
    );
    let id = create(&eves).await;
    let mut messages = MessageServiceClient::new(eves.clone());

    // One message is sent whole and one in chunks. Both are stored, and after each the next call is
    // refused.
    let whole = pb::AppendMessagesRequest {
        conversation_id: id.clone(),
        messages: vec![user(&"x".repeat(BYTES))],
        ..Default::default()
    };
    messages
        .append_messages(whole)
        .await
        .expect("the message is stored");
    let wait = retry_delay(
        list(&eves).await.expect_err("has sent too much"),
        "bytes_per_second",
    );
    assert!(
        wait <= Duration::from_secs(7),
        "{wait:?}: 600,000 bytes take six seconds"
    );
    list(&annas).await.expect("another tenant is not disturbed");
    wait_for_retry_delay(wait).await;

    let header = Header {
        conversation_id: id.clone(),
        message: Some(user("")),
        ..Default::default()
    };
    let chunks = (0..4).map(|_| Frame::Chunk("y".repeat(BYTES / 4).into_bytes()));
    let frames = std::iter::once(Frame::Header(header)).chain(chunks);
    let frames: Vec<_> = frames
        .map(|frame| pb::AppendLargeMessageRequest { frame: Some(frame) })
        .collect();
    messages
        .append_large_message(futures::stream::iter(frames))
        .await
        .expect("the whole stream is stored");
    let wait = retry_delay(
        list(&eves).await.expect_err("has sent too much"),
        "bytes_per_second",
    );
    wait_for_retry_delay(wait).await;

    let ask = pb::GetMessageRequest {
        conversation_id: id,
        message_id: 1,
        ..Default::default()
    };
    messages
        .get_message(ask)
        .await
        .expect("the whole answer is sent");
    let wait = retry_delay(
        list(&eves).await.expect_err("has read too much"),
        "bytes_per_second",
    );
    wait_for_retry_delay(wait).await;
    list(&eves).await.expect("is served after the retry delay");
}

#[tokio::test]
async fn a_server_without_authentication_does_not_limit_rates() {
    let settings = "[limits]\ncalls_per_second = 1\ncalls_burst = 1\n";
    let (app, folder) = (TestApp::start().await, anneal_testkit::Folder::new());
    folder.file("anneal.toml", settings);
    let (_server, port) =
        anneal_testkit::AnnealBinary::new(crate::limits::BINARY, &folder, &app.url)
            .server()
            .await;
    let channel = tonic::transport::Channel::from_shared(format!("http://127.0.0.1:{port}"))
        .expect("an address");
    let mut client = ConversationServiceClient::new(channel.connect_lazy());
    for _ in 0..5 {
        client
            .list_conversations(pb::ListConversationsRequest::default())
            .await
            .expect("is accepted");
    }
}
