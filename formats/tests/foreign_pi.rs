//! Sessions of pi as they grow, branch and break.

mod shared;

use anneal_formats::{Branches, Fate, Format, Found, Head, ReadOptions, Summary};
use shared::{file, heads, line, messages, of_text, options, remarks, try_found};

const HEADER: &str = r#"{"type":"session","version":3,"id":"s","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/"}"#;

fn entry(id: &str, parent: Option<&str>) -> String {
    let parent = parent.map_or_else(|| "null".to_owned(), |parent| format!("\"{parent}\""));
    format!(
        r#"{{"type":"message","id":"{id}","parentId":{parent},"message":{{"role":"user","content":"{id}","timestamp":1708300001000}}}}"#
    )
}

/// The file's conversations: the identity of each, and the ids of its messages.
fn talks(lines: &[String], branches: Branches) -> Vec<(String, String)> {
    let text = format!("{HEADER}\n{}\n", lines.join("\n"));
    let found = try_found(file(text).path(), Format::Pi, &ReadOptions { branches, ..options() }).expect("reads");
    let mut talks: Vec<(String, String)> = Vec::new();
    for one in found {
        match (one, talks.last_mut()) {
            (Found::Conversation(head), _) => talks.push((head.identity, String::new())),
            (Found::Message(message), Some((_, said))) => said.push_str(&message.metadata["pi.id"]),
            _ => {}
        }
    }
    talks
}

fn summaries(found: &[Found]) -> Vec<Summary> {
    let summaries = found.iter().filter_map(|one| match one {
        Found::Summary(summary) => Some(summary.clone()),
        _ => None,
    });
    summaries.collect()
}

#[test]
fn a_branch_keeps_its_name_while_it_grows_and_when_another_one_becomes_active() {
    let named = |name: &str, said: &str| (name.to_owned(), said.to_owned());
    let mut lines = vec![entry("A", None), entry("B", Some("A")), entry("C", Some("B"))];
    assert_eq!(talks(&lines, Branches::Active), [named("s", "ABC")]);
    // the user goes back to B
    lines.extend([entry("D", Some("B")), entry("E", Some("D"))]);
    assert_eq!(talks(&lines, Branches::Active), [named("s/D", "ABDE")]);
    assert_eq!(talks(&lines, Branches::All), [named("s", "ABC"), named("s/D", "ABDE")]);
    // the side branch grows, and then the first one
    lines.push(entry("F", Some("E")));
    assert_eq!(talks(&lines, Branches::All), [named("s", "ABC"), named("s/D", "ABDEF")]);
    lines.push(entry("G", Some("C")));
    assert_eq!(talks(&lines, Branches::All), [named("s/D", "ABDEF"), named("s", "ABCG")]);
    // a branch of the branch, another beginning, and an id that is there already
    lines.extend([entry("H", Some("D")), entry("I", None), entry("D", Some("A"))]);
    let wanted =
        [named("s/D", "ABDEF"), named("s", "ABCG"), named("s/H", "ABDH"), named("s/I", "I"), named("s/D:11", "AD")];
    assert_eq!(talks(&lines, Branches::All), wanted);
}

#[test]
fn a_session_without_a_readable_header_stays_a_tree() {
    let tree = [entry("a", None), entry("b", Some("a")), entry("c", Some("a"))].join("\n");
    let broken = &HEADER[..30];
    let odd = HEADER.replace(":3,", ":\"3\",");
    for text in [tree.clone(), format!("{broken}\n{tree}"), format!("{odd}\n{tree}"), format!("{tree}\n{HEADER}")] {
        let found = of_text(&text, Format::Pi);
        assert_eq!(messages(&found).len(), 2, "{text}");
        assert_eq!(remarks(&found).is_empty(), text.starts_with(&odd), "{text}");
    }
}

