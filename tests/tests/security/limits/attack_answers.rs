//! Attacks on the answers that the server keeps for HTTP readers of a turn: readers that do not
//! read, and readers that resume with forged event ids.

use std::time::Duration;

use anneal_testkit::{Gate, HttpResponse, Say, Script, ScriptedModel, SseStream};
use futures::{StreamExt as _, stream};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::limits::attacked_server::{AttackedServer, flood_duration, hold};

const CHAT: &str = "/api/agents/a/chat";
/// Time limit to begin all turns or readers of an attack.
const OPENED_WITHIN: Duration = Duration::from_secs(40);
/// Bytes of one long piece of an answer.
const PIECE_BYTES: usize = 64 * 1024;
/// Characters of the session at the beginning of an event id. The id of a turn's first event has
/// after them only the number of the user's message
/// (`server/src/http/resumable_turns/resume_point.rs`).
const SESSION_CHARACTERS: usize = 11;
/// A word of an answer that must not be logged.
const SECRET: &str = "quicksilver";

/// The bytes of a chat request of the attacker. With an event id it resumes a turn, without one it
/// starts a new turn.
fn request(server: &AttackedServer, event_id: Option<&str>) -> String {
    let body = if event_id.is_none() {
        r#"{"message":"Go on."}"#
    } else {
        ""
    };
    let id = event_id
        .map(|id| format!("Last-Event-ID: {id}\r\n"))
        .unwrap_or_default();
    format!(
        "POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\nContent-Type: application/json\r\n\
         {id}Content-Length: {}\r\n\r\n{body}",
        server.eve,
        body.len()
    )
}

/// Sends a request, reads the status of its answer, and reads nothing more.
async fn begin_to_read(server: &AttackedServer, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.http).await.expect("connects");
    stream.write_all(request.as_bytes()).await.expect("is sent");
    let _ = stream.read_exact(&mut [0; 12]).await;
    stream
}

