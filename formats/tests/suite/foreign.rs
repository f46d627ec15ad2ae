//! Files as other systems write them.

use crate::shared::{self, file, heads, line, messages, options, read_text, remarks, try_read_all};
use anneal_core::message::{Message, Part, Role};
use anneal_formats::{Branches, FileEvent, Format, ImportOutcome, ReadOptions, Summary, detect};

fn text(text: &str) -> Part {
    Part::Text { text: text.into() }
}

fn call(id: &str, name: &str, input: &str) -> Part {
    Part::ToolUse {
        id: id.into(),
        name: name.into(),
        input: input.into(),
    }
}

fn result(id: &str, text: &str) -> Part {
    Part::ToolResult {
        id: id.into(),
        text: text.into(),
        is_error: false,
        media: Vec::new(),
    }
}

fn roles_and_parts(found: &[FileEvent]) -> Vec<(Role, Vec<Part>)> {
    messages(found)
        .into_iter()
        .map(|Message { role, parts, .. }| (role, parts))
        .collect()
}

fn summaries(found: &[FileEvent]) -> Vec<Summary> {
    let summaries = found.iter().filter_map(|one| match one {
        FileEvent::Summary(summary) => Some(summary.clone()),
        _ => None,
    });
    summaries.collect()
}

const CLAW0: &str = r#"{"type": "user", "content": "Hello", "ts": 1234567890}
{"type": "assistant", "content": [{"type": "text", "text": "Hi!"}], "ts": 1234567890.25}
{"type": "tool_use", "tool_use_id": "toolu_1", "name": "read_file", "input": {"path": "a", "n": 1e2}, "ts": 1234567891}
{"type": "tool_use", "tool_use_id": "toolu_2", "name": "list", "input": {}, "ts": 1234567891}
{"type": "tool_result", "tool_use_id": "toolu_1", "content": "file contents", "ts": 1234567892}
{"type": "tool_result", "tool_use_id": "toolu_2", "content": "none", "ts": 1234567893}
{"type": "thought", "content": "?"}
{"type": "assistant", "content": "Done.", "ts": 1234567894}
"#;

