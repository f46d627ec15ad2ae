//! Every field of a file becomes a part, a label or a remark, and written files mean the same to
//! other readers.

use std::collections::BTreeMap;

use crate::shared::{self, heads, messages, read_text, remarks, write_file};
use anneal_core::message::{Message, Part, Role};
use anneal_formats::{FileEvent, Format, Head};
use serde_json::{Value, json};

fn remark_texts(found: &[FileEvent]) -> Vec<String> {
    remarks(found)
        .into_iter()
        .map(|remark| remark.what)
        .collect()
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// The events written in the format, as text.
fn text_of(format: Format, found: &[FileEvent]) -> String {
    std::fs::read_to_string(write_file(format, &heads(found)[0], found).path()).expect("reads")
}

#[test]
fn fields_of_pi_blocks_are_written_back() {
    let blocks = json!([
        {"type": "thinking", "thinking": "hm", "thinkingSignature": "s", "of": 1.50},
        {"type": "text", "text": "I look.", "textSignature": "msg_1"},
        {"type": "toolCall", "id": "t1", "name": "bash", "arguments": {}, "thoughtSignature": "abc", "partialJson": "{"},
        {"type": "toolCall", "id": "t2", "name": "bash", "arguments": {}},
    ]);
    let lines = [
        json!({"type": "session", "version": 3, "id": "s"}),
        json!({"type": "message", "id": "a", "parentId": null, "message": {"role": "assistant", "content": blocks}}),
        json!({"type": "message", "id": "b", "parentId": "a",
            "message": {"role": "user", "content": [{"type": "text", "text": "See.", "textSignature": "u"}]}}),
    ];
    let found = read_text(lines.map(|line| line.to_string()).join("\n"), Format::Pi);
    assert!(remarks(&found).is_empty(), "{found:?}");
    let text = text_of(Format::Pi, &found);
    let written = json_lines(&text);
    let actual: Vec<&Value> = written
        .iter()
        .filter(|line| line["type"] == "message")
        .collect();
    assert_eq!(actual[0]["message"]["content"], blocks);
    assert_eq!(
        actual[1]["message"]["content"],
        json!([{"type": "text", "text": "See.", "textSignature": "u"}])
    );
    assert!(
        !text.contains("\"anneal\":{\"parts\""),
        "the block fields need no object `anneal`: {text}"
    );
    assert_eq!(messages(&read_text(&text, Format::Pi)), messages(&found));
}

#[test]
fn fields_of_pi_blocks_that_do_not_fit_are_remarked_on() {
    let large = json!({"type": "toolCall", "id": "t", "name": "n", "arguments": {}, "thoughtSignature": "x".repeat(5_000)});
    let answer = json!([{"type": "text", "text": "r", "textSignature": "m"}]);
    let lines = [
        json!({"type": "session", "version": 3, "id": "s"}),
        json!({"type": "message", "id": "a", "parentId": null, "message": {"role": "assistant", "content": [large]}}),
        json!({"type": "message", "id": "b", "parentId": "a",
            "message": {"role": "toolResult", "toolCallId": "t", "content": answer}}),
    ];
    let found = read_text(lines.map(|line| line.to_string()).join("\n"), Format::Pi);
    let wanted = [
        "field thoughtSignature of blocks, too large for the metadata",
        "field textSignature of blocks of a tool result",
    ];
    assert_eq!(remark_texts(&found), wanted);
}

#[test]
fn a_forged_label_with_block_fields_changes_no_block() {
    for label in [
        r#"{"0":{"type":1,"text":"other","x":2}}"#,
        r#"{"7":{"x":1}}"#,
        "[]",
        "{\"0\":7}",
        r#"{"a":{}}"#,
    ] {
        let metadata = BTreeMap::from([("pi.blocks".to_owned(), label.to_owned())]);
        let message = Message {
            role: Role::User,
            parts: vec![Part::Text {
                text: "said".into(),
            }],
            metadata,
        };
        let text = text_of(
            Format::Pi,
            &[
                FileEvent::Conversation(Head::default()),
                FileEvent::Message(message.clone()),
            ],
        );
        let content = &json_lines(&text)[1]["message"]["content"];
        let actual = content.as_str().or_else(|| content[0]["text"].as_str());
        assert_eq!(actual, Some("said"), "{text}");
        assert_eq!(messages(&read_text(&text, Format::Pi)), [message]);
    }
}

#[test]
fn other_columns_of_zeroclaw_rows_are_kept() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let database = rusqlite::Connection::open(file.path()).expect("opens");
    database
        .execute_batch(
            "create table session_messages (id integer primary key, session_id text, role text, content text, created_at text,
               meta_json text, \"the \"\"model\" text, cost real);
             create table session_state (session_id text, key text, value text);
             insert into session_messages values (1, 's', 'user', 'a', '2026-01-02 03:04:05', '{\"cost\":1}', 'small', 1.5),
               (2, 's', 'assistant', 'b', '2026-01-02 03:04:06', null, '', null);
             insert into session_state values ('s', 'mood', 'good'), ('s', 'compaction_after_message_id', '0');",
        )
        .expect("fills");
    drop(database);
    let found = shared::read_all(file.path(), Format::ZeroClaw);
    assert!(remarks(&found).is_empty(), "{found:?}");
    assert_eq!(heads(&found)[0].metadata["zeroclaw.state.mood"], "good");
    let labels: Vec<_> = messages(&found)
        .into_iter()
        .map(|message| message.metadata)
        .collect();
    let wanted = [
        ("cost", "1"),
        ("zeroclaw.cost", "1.5"),
        ("zeroclaw.created_at", "2026-01-02 03:04:05"),
        ("zeroclaw.the \"model", "small"),
    ];
    assert_eq!(
        labels[0],
        wanted
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    );
    // The second row has only its time.
    assert_eq!(labels[1].len(), 1);
    // Writing and reading again gives the same result.
    let written = write_file(Format::ZeroClaw, &heads(&found)[0], &found);
    let database = rusqlite::Connection::open(written.path()).expect("opens");
    let query = "select group_concat(created_at, ',') from session_messages";
    let times: String = database
        .query_row(query, [], |row| row.get(0))
        .expect("answers");
    assert_eq!(times, "2026-01-02 03:04:05,2026-01-02 03:04:06");
    let read = shared::read_all(written.path(), Format::ZeroClaw);
    assert_eq!(
        (heads(&read), messages(&read)),
        (heads(&found), messages(&found))
    );
}

