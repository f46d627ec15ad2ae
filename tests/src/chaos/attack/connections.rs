//! Connections, streams and answers that are only held.

use futures::future::join_all;
use prost::Message as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{
    attacker::{Strike, session},
    stock::AGENT,
};
use crate::{RawHttp2, frame, kind, pb, request_head, unary};

/// Connections that an attack holds.
const CONNECTIONS: usize = 64;
/// Streams of one connection.
const STREAMS: u32 = 128;
const APPEND: &str = "/anneal.v1.MessageService/AppendMessages";
const GET_MESSAGE: &str = "/anneal.v1.MessageService/GetMessage";
const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";

/// The numbers of a client's streams on one connection.
fn streams() -> impl Iterator<Item = u32> {
    (0..STREAMS).map(|n| 2 * n + 1)
}

pub(super) async fn half_requests(on: &Strike) {
    let authorization = [("authorization", on.means.authorization.as_str())];
    let head = request_head(APPEND, &authorization);
    let half = [&[0][..], &1_000_000_u32.to_be_bytes(), &[b'x'; 4_000]].concat();
    let http1 = format!(
        "POST /api/agents/{AGENT}/chat HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\n\
         Content-Type: application/json\r\nContent-Length: 4000000\r\n\r\n{{\"message\": \"",
        on.means.authorization
    );
    let over_http2 = join_all((0..CONNECTIONS).map(|_| async {
        let mut client = RawHttp2::try_connect(on.server.grpc, &[]).await?;
        for stream in streams() {
            on.counted();
            let begun = [frame(kind::HEADERS, kind::END_HEADERS, stream, &head), frame(kind::DATA, 0, stream, &half)];
            client.send(&begun.concat()).await.ok()?;
        }
        client.closed().await
    }));
    let over_http1 = join_all((0..10 * CONNECTIONS).map(|_| async {
        on.pace().await;
        let mut stream = TcpStream::connect(on.server.http).await.ok()?;
        on.counted();
        stream.write_all(http1.as_bytes()).await.ok()?;
        stream.read_u8().await.ok()
    }));
    tokio::join!(over_http2, over_http1);
}

pub(super) async fn unread_answers(on: &Strike) {
    let authorization = [("authorization", on.means.authorization.as_str())];
    let ask =
        |id: &str| pb::GetMessageRequest { conversation_id: id.into(), message_id: 1, range: None }.encode_to_vec();
    let large = ask(&on.means.stock.large);
    let over_http2 = join_all((0..CONNECTIONS).map(|_| async {
        let mut client = RawHttp2::try_connect(on.server.grpc, &[(kind::INITIAL_WINDOW_SIZE, 0)]).await?;
        for stream in streams() {
            on.pace().await;
            on.counted();
            client.send(&unary(stream, GET_MESSAGE, &authorization, &large)).await.ok()?;
        }
        client.closed().await
    }));
    let document = format!(
        "GET {} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\n\r\n",
        session(&on.means.stock.large),
        on.means.authorization
    );
    let over_http1 = join_all((0..CONNECTIONS).map(|_| async {
        let mut stream = TcpStream::connect(on.server.http).await.ok()?;
        on.counted();
        stream.write_all(document.as_bytes()).await.ok()?;
        // Its window fills, and is never emptied.
        std::future::pending::<Option<()>>().await
    }));
    tokio::join!(over_http2, over_http1);
}

pub(super) async fn idle_connections(on: &Strike) {
    let starts: [&[u8]; 4] = [b"", b"PRI * HTT", b"GET /healthz HTTP/1.1\r\nHost: ", b"\x16\x03\x01\x02"];
    let held = join_all((0..3_000).map(|n| async move {
        on.pace().await;
        let address = if n % 2 == 0 { on.server.grpc } else { on.server.http };
        let mut stream = TcpStream::connect(address).await.ok()?;
        on.counted();
        stream.write_all(starts[n / 2 % starts.len()]).await.ok()?;
        Some(stream)
    }));
    let held = held.await;
    std::future::pending::<()>().await;
    drop(held);
}

pub(super) async fn short_connections(on: &Strike) {
    on.forever(16, async |place| {
        let address = if place % 2 == 0 { on.server.grpc } else { on.server.http };
        on.counted();
        if let Ok(mut stream) = TcpStream::connect(address).await {
            let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        }
    })
    .await;
}

pub(super) async fn health_watches(on: &Strike) {
    join_all((0..CONNECTIONS).map(|_| async {
        let mut client = RawHttp2::try_connect(on.server.grpc, &[]).await?;
        for stream in streams() {
            on.pace().await;
            on.counted();
            client.send(&unary(stream, HEALTH_WATCH, &[], &[])).await.ok()?;
        }
        client.closed().await
    }))
    .await;
}

pub(super) async fn watches(on: &Strike) {
    let guests: Vec<_> = (0..8).map(|_| on.guest()).collect();
    on.forever(400, async |place| {
        let id = on.choose(&on.means.stock.long());
        let ask = pb::WatchConversationRequest {
            conversation_id: id.into(),
            after_message_id: on.choose(&[None, Some(0), Some(1 << 40)]),
            ..Default::default()
        };
        on.counted();
        let mut messages = pb::message_service_client::MessageServiceClient::new(guests[place % guests.len()].clone());
        match messages.watch_conversation(ask).await {
            // Who is let in stays, and takes what comes.
            Ok(events) => {
                let mut events = events.into_inner();
                loop {
                    match events.message().await {
                        Ok(Some(_)) => on.pace().await,
                        Ok(None) => return,
                        Err(status) => return on.refused(&status),
                    }
                }
            }
            Err(status) => on.refused(&status),
        }
    })
    .await;
}

pub(super) async fn event_streams(on: &Strike) {
    let web = on.web();
    on.forever(300, async |_| {
        let path = format!("{}/events?after={}", session(&on.means.stock.tiny), on.choose(&["0", "199990"]));
        on.counted();
        if let Ok(mut response) = on.request(&web, "GET", &path).send().await
            && response.status() == 200
        {
            while let Ok(Some(_)) = response.chunk().await {
                on.pace().await;
            }
        }
    })
    .await;
}
