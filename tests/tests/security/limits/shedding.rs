//! Load shedding: more concurrent calls than the server accepts, and more streams than a connection
//! may have.

use std::{collections::BTreeSet, convert::Infallible, future::poll_fn, pin::pin, time::Duration};

use anneal_server::{AuthSettings, ServerSettings};
use anneal_testkit::{
    LOCK_CONVERSATION, OpenTransaction, TestApp, TestConversation, call_raw, every_rpc, pb,
    raw_http2::{RawHttp2, frame, kind, unary},
    status_details, valid_request, with_longest_deadline,
};
use axum::http::{Request, Version};
use futures::{StreamExt as _, stream};
use pb::{conversation_event::Event, conversation_service_client::ConversationServiceClient};
use prost::Message as _;
use tokio::{sync::oneshot, task::JoinSet, time::timeout};
use tonic::{Code, Response, Status, body::Body, client::GrpcService, transport::Channel};
use tonic_types::StatusExt as _;

/// Concurrent calls that the server accepts.
const CONCURRENT_CALLS: u32 = 4;
/// Maximum concurrent streams of a connection.
const STREAMS: u32 = 128;
/// Deadline for an answer.
const DEADLINE: Duration = Duration::from_secs(30);
/// Error codes of RFC 9113.
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
/// RPCs with concurrency limits of their own.
const SEPARATELY_LIMITED: [&str; 2] = ["Chat", "WatchConversation"];

/// A request to change the title of a conversation.
fn title_update(conversation_id: &str, title: String) -> pb::UpdateConversationRequest {
    let conversation = pb::Conversation {
        conversation_id: conversation_id.to_owned(),
        title,
        ..Default::default()
    };
    let update_mask = Some(prost_types::FieldMask {
        paths: vec!["title".into()],
    });
    pb::UpdateConversationRequest {
        conversation: Some(conversation),
        update_mask,
        ..Default::default()
    }
}

/// An app whose server accepts few concurrent calls.
async fn start_with_few_permits() -> TestApp {
    let settings = ServerSettings {
        concurrent_calls: CONCURRENT_CALLS,
        ..ServerSettings::default()
    };
    TestApp::with_auth(settings, AuthSettings::default()).await
}

/// Begins calls that take all permits and wait for the lock of this conversation.
async fn take_all_permits(
    app: &TestApp,
    conversation: &TestConversation<'_>,
) -> (
    OpenTransaction,
    JoinSet<Result<Response<pb::Conversation>, Status>>,
) {
    let lock = app.hold_lock(LOCK_CONVERSATION, conversation.uuid()).await;
    let mut running = JoinSet::new();
    for n in 0..CONCURRENT_CALLS {
        let (mut conversations, ask) = (
            app.conversations(),
            title_update(&conversation.id, format!("title {n}")),
        );
        running.spawn(async move {
            conversations
                .update_conversation(with_longest_deadline(ask))
                .await
        });
    }
    app.wait_for_lock_waiters(CONCURRENT_CALLS.into()).await;
    (lock, running)
}

#[tokio::test]
async fn calls_above_the_concurrency_limit_are_refused_and_running_ones_are_answered() {
    let app = start_with_few_permits().await;
    let conversation = app.conversation().await;
    let (lock, mut running) = take_all_permits(&app, &conversation).await;
    // The running calls wait for the lock, so a call that waited for a permit would never be
    // answered.
    let mut refused = 0;
    for rpc in every_rpc()
        .into_iter()
        .filter(|rpc| !SEPARATELY_LIMITED.contains(&rpc.name.as_str()))
    {
        let asked = call_raw(
            app.authorized_channel(""),
            &rpc.path,
            valid_request(&rpc.name, &conversation.id, "r"),
        );
        let status = timeout(DEADLINE, asked)
            .await
            .expect("is answered at once")
            .expect_err(&rpc.name);
        let wait = status
            .get_error_details()
            .retry_info()
            .and_then(|retry| retry.retry_delay);
        assert!(
            wait.is_some_and(|wait| !wait.is_zero() && wait < DEADLINE),
            "{}: {status:?}",
            rpc.name
        );
        let details = status_details(&status);
        assert_eq!(
            (details.code, details.reason.as_str()),
            (Code::ResourceExhausted, "OVERLOADED"),
            "{}",
            rpc.name
        );
        refused += 1;
    }
    assert!(refused >= 25, "{refused} RPCs");
    let watch = timeout(DEADLINE, conversation.watch())
        .await
        .expect("watches have a limit of their own");
    assert_eq!(app.http_client().get("/healthz").await.status, 200);
    assert!(
        running.try_join_next().is_none(),
        "a running call was ended"
    );

    lock.rollback().await;
    while let Some(answered) = running.join_next().await {
        let title = answered
            .expect("no panic")
            .expect("the running call is answered")
            .into_inner()
            .title;
        assert!(title.starts_with("title "), "{title}");
    }
    let after = conversation.conversation().await;
    assert!(
        after.title.starts_with("title "),
        "calls are accepted again"
    );
    assert_eq!(after.message_count, 0, "refused calls have stored nothing");
    drop(watch);
}

