//! Floods over HTTP/2: what a client sends that costs it less than the server.

use std::time::Duration;

use anneal_tests::{RawHttp2, frame, kind, literal, pb, request_head};
use futures::future::join_all;
use pb::conversation_service_client::ConversationServiceClient;

use crate::besieged::{Besieged, flood_lasts};

const LIST: &str = "/anneal.v1.ConversationService/ListConversations";
/// Attackers at once.
const ATTACKERS: usize = 4;
/// The end of what the server ends by itself.
const SHOWN_OUT_WITHIN: Duration = Duration::from_secs(30);
/// Codes of RFC 9113.
const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const ENHANCE_YOUR_CALM: u32 = 11;

/// An empty message of gRPC.
const EMPTY: [u8; 5] = [0; 5];

/// A client that sends what `bytes` says for each round, reads what comes, and goes on until it is shown out. The code that it
/// is shown out with.
async fn flood(server: &Besieged, rounds: u32, mut bytes: impl FnMut(u32) -> Vec<u8>) -> Option<u32> {
    let client = RawHttp2::connect(server.grpc, &[]).await;
    let (reading, mut writing) = client.parted();
    let read = read_codes(reading);
    let write = async {
        for round in 0..rounds {
            if tokio::io::AsyncWriteExt::write_all(&mut writing, &bytes(round)).await.is_err() {
                break;
            }
        }
        // Whoever was not shown out stays until the attack's time is over.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        code = read => code,
        () = write => None,
    }
}

async fn read_codes(reading: tokio::net::tcp::OwnedReadHalf) -> Option<u32> {
    let mut reading = tokio::io::BufReader::new(reading);
    let mut code = None;
    while let Some(frame) = anneal_tests::next_frame(&mut reading).await {
        code = frame.goaway_code().or(code);
    }
    code
}

/// A flood by several clients at once, each of which is shown out with this code.
async fn shown_out(server: &Besieged, what: &str, code: u32, rounds: u32, bytes: impl Fn(u32) -> Vec<u8>) {
    let bytes = &bytes;
    let ended = std::cell::RefCell::new(Vec::new());
    let attacks = (0..ATTACKERS).map(|_| async {
        let code = flood(server, rounds, bytes).await;
        ended.borrow_mut().push(code);
    });
    server.endures(what, SHOWN_OUT_WITHIN, async { drop(join_all(attacks).await) }).await;
    let codes = ended.into_inner();
    assert_eq!(codes.len(), ATTACKERS, "{what}: who was not shown out has no code");
    // Who was still sending may find the connection broken before it has read why.
    assert!(codes.contains(&Some(code)) && codes.iter().flatten().all(|said| *said == code), "{what}: {codes:?}");
}

/// A flood that the server takes at its own speed.
async fn endured(server: &Besieged, what: &str, rounds: u32, bytes: impl Fn(u32) -> Vec<u8>) {
    let bytes = &bytes;
    let attacks = (0..ATTACKERS).map(|_| flood(server, rounds, bytes));
    server.endures(what, flood_lasts(), async { drop(join_all(attacks).await) }).await;
}

