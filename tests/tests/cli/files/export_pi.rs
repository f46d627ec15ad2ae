//! `anneal export --format pi`: checkpoints become compaction entries. A reader that follows pi's
//! documentation finds the same messages in the exported session as in the imported one.

#![expect(non_snake_case, reason = "test names begin with a row of docs/rows.md")]

use std::collections::HashMap;

use anneal_core::limits::METADATA_BYTES;
use anneal_testkit::{
    ImportFolder, TestApp, TranscriptFolder, pb, pi_compaction, pi_message, pi_session, prose,
};
use serde_json::{Value, json};

use crate::files::{BINARY, export::export_and_import};

#[tokio::test]
async fn row_P7_a_pi_session_is_imported_and_exported_without_loss() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let call = serde_json::json!({"type": "message", "message": {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "Hm.", "thinkingSignature": "sig"}, {"type": "text", "text": "I look."},
        {"type": "toolCall", "id": "t1", "name": "bash", "arguments": {"command": "ls", "n": 1.50}}], "timestamp": 2}});
    let result = serde_json::json!({"type": "message", "message": {"role": "toolResult", "toolCallId": "t1",
        "toolName": "bash", "content": [{"type": "text", "text": "a\nb"}], "isError": true, "timestamp": 3}});
    let entries = [
        pi_message("user", "What is here?"),
        call,
        result,
        pi_message("assistant", "Nothing."),
    ];
    imports.folder.file("pi.jsonl", &pi_session("s1", &entries));
    let conversation = imports
        .import_ok(&["pi.jsonl"])
        .await
        .pop()
        .expect("one conversation");
    let original_messages = conversation.as_new_messages().await;
    assert_eq!(original_messages.len(), 4);
    assert!(
        export_and_import(&imports, &conversation.id, "pi").await == original_messages,
        "export then import gives the same messages"
    );
    assert!(
        export_and_import(&imports, &conversation.id, "claw0").await == original_messages,
        "so does export to claw0's format and import"
    );
}

#[tokio::test]
async fn row_P5_a_checkpoint_becomes_a_compaction_entry_that_names_the_first_kept_message() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let conversation = app
        .conversation_with_policy(pb::Policy {
            keep_recent_turns: Some(1),
            ..Default::default()
        })
        .await;
    for n in 0..4 {
        conversation
            .turn(&prose(n * 40, 20), &prose(n * 40 + 20, 20))
            .await;
    }
    app.run_jobs_until_idle().await;
    conversation.compact("by hand", "").await;
    let checkpoint = conversation
        .checkpoints()
        .await
        .pop()
        .expect("a checkpoint");
    assert_eq!(checkpoint.last_message_id, 6);
    conversation.turn("And then?", "Nothing.").await;
    let exported = imports.export(&[&conversation.id, "--format", "pi"]).await;
    let lines: Vec<Value> = exported
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let index = lines
        .iter()
        .position(|line| line["type"] == "compaction")
        .expect("a compaction entry");
    let before = lines[..index]
        .iter()
        .filter(|line| line["type"] == "message")
        .count();
    assert_eq!(
        before, 8,
        "the entry follows the messages that were stored before the checkpoint"
    );
    let messages: Vec<&Value> = lines
        .iter()
        .filter(|line| line["type"] == "message")
        .collect();
    assert_eq!(lines[index]["firstKeptEntryId"], messages[6]["id"]);
    assert_eq!(lines[index]["tokensBefore"], checkpoint.tokens_before);
    assert_eq!(lines[index]["tokensAfter"], checkpoint.tokens_after);
    assert_eq!(lines[index]["summary"], checkpoint.summary);
}

