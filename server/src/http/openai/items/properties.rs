//! Properties: an item of a request that becomes a message is shown as it came, but for its id and
//! for what an item has by itself.

use anneal_core::caller::ConversationId;
use anneal_proto::{convert::message, v1 as pb};
use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{InputItem, items_of, parse_input};

/// Texts of any characters, with blank lines, which also separate texts.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,12}",
        select(vec!["\n\n", "", "a\n\nb", "\0é"]).prop_map(str::to_owned),
    ]
}

fn status() -> impl Strategy<Value = &'static str> {
    select(vec!["completed", "in_progress", "incomplete"])
}

fn image() -> impl Strategy<Value = Value> {
    let address = select(vec![
        "https://a.example/b.png",
        "http://a.example/c",
        "data:image/gif;base64,AA==",
    ]);
    let detail = select(vec!["auto", "low", "high", "original"]);
    (address, detail).prop_map(
        |(url, detail)| json!({"type": "input_image", "image_url": url, "detail": detail}),
    )
}

fn file() -> impl Strategy<Value = Value> {
    let address = select(vec![
        ("file_url", "https://a.example/b.png"),
        ("file_url", "https://a.example/b"),
        ("file_data", "data:application/pdf;base64,AA=="),
        ("file_data", "data:image/png;base64,AA=="),
    ]);
    let filename = option::of("[a-z]{1,4}\\.(pdf|png|x)");
    (address, filename).prop_map(|((name, address), filename)| {
        let mut part = json!({"type": "input_file", name: address});
        if let Some(filename) = filename {
            part["filename"] = filename.into();
        }
        part
    })
}

fn input_text() -> impl Strategy<Value = Value> {
    text().prop_map(|text| json!({"type": "input_text", "text": text}))
}

fn user_part() -> impl Strategy<Value = Value> {
    prop_oneof![input_text(), image(), file()]
}

fn answer_part() -> impl Strategy<Value = Value> {
    let citation = json!({
        "type": "url_citation", "url": "https://a.example", "title": "A",
        "start_index": 0, "end_index": 1,
    });
    let annotations = vec(Just(citation), 0..3);
    let output = (text(), annotations).prop_map(|(text, annotations)| {
        json!({"type": "output_text", "text": text, "annotations": annotations, "logprobs": []})
    });
    let refusal = text().prop_map(|text| json!({"type": "refusal", "refusal": text}));
    prop_oneof![output, refusal, image(), file()]
}

fn message() -> impl Strategy<Value = Value> {
    let of_role = |role: &'static str, content: BoxedStrategy<Value>| {
        (vec(content, 1..5), status()).prop_map(move |(content, status)| {
            json!({"type": "message", "role": role, "status": status, "content": content})
        })
    };
    let phase = option::of(select(vec!["commentary", "final_answer"]));
    let answer = (of_role("assistant", answer_part().boxed()), phase);
    prop_oneof![
        of_role("user", user_part().boxed()),
        of_role("system", input_text().boxed()),
        of_role("developer", input_text().boxed()),
        answer.prop_map(|(mut item, phase)| {
            if let Some(phase) = phase {
                item["phase"] = phase.into();
            }
            item
        }),
    ]
}

fn call() -> impl Strategy<Value = Value> {
    (text(), status()).prop_map(|(arguments, status)| {
        json!({
            "type": "function_call", "call_id": "c", "name": "look",
            "arguments": arguments, "status": status,
        })
    })
}

fn output() -> impl Strategy<Value = Value> {
    let parts = vec(user_part(), 0..5).prop_map(Value::from);
    let output = prop_oneof![text().prop_map(Value::from), parts];
    (output, status(), any::<bool>()).prop_map(|(output, status, is_error)| {
        let mut item = json!({
            "type": "function_call_output", "call_id": "c", "output": output, "status": status,
        });
        if is_error {
            item["is_error"] = true.into();
        }
        item
    })
}

fn reasoning() -> impl Strategy<Value = Value> {
    let encrypted = option::of(select(vec![
        "gAAAAABo",
        // The provider `anthropic` and the signature `x`.
        "anneal-reasoning-1.WyJhbnRocm9waWMiLCJ4IixmYWxzZV0",
    ]));
    (vec(text(), 0..3), vec(text(), 0..3), encrypted).prop_map(|(summary, content, encrypted)| {
        let list = |kind: &str, texts: Vec<String>| {
            let texts = texts.into_iter();
            let texts = texts.map(|text| json!({"type": kind, "text": text}));
            texts.collect::<Vec<Value>>()
        };
        let mut item = json!({"type": "reasoning", "summary": list("summary_text", summary)});
        if !content.is_empty() {
            item["content"] = list("reasoning_text", content).into();
        }
        if let Some(encrypted) = encrypted {
            item["encrypted_content"] = encrypted.into();
        }
        item
    })
}

/// The message that this item becomes.
fn message_of(item: &Value) -> pb::NewMessage {
    let items = parse_input(&json!([item]), "input").expect("is an item");
    match items.into_iter().next() {
        Some(InputItem::Message(message)) => message,
        other => panic!("no message: {other:?}"),
    }
}

/// The items that the message is shown as, once it is stored.
fn shown(message: &pb::NewMessage) -> Vec<Value> {
    let stored = pb::Message {
        message_id: 1,
        role: message.role,
        parts: message.parts.clone(),
        metadata: message.metadata.clone(),
        ..pb::Message::default()
    };
    items_of(ConversationId(Uuid::nil()), &stored)
}

proptest! {
    #[test]
    fn an_item_is_shown_as_it_came(item in prop_oneof![message(), call(), output(), reasoning()]) {
        let new = message_of(&item);
        prop_assert!(message::parse("message", new.clone()).is_ok());
        let mut items = shown(&new);
        prop_assert_eq!(items.len(), 1);
        let mut shown_item = items.remove(0);
        let id = shown_item.as_object_mut().and_then(|item| item.remove("id"));
        prop_assert!(id.is_some());
        prop_assert_eq!(&shown_item, &item);
        // What is shown can be sent again, with its id.
        shown_item["id"] = id.unwrap_or_default();
        prop_assert_eq!(message_of(&shown_item), new);
    }
}
