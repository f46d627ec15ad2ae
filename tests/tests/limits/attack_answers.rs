//! Answers of turns that are kept for readers over HTTP: readers who do not read, and readers who lie about where they were.

use std::time::Duration;

use anneal_tests::{Answered, Events, Gate, Say, Script, ScriptedModel};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::besieged::Besieged;

const CHAT: &str = "/api/agents/a/chat";
/// How long each attack goes on.
const LASTS: Duration = Duration::from_secs(20);
/// Bytes of one piece of a long answer.
const PIECE: usize = 64 * 1024;
/// A word of an answer that must stand nowhere else.
const SECRET: &str = "quicksilver";

/// A request of the attacker's to the chat, as bytes; the body is that of a new turn where there is no event id.
fn request(server: &Besieged, event_id: Option<&str>) -> String {
    let body = if event_id.is_none() { r#"{"message":"Go on."}"# } else { "" };
    let id = event_id.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
    format!(
        "POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\nContent-Type: application/json\r\n\
         {id}Content-Length: {}\r\n\r\n{body}",
        server.eve,
        body.len()
    )
}

/// Sends a request, reads the status of its answer and then nothing more.
async fn begin_to_read(server: &Besieged, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.http).await.expect("connects");
    stream.write_all(request.as_bytes()).await.expect("is taken");
    let _ = stream.read_exact(&mut [0; 12]).await;
    stream
}

/// A turn of the attacker's, and its first event.
async fn begin_turn(server: &Besieged) -> (Events, String) {
    let turn = server.web().json("POST", CHAT, &json!({"message": "Tell me."}));
    let mut events = Events::of(turn.header("authorization", &server.eve)).await;
    let id = events.take(1).await.remove(0).id;
    (events, id)
}

/// The id of an event with other fields: of [session, request, message, run, attempt, trail, is_end].
fn forged(id: &str, forge: impl FnOnce(&mut Value)) -> String {
    let text = URL_SAFE_NO_PAD.decode(id).expect("an id is base64");
    let mut fields: Value = serde_json::from_slice(&text).expect("of JSON");
    forge(&mut fields);
    URL_SAFE_NO_PAD.encode(fields.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_their_readers_leave_unread_take_little() {
    // 400 MiB in all. Thoughts, which no database has to store.
    const TURNS: usize = 400;
    let model = ScriptedModel::start(|asked| {
        let thoughts = (0..16).map(|_| Say::Thought("x".repeat(PIECE)));
        Script::says(asked, thoughts.chain([Say::text("That is all.")]))
    })
    .await;
    let server = Besieged::start_calling(&model, &[]).await;
    let asked = request(&server, None);
    let attack = async {
        let readers = stream::iter(0..TURNS).map(|_| begin_to_read(&server, &asked)).buffer_unordered(4);
        let held: Vec<TcpStream> = readers.collect().await;
        println!("{} turns were begun, {} answered", held.len(), model.asked().len());
        std::future::pending::<()>().await;
        drop(held);
    };
    server.endures("unread answers", 3 * LASTS, attack).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_who_claim_to_have_had_more_than_there_is_cost_little() {
    const READERS: usize = 400;
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |asked| {
            let long = (0..32).map(|_| Say::text(&"x".repeat(PIECE)));
            let drops = (0..2_000).map(|_| Say::text("y"));
            Script::says(asked, long.chain(drops)).gated(&gate)
        }
    })
    .await;
    let server = Besieged::start_calling(&model, &[]).await;
    let (mut events, id) = begin_turn(&server).await;
    gate.open(40);
    let mut told = 0;
    while told < 32 * PIECE {
        told += events.take(1).await[0].data["text"].as_str().map_or(0, str::len);
    }
    let id = forged(&id, |fields| fields[5]["text"] = json!([1_000_000_000, 1]));
    let asked = request(&server, Some(&id));
    let attack = async {
        let readers = stream::iter(0..READERS).map(|_| begin_to_read(&server, &asked)).buffer_unordered(4);
        let held: Vec<TcpStream> = readers.collect().await;
        let mut drops = tokio::time::interval(Duration::from_millis(20));
        loop {
            drops.tick().await;
            gate.open(1);
            if held.is_empty() {
                break;
            }
        }
    };
    server.endures("forged event ids", LASTS, attack).await;
}

#[tokio::test]
async fn forged_event_ids_break_nothing_and_what_they_are_told_stands_in_no_log() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |asked| match asked.nth {
            // In the middle of the answer the context is found to be too long: what was said is void.
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
    let server = Besieged::start_calling(&model, &[]).await;
    let (mut events, id) = begin_turn(&server).await;
    gate.open(1);
    let said = events.take(1).await.remove(0);
    assert_eq!(said.data["text"], format!("{SECRET} and more of it"), "{said:?}");
    let resume =
        |id: &str| server.web().request("POST", CHAT).header("authorization", &server.eve).header("last-event-id", id);
    // A reader who claims to have heard of every attempt, and reads the first while it runs.
    let latest = forged(&id, |fields| fields[4] = json!(i32::MAX));
    let mut reader = Events::of(resume(&latest)).await;
    assert_eq!(reader.take(1).await[0].data["text"], format!("{SECRET} and more of it"));
    gate.open_for_ever();
    let rest = reader.rest().await;
    let kinds: Vec<&str> = rest.iter().map(anneal_tests::Told::kind).collect();
    assert_eq!((kinds.first(), kinds.last()), (Some(&"attempt"), Some(&"done")), "{rest:?}");
    assert_eq!(anneal_tests::text_of(&rest), format!("Yes.{SECRET}"));
    assert_eq!(events.rest().await.last().map(|event| event.kind().to_owned()).as_deref(), Some("done"));

    for (what, field, value) in [
        ("an attempt below nothing", 4, json!(-1)),
        ("a message that cannot be", 2, json!(-7)),
        ("a count beyond all bounds", 5, json!({"text": [u64::MAX, 1], "reasoning": [0, 1], "calls": [0, 1]})),
        ("another count beyond all bounds", 5, json!({"text": [0, 1], "reasoning": [u64::MAX, 1], "calls": [0, 1]})),
        ("a request that cannot be", 1, json!("r".repeat(5_000))),
    ] {
        let refused = Answered::to(resume(&forged(&id, |fields| fields[field] = value))).await;
        assert_eq!(refused.status, 400, "{what}: {refused:?}");
        refused.assert_problem(400, "INVALID_FIELD", "Last-Event-ID");
    }
    let others = server.web().request("POST", CHAT).header("authorization", &server.anna).header("last-event-id", &id);
    Answered::to(others).await.assert_problem(404, "CONVERSATION_NOT_FOUND", "");
    let huge = resume(&"A".repeat(60_000)).send().await;
    assert!(huge.map_or(true, |answer| answer.status().is_client_error()));
    for line in server.lines() {
        assert!(!line.contains(SECRET) && !line.contains("panicked"), "{line}");
    }
}