#[tokio::test]
async fn row_P5_an_imported_compaction_keeps_its_token_counts() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let message = |n: usize| {
        pi_message(
            if n.is_multiple_of(2) {
                "user"
            } else {
                "assistant"
            },
            &prose(n * 20, 20),
        )
    };
    let mut entries: Vec<Value> = (0..12).map(message).collect();
    let mut with_both_counts = pi_compaction("They inspected turbines in Osaka.", 7);
    with_both_counts["tokensBefore"] = 81_234.into();
    with_both_counts["tokensAfter"] = 5_678.into();
    // The second entry has only the tokens before the compaction, as pi writes it.
    let mut without_tokens_after = pi_compaction("They inspected turbines in Osaka and Kyoto.", 10);
    without_tokens_after["tokensBefore"] = 3.into();
    entries.extend([with_both_counts, without_tokens_after, message(12)]);
    imports.folder.file("pi.jsonl", &pi_session("s1", &entries));
    let conversation = imports
        .import_ok(&["pi.jsonl"])
        .await
        .pop()
        .expect("one conversation");
    let checkpoints = conversation.checkpoints().await;
    let counts: Vec<(u64, u64)> = checkpoints
        .iter()
        .rev()
        .map(|checkpoint| (checkpoint.tokens_before, checkpoint.tokens_after))
        .collect();
    assert_eq!(
        (counts[0], counts[1].0, counts.len()),
        ((81_234, 5_678), 3, 2)
    );
    assert!(counts[1].1 > 0, "a missing count is computed by the import");
    let exported = imports.export(&[&conversation.id, "--format", "pi"]).await;
    let lines = exported
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let written: Vec<_> = lines.filter(|line| line["type"] == "compaction").collect();
    assert_eq!(
        (&written[0]["tokensBefore"], &written[0]["tokensAfter"]),
        (&json!(81_234), &json!(5_678))
    );
    assert_eq!(written[1]["tokensBefore"], 3);
    conversation.context().await;
    conversation.verify().await;
}

#[tokio::test]
async fn row_P6_after_an_import_the_context_has_the_summary_before_the_kept_messages() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let summary = "They inspected turbines in Osaka.";
    let turn = |n: usize| {
        [
            pi_message("user", &prose(n * 40, 20)),
            pi_message("assistant", &prose(n * 40 + 20, 20)),
        ]
    };
    let mut entries: Vec<Value> = (0..3).flat_map(turn).collect();
    entries.push(pi_compaction(summary, 5));
    entries.extend(turn(3));
    imports.folder.file("pi.jsonl", &pi_session("s1", &entries));
    // The second round imports a file that is stored already.
    for _ in 0..2 {
        let conversation = imports
            .import_ok(&["pi.jsonl"])
            .await
            .pop()
            .expect("one conversation");
        assert_eq!(
            conversation.messages().await.len(),
            8,
            "a compaction is not stored as a message"
        );
        let checkpoints = conversation.checkpoints().await;
        assert_eq!(checkpoints.len(), 1);
        assert_eq!(checkpoints[0].kind(), pb::SummaryKind::Imported);
        let built = conversation.context().await;
        let texts: Vec<String> = built
            .texts_by_role()
            .into_iter()
            .map(|(_, text)| text)
            .collect();
        assert!(texts[0].contains(summary), "{texts:?}");
        assert_eq!(
            texts[1..],
            [
                prose(80, 20),
                prose(100, 20),
                prose(120, 20),
                prose(140, 20)
            ],
            "the context has the kept messages only"
        );
        conversation.verify().await;
        let exported = imports.export(&[&conversation.id, "--format", "pi"]).await;
        imports.folder.file("again.jsonl", &exported);
        let again = imports
            .import_ok(&["again.jsonl"])
            .await
            .pop()
            .expect("one conversation");
        assert_eq!(
            again.checkpoints().await[0].summary,
            summary,
            "the exported summary is imported again"
        );
        assert_eq!(again.context().await.texts_by_role(), built.texts_by_role());
    }
}

/// The fields of a pi message that a reader needs. Content that is a string becomes a list of one
/// text block.
fn relevant_fields(source: &Value) -> Value {
    let names = [
        "role",
        "content",
        "toolCallId",
        "toolName",
        "isError",
        "stopReason",
        "provider",
        "model",
    ];
    let fields = names
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), source.get(*name)?.clone())));
    let mut message = Value::Object(fields.collect());
    if message["content"].is_string() {
        message["content"] = json!([{"type": "text", "text": message["content"]}]);
    }
    message
}

