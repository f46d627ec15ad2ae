//! Tests of the translation: the order of events, and that a cut loses and repeats nothing.

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::http::openai::responses::{
    create_body::CreateBody,
    parameters::{Identity, merge_options},
};

fn shown(body: Value) -> ShownRequest {
    let mut body = body;
    body["input"] = json!("hi");
    let body = CreateBody::parse(body).expect("is valid");
    let identity = Identity {
        id: "resp_1",
        created_at: 5,
        model: "m",
    };
    ShownRequest::new(&identity, &body, &merge_options(&body, None))
}

fn ids() -> ItemIds {
    ItemIds::Stored(ConversationId(Uuid::from_u128(7)), MessageId(2))
}

fn outcome(status: &str) -> Outcome {
    let outcome = json!({
        "status": status, "ended_at": 9, "error": null, "incomplete": null, "usage": null,
        "model": null, "position": null,
    });
    serde_json::from_value(outcome).expect("is an outcome")
}

fn text(text: &str) -> Piece {
    Piece::Text(text.to_owned())
}

fn call(id: &str, input: &str) -> Piece {
    Piece::Call(pb::ToolUsePart {
        id: id.to_owned(),
        name: "look".to_owned(),
        input: input.to_owned(),
    })
}

fn reasoning(text: &str) -> Piece {
    Piece::Reasoning(pb::ReasoningPart {
        text: text.to_owned(),
        signature: "c2lnbmVk".to_owned(),
        provider: "openai".to_owned(),
        redacted: false,
    })
}

/// All events of a whole answer that has these pieces.
fn translate(pieces: &[Piece], end: &Outcome, after: Option<u64>) -> Vec<Value> {
    let mut translator = Translator::new(shown(json!({})), ids(), after);
    for piece in pieces {
        translator.push(piece.clone());
    }
    translator.finish(end);
    std::iter::from_fn(|| translator.take_event()).collect()
}

fn number(event: &Value) -> u64 {
    event["sequence_number"].as_u64().expect("has a number")
}

/// The events with deltas of one run joined, and without their numbers.
fn joined(events: &[Value]) -> Vec<Value> {
    let mut joined: Vec<Value> = Vec::new();
    for event in events {
        let mut event = event.clone();
        event["sequence_number"] = Value::Null;
        if let Some(delta) = event["delta"].as_str()
            && let Some(last) = joined
                .last_mut()
                .filter(|last| last["type"] == event["type"])
        {
            last["delta"] = json!(format!("{}{delta}", last["delta"].as_str().unwrap_or("")));
        } else {
            joined.push(event);
        }
    }
    joined
}

#[test]
fn the_events_of_a_text_come_in_the_order_of_the_specification() {
    let events = translate(&[text("Hel"), text("lo")], &outcome("completed"), None);
    let shown: Vec<(u64, &str)> = events
        .iter()
        .map(|event| (number(event), event["type"].as_str().expect("has a type")))
        .collect();
    assert_eq!(
        shown,
        [
            (0, "response.created"),
            (1, "response.in_progress"),
            (2, "response.output_item.added"),
            (3, "response.content_part.added"),
            (6, "response.output_text.delta"),
            (8, "response.output_text.delta"),
            (9, "response.output_text.done"),
            (10, "response.content_part.done"),
            (11, "response.output_item.done"),
            (12, "response.completed"),
        ]
    );
    assert_eq!(events[9]["response"]["output"][0], events[8]["item"]);
    assert_eq!(events[8]["item"]["content"][0]["text"], "Hello");
    assert_eq!(events[8]["item"]["id"], events[2]["item"]["id"]);
}

#[test]
fn items_end_before_the_next_begins_and_are_those_of_the_last_event() {
    let pieces = [
        reasoning("hm"),
        text("look"),
        call("c1", "{\"a\":1}"),
        call("c2", ""),
        text("so"),
    ];
    let events = translate(&pieces, &outcome("completed"), None);
    let mut open = None;
    let mut done = Vec::new();
    for event in &events {
        let index = event["output_index"].as_u64();
        match event["type"].as_str() {
            Some("response.output_item.added") => {
                assert_eq!((open, index), (None, Some(done.len() as u64)));
                open = index;
            }
            Some("response.output_item.done") => {
                assert_eq!(open.take(), index);
                done.push(event["item"].clone());
            }
            _ => assert_eq!(open, index, "{event}"),
        }
    }
    let last = events.last().expect("has events");
    assert_eq!(last["response"]["output"], json!(done));
    let kinds: Vec<&Value> = done.iter().map(|item| &item["type"]).collect();
    assert_eq!(
        kinds,
        [
            "reasoning",
            "message",
            "function_call",
            "function_call",
            "message"
        ]
    );
    assert_eq!(done[2]["arguments"], "{\"a\":1}");
    assert!(done[0]["encrypted_content"].is_string());
}

