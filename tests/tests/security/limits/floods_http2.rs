//! Floods over HTTP/2: frames that cost the server more than the client.

use std::time::Duration;

use anneal_testkit::{
    gate_or_nightly, pb,
    raw_http2::{RawHttp2, frame, kind, literal, request_head},
};
use futures::future::join_all;
use pb::conversation_service_client::ConversationServiceClient;

use crate::limits::attacked_server::{AttackedServer, flood_duration};

/// Path of an RPC that the attackers call.
const LIST: &str = "/anneal.v1.ConversationService/ListConversations";
/// Attackers at once.
const ATTACKERS: usize = 4;
/// Rounds of a flood that the server does not end: more than it can read in [`flood_duration`].
const ROUNDS: u32 = 100_000;
/// Deadline for a flood that the server ends by closing the connection.
const CLOSED_WITHIN: Duration = Duration::from_secs(30);
/// Error codes of RFC 9113.
const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const FRAME_SIZE_ERROR: u32 = 6;
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;

/// An empty message of gRPC.
const EMPTY: [u8; 5] = [0; 5];

/// Sends `bytes(round)` for each round and reads all frames until the server closes the connection.
/// Returns the code of its GOAWAY. None: no GOAWAY was read.
async fn flood(
    server: &AttackedServer,
    rounds: u32,
    mut bytes: impl FnMut(u32) -> Vec<u8>,
) -> Option<u32> {
    let client = RawHttp2::connect(server.grpc, &[]).await;
    let (reading, mut writing) = client.into_split();
    let read = read_goaway_code(reading);
    let write = async {
        for round in 0..rounds {
            if tokio::io::AsyncWriteExt::write_all(&mut writing, &bytes(round))
                .await
                .is_err()
            {
                break;
            }
        }
        // A client that was not disconnected stays until the attack's time is over.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        code = read => code,
        () = write => None,
    }
}

/// Reads frames until the connection is closed. Returns the code of the last GOAWAY.
async fn read_goaway_code(reading: tokio::net::tcp::OwnedReadHalf) -> Option<u32> {
    let mut reading = tokio::io::BufReader::new(reading);
    let mut code = None;
    while let Some(frame) = anneal_testkit::raw_http2::next_frame(&mut reading).await {
        code = frame.goaway_code().or(code);
    }
    code
}

/// Floods from several clients at once. The server must close each connection, with this code.
async fn flood_until_close(
    server: &AttackedServer,
    what: &str,
    code: u32,
    rounds: u32,
    bytes: impl Fn(u32) -> Vec<u8>,
) {
    let bytes = &bytes;
    let ended = std::cell::RefCell::new(Vec::new());
    let attacks = (0..ATTACKERS).map(|_| async {
        let code = flood(server, rounds, bytes).await;
        ended.borrow_mut().push(code);
    });
    server
        .run_attack(what, CLOSED_WITHIN, async { drop(join_all(attacks).await) })
        .await;
    let codes = ended.into_inner();
    assert_eq!(
        codes.len(),
        ATTACKERS,
        "{what}: a client was not disconnected"
    );
    // A client that was still sending may lose the connection before it reads GOAWAY.
    assert!(
        codes.contains(&Some(code)) && codes.iter().flatten().all(|received| *received == code),
        "{what}: {codes:?}"
    );
}

/// Floods the server in two ways at the same time, for [`flood_duration`]. The server may keep the
/// connections.
async fn flood_until_deadline(
    server: &AttackedServer,
    what: &str,
    kinds: [&dyn Fn(u32) -> Vec<u8>; 2],
) {
    let clients = gate_or_nightly(ATTACKERS, 2 * ATTACKERS);
    let attacks = (0..clients).map(|number| flood(server, ROUNDS, kinds[number % 2]));
    server
        .run_attack(what, flood_duration(), async {
            drop(join_all(attacks).await);
        })
        .await;
}