/// The messages of a pi session, found as pi's documentation describes: the path from the last
/// entry to the root. If a compaction is on the path, the result is its summary, the messages that
/// it keeps, and those after it. The function ignores the fields that anneal adds.
fn pi_context(file: &str) -> Vec<Value> {
    let mut entries: Vec<Value> = file
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    for entry in &mut entries {
        entry.as_object_mut().expect("an object").remove("anneal");
    }
    let by_id: HashMap<&str, &Value> = entries
        .iter()
        .skip(1)
        .map(|entry| (entry["id"].as_str().expect("an id"), entry))
        .collect();
    let mut path: Vec<&Value> = std::iter::successors(entries.last(), |entry| {
        entry["parentId"]
            .as_str()
            .map(|parent| *by_id.get(parent).expect("the parent exists"))
    })
    .collect();
    path.reverse();
    let compaction = path.iter().rposition(|entry| entry["type"] == "compaction");
    let first_kept = compaction.map_or(0, |index| {
        let first = &path[index]["firstKeptEntryId"];
        path[..=index]
            .iter()
            .position(|entry| entry["id"] == *first)
            .expect("the entry is on the path")
    });
    let summary =
        compaction.map(|index| json!({"role": "summary", "content": path[index]["summary"]}));
    let messages = path[first_kept..]
        .iter()
        .filter(|entry| entry["type"] == "message")
        .map(|entry| relevant_fields(&entry["message"]));
    summary.into_iter().chain(messages).collect()
}

/// Asserts that each field of the original messages is exported. An answer that was aborted before
/// it began is exported with an empty text, because a stored message needs a part. Returns how many
/// there are.
fn assert_same_messages(original: &[Value], exported: &[Value]) -> usize {
    assert_eq!(original.len(), exported.len());
    let empty_text = json!([{"type": "text", "text": ""}]);
    let mut empty_answers = 0;
    for (number, (original, exported)) in original.iter().zip(exported).enumerate() {
        for (field, value) in original.as_object().expect("fields") {
            if *value == json!([]) && exported[field] == empty_text {
                empty_answers += 1;
            } else {
                assert_eq!(exported[field], *value, "{field} of message {number}");
            }
        }
    }
    empty_answers
}

#[tokio::test]
async fn row_P7_an_independent_reader_finds_the_same_context_in_the_exported_session() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let entry = |message: Value| json!({"type": "message", "message": message});
    let entries = [
        pi_message("user", "What is here?"),
        entry(
            json!({"role": "assistant", "provider": "anthropic", "model": "m", "stopReason": "toolUse", "timestamp": 2,
            "content": [{"type": "toolCall", "id": "t1", "name": "bash", "arguments": {"command": "ls"}}]}),
        ),
        entry(
            json!({"role": "toolResult", "toolCallId": "t1", "toolName": "bash", "isError": false, "timestamp": 3,
            "content": [{"type": "text", "text": "a"}]}),
        ),
        entry(
            json!({"role": "assistant", "content": [], "provider": "anthropic", "model": "m", "stopReason": "aborted",
            "timestamp": 4}),
        ),
        pi_message("user", "Well?"),
        pi_message("assistant", "One file."),
    ];
    let file = pi_session("s1", &entries);
    imports.folder.file("pi.jsonl", &file);
    let imported = imports.import_ok(&["pi.jsonl"]).await;
    let exported = imports.export(&[&imported[0].id, "--format", "pi"]).await;
    let empty_answers = assert_same_messages(&pi_context(&file), &pi_context(&exported));
    assert_eq!((imported[0].messages().await.len(), empty_answers), (6, 1));

    let Some(transcripts) = TranscriptFolder::find() else {
        return;
    };
    let path = transcripts.path("pi-sessions/large-session.v3.jsonl");
    let original = pi_context(&std::fs::read_to_string(&path).expect("reads"));
    let imported = imports.import_ok(&[path.to_str().expect("a path")]).await;
    let exported = pi_context(&imports.export(&[&imported[0].id, "--format", "pi"]).await);
    // The context that pi itself sent to the model for this session: 914 messages.
    let sent_by_pi = transcripts.json("pi-sessions/large-session.v3.context.json");
    let sent_by_pi = sent_by_pi.as_array().expect("a list of messages");
    assert_eq!((sent_by_pi.len(), original.len()), (914, 914));
    for (number, (sent_by_pi, original)) in sent_by_pi.iter().zip(&original).enumerate() {
        for (field, value) in original.as_object().expect("fields") {
            assert_eq!(
                relevant_fields(sent_by_pi)[field],
                *value,
                "{field} of message {number}: the reader agrees with pi"
            );
        }
    }
    assert_eq!(assert_same_messages(&original, &exported), 14);
}