/// A whole request on the stream of this round.
fn request(round: u32, head: &[u8]) -> Vec<u8> {
    let stream = 2 * round + 1;
    [frame(kind::HEADERS, kind::END_HEADERS, stream, head), frame(kind::DATA, kind::END_STREAM, stream, &EMPTY)]
        .concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_reset_as_soon_as_they_are_opened_end_the_connection() {
    let server = Besieged::start(&[]).await;
    let head = request_head(LIST, &[("authorization", &server.eve)]);
    // CVE-2023-44487: 64 at a time, so that they stand in the server's queue together.
    shown_out(&server, "rapid reset", ENHANCE_YOUR_CALM, 1_000, |round| {
        let streams = (0..64).map(|n| 2 * (round * 64 + n) + 1);
        let frames = streams.flat_map(|stream| {
            let headers = frame(kind::HEADERS, kind::END_HEADERS | kind::END_STREAM, stream, &head);
            [headers, frame(kind::RST_STREAM, 0, stream, &8u32.to_be_bytes())].concat()
        });
        frames.collect()
    })
    .await;
    // CVE-2025-8671: each stream is reset by the server, because of a mistake that costs the client four bytes.
    let most = 0x7fff_ffff_u32.to_be_bytes();
    shown_out(&server, "resets that the server makes", ENHANCE_YOUR_CALM, 100_000, |round| {
        let stream = 2 * round + 1;
        let mistake = frame(kind::WINDOW_UPDATE, 0, stream, &most);
        [frame(kind::HEADERS, kind::END_HEADERS, stream, &head), mistake].concat()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_say_nothing_are_answered_as_far_as_they_are_read_and_keep_nobody_waiting() {
    let server = Besieged::start(&[]).await;
    endured(&server, "pings", 100_000, |_| frame(kind::PING, 0, 0, &[7; 8]).repeat(64)).await;
    endured(&server, "settings", 100_000, |_| frame(kind::SETTINGS, 0, 0, &[]).repeat(64)).await;
    let head = request_head(LIST, &[("authorization", &server.eve)]);
    shown_out(&server, "empty DATA", ENHANCE_YOUR_CALM, 100_000, |round| {
        let opened = if round == 0 { frame(kind::HEADERS, kind::END_HEADERS, 1, &head) } else { Vec::new() };
        [opened, frame(kind::DATA, 0, 1, &[]).repeat(64)].concat()
    })
    .await;
    let most = 0x7fff_ffff_u32.to_be_bytes();
    shown_out(&server, "a window beyond all bounds", FLOW_CONTROL_ERROR, 2, |_| {
        frame(kind::WINDOW_UPDATE, 0, 0, &most)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_without_end_or_measure_are_not_kept() {
    let server = Besieged::start(&[]).await;
    // CVE-2024-27316: a head that never ends.
    let more = literal("x-more", &"x".repeat(16_000));
    shown_out(&server, "CONTINUATION", ENHANCE_YOUR_CALM, 10_000, |round| match round {
        0 => frame(kind::HEADERS, 0, 1, &request_head(LIST, &[])),
        _ => frame(kind::CONTINUATION, 0, 1, &more),
    })
    .await;
    // A header of 4,000 bytes that the server remembers, named 12,000 times by a byte each (entry 62, its newest): 47 MB,
    // if it wrote them out.
    let remembered = [&[0x40][..], &literal("x-bomb", &"x".repeat(3_900))[1..]].concat();
    let bomb = [request_head(LIST, &[]), remembered, vec![0xbe; 12_000]].concat();
    endured(&server, "names for large headers", 100_000, |round| {
        frame(kind::HEADERS, kind::END_HEADERS | kind::END_STREAM, 2 * round + 1, &bomb)
    })
    .await;
    let many: Vec<u8> = (0..100).flat_map(|n| literal(&format!("x-{n}"), &"x".repeat(150))).collect();
    let large = [request_head(LIST, &[]), many].concat();
    endured(&server, "heads that are too large", 100_000, |round| {
        frame(kind::HEADERS, kind::END_HEADERS | kind::END_STREAM, 2 * round + 1, &large)
    })
    .await;
    shown_out(&server, "frames that are too large", 6, 1, |_| frame(kind::DATA, 0, 1, &vec![0; 20_000])).await;
    let whole = kind::END_HEADERS | kind::END_STREAM;
    shown_out(&server, "a stream of the server's", PROTOCOL_ERROR, 1, |_| frame(kind::HEADERS, whole, 2, &large)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_by_the_thousand_are_shed() {
    let server = Besieged::start(&["limits.calls_per_second=40", "limits.calls_burst=40"]).await;
    let guest = server.guest(&server.eve);
    let calls = join_all((0..64).map(|_| async {
        let mut client = ConversationServiceClient::new(guest.clone());
        loop {
            let _ = client.list_conversations(pb::ListConversationsRequest::default()).await;
        }
    }));
    server.endures("calls as fast as they go", flood_lasts(), async { drop::<Vec<()>>(calls.await) }).await;
    assert!(server.figure("rate_limited_total").await > 0.0, "some were too many");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn halves_of_requests_and_answers_that_nobody_reads_take_little() {
    let server = Besieged::start(&[]).await;
    let head = request_head(LIST, &[("authorization", &server.eve)]);
    let half = [&[0][..], &1_000_000_u32.to_be_bytes(), &[b'x'; 4_000]].concat();
    let halves = async {
        let attacks = (0..64).map(|_| async {
            let mut client = RawHttp2::connect(server.grpc, &[]).await;
            for stream in (1..256).step_by(2) {
                let begun =
                    [frame(kind::HEADERS, kind::END_HEADERS, stream, &head), frame(kind::DATA, 0, stream, &half)];
                if client.send(&begun.concat()).await.is_err() {
                    break;
                }
            }
            client.closed().await
        });
        join_all(attacks).await;
    };
    server.endures("halves of requests", flood_lasts(), halves).await;
    let unread = async {
        let attacks = (0..64).map(|_| async {
            let mut client = RawHttp2::connect(server.grpc, &[(kind::INITIAL_WINDOW_SIZE, 0)]).await;
            for round in 0..100 {
                if client.send(&request(round, &head)).await.is_err() {
                    break;
                }
            }
            client.closed().await
        });
        join_all(attacks).await;
    };
    server.endures("answers that nobody reads", flood_lasts(), unread).await;
}