#[test]
fn claw0_records_are_joined_to_messages_as_claw0_joins_them() {
    assert_eq!(detect(file(CLAW0).path()).expect("is known"), Format::Claw0);
    let found = read_text(CLAW0, Format::Claw0);
    let calls = vec![
        text("Hi!"),
        call("toolu_1", "read_file", r#"{"path": "a", "n": 1e2}"#),
        call("toolu_2", "list", "{}"),
    ];
    let wanted = [
        (Role::User, vec![text("Hello")]),
        (Role::Assistant, calls),
        (
            Role::Tool,
            vec![
                result("toolu_1", "file contents"),
                result("toolu_2", "none"),
            ],
        ),
        (Role::Assistant, vec![text("Done.")]),
    ];
    assert_eq!(roles_and_parts(&found), wanted);
    assert_eq!(remarks(&found).len(), 1);
    assert_eq!(
        (line(&remarks(&found)[0]), remarks(&found)[0].outcome),
        (7, ImportOutcome::SetAside)
    );
}

#[test]
fn claw0_records_are_written_as_they_were() {
    let found = read_text(CLAW0, Format::Claw0);
    let written = shared::write_file(Format::Claw0, &heads(&found)[0], &found);
    let written = std::fs::read_to_string(written.path()).expect("reads");
    let value = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON");
    let after: Vec<_> = written.lines().skip(1).map(value).collect();
    let mut before: Vec<_> = CLAW0
        .lines()
        .filter(|line| !line.contains("thought"))
        .map(value)
        .collect();
    // The lone text of an assistant message is written as a list with one block.
    before[6]["content"] = serde_json::json!([{"type": "text", "text": "Done."}]);
    assert_eq!(after, before);
    assert!(
        written.contains(r#"{"path": "a", "n": 1e2}"#),
        "the input is unchanged"
    );
}

#[test]
fn a_call_that_is_also_in_the_content_is_read_once() {
    let lines = r#"{"type":"assistant","content":[{"type":"tool_use","id":"a","name":"n","input":{}},{"type":"tool_use","id":"b","name":"n","input":{}}]}
{"type":"tool_use","tool_use_id":"a","name":"n","input":{}}
{"type":"tool_result","tool_use_id":"a","content":"1"}
{"type":"tool_use","tool_use_id":"b","name":"n","input":{}}
{"type":"tool_result","tool_use_id":"b","content":"2"}"#;
    let wanted = [
        (
            Role::Assistant,
            vec![call("a", "n", "{}"), call("b", "n", "{}")],
        ),
        (Role::Tool, vec![result("a", "1"), result("b", "2")]),
    ];
    assert_eq!(roles_and_parts(&read_text(lines, Format::Claw0)), wanted);
}

#[test]
fn lists_objects_and_lines_of_openai_messages_are_conversations() {
    let list = r#"[{"role":"system","content":"be kind"},{"role":"user","content":"hi"}]"#;
    let cases = [
        (list.to_owned(), vec!["file"]),
        (
            format!("{{\"tools\":[],\"messages\":{list},\"title\":\"t\"}}"),
            vec!["t"],
        ),
        (
            list.trim_matches(['[', ']']).replace("},{", "}\n\n{"),
            vec!["file"],
        ),
        (
            format!("{list}\r\n{{\"messages\":{list}}}"),
            vec!["file 1", "file 2"],
        ),
        (
            format!("[{{\"traj\":{list},\"task_id\":3}},\n{{\"history\":{list}}}]"),
            vec!["file 1", "file 2"],
        ),
    ];
    for (text, titles) in cases {
        assert_eq!(
            detect(file(&text).path()).expect("is known"),
            Format::OpenAi,
            "{text}"
        );
        let found = read_text(&text, Format::OpenAi);
        let heads = heads(&found);
        assert_eq!(
            heads
                .iter()
                .map(|head| head.title.as_str())
                .collect::<Vec<_>>(),
            titles,
            "{text}"
        );
        assert!(
            heads.iter().all(|head| head.system_prompt == "be kind"),
            "{text}"
        );
        assert_eq!(messages(&found).len(), titles.len(), "{text}");
    }
}

#[test]
fn openai_calls_results_images_and_refusals_are_read() {
    let list = r#"[{"role":"user","name":"Ann","content":[{"type":"text","text":"see"},{"type":"input_audio","input_audio":{}},
        {"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]},
      {"role":"assistant","content":null,"refusal":"no","reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function",
        "function":{"name":"look","arguments":"{\"n\":1e2}"}}]},
      {"role":"tool","tool_call_ids":["c1"],"content":"seen"},
      {"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}},
      {"role":"function","name":"f","content":"r"},
      {"role":"developer","content":"d"},{"role":"assistant","content":null,"thought":"t"}]"#;
    let found = read_text(list, Format::OpenAi);
    let actual = roles_and_parts(&found);
    assert!(matches!(&actual[0].1[1], Part::Media(media) if media.media_type == "image/png"));
    assert_eq!(messages(&found)[0].metadata["name"], "Ann");
    assert_eq!(
        actual[1].1[1..],
        [text("no"), call("c1", "look", "{\"n\":1e2}")]
    );
    assert_eq!(actual[2], (Role::Tool, vec![result("c1", "seen")]));
    assert_eq!(actual[3].1, [call("f", "f", "{}")]);
    assert_eq!(actual[4].1, [result("f", "r")]);
    assert_eq!(actual[5], (Role::System, vec![text("d")]));
    assert_eq!(actual[6].1, [text("")]);
    let aside: Vec<String> = remarks(&found)
        .into_iter()
        .map(|remark| remark.what)
        .collect();
    assert_eq!(
        aside,
        ["a part of type input_audio", "field thought of messages"]
    );
}

#[test]
fn anthropic_blocks_become_parts_and_a_message_with_results_and_text_becomes_two() {
    let object = r#"{"model":"m","system":[{"type":"text","text":"be kind"}],"messages":[
      {"role":"user","content":"hi"},
      {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"redacted_thinking","data":"x"},
        {"type":"tool_use","id":"t1","name":"n","input":{"a": 1.0}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","is_error":true,"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
        {"type":"document","source":{}},{"type":"text","text":"go on"}]}]}"#;
    assert_eq!(
        detect(file(object).path()).expect("is known"),
        Format::Anthropic
    );
    let found = read_text(object, Format::Anthropic);
    assert_eq!(heads(&found)[0].system_prompt, "be kind");
    let reasoning = |text: &str, signature: &str, redacted| Part::Reasoning {
        text: text.into(),
        signature: signature.into(),
        provider: "anthropic".into(),
        redacted,
    };
    let failed = Part::ToolResult {
        id: "t1".into(),
        text: "a\nb".into(),
        is_error: true,
        media: Vec::new(),
    };
    let wanted = [
        (Role::User, vec![text("hi")]),
        (
            Role::Assistant,
            vec![
                reasoning("hm", "s", false),
                reasoning("", "x", true),
                call("t1", "n", r#"{"a": 1.0}"#),
            ],
        ),
        (Role::Tool, vec![failed]),
        (Role::User, vec![text("go on")]),
    ];
    assert_eq!(roles_and_parts(&found), wanted);
    assert_eq!(remarks(&found).len(), 1);
}