#[tokio::test]
async fn row_P7_an_independent_reader_finds_summary_and_kept_messages_in_the_exported_session() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let message = |n: usize| {
        pi_message(
            if n.is_multiple_of(2) {
                "user"
            } else {
                "assistant"
            },
            &prose(n * 20, 20),
        )
    };
    let mut entries: Vec<Value> = (0..8).map(message).collect();
    entries.push(pi_compaction("They inspected turbines in Osaka.", 7));
    entries.extend((8..10).map(message));
    let file = pi_session("s1", &entries);
    imports.folder.file("pi.jsonl", &file);
    let conversation = imports
        .import_ok(&["pi.jsonl"])
        .await
        .pop()
        .expect("one conversation");
    let texts = |file: &str| -> Vec<(Value, Value)> {
        pi_context(file)
            .into_iter()
            .map(|message| (message["role"].clone(), message["content"].clone()))
            .collect()
    };
    let exported = texts(&imports.export(&[&conversation.id, "--format", "pi"]).await);
    assert_eq!(
        exported.len(),
        5,
        "the summary, two kept messages and the two after the compaction: {exported:?}"
    );
    assert_eq!(exported, texts(&file));
}

#[tokio::test]
async fn compactions_that_cover_no_message_are_reported_and_skipped() {
    let Some(transcripts) = TranscriptFolder::find() else {
        return;
    };
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let path = transcripts.path("pi-sessions/pi-0.73.1-live-overflow.v3.jsonl");
    let ran = imports
        .import(&[path.to_str().expect("a path"), "--report", "report.jsonl"])
        .await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let conversation = imports.conversations(&ran).pop().expect("one conversation");
    assert_eq!(conversation.messages().await.len(), 8);
    let report = std::fs::read_to_string(imports.folder.path().join("report.jsonl"))
        .expect("the report is there");
    let set_aside = report
        .lines()
        .filter(|line| line.contains("a compaction that"))
        .count();
    let checkpoints = conversation.checkpoints().await.len();
    println!("{checkpoints} checkpoints, {set_aside} compactions set aside");
    assert_eq!(checkpoints + set_aside, 4, "{report}");
    assert_eq!(
        checkpoints, 0,
        "each compaction keeps all messages, so it covers none"
    );
    conversation.verify().await;
}

/// The lines of a session.
fn entries_of(file: &str) -> Vec<Value> {
    file.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// A session with these entries, in which compactions have this time.
fn session_with_compactions_at(entries: &[Value], time: &str) -> String {
    let lines = entries_of(&pi_session("s1", entries));
    let with_time = lines.into_iter().map(|mut line| {
        if line["type"] == "compaction" {
            line["timestamp"] = time.into();
        }
        format!("{line}\n")
    });
    with_time.collect()
}

#[tokio::test]
async fn row_P7_changes_of_model_and_thinking_level_are_written_back_in_their_places() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let model = json!({"type": "model_change", "provider": "acme", "modelId": "m-2"});
    let thinking = json!({"type": "thinking_level_change", "thinkingLevel": "high"});
    let label = json!({"type": "label", "targetId": "00000001", "label": "begin"});
    let entries = [
        pi_message("user", "What is here?"),
        model,
        thinking,
        pi_message("assistant", "Nothing."),
        label,
    ];
    let file = pi_session("s1", &entries);
    imports.folder.file("pi.jsonl", &file);
    let conversation = imports
        .import_ok(&["pi.jsonl"])
        .await
        .pop()
        .expect("one conversation");
    let exported = imports.export(&[&conversation.id, "--format", "pi"]).await;
    let own_types = |lines: Vec<Value>| -> Vec<Value> {
        let entries = lines.into_iter().skip(1);
        entries
            .filter(|line| line["type"] != "session_info")
            .collect()
    };
    let (original, written) = (
        own_types(entries_of(&file)),
        own_types(entries_of(&exported)),
    );
    assert_eq!(written.len(), original.len(), "{exported}");
    for (number, (original, written)) in original.iter().zip(&written).enumerate() {
        for field in [
            "type",
            "id",
            "modelId",
            "thinkingLevel",
            "targetId",
            "label",
        ] {
            assert_eq!(written[field], original[field], "{field} of entry {number}");
        }
        if number > 0 {
            assert_eq!(written["parentId"], original["parentId"], "entry {number}");
        }
    }
    let before = conversation.as_new_messages().await;
    assert!(
        export_and_import(&imports, &conversation.id, "pi").await == before,
        "export then import gives the same messages"
    );
}

