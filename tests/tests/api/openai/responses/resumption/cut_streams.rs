//! A stream is cut after each of its events. The reader goes on at another server: at once, while
//! the first server runs the turn, and later, after the first server was killed.

use anneal_testkit::{Gate, HttpClient, Say, ScriptedModel, gate_or_nightly};
use futures::future::join_all;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::{
    Answer, EventStream, Servers, answers, assert_failed, assert_whole, assert_without_gap, body,
    events_path, gates, number_after, read_after, read_path,
};
use crate::openai::responses::retrieve;

/// An uncut stream, and readers at another server, of which the one at each place has the events
/// up to that place.
struct Run {
    id: String,
    uncut: Vec<Value>,
    readers: Vec<JoinHandle<Vec<Value>>>,
}

impl Run {
    /// Lets the model say the answer with this number piece by piece, so that each delta is an
    /// event of its own, and reads the stream to its end.
    async fn start(
        (first, second): (&HttpClient, &HttpClient),
        (number, answer): (usize, &Answer),
        gate: &Gate,
    ) -> Self {
        let mut stream = EventStream::create(first, &body(&format!("answer {number}"))).await;
        let id = stream.id();
        let mut readers = Vec::new();
        let mut cut = |events: &[Value]| {
            for after in &events[readers.len()..] {
                let (web, path) = (second.clone(), events_path(&id, Some(after)));
                readers.push(tokio::spawn(async move { read_path(&web, &path).await }));
            }
        };
        let (mut text_bytes, mut calls) = (0, 0);
        for say in &answer.says {
            match say {
                Say::Text(text) => text_bytes += text.len(),
                Say::ToolUse { .. } => calls += 1,
                _ => {}
            }
            cut(&stream.read);
            gate.open(1);
            stream.read_until(text_bytes, calls).await;
        }
        cut(&stream.read);
        gate.open_for_ever();
        while stream.next().await.is_some() {}
        Self {
            id,
            uncut: stream.read,
            readers,
        }
    }
}

/// Asserts that a reader that has the events up to this place has got the rest.
#[track_caller]
fn assert_rest(answer: &Answer, uncut: &[Value], place: usize, rest: &[Value]) {
    let had = &uncut[..=place];
    if answer.is_cut && place + 1 < uncut.len() {
        let response = assert_failed(had, rest);
        assert_eq!(response, uncut[uncut.len() - 1]["response"]);
        assert_eq!(rest.last(), uncut.last());
    } else {
        assert_whole(had, rest, uncut);
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_at_any_event_goes_on_at_another_server_without_gap_or_repetition() {
    let answers = answers(gate_or_nightly(2, 30));
    let gates = gates(answers.len());
    let model = ScriptedModel::start({
        let (answers, gates) = (answers.clone(), gates.clone());
        move |request| {
            let number = number_after(request, "answer ").expect("is in the question");
            answers[number].script(request).gated(&gates[number])
        }
    })
    .await;
    let servers = Servers::start(&model).await;
    let webs = (&servers.first_web, &servers.second.http_client());
    let runs = answers.iter().enumerate().zip(&gates);
    let mut runs = join_all(runs.map(|(answer, gate)| Run::start(webs, answer, gate))).await;
    for (answer, run) in answers.iter().zip(&mut runs) {
        let uncut = &run.uncut;
        assert_without_gap(uncut);
        let deltas = uncut.iter().filter(|event| event["delta"].is_string());
        let (_, calls) = super::shown(&answer.says);
        let texts = answer.says.iter().filter(|say| matches!(say, Say::Text(_)));
        assert_eq!(
            deltas.count(),
            texts.count() + calls,
            "each piece is an event: {uncut:#?}"
        );
        let end = uncut.last().expect("has events");
        assert_eq!(end["type"], answer.end, "{answer:?}");
        assert!(run.readers.len() > answer.says.len(), "{answer:?}");
        for (place, reader) in run.readers.drain(..).enumerate() {
            let rest = reader.await.expect("reads to the end");
            assert_rest(answer, uncut, place, &rest);
        }
    }
    assert_eq!(model.requests().len(), answers.len());
    let second = servers.kill_first().await;
    let web = second.http_client();
    for (answer, run) in answers.iter().zip(&runs) {
        let uncut = &run.uncut;
        for (place, event) in uncut.iter().enumerate() {
            let rest = read_after(&web, &run.id, Some(event)).await;
            assert_rest(answer, uncut, place, &rest);
        }
        let replay = read_after(&web, &run.id, None).await;
        if answer.is_cut {
            assert_failed(&[], &replay);
        } else {
            assert_whole(&[], &replay, uncut);
        }
        let end = uncut.last().expect("has events");
        assert_eq!(retrieve(&web, &run.id).await, end["response"]);
    }
}