#[test]
fn remarks_on_unread_fields_name_the_field_and_its_record_or_part() {
    let claw0 = json!({"type": "user", "content": "a", "ts": 1, "channel": "c"}).to_string()
        + "\n"
        + &json!({"type": "tool_use", "tool_use_id": "t", "name": "n", "input": {}, "took": 1})
            .to_string();
    let call = json!({"index": 0, "id": "c", "type": "function", "function": {"name": "n", "arguments": "{}", "strict": true}});
    let parts = json!([{"type": "text", "text": "a", "cache_control": {}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}}]);
    let openai =
        json!([{"role": "user", "content": parts}, {"role": "assistant", "tool_calls": [call]}])
            .to_string();
    let sharegpt = json!({"conversations": [{"from": "human", "value": "a", "weight": 1},
        {"from": "function_call", "value": "{\"name\":\"n\",\"arguments\":{},\"id\":7}"}]})
    .to_string();
    let anthropic =
        json!([{"role": "assistant", "content": [{"type": "text", "text": "a", "citations": []}]}])
            .to_string();
    let cases: [(Format, &str, &[&str]); 4] = [
        (
            Format::Claw0,
            &claw0,
            &["channel of user records", "took of tool_use records"],
        ),
        (
            Format::OpenAi,
            &openai,
            &[
                "cache_control of texts",
                "detail of images",
                "index of tool calls",
                "strict of function calls",
            ],
        ),
        (
            Format::ShareGpt,
            &sharegpt,
            &["weight of messages", "id of function calls"],
        ),
        (Format::Anthropic, &anthropic, &["citations of text blocks"]),
    ];
    for (format, text, wanted) in cases {
        let wanted: Vec<String> = wanted.iter().map(|what| format!("field {what}")).collect();
        assert_eq!(remark_texts(&read_text(text, format)), wanted, "{format:?}");
    }
}

#[test]
fn a_multiline_input_is_the_same_object_for_other_readers() {
    let inputs = [
        "{\n  \"a\": [1,\r\n2],\n  \"b\": \"x\\ny\"\n}\n",
        " {\"a\": 1} ",
        "{}\n",
    ];
    for input in inputs {
        let call = Part::ToolUse {
            id: "c".into(),
            name: "n".into(),
            input: input.into(),
        };
        let message = Message {
            role: Role::Assistant,
            parts: vec![call],
            metadata: BTreeMap::new(),
        };
        let all = [
            FileEvent::Conversation(Head::default()),
            FileEvent::Message(message.clone()),
        ];
        let value: Value = serde_json::from_str(input).expect("JSON");
        for format in [
            Format::Claw0,
            Format::Anthropic,
            Format::Pi,
            Format::ShareGpt,
        ] {
            let text = text_of(format, &all);
            let lines = json_lines(&text);
            let line = lines.last().expect("one");
            let actual = match format {
                Format::Claw0 => line["input"].clone(),
                Format::Pi => line["message"]["content"][0]["arguments"].clone(),
                Format::Anthropic => line["messages"][0]["content"][0]["input"].clone(),
                _ => {
                    let call = line["conversations"][0]["value"].as_str().expect("a text");
                    serde_json::from_str::<Value>(call).expect("JSON")["arguments"].clone()
                }
            };
            assert_eq!(actual, value, "{format:?}: {text}");
            assert_eq!(
                messages(&read_text(&text, format)),
                std::slice::from_ref(&message),
                "{format:?}: the input is unchanged"
            );
        }
    }
}