#[tokio::test]
async fn row_P7_a_compaction_is_written_back_with_its_time_and_a_checkpoint_with_its_own() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let turn = |n: usize| {
        [
            pi_message("user", &prose(n * 40, 20)),
            pi_message("assistant", &prose(n * 40 + 20, 20)),
        ]
    };
    let mut entries: Vec<Value> = (0..3).flat_map(turn).collect();
    entries.push(pi_compaction("They inspected turbines in Osaka.", 5));
    entries.extend((3..6).flat_map(turn));
    let time = "2026-01-02T03:04:05.678Z";
    let file = session_with_compactions_at(&entries, time);
    imports.folder.file("pi.jsonl", &file);
    let conversation = imports
        .import_ok(&["pi.jsonl"])
        .await
        .pop()
        .expect("one conversation");
    conversation.compact("by hand", "").await;
    app.run_jobs_until_idle().await;
    let date = "update ai_conversation_checkpoint set created_ts = '2027-05-06 07:08:09+00'
        where request_id = 'by hand'";
    let dated = sqlx::query(date)
        .execute(&mut app.db().await)
        .await
        .expect("the checkpoint gets a date");
    assert_eq!(dated.rows_affected(), 1);
    let exported = imports.export(&[&conversation.id, "--format", "pi"]).await;
    let lines = entries_of(&exported).into_iter();
    let compactions: Vec<Value> = lines.filter(|line| line["type"] == "compaction").collect();
    assert_eq!(compactions.len(), 2, "{exported}");
    assert_eq!(
        (&compactions[0]["timestamp"], &compactions[0]["id"]),
        (&json!(time), &json!("00000007")),
        "as in the imported file"
    );
    assert_eq!(compactions[1]["timestamp"], "2027-05-06T07:08:09.000Z");
}

#[tokio::test]
async fn row_P7_a_command_of_the_user_is_written_back_as_pi_wrote_it() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let output = format!("/home/ada\n{}", prose(0, 100));
    assert!(output.len() > METADATA_BYTES, "more than labels may have");
    let command = json!({"role": "bashExecution", "command": "pwd", "output": output, "exitCode": 2,
        "cancelled": false, "truncated": false, "timestamp": 17});
    let entries = [
        pi_message("user", "Where am I?"),
        pi_message("assistant", "Look."),
        json!({"type": "message", "message": command}),
        pi_message("assistant", "At home."),
    ];
    imports.folder.file("pi.jsonl", &pi_session("s1", &entries));
    let conversation = imports
        .import_ok(&["pi.jsonl"])
        .await
        .pop()
        .expect("one conversation");
    let texts = conversation.context().await.texts_by_role();
    assert_eq!(texts[2].0, pb::Role::User);
    assert!(texts[2].1.starts_with("Ran `pwd`"), "{texts:?}");
    let exported = imports.export(&[&conversation.id, "--format", "pi"]).await;
    let messages: Vec<Value> = entries_of(&exported)
        .into_iter()
        .filter(|line| line["type"] == "message")
        .collect();
    assert_eq!(messages[2]["message"], command);
    let before = conversation.as_new_messages().await;
    assert!(
        export_and_import(&imports, &conversation.id, "pi").await == before,
        "export then import gives the same messages"
    );
    // The text that the model is sent was changed: what pi wrote no longer says the same.
    conversation
        .edit(3, anneal_testkit::user("I am at home."))
        .keep_metadata()
        .send()
        .await
        .expect("edits");
    let exported = imports.export(&[&conversation.id, "--format", "pi"]).await;
    let edited = entries_of(&exported)
        .into_iter()
        .filter(|line| line["type"] == "message")
        .nth(2)
        .expect("the third message");
    assert_eq!(
        (&edited["message"]["role"], &edited["message"]["content"]),
        (&json!("user"), &json!("I am at home."))
    );
    assert!(
        !exported.contains("/home/ada") && !exported.contains("pwd"),
        "nothing is left of what the edit has replaced"
    );
}