#[test]
fn sharegpt_calls_are_numbered_and_matched_with_their_results() {
    let lines = r#"[{"id":"x","system":"be kind","conversations":[{"from":"human","value":"hi"},
        {"from":"function_call","value":"{\"name\": \"look\", \"arguments\": {\"a\": 1}}"},{"from":"observation","value":"seen"},
        {"from":"gpt","value":"done"}]}]"#;
    assert_eq!(
        detect(file(lines).path()).expect("is known"),
        Format::ShareGpt
    );
    let found = read_text(lines, Format::ShareGpt);
    assert_eq!(heads(&found)[0].system_prompt, "be kind");
    let wanted = [
        (Role::User, vec![text("hi")]),
        (Role::Assistant, vec![call("call_1", "look", "{\"a\": 1}")]),
        (Role::Tool, vec![result("call_1", "seen")]),
        (Role::Assistant, vec![text("done")]),
    ];
    assert_eq!(roles_and_parts(&found), wanted);
}

#[test]
fn a_session_of_version_1_is_linear_and_its_compaction_names_a_line() {
    let lines = r#"{"type":"session","id":"s","timestamp":"t","cwd":"/"}
{"type":"message","timestamp":"t","message":{"role":"user","content":"a"}}
{"type":"message","timestamp":"t","message":{"role":"hookMessage","content":"b"}}
{"type":"compaction","timestamp":"t","summary":"so far","firstKeptEntryIndex":2,"tokensBefore":9}
{"type":"message","timestamp":"t","message":{"role":"assistant","content":[]}}"#;
    let found = read_text(lines, Format::Pi);
    assert_eq!(messages(&found).len(), 3);
    let wanted = Summary {
        covers: 1,
        text: "so far".into(),
        tokens_before: Some(9),
        ..Default::default()
    };
    assert_eq!(summaries(&found), [wanted]);
    assert_eq!(heads(&found)[0].identity, "s");
}

