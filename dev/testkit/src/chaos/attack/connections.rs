//! Attacks that keep connections, streams and answers open. `kind.rs` says what each attack does.

use futures::future::join_all;
use prost::Message as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{
    running_attack::{RunningAttack, session_path},
    stored_conversations::AGENT,
};
use crate::{
    pb,
    raw_http2::{RawHttp2, frame, kind, request_head, unary},
};

/// Number of HTTP/2 connections that an attack keeps open.
const CONNECTIONS: usize = 64;
/// Number of streams on one connection.
const STREAMS: u32 = 128;
const APPEND: &str = "/anneal.v1.MessageService/AppendMessages";
const GET_MESSAGE: &str = "/anneal.v1.MessageService/GetMessage";
const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";

/// The ids of a client's streams on one connection: HTTP/2 gives a client the odd numbers.
fn streams() -> impl Iterator<Item = u32> {
    (0..STREAMS).map(|n| 2 * n + 1)
}

pub(super) async fn half_requests(attack: &RunningAttack) {
    let authorization = [("authorization", attack.context.authorization.as_str())];
    let head = request_head(APPEND, &authorization);
    // A gRPC message, not compressed (0), that announces 1,000,000 bytes and has 4,000 of them.
    let half = [&[0][..], &1_000_000_u32.to_be_bytes(), &[b'x'; 4_000]].concat();
    let http1 = format!(
        "POST /api/agents/{AGENT}/chat HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\n\
         Content-Type: application/json\r\nContent-Length: 4000000\r\n\r\n{{\"message\": \"",
        attack.context.authorization
    );
    let over_http2 = join_all((0..CONNECTIONS).map(|_| async {
        let mut client = RawHttp2::try_connect(attack.server.grpc, &[]).await?;
        for stream in streams() {
            attack.count_call();
            let half_request = [
                frame(kind::HEADERS, kind::END_HEADERS, stream, &head),
                frame(kind::DATA, 0, stream, &half),
            ];
            client.send(&half_request.concat()).await.ok()?;
        }
        client.read_to_close().await
    }));
    let over_http1 = join_all((0..10 * CONNECTIONS).map(|_| async {
        attack.pace().await;
        let mut stream = TcpStream::connect(attack.server.http).await.ok()?;
        attack.count_call();
        stream.write_all(http1.as_bytes()).await.ok()?;
        stream.read_u8().await.ok()
    }));
    tokio::join!(over_http2, over_http1);
}

pub(super) async fn unread_answers(attack: &RunningAttack) {
    let authorization = [("authorization", attack.context.authorization.as_str())];
    let get_large_message = pb::GetMessageRequest {
        conversation_id: attack.context.stored.large.clone(),
        message_id: 1,
        ..Default::default()
    }
    .encode_to_vec();
    let over_http2 = join_all((0..CONNECTIONS).map(|_| async {
        let mut client =
            RawHttp2::try_connect(attack.server.grpc, &[(kind::INITIAL_WINDOW_SIZE, 0)]).await?;
        for stream in streams() {
            attack.pace().await;
            attack.count_call();
            client
                .send(&unary(
                    stream,
                    GET_MESSAGE,
                    &authorization,
                    &get_large_message,
                ))
                .await
                .ok()?;
        }
        client.read_to_close().await
    }));
    let get_session = format!(
        "GET {} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\n\r\n",
        session_path(&attack.context.stored.large),
        attack.context.authorization
    );
    let over_http1 = join_all((0..CONNECTIONS).map(|_| async {
        let mut stream = TcpStream::connect(attack.server.http).await.ok()?;
        attack.count_call();
        stream.write_all(get_session.as_bytes()).await.ok()?;
        // The receive window fills and is never emptied.
        std::future::pending::<Option<()>>().await
    }));
    tokio::join!(over_http2, over_http1);
}

pub(super) async fn idle_connections(attack: &RunningAttack) {
    // Nothing, or the beginning of an HTTP/2 connection, of an HTTP/1.1 request or of a TLS
    // handshake.
    let starts: [&[u8]; 4] = [
        b"",
        b"PRI * HTT",
        b"GET /healthz HTTP/1.1\r\nHost: ",
        b"\x16\x03\x01\x02",
    ];
    let held = join_all((0..3_000).map(|n| async move {
        attack.pace().await;
        let address = if n % 2 == 0 {
            attack.server.grpc
        } else {
            attack.server.http
        };
        let mut stream = TcpStream::connect(address).await.ok()?;
        attack.count_call();
        stream.write_all(starts[n / 2 % starts.len()]).await.ok()?;
        Some(stream)
    }));
    let held = held.await;
    std::future::pending::<()>().await;
    drop(held);
}

pub(super) async fn short_connections(attack: &RunningAttack) {
    attack
        .loop_concurrently(16, async |place| {
            let address = if place % 2 == 0 {
                attack.server.grpc
            } else {
                attack.server.http
            };
            attack.count_call();
            if let Ok(mut stream) = TcpStream::connect(address).await {
                let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
            }
        })
        .await;
}

pub(super) async fn health_watches(attack: &RunningAttack) {
    join_all((0..CONNECTIONS).map(|_| async {
        let mut client = RawHttp2::try_connect(attack.server.grpc, &[]).await?;
        for stream in streams() {
            attack.pace().await;
            attack.count_call();
            client
                .send(&unary(stream, HEALTH_WATCH, &[], &[]))
                .await
                .ok()?;
        }
        client.read_to_close().await
    }))
    .await;
}

pub(super) async fn watches(attack: &RunningAttack) {
    let channels: Vec<_> = (0..8).map(|_| attack.channel()).collect();
    attack
        .loop_concurrently(400, async |place| {
            let id = attack.choose(&attack.context.stored.with_many_messages());
            let ask = pb::WatchConversationRequest {
                conversation_id: id.into(),
                after_message_id: attack.choose(&[None, Some(0), Some(1 << 40)]),
                ..Default::default()
            };
            attack.count_call();
            let mut messages = pb::message_service_client::MessageServiceClient::new(
                channels[place % channels.len()].clone(),
            );
            match messages.watch_conversation(ask).await {
                // An accepted watch stays open and reads its events slowly.
                Ok(events) => {
                    let mut events = events.into_inner();
                    loop {
                        match events.message().await {
                            Ok(Some(_)) => attack.pace().await,
                            Ok(None) => return,
                            Err(status) => return attack.count_refusal(&status),
                        }
                    }
                }
                Err(status) => attack.count_refusal(&status),
            }
        })
        .await;
}

pub(super) async fn event_streams(attack: &RunningAttack) {
    let web = attack.http_client();
    attack
        .loop_concurrently(300, async |_| {
            // From the first message, or from ten messages before the last.
            let path = format!(
                "{}/events?after={}",
                session_path(&attack.context.stored.tiny),
                attack.choose(&["0", "199990"])
            );
            attack.count_call();
            if let Ok(mut response) = attack.request(&web, "GET", &path).send().await
                && response.status() == 200
            {
                while let Ok(Some(_)) = response.chunk().await {
                    attack.pace().await;
                }
            }
        })
        .await;
}