/// A complete request on the stream of this round.
fn request(round: u32, head: &[u8]) -> Vec<u8> {
    let stream = 2 * round + 1;
    [
        frame(kind::HEADERS, kind::END_HEADERS, stream, head),
        frame(kind::DATA, kind::END_STREAM, stream, &EMPTY),
    ]
    .concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rapid_resets_close_the_connection() {
    let server = AttackedServer::start(&[]).await;
    let head = request_head(LIST, &[("authorization", &server.eve)]);
    // CVE-2023-44487: 64 requests and their resets at a time, so that they are in the server's
    // queue together.
    flood_until_close(&server, "rapid reset", ENHANCE_YOUR_CALM, 1_000, |round| {
        let streams = (0..64).map(|n| 2 * (round * 64 + n) + 1);
        let frames = streams.flat_map(|stream| {
            let headers = frame(
                kind::HEADERS,
                kind::END_HEADERS | kind::END_STREAM,
                stream,
                &head,
            );
            [
                headers,
                frame(kind::RST_STREAM, 0, stream, &CANCEL.to_be_bytes()),
            ]
            .concat()
        });
        frames.collect()
    })
    .await;
    // CVE-2025-8671: the server resets each stream, because of an error that costs the client one
    // small frame: the window of the stream overflows.
    let most = 0x7fff_ffff_u32.to_be_bytes();
    flood_until_close(
        &server,
        "resets that the server makes",
        ENHANCE_YOUR_CALM,
        100_000,
        |round| {
            let stream = 2 * round + 1;
            let mistake = frame(kind::WINDOW_UPDATE, 0, stream, &most);
            [
                frame(kind::HEADERS, kind::END_HEADERS, stream, &head),
                mistake,
            ]
            .concat()
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_of_small_frames_do_not_delay_other_tenants() {
    let server = AttackedServer::start(&[]).await;
    let pings = |_| frame(kind::PING, 0, 0, &[7; 8]).repeat(64);
    let settings = |_| frame(kind::SETTINGS, 0, 0, &[]).repeat(64);
    flood_until_deadline(&server, "pings and settings", [&pings, &settings]).await;
    let head = request_head(LIST, &[("authorization", &server.eve)]);
    flood_until_close(&server, "empty DATA", ENHANCE_YOUR_CALM, 100_000, |round| {
        let opened = if round == 0 {
            frame(kind::HEADERS, kind::END_HEADERS, 1, &head)
        } else {
            Vec::new()
        };
        [opened, frame(kind::DATA, 0, 1, &[]).repeat(64)].concat()
    })
    .await;
    let most = 0x7fff_ffff_u32.to_be_bytes();
    flood_until_close(
        &server,
        "a window that overflows",
        FLOW_CONTROL_ERROR,
        2,
        |_| frame(kind::WINDOW_UPDATE, 0, 0, &most),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_and_oversized_heads_take_little_memory() {
    let server = AttackedServer::start(&[]).await;
    // CVE-2024-27316: a head that never ends.
    let more = literal("x-more", &"x".repeat(16_000));
    flood_until_close(
        &server,
        "CONTINUATION",
        ENHANCE_YOUR_CALM,
        10_000,
        |round| match round {
            0 => frame(kind::HEADERS, 0, 1, &request_head(LIST, &[])),
            _ => frame(kind::CONTINUATION, 0, 1, &more),
        },
    )
    .await;
    // A header of 3,900 bytes in the server's HPACK table (entry 62, the newest), referenced 12,000
    // times by one byte each: 47 MB when expanded. In RFC 7541, 0x40 before a literal adds it to
    // the table, and 0xbe (0x80 + 62) refers to entry 62.
    let indexed = [&[0x40][..], &literal("x-bomb", &"x".repeat(3_900))[1..]].concat();
    let bomb = [request_head(LIST, &[]), indexed, vec![0xbe; 12_000]].concat();
    let many: Vec<u8> = (0..100)
        .flat_map(|n| literal(&format!("x-{n}"), &"x".repeat(150)))
        .collect();
    let large = [request_head(LIST, &[]), many].concat();
    let whole = kind::END_HEADERS | kind::END_STREAM;
    let references = |round| frame(kind::HEADERS, whole, 2 * round + 1, &bomb);
    let oversized = |round| frame(kind::HEADERS, whole, 2 * round + 1, &large);
    let what = "references to a large header, and oversized heads";
    flood_until_deadline(&server, what, [&references, &oversized]).await;
    flood_until_close(&server, "oversized frames", FRAME_SIZE_ERROR, 1, |_| {
        frame(kind::DATA, 0, 1, &vec![0; 20_000])
    })
    .await;
    flood_until_close(
        &server,
        "a stream id of the server",
        PROTOCOL_ERROR,
        1,
        |_| frame(kind::HEADERS, whole, 2, &large),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_above_the_rate_limit_are_refused() {
    let server =
        AttackedServer::start(&["limits.calls_per_second=40", "limits.calls_burst=40"]).await;
    let channel = server.channel(&server.eve);
    let calls = join_all((0..64).map(|_| async {
        let mut client = ConversationServiceClient::new(channel.clone());
        loop {
            let _ = client
                .list_conversations(pb::ListConversationsRequest::default())
                .await;
        }
    }));
    server
        .run_attack("calls as fast as possible", flood_duration(), async {
            drop::<Vec<()>>(calls.await);
        })
        .await;
    assert!(
        server.metric_value("anneal_rate_limited_total").await > 0.0,
        "no call was refused"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn incomplete_requests_and_unread_answers_take_little_memory() {
    let server = AttackedServer::start(&[]).await;
    let head = request_head(LIST, &[("authorization", &server.eve)]);
    let half = [&[0][..], &1_000_000_u32.to_be_bytes(), &[b'x'; 4_000]].concat();
    let halves = async {
        let attacks = (0..64).map(|_| async {
            let mut client = RawHttp2::connect(server.grpc, &[]).await;
            // 128 streams, the limit of a connection.
            for stream in (1..256).step_by(2) {
                let beginning = [
                    frame(kind::HEADERS, kind::END_HEADERS, stream, &head),
                    frame(kind::DATA, 0, stream, &half),
                ];
                if client.send(&beginning.concat()).await.is_err() {
                    break;
                }
            }
            client.read_to_close().await
        });
        join_all(attacks).await;
    };
    server
        .run_attack("incomplete requests", flood_duration(), halves)
        .await;
    let unread = async {
        let attacks = (0..64).map(|_| async {
            let mut client =
                RawHttp2::connect(server.grpc, &[(kind::INITIAL_WINDOW_SIZE, 0)]).await;
            for round in 0..100 {
                if client.send(&request(round, &head)).await.is_err() {
                    break;
                }
            }
            client.read_to_close().await
        });
        join_all(attacks).await;
    };
    server
        .run_attack("unread answers", flood_duration(), unread)
        .await;
}
