//! Every format preserves every message that anneal can store.

use std::collections::BTreeMap;

use crate::shared::{FORMATS, messages, read_all, remarks, write_file};
use anneal_core::message::{Media, Message, Part, Role};
use anneal_formats::{FileEvent, Format, Head, StoredMessage, Summary, detect};
use proptest::prelude::*;

/// Texts with characters that are difficult to encode.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[ -~]{0,12}",
        3 => r#"[a"\\/\u{0}\u{1}\n\r\t\u{7f}\u{85}\u{2028}\u{2029}\u{feff}\u{fffd}é漢😀{}\[\]:,]{0,12}"#,
        1 => Just("[Session Compaction Summary]\nnone".to_owned()),
        1 => Just(r"\ud800 \u0000".to_owned()),
        1 => Just(String::new()),
    ]
}

fn id() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("call_1".to_owned()),
        "[!-~]{1,8}",
        r#"[a"\\\n\u{2028}漢]{1,6}"#
    ]
}

fn input() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("{\"b\": 1e2,\"a\":1.0,\"b\":-0}".to_owned()),
        Just("{}".to_owned()),
        Just(" {} ".to_owned()),
        Just("{\n\t\"a\": [1,\r\n2]}".to_owned()),
        Just("{\"s\":\"\\ud800\"}".to_owned()),
        Just("{\"input\":\"x\"}".to_owned()),
        Just(format!("{{\"a\":{}{}}}", "[".repeat(125), "]".repeat(125))),
        Just("null".to_owned()),
        text(),
    ]
}

fn media() -> impl Strategy<Value = Media> {
    let uri = prop_oneof![
        Just("data:image/png;base64,iVBORw0KGgo=".to_owned()),
        Just("data:image/png,plain".to_owned()),
        Just("https://example.com/a.png".to_owned()),
        Just("data:;base64,".to_owned()),
        "[!-~]{1,9}",
    ];
    let kind = prop_oneof![
        Just("image/png".to_owned()),
        Just("image/*".to_owned()),
        "[a-z/]{1,9}"
    ];
    (
        uri,
        kind,
        prop_oneof![Just(0), any::<u64>()],
        prop_oneof![Just(0), any::<u32>()],
    )
        .prop_map(|(uri, media_type, bytes, tokens)| Media {
            uri,
            media_type,
            bytes,
            tokens: tokens.into(),
        })
}

fn reasoning() -> impl Strategy<Value = Part> {
    let provider = prop_oneof![
        Just("anthropic"),
        Just("openai"),
        Just("gemini"),
        Just(""),
        Just("else")
    ];
    (text(), text(), provider, any::<bool>()).prop_map(|(text, signature, provider, redacted)| {
        Part::Reasoning {
            text,
            signature,
            provider: provider.into(),
            redacted,
        }
    })
}

fn text_part() -> impl Strategy<Value = Part> {
    text().prop_map(|text| Part::Text { text })
}

fn media_part() -> impl Strategy<Value = Part> {
    media().prop_map(Part::Media)
}

fn tool_call() -> impl Strategy<Value = Part> {
    (id(), id(), input()).prop_map(|(id, name, input)| Part::ToolUse { id, name, input })
}

fn tool_result() -> impl Strategy<Value = Part> {
    (
        id(),
        text(),
        any::<bool>(),
        prop::collection::vec(media(), 0..3),
    )
        .prop_map(|(id, text, is_error, media)| Part::ToolResult {
            id,
            text,
            is_error,
            media,
        })
}

fn labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    let key = prop_oneof![
        Just("name".to_owned()),
        Just("pi.id".to_owned()),
        Just("pi.timestamp".to_owned()),
        Just("pi.usage".to_owned()),
        Just("pi.stopReason".to_owned()),
        Just("pi.toolName".to_owned()),
        Just("pi.role".to_owned()),
        Just("pi.entries".to_owned()),
        Just("pi.blocks".to_owned()),
        Just("zeroclaw.created_at".to_owned()),
        Just("claw0.ts".to_owned()),
        Just("tool_call_id".to_owned()),
        Just("anneal".to_owned()),
        "(pi\\.)?[a-z]{0,5}",
    ];
    let value = prop_oneof![
        Just("deadbeef".to_owned()),
        Just("{\"input\":1}".to_owned()),
        Just("17.5".to_owned()),
        Just("null".to_owned()),
        Just("{\"0\":{\"type\":1,\"x\":2},\"1\":{\"text\":null}}".to_owned()),
        text().prop_map(|text| text.replace('\0', "")),
    ];
    prop_oneof![2 => Just(BTreeMap::new()), 1 => prop::collection::btree_map(key, value, 0..4)]
}

fn message() -> impl Strategy<Value = Message> {
    let parts = prop_oneof![
        3 => prop::collection::vec(prop_oneof![3 => text_part(), 1 => media_part()], 1..4).prop_map(|parts| (Role::User, parts)),
        3 => prop::collection::vec(prop_oneof![2 => text_part(), 2 => tool_call(), 1 => media_part(), 1 => reasoning()], 1..5)
            .prop_map(|parts| (Role::Assistant, parts)),
        2 => prop::collection::vec(tool_result(), 1..4).prop_map(|parts| (Role::Tool, parts)),
        1 => prop::collection::vec(text_part(), 1..3).prop_map(|parts| (Role::System, parts)),
    ];
    (parts, labels()).prop_map(|((role, parts), metadata)| Message {
        role,
        parts,
        metadata,
    })
}