#[test]
fn ai_panel_numbers_the_messages_of_the_file_and_not_the_kept_ones() {
    let said =
        |role: &str, number: u32| format!(r#"{{"type":"message","message":{{"role":"{role}","content":"{number}"}}}}"#);
    let mut lines = vec![r#"{"type":"session","version":3,"agentId":"a"}"#.to_owned()];
    lines.extend((1..=12).map(|number| match number {
        3 => said("wizard", 3),
        5 => r#"{"type":"message","mess"#.to_owned(),
        number => said("user", number),
    }));
    lines.push(r#"{"type":"compaction","summary":"so far","firstKeptEntryId":"msg-11","tokensBefore":80000,"tokensAfter":5000}"#.into());
    let found = of_text(lines.join("\n"), Format::Pi);
    let wanted = Summary {
        covers: 8,
        text: "so far".into(),
        tokens_before: Some(80_000),
        tokens_after: Some(5_000),
        ..Default::default()
    };
    assert_eq!((messages(&found).len(), summaries(&found)), (10, vec![wanted]));
}

#[test]
fn a_compaction_keeps_its_counts_and_says_what_else_it_had() {
    let compaction = r#"{"type":"compaction","id":"c","parentId":"b","summary":"so far","firstKeptEntryId":"b","tokensBefore":9,"tokensAfter":4,"details":{},"fromHook":true}"#;
    let lines = [HEADER.to_owned(), entry("a", None), entry("b", Some("a")), compaction.to_owned()];
    let found = of_text(lines.join("\n"), Format::Pi);
    assert_eq!(summaries(&found)[0].tokens_after, Some(4));
    let said: Vec<String> = remarks(&found).into_iter().map(|remark| remark.what).collect();
    assert_eq!(said, ["field details of a compaction", "field fromHook of a compaction"]);
    let written = shared::written(Format::Pi, &heads(&found)[0], &found);
    let written = std::fs::read_to_string(written.path()).expect("reads");
    assert!(written.contains(r#""tokensBefore":9,"tokensAfter":4"#), "{written}");
}

#[test]
fn entries_after_the_last_message_stay_with_the_conversation() {
    let label = r#"{"type":"label","id":"l","parentId":"b","label":"here"}"#;
    let large = format!(r#"{{"type":"custom","id":"x","parentId":"l","data":"{}"}}"#, "x".repeat(5_000));
    let mut lines = vec![HEADER.to_owned(), entry("a", None), entry("b", Some("a")), label.to_owned(), large];
    let found = of_text(lines.join("\n"), Format::Pi);
    let short = r#"{"type":"custom","id":"x"}"#;
    assert_eq!(heads(&found)[0].metadata["pi.entries"], format!("{label}\n{short}"));
    assert_eq!(remarks(&found).iter().map(line).collect::<Vec<_>>(), [5]);
    let before = messages(&found);
    // the file grows: what was read of it stays the same
    lines.push(entry("c", Some("x")));
    let found = of_text(lines.join("\n"), Format::Pi);
    assert_eq!(messages(&found)[..2], before);
    assert_eq!(messages(&found)[2].metadata["pi.entries"], format!("{label}\n{short}"));
    assert_eq!(remarks(&found).len(), 1);
}

#[test]
fn times_come_out_as_pi_writes_them() {
    let panel = r#"{"type":"session","version":3,"agentId":"a","createdAt":1708300000000}
{"type":"message","message":{"role":"user","content":"a"},"timestamp":1708300001000}
{"type":"message","message":{"role":"user","content":"b","timestamp":1708300002500}}"#;
    let found = of_text(panel, Format::Pi);
    assert_eq!(messages(&found)[1].metadata["pi.messageTimestamp"], "1708300002500");
    let written = shared::written(Format::Pi, &heads(&found)[0], &found);
    let lines = std::fs::read_to_string(written.path()).expect("reads");
    let lines: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines[0]["timestamp"], "2024-02-18T23:46:40.000Z");
    assert_eq!(lines[2]["timestamp"], "2024-02-18T23:46:41.000Z");
    assert_eq!(lines[3]["message"]["timestamp"], 1_708_300_002_500_i64);
    assert_eq!(messages(&shared::found(written.path(), Format::Pi)), messages(&found));

    let head = Head { title: "t".into(), created_us: Some(1_795_245_647_355_999), ..Default::default() };
    let written = std::fs::read_to_string(shared::written(Format::Pi, &head, &[]).path()).expect("reads");
    assert_eq!(written.matches(r#""timestamp":"2026-11-21T07:20:47.355Z""#).count(), 2, "{written}");
}

#[test]
fn a_missing_parent_is_said_once() {
    let lines = [HEADER.to_owned(), entry("a", Some("gone"))];
    let found = of_text(lines.join("\n"), Format::Pi);
    assert_eq!(remarks(&found).iter().map(|remark| remark.fate).collect::<Vec<_>>(), [Fate::Changed]);
}