#[tokio::test]
async fn a_refused_message_is_not_decoded_and_an_incomplete_request_is_not_refused_yet() {
    const PATH: &str = "/anneal.v1.ConversationService/GetConversation";
    let app = start_with_few_permits().await;
    let conversation = app.conversation().await;
    let (lock, mut running) = take_all_permits(&app, &conversation).await;

    // A request whose second half is sent when permits are free again.
    let message = pb::GetConversationRequest {
        conversation_id: conversation.id.clone(),
    }
    .encode_to_vec();
    let length = u32::try_from(message.len()).expect("a short message");
    let mut beginning = [&[0][..], &length.to_be_bytes(), &message].concat();
    let end = beginning.split_off(message.len() / 2);
    let (send_end, end_is_sent) = oneshot::channel();
    let end = async move {
        end_is_sent.await.expect("the test sends it");
        Ok::<_, Infallible>(end)
    };
    let body = stream::iter([Ok(beginning)]).chain(stream::once(end));
    let request = Request::post(PATH)
        .version(Version::HTTP_2)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(axum::body::Body::from_stream(body)))
        .expect("the request is valid");
    let mut channel = app.authorized_channel("");
    poll_fn(|context| GrpcService::<Body>::poll_ready(&mut channel, context))
        .await
        .expect("the server accepts the connection");
    let mut incomplete = pin!(GrpcService::call(&mut channel, request));
    assert!(futures::poll!(&mut incomplete).is_pending());

    // On the same connection, so the server has received the first half before. The message claims
    // a text of 127 bytes and ends.
    let undecodable = call_raw(app.authorized_channel(""), PATH, vec![0x0a, 0x7f]);
    let refused = timeout(DEADLINE, undecodable)
        .await
        .expect("is answered at once")
        .expect_err("no permit is free");
    assert_eq!(status_details(&refused).reason, "OVERLOADED");

    lock.rollback().await;
    while let Some(answered) = running.join_next().await {
        answered.expect("no panic").expect("is answered");
    }
    send_end.send(()).expect("the server still receives");
    let answer = timeout(DEADLINE, incomplete)
        .await
        .expect("is answered")
        .expect("the connection stays");
    // A refusal has its status in the headers.
    let refused = Status::from_header_map(answer.headers());
    assert!(refused.is_none(), "{refused:?}");
}

#[tokio::test]
async fn a_stream_above_the_limit_is_refused_and_the_others_go_on() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let mut client = RawHttp2::connect(app.addresses.grpc, &[]).await;
    assert_eq!(client.setting(kind::MAX_CONCURRENT_STREAMS), Some(STREAMS));
    let ask = pb::WatchConversationRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    }
    .encode_to_vec();
    let watch = |stream| {
        unary(
            stream,
            "/anneal.v1.MessageService/WatchConversation",
            &[],
            &ask,
        )
    };
    let streams: BTreeSet<u32> = (0..STREAMS).map(|n| 2 * n + 1).collect();
    // Eight at a time: all together would wait for database connections.
    for chunk in streams.iter().copied().collect::<Vec<_>>().chunks(8) {
        for stream in chunk {
            client.send(&watch(*stream)).await.expect("is sent");
        }
        wait_for_data(&mut client, &chunk.iter().copied().collect()).await;
    }

    let (beyond, later) = (2 * STREAMS + 1, 2 * STREAMS + 3);
    client.send(&watch(beyond)).await.expect("is sent");
    let refused = timeout(DEADLINE, client.next_of(kind::RST_STREAM))
        .await
        .expect("in time")
        .expect("the stream is reset");
    assert_eq!(
        (refused.stream, refused.payload.as_slice()),
        (beyond, &REFUSED_STREAM.to_be_bytes()[..])
    );
    conversation.append("news").await;
    wait_for_data(&mut client, &streams).await;

    client
        .send(&frame(kind::RST_STREAM, 0, 1, &CANCEL.to_be_bytes()))
        .await
        .expect("is sent");
    client.send(&watch(later)).await.expect("is sent");
    wait_for_data(&mut client, &BTreeSet::from([later])).await;
}

/// Reads until each of these streams has received data.
async fn wait_for_data(client: &mut RawHttp2, streams: &BTreeSet<u32>) {
    let mut waiting = streams.clone();
    let read = async {
        while !waiting.is_empty() {
            let data = client
                .next_of(kind::DATA)
                .await
                .expect("the connection stays");
            waiting.remove(&data.stream);
        }
    };
    timeout(DEADLINE, read)
        .await
        .unwrap_or_else(|_| panic!("{waiting:?} received nothing"));
}

#[tokio::test]
async fn a_client_at_its_stream_limit_waits_and_other_connections_do_not() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let mut watches = Vec::new();
    for _ in 0..STREAMS {
        watches.push(conversation.watch().await);
    }
    let ask = || pb::GetConversationRequest {
        conversation_id: conversation.id.clone(),
    };
    let mut waiting = tokio::spawn({
        let (mut conversations, ask) = (app.conversations(), ask());
        async move { conversations.get_conversation(ask).await }
    });
    let early = timeout(Duration::from_millis(500), &mut waiting).await;
    assert!(
        early.is_err(),
        "a stream above the limit is answered: {early:?}"
    );
    let other = Channel::from_shared(format!("http://{}", app.addresses.grpc))
        .expect("an address")
        .connect_lazy();
    let answered = timeout(
        DEADLINE,
        ConversationServiceClient::new(other).get_conversation(ask()),
    )
    .await;
    answered
        .expect("another connection does not wait")
        .expect("is answered");
    drop(watches.pop());
    let answered = timeout(DEADLINE, waiting)
        .await
        .expect("a stream is free again");
    answered.expect("no panic").expect("is answered");
    conversation.append("news").await;
    for watch in &mut watches {
        assert!(
            matches!(watch.next().await, Event::MessageAppended(_)),
            "the watch still delivers"
        );
    }
}