#[derive(Debug, Clone)]
enum Event {
    Message(Message),
    Summary,
    Separator,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        8 => message().prop_map(Event::Message),
        1 => Just(Event::Summary),
        1 => Just(Event::Separator),
    ];
    prop::collection::vec(event, 0..12)
}

fn head() -> impl Strategy<Value = Head> {
    let text_without_nul = || text().prop_map(|text| text.replace('\0', ""));
    (text_without_nul(), labels()).prop_map(|(system_prompt, metadata)| Head {
        identity: "known".into(),
        title: "title".into(),
        agent_id: "agent".into(),
        system_prompt,
        metadata: metadata
            .into_iter()
            .filter(|(key, _)| !key.starts_with("pi."))
            .collect(),
        ..Head::default()
    })
}

/// The events for a writer, and the messages and summaries that a reader must return.
fn events_and_expectations(events: &[Event]) -> (Vec<FileEvent>, Vec<Message>, Vec<Summary>) {
    let (mut events_written, mut messages_written, mut summaries) =
        (Vec::new(), Vec::new(), Vec::<Summary>::new());
    for event in events {
        match event {
            Event::Message(message) => {
                messages_written.push(message.clone());
                events_written.push(FileEvent::Message(message.clone()));
            }
            Event::Separator => events_written.push(FileEvent::Separator),
            Event::Summary => {
                let covered = summaries.last().map_or(0, |last| last.covers);
                let covers = messages_written.len() as u64;
                if covers > covered {
                    let text = format!("of {covers}");
                    let summary = Summary {
                        covers,
                        text,
                        tokens_before: Some(7),
                        tokens_after: Some(3),
                        ..Default::default()
                    };
                    summaries.push(summary.clone());
                    events_written.push(FileEvent::Summary(summary));
                }
            }
        }
    }
    (events_written, messages_written, summaries)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn writing_and_reading_preserves_every_message(events in events(), head in head()) {
        let (events_written, messages_written, summaries) = events_and_expectations(&events);
        for format in FORMATS {
            let file = write_file(format, &head, &events_written);
            prop_assert_eq!(detect(file.path()).expect("is known"), format);
            let found = read_all(file.path(), format);
            // ZeroClaw keeps only the newest of several summaries.
            let replaced = if format == Format::ZeroClaw { summaries.len().saturating_sub(1) } else { 0 };
            let remarks = remarks(&found);
            prop_assert_eq!(remarks.len(), replaced, "{:?}: {:?}", format, remarks);
            prop_assert_eq!(&messages(&found), &messages_written, "{:?}", format);
            let Some(FileEvent::Conversation(head_read)) = found.first() else { panic!("{format:?} begins with {found:?}") };
            prop_assert_eq!(head_read, &head, "{:?}", format);
            let summaries_read: Vec<(u64, &str)> = found.iter().filter_map(|one| match one {
                FileEvent::Summary(summary) => Some((summary.covers, summary.text.as_str())),
                _ => None,
            }).collect();
            let mut summaries_wanted: Vec<(u64, &str)> =
                summaries.iter().map(|summary| (summary.covers, summary.text.as_str())).collect();
            let separators = found.iter().filter(|one| matches!(one, FileEvent::Separator)).count();
            prop_assert_eq!(separators, events_written.iter().filter(|one| matches!(one, FileEvent::Separator)).count());
            summaries_wanted.drain(..replaced);
            prop_assert_eq!(summaries_read, summaries_wanted, "{:?}", format);
        }
    }
}

#[test]
fn several_conversations_are_written_where_a_format_can_hold_them() {
    let head = |title: &str| Head {
        title: title.into(),
        identity: title.into(),
        ..Default::default()
    };
    let message = |text: &str| {
        let message = Message {
            role: Role::User,
            parts: vec![Part::Text { text: text.into() }],
            metadata: BTreeMap::new(),
        };
        StoredMessage {
            id: 1,
            message,
            created_us: 0,
        }
    };
    for format in FORMATS {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let mut writer = anneal_formats::writer(format, anneal_formats::Output::File(path.clone()))
            .expect("begins");
        writer.begin_conversation(&head("one")).expect("begins");
        writer.write_message(&message("a")).expect("writes");
        let second = writer.begin_conversation(&head("two"));
        if matches!(format, Format::Claw0 | Format::Pi) {
            assert!(second.is_err(), "{format:?}");
            continue;
        }
        writer.write_message(&message("b")).expect("writes");
        writer.finish().expect("ends");
        assert_eq!(detect(&path).expect("is known"), format);
        let events: Vec<FileEvent> = read_all(&path, format);
        let titles: Vec<&str> = events
            .iter()
            .filter_map(|one| {
                if let FileEvent::Conversation(head) = one {
                    Some(head.title.as_str())
                } else {
                    None
                }
            })
            .collect();
        assert_eq!(
            (titles, messages(&events).len()),
            (vec!["one", "two"], 2),
            "{format:?}"
        );
    }
}