#[test]
fn an_answer_that_is_cut_off_ends_incomplete() {
    let events = translate(&[text("Hel")], &outcome("incomplete"), None);
    let last = events.last().expect("has events");
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(last["response"]["output"][0]["status"], "incomplete");
}

#[test]
fn a_failed_response_has_one_last_event_and_no_output() {
    let events = translate(&[text("Hel")], &outcome("failed"), None);
    let last = events.last().expect("has events");
    assert_eq!(last["type"], "response.failed");
    assert_eq!(last["response"]["output"], json!([]));
    let failed = events
        .iter()
        .filter(|event| event["type"] == "response.failed");
    assert_eq!(failed.count(), 1);
    // A reader that has seen more of the answer than is left gets the last event all the same.
    let rest = translate(&[], &outcome("failed"), Some(number(last) + 40));
    assert_eq!(rest.len(), 1);
    assert_eq!(number(&rest[0]), number(last) + 41);
    // If it is known where the answer broke off, a reader that has the last event gets nothing.
    let mut end = outcome("failed");
    end.position = Some(number(last));
    assert_eq!(translate(&[], &end, Some(number(last))), [] as [Value; 0]);
    assert_eq!(translate(&[], &end, Some(2)).len(), 1);
}

#[test]
fn a_response_in_the_background_is_queued_first() {
    let body = json!({"background": true});
    let mut translator = Translator::new(shown(body), ids(), None);
    let kinds: Vec<String> = std::iter::from_fn(|| translator.take_event())
        .map(|event| {
            format!(
                "{} {}",
                event["type"].as_str().expect("has a type"),
                event["response"]["status"].as_str().expect("has a status")
            )
        })
        .collect();
    assert_eq!(
        kinds,
        [
            "response.created queued",
            "response.queued queued",
            "response.in_progress in_progress"
        ]
    );
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let piece = prop_oneof![
        3 => "[a-zäß語🙂 ]{0,12}".prop_map(|part| text(&part)),
        1 => ("[a-z]{1,3}", "[a-zé{}\"]{0,8}").prop_map(|(id, input)| call(&id, &input)),
        1 => "[a-zé]{0,6}".prop_map(|part| reasoning(&part)),
    ];
    prop::collection::vec(piece, 0..8)
}

/// The same answer, its text cut at other places.
fn cut_anew(pieces: &[Piece], widths: &[usize]) -> Vec<Piece> {
    let mut widths = widths.iter().copied().cycle();
    let mut cut = Vec::new();
    for piece in pieces {
        let Piece::Text(whole) = piece else {
            cut.push(piece.clone());
            continue;
        };
        let mut rest = whole.as_str();
        while !rest.is_empty() {
            let width = widths.next().unwrap_or(1).min(rest.len());
            let (part, more) = rest.split_at(rest.ceil_char_boundary(width));
            cut.push(text(part));
            rest = more;
        }
    }
    cut
}

proptest! {
    #[test]
    fn a_stream_that_is_cut_after_any_event_goes_on_without_loss_or_repetition(
        pieces in pieces(),
        widths in prop::collection::vec(1usize..6, 1..6),
        status in prop_oneof![Just("completed"), Just("incomplete")],
    ) {
        let end = outcome(status);
        let live = translate(&pieces, &end, None);
        let replay = cut_anew(&pieces, &widths);
        prop_assert_eq!(joined(&live), joined(&translate(&replay, &end, None)));
        for (index, event) in live.iter().enumerate() {
            let rest = translate(&replay, &end, Some(number(event)));
            prop_assert!(rest.iter().all(|later| number(later) > number(event)));
            let mut whole = live[..=index].to_vec();
            whole.extend(rest);
            prop_assert!(whole.is_sorted_by(|one, next| number(one) < number(next)));
            prop_assert_eq!(joined(&whole), joined(&live));
        }
    }

    #[test]
    fn an_answer_that_comes_again_from_its_beginning_is_not_repeated(
        pieces in pieces(),
        before in 0usize..8,
    ) {
        let end = outcome("completed");
        let mut translator = Translator::new(shown(json!({})), ids(), None);
        for piece in pieces.iter().take(before) {
            translator.push(piece.clone());
        }
        let mut events: Vec<Value> = std::iter::from_fn(|| translator.take_event()).collect();
        translator.restart();
        for piece in &pieces {
            translator.push(piece.clone());
        }
        translator.finish(&end);
        events.extend(std::iter::from_fn(|| translator.take_event()));
        prop_assert_eq!(joined(&events), joined(&translate(&pieces, &end, None)));
    }
}