#[test]
fn a_session_of_ai_panel_is_read() {
    let mut lines = vec![
        r#"{"type":"session","version":3,"agentId":"reviewer","createdAt":1708300000000}"#
            .to_owned(),
    ];
    for number in 1..=12 {
        let role = if number % 2 == 1 { "user" } else { "assistant" };
        lines.push(format!("{{\"type\":\"message\",\"message\":{{\"role\":\"{role}\",\"content\":\"{number}\"}},\"timestamp\":1708300001000}}"));
    }
    lines.push(r#"{"type":"compaction","summary":"so far","firstKeptEntryId":"msg-11","tokensBefore":80000,"tokensAfter":5000,"timestamp":1708300100000}"#.into());
    let found = read_text(lines.join("\n"), Format::Pi);
    let head = &heads(&found)[0];
    assert_eq!(
        (head.identity.as_str(), head.agent_id.as_str()),
        ("file", "reviewer")
    );
    assert_eq!(head.metadata["pi.createdAt"], "1708300000000");
    assert_eq!(
        (messages(&found).len(), summaries(&found)[0].covers),
        (12, 10)
    );
}

const TREE: &str = r#"{"type":"session","version":3,"id":"s","timestamp":"t","cwd":"/w"}
{"type":"model_change","id":"m","parentId":null,"provider":"p","modelId":"x"}
{"type":"message","id":"a","parentId":"m","timestamp":"ta","message":{"role":"user","content":"look"}}
{"type":"message","id":"b","parentId":"a","message":{"role":"assistant","content":[{"type":"text","text":"left"}]}}
{"type":"branch_summary","id":"c","parentId":"a","fromId":"b","summary":"went left"}
{"type":"message","id":"d","parentId":"c","message":{"role":"assistant","api":"anthropic-messages","provider":"p","model":"y","usage":{"input":1},"content":[{"type":"thinking","thinking":"hm","thinkingSignature":"s"},{"arguments":{"command": "ls"},"id":"t1","type":"toolCall","name":"bash","partialJson":"{"}],"stopReason":"toolUse"}}
{"type":"message","id":"e","parentId":"d","message":{"role":"toolResult","toolCallId":"t1","toolName":"bash","content":[{"type":"text","text":"no"},{"type":"image","data":"AA","mimeType":"image/png"}],"isError":true}}
{"type":"message","id":"f","parentId":"e","message":{"role":"bashExecution","command":"pwd","output":"/home","exitCode":2}}
{"type":"message","id":"x","parentId":"f","message":{"role":"bashExecution","command":"secret","output":"","excludeFromContext":true}}
{"type":"custom_message","id":"g","parentId":"x","customType":"ext","content":"injected","display":true}
{"type":"session_info","id":"i","parentId":"g","name":"Named"}
{"type":"message","id":"h","parentId":"i","message":{"role":"assistant","content":[],"stopReason":"aborted"}}
"#;

#[test]
fn the_active_branch_of_a_session_is_read_as_pi_sends_it() {
    assert_eq!(detect(file(TREE).path()).expect("is known"), Format::Pi);
    let found = read_text(TREE, Format::Pi);
    let head = &heads(&found)[0];
    assert_eq!(
        (
            head.title.as_str(),
            head.identity.as_str(),
            head.metadata["pi.cwd"].as_str()
        ),
        ("Named", "s/c", "/w")
    );
    let reasoning = Part::Reasoning {
        text: "hm".into(),
        signature: "s".into(),
        provider: "anthropic".into(),
        redacted: false,
    };
    let actual = roles_and_parts(&found);
    assert_eq!(actual[0], (Role::User, vec![text("look")]));
    let branch = "The following is a summary of a branch that this conversation came back from:\n\n<summary>\nwent left</summary>";
    assert_eq!(actual[1], (Role::User, vec![text(branch)]));
    assert_eq!(
        actual[2],
        (
            Role::Assistant,
            vec![reasoning, call("t1", "bash", r#"{"command": "ls"}"#)]
        )
    );
    assert!(
        matches!(&actual[3].1[..], [Part::ToolResult { text, is_error: true, media, .. }] if text == "no" && media[0].uri == "data:image/png;base64,AA")
    );
    assert_eq!(
        actual[4],
        (
            Role::User,
            vec![text(
                "Ran `pwd`\n```\n/home\n```\n\nCommand exited with code 2"
            )]
        )
    );
    assert_eq!(actual[5], (Role::User, vec![text("injected")]));
    assert_eq!(actual[6], (Role::Assistant, vec![text("")]));
    let labels: Vec<_> = messages(&found)
        .into_iter()
        .map(|message| message.metadata)
        .collect();
    assert_eq!(
        (
            labels[0]["pi.id"].as_str(),
            labels[0]["pi.timestamp"].as_str()
        ),
        ("a", "ta")
    );
    assert!(labels[0]["pi.entries"].contains("model_change"));
    assert_eq!(
        (
            labels[2]["pi.model"].as_str(),
            labels[2]["pi.usage"].as_str()
        ),
        ("y", r#"{"input":1}"#)
    );
    assert!(labels[5]["pi.entries"].contains("secret"));
    assert_eq!(labels[6]["pi.stopReason"], "aborted");
    assert!(remarks(&found).is_empty(), "{:?}", remarks(&found));
}

#[test]
fn every_branch_can_be_a_conversation() {
    let all = ReadOptions {
        branches: Branches::All,
        ..options()
    };
    let found = try_read_all(file(TREE).path(), Format::Pi, &all).expect("reads");
    let identities: Vec<String> = heads(&found)
        .into_iter()
        .map(|head| head.identity)
        .collect();
    assert_eq!(identities, ["s", "s/c"]);
    assert_eq!(messages(&found).len(), 2 + 7, "a b, and a c d e f g h");
}

#[test]
fn compactions_without_text_or_without_new_messages_are_set_aside() {
    let message = |id: &str, parent: &str| {
        format!(
            "{{\"type\":\"message\",\"id\":\"{id}\",\"parentId\":{parent},\"message\":{{\"role\":\"user\",\"content\":\"{id}\"}}}}"
        )
    };
    let compaction = |id: &str, parent: &str, kept: &str, summary: &str| {
        format!(
            "{{\"type\":\"compaction\",\"id\":\"{id}\",\"parentId\":\"{parent}\",\"summary\":\"{summary}\",\"firstKeptEntryId\":\"{kept}\",\"tokensBefore\":5}}"
        )
    };
    let lines = [
        r#"{"type":"session","version":3,"id":"s"}"#.to_owned(),
        message("a", "null"),
        message("b", "\"a\""),
        compaction("1", "b", "a", "keeps all"),
        compaction("2", "1", "b", " "),
        compaction("3", "2", "gone", "lost"),
        compaction("4", "3", "b", "good"),
        compaction("5", "4", "b", "again"),
        message("c", "\"5\""),
        compaction("6", "c", "c", "better"),
    ];
    let found = read_text(lines.join("\n"), Format::Pi);
    let kept: Vec<_> = summaries(&found)
        .into_iter()
        .map(|one| (one.covers, one.text))
        .collect();
    assert_eq!(kept, [(1, "good".to_owned()), (2, "better".to_owned())]);
    assert_eq!(
        remarks(&found).iter().map(line).collect::<Vec<_>>(),
        [4, 5, 6, 8]
    );
}

#[test]
fn an_entry_with_a_missing_parent_follows_the_entry_before_it() {
    let lines = r#"{"type":"session","version":3,"id":"s"}
{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"a"}}
{"type":"message","id":"b","parentId":"a","message":{"role":"assistant","cont
{"id":"c","parentId":"b","type":"message","message":{"role":"user","content":"c"}}"#;
    let found = read_text(lines, Format::Pi);
    assert_eq!(messages(&found).len(), 2);
    assert_eq!(
        remarks(&found)
            .iter()
            .map(|remark| remark.outcome)
            .collect::<Vec<_>>(),
        [ImportOutcome::Refused, ImportOutcome::Changed]
    );
}

#[test]
fn results_are_moved_before_texts_and_unread_fields_are_counted() {
    let line = r#"{"role":"user","content":[{"type":"text","text":"a","cache_control":{}},{"type":"tool_result","tool_use_id":"t","content":"r"},{"type":"text","text":"b","cache_control":{}}],"uuid":"u"}"#;
    let lines = format!("{line}\n{line}\n");
    let found = read_text(&lines, Format::Anthropic);
    let one = [
        (Role::Tool, vec![result("t", "r")]),
        (Role::User, vec![text("a"), text("b")]),
    ];
    assert_eq!(roles_and_parts(&found), [one.clone(), one].concat());
    let actual: Vec<(u64, ImportOutcome, String)> = remarks(&found)
        .into_iter()
        .map(|remark| (shared::line(&remark), remark.outcome, remark.what))
        .collect();
    let moved = "tool results were moved before the other parts of their message".to_owned();
    let wanted = [
        (1, ImportOutcome::Changed, moved.clone()),
        (
            1,
            ImportOutcome::SetAside,
            "field uuid of messages".to_owned(),
        ),
        (
            1,
            ImportOutcome::SetAside,
            "field cache_control of text blocks".to_owned(),
        ),
        (2, ImportOutcome::Changed, moved),
        (
            1,
            ImportOutcome::SetAside,
            "field cache_control of text blocks: 4 in the whole file".to_owned(),
        ),
        (
            1,
            ImportOutcome::SetAside,
            "field uuid of messages: 2 in the whole file".to_owned(),
        ),
    ];
    assert_eq!(actual, wanted);
}

#[test]
fn too_many_results_for_a_message_become_several_messages() {
    let result =
        |number: u32| format!(r#"{{"type":"tool_result","tool_use_id":"{number}","content":"r"}}"#);
    let lines: Vec<String> = (0..600).map(result).collect();
    let found = read_text(lines.join("\n"), Format::Claw0);
    let parts: Vec<usize> = messages(&found)
        .iter()
        .map(|message| message.parts.len())
        .collect();
    // A message has at most 256 parts.
    assert_eq!((parts, remarks(&found).len()), (vec![256, 256, 88], 0));
}

#[test]
fn consecutive_documents_are_all_read() {
    let document = |text: &str| {
        format!(
            "{{\n  \"messages\": [\n    {{\"role\": \"user\", \"content\": \"{text}\"}}\n  ]\n}}\n"
        )
    };
    let message =
        |text: &str| format!("{{\n  \"role\": \"user\",\n  \"content\": \"{text}\"\n}}\n");
    let cases = [
        (format!("{}{}", document("a"), document("b")), 2, 2, false),
        (
            format!("{}{}{}", message("a"), message("b"), message("c")),
            1,
            3,
            false,
        ),
        (
            format!("{}{}{}", document("a"), message("b"), document("c")),
            3,
            3,
            false,
        ),
        (
            format!(
                "{}{{\n  \"messages\" 7\n}}\n{}",
                document("a"),
                document("b")
            ),
            2,
            2,
            true,
        ),
        (
            format!("[{}]\n[\n{}]\n", message("a").trim(), message("b").trim()),
            2,
            2,
            false,
        ),
    ];
    for (text, conversation_count, message_count, has_remarks) in cases {
        let found = read_text(&text, Format::OpenAi);
        assert_eq!(
            (heads(&found).len(), messages(&found).len()),
            (conversation_count, message_count),
            "{text}: {found:?}"
        );
        assert_eq!(
            !remarks(&found).is_empty(),
            has_remarks,
            "{text}: {found:?}"
        );
    }
}