/// Starts a turn of the attacker. Returns its events and the id of the first.
async fn begin_turn(server: &AttackedServer) -> (SseStream, String) {
    let turn = server
        .http_client()
        .json("POST", CHAT, &json!({"message": "Tell me."}));
    let mut events = SseStream::open(turn.header("authorization", &server.eve)).await;
    let id = events.take(1).await.remove(0).id;
    (events, id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_answers_take_little_memory() {
    // The answers have 400 MiB in total. They are reasoning, so that the database does not have to
    // store them.
    const TURNS: usize = 400;
    let model = ScriptedModel::start(|asked| {
        let reasoning = (0..16).map(|_| Say::Thought("x".repeat(PIECE_BYTES)));
        Script::says(asked, reasoning.chain([Say::text("That is all.")]))
    })
    .await;
    let server = AttackedServer::start_with_model(&model, &[]).await;
    let request_text = request(&server, None);
    let attack = async {
        let readers = stream::iter(0..TURNS)
            .map(|_| begin_to_read(&server, &request_text))
            .buffer_unordered(4);
        let held: Vec<TcpStream> = readers.collect().await;
        println!(
            "{} turns were begun, {} answered",
            held.len(),
            model.requests().len()
        );
        hold(held).await;
    };
    server
        .run_attack("unread answers", OPENED_WITHIN + flood_duration(), attack)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_resume_positions_do_not_delay_other_tenants() {
    const READERS: usize = 400;
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |asked| {
            let long = (0..32).map(|_| Say::text(&"x".repeat(PIECE_BYTES)));
            let short = (0..2_000).map(|_| Say::text("y"));
            Script::says(asked, long.chain(short)).gated(&gate)
        }
    })
    .await;
    let server = AttackedServer::start_with_model(&model, &[]).await;
    let (mut events, id) = begin_turn(&server).await;
    // The 32 long pieces, and a few of the short ones.
    gate.open(40);
    let mut received = 0;
    while received < 32 * PIECE_BYTES {
        received += events.take(1).await[0].data["text"]
            .as_str()
            .map_or(0, str::len);
    }
    // The id claims that a billion bytes of text with the check `AAAA` were delivered.
    let id = format!("{id}tAAAA1000000000");
    let request_text = request(&server, Some(&id));
    let attack = async {
        let readers = stream::iter(0..READERS)
            .map(|_| begin_to_read(&server, &request_text))
            .buffer_unordered(4);
        let held: Vec<TcpStream> = readers.collect().await;
        let mut interval = tokio::time::interval(Duration::from_millis(20));
        let send_pieces = async {
            loop {
                interval.tick().await;
                gate.open(1);
            }
        };
        tokio::select! {
            () = hold(held) => {}
            () = send_pieces => {}
        }
        // The turn ends and releases its memory. Otherwise the time limit of the model's call ends
        // it, after a minute.
        gate.open_for_ever();
    };
    server
        .run_attack("forged event ids", OPENED_WITHIN + flood_duration(), attack)
        .await;
}

#[tokio::test]
async fn forged_event_ids_are_refused_or_resume_the_turn_and_answers_are_not_logged() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |asked| match asked.nth {
            // The provider reports an overflow in the middle of the answer, so this attempt is
            // void.
            0 => Script::events(
                [
                    json!({"choices": [{"index": 0, "delta": {"content": format!("{SECRET} and more of it")}}]})
                        .to_string(),
                    json!({"error": {"message": "context size has been exceeded",
                    "code": "context_length_exceeded"}})
                    .to_string(),
                ]
                .map(|data| format!("data: {data}\n\n")),
            )
            .gated(&gate),
            _ => Script::says(asked, [Say::text("Yes."), Say::text(SECRET)]).gated(&gate),
        }
    })
    .await;
    let server = AttackedServer::start_with_model(&model, &[]).await;
    let (mut events, id) = begin_turn(&server).await;
    gate.open(1);
    let first = events.take(1).await.remove(0);
    assert_eq!(
        first.data["text"],
        format!("{SECRET} and more of it"),
        "{first:?}"
    );
    let resume = |id: &str| {
        server
            .http_client()
            .request("POST", CHAT)
            .header("authorization", &server.eve)
            .header("last-event-id", id)
    };
    // The forged id claims the latest attempt possible, while the first one runs.
    let latest = format!("{id}a{}", i32::MAX);
    let mut reader = SseStream::open(resume(&latest)).await;
    assert_eq!(
        reader.take(1).await[0].data["text"],
        format!("{SECRET} and more of it")
    );
    gate.open_for_ever();
    let rest = reader.rest().await;
    let kinds: Vec<&str> = rest.iter().map(anneal_testkit::SseEvent::kind).collect();
    assert_eq!(
        (kinds.first(), kinds.last()),
        (Some(&"attempt"), Some(&"done")),
        "{rest:?}"
    );
    assert_eq!(anneal_testkit::text_of(&rest), format!("Yes.{SECRET}"));
    assert_eq!(
        events
            .rest()
            .await
            .last()
            .map(|event| event.kind().to_owned())
            .as_deref(),
        Some("done")
    );

    let session = &id[..SESSION_CHARACTERS];
    for (what, forged) in [
        ("a negative attempt", format!("{id}a-1")),
        ("a negative message id", format!("{session}-7")),
        (
            "a text length above the limit",
            format!("{id}tAAAA{}", u64::MAX),
        ),
        (
            "a reasoning length above the limit",
            format!("{id}rAAAA{}", u64::MAX),
        ),
        (
            "a message id that is too long",
            format!("{session}{}", "9".repeat(5_000)),
        ),
    ] {
        let refused = HttpResponse::send(resume(&forged)).await;
        assert_eq!(refused.status, 400, "{what}: {refused:?}");
        refused.assert_problem(400, "INVALID_FIELD", "Last-Event-ID");
    }
    let others = server
        .http_client()
        .request("POST", CHAT)
        .header("authorization", &server.anna)
        .header("last-event-id", &id);
    HttpResponse::send(others)
        .await
        .assert_problem(404, "CONVERSATION_NOT_FOUND", "");
    let huge = resume(&"A".repeat(60_000)).send().await;
    assert!(huge.map_or(true, |answer| answer.status().is_client_error()));
    for line in server.lines() {
        assert!(
            !line.contains(SECRET) && !line.contains("panicked"),
            "{line}"
        );
    }
}
