//! pi sessions that grow, branch and break.

use crate::shared::{self, file, heads, line, messages, options, read_text, remarks, try_read_all};
use anneal_formats::{
    Branches, FileEvent, Format, Head, ImportOutcome, ReadOptions, SharedBeginning, Summary,
};

const HEADER: &str =
    r#"{"type":"session","version":3,"id":"s","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/"}"#;

fn entry(id: &str, parent: Option<&str>) -> String {
    let parent = parent.map_or_else(|| "null".to_owned(), |parent| format!("\"{parent}\""));
    format!(
        r#"{{"type":"message","id":"{id}","parentId":{parent},"message":{{"role":"user","content":"{id}","timestamp":1708300001000}}}}"#
    )
}

/// The identity of each conversation in the file, and the ids of its messages.
fn conversations(lines: &[String], branches: Branches) -> Vec<(String, String)> {
    let text = format!("{HEADER}\n{}\n", lines.join("\n"));
    let found = try_read_all(
        file(text).path(),
        Format::Pi,
        &ReadOptions {
            branches,
            ..options()
        },
    )
    .expect("reads");
    let mut conversations: Vec<(String, String)> = Vec::new();
    for one in found {
        match (one, conversations.last_mut()) {
            (FileEvent::Conversation(head), _) => {
                conversations.push((head.identity, String::new()));
            }
            (FileEvent::Message(message), Some((_, ids))) => {
                ids.push_str(&message.metadata["pi.id"]);
            }
            _ => {}
        }
    }
    conversations
}

fn summaries(found: &[FileEvent]) -> Vec<Summary> {
    let summaries = found.iter().filter_map(|one| match one {
        FileEvent::Summary(summary) => Some(summary.clone()),
        _ => None,
    });
    summaries.collect()
}

#[test]
fn a_branch_keeps_its_identity_when_it_grows_and_when_another_becomes_active() {
    let branch = |identity: &str, ids: &str| (identity.to_owned(), ids.to_owned());
    let mut lines = vec![
        entry("A", None),
        entry("B", Some("A")),
        entry("C", Some("B")),
    ];
    assert_eq!(
        conversations(&lines, Branches::Active),
        [branch("s", "ABC")]
    );
    // The user goes back to B.
    lines.extend([entry("D", Some("B")), entry("E", Some("D"))]);
    assert_eq!(
        conversations(&lines, Branches::Active),
        [branch("s/D", "ABDE")]
    );
    assert_eq!(
        conversations(&lines, Branches::All),
        [branch("s", "ABC"), branch("s/D", "ABDE")]
    );
    // The side branch grows, and then the first branch.
    lines.push(entry("F", Some("E")));
    assert_eq!(
        conversations(&lines, Branches::All),
        [branch("s", "ABC"), branch("s/D", "ABDEF")]
    );
    lines.push(entry("G", Some("C")));
    assert_eq!(
        conversations(&lines, Branches::All),
        [branch("s", "ABCG"), branch("s/D", "ABDEF")]
    );
    // A branch of the side branch, a second root, and an id that exists already, on line 11.
    lines.extend([
        entry("H", Some("D")),
        entry("I", None),
        entry("D", Some("A")),
    ]);
    let wanted = [
        branch("s", "ABCG"),
        branch("s/D", "ABDEF"),
        branch("s/H", "ABDH"),
        branch("s/I", "I"),
        branch("s/D:11", "AD"),
    ];
    assert_eq!(conversations(&lines, Branches::All), wanted);
}

#[test]
fn a_side_branch_says_how_much_it_shares_with_the_branch_that_it_leaves() {
    let compaction = r#"{"type":"compaction","id":"S","parentId":"B","summary":"so far","firstKeptEntryId":"B","tokensBefore":5}"#;
    let lines = [
        HEADER.to_owned(),
        entry("A", None),
        entry("B", Some("A")),
        compaction.to_owned(),
        entry("C", Some("S")),
        entry("D", Some("S")),
        entry("E", Some("A")),
        entry("F", Some("D")),
        entry("G", Some("D")),
        entry("I", None),
    ];
    let all = ReadOptions {
        branches: Branches::All,
        ..options()
    };
    let found = try_read_all(file(lines.join("\n")).path(), Format::Pi, &all).expect("reads");
    let shared: Vec<(String, Option<SharedBeginning>)> = heads(&found)
        .into_iter()
        .map(|head| (head.identity, head.shared))
        .collect();
    let beginning = |conversation, messages, items| {
        Some(SharedBeginning {
            conversation,
            messages,
            items,
        })
    };
    let wanted = [
        ("s", None),
        ("s/D", beginning(0, 2, 3)),
        ("s/E", beginning(0, 1, 1)),
        ("s/G", beginning(1, 3, 4)),
        ("s/I", None),
    ];
    assert_eq!(
        shared,
        wanted.map(|(name, shared)| (name.to_owned(), shared))
    );
    assert!(heads(&found).iter().all(|head| head.has_branches));
    // The items of each conversation.
    let mut items: Vec<Vec<&FileEvent>> = Vec::new();
    for event in &found {
        match (event, items.last_mut()) {
            (FileEvent::Conversation(_), _) => items.push(Vec::new()),
            (event, Some(items)) => items.push(event),
            _ => {}
        }
    }
    for (index, (name, shared)) in shared.iter().enumerate() {
        let Some(shared) = shared else { continue };
        let count = shared.items as usize;
        assert_eq!(
            items[index][..count],
            items[shared.conversation][..count],
            "{name}"
        );
    }
    // Alone, the active branch shares nothing.
    let active = read_text(lines[..9].join("\n"), Format::Pi);
    let head = &heads(&active)[0];
    assert_eq!(
        (head.identity.as_str(), head.shared, head.has_branches),
        ("s/G", None, false)
    );
}

#[test]
fn a_session_with_an_unusual_or_no_header_is_still_read_as_a_tree() {
    let tree = [
        entry("a", None),
        entry("b", Some("a")),
        entry("c", Some("a")),
    ]
    .join("\n");
    let broken = &HEADER[..30];
    let header_with_version_as_text = HEADER.replace(":3,", ":\"3\",");
    for text in [
        tree.clone(),
        format!("{broken}\n{tree}"),
        format!("{header_with_version_as_text}\n{tree}"),
        format!("{tree}\n{HEADER}"),
    ] {
        let found = read_text(&text, Format::Pi);
        assert_eq!(messages(&found).len(), 2, "{text}");
        // Only the header whose version is a text, not a number, is accepted without a remark.
        assert_eq!(
            remarks(&found).is_empty(),
            text.starts_with(&header_with_version_as_text),
            "{text}"
        );
    }
}

#[test]
fn the_message_numbers_of_ai_panel_include_refused_messages() {
    let content = |role: &str, number: u32| {
        format!(r#"{{"type":"message","message":{{"role":"{role}","content":"{number}"}}}}"#)
    };
    let mut lines = vec![r#"{"type":"session","version":3,"agentId":"a"}"#.to_owned()];
    lines.extend((1..=12).map(|number| match number {
        3 => content("wizard", 3),
        5 => r#"{"type":"message","mess"#.to_owned(),
        number => content("user", number),
    }));
    lines.push(r#"{"type":"compaction","summary":"so far","firstKeptEntryId":"msg-11","tokensBefore":80000,"tokensAfter":5000}"#.into());
    let found = read_text(lines.join("\n"), Format::Pi);
    // Of the messages 1 to 10, two are refused.
    let wanted = Summary {
        covers: 8,
        text: "so far".into(),
        tokens_before: Some(80_000),
        tokens_after: Some(5_000),
        ..Default::default()
    };
    assert_eq!(
        (messages(&found).len(), summaries(&found)),
        (10, vec![wanted])
    );
}

#[test]
fn a_compaction_keeps_its_counts_and_its_other_fields_are_remarked_on() {
    let compaction = r#"{"type":"compaction","id":"c","parentId":"b","summary":"so far","firstKeptEntryId":"b","tokensBefore":9,"tokensAfter":4,"details":{},"fromHook":true}"#;
    let lines = [
        HEADER.to_owned(),
        entry("a", None),
        entry("b", Some("a")),
        compaction.to_owned(),
    ];
    let found = read_text(lines.join("\n"), Format::Pi);
    assert_eq!(summaries(&found)[0].tokens_after, Some(4));
    let remark_texts: Vec<String> = remarks(&found)
        .into_iter()
        .map(|remark| remark.what)
        .collect();
    assert_eq!(
        remark_texts,
        [
            "field details of a compaction",
            "field fromHook of a compaction"
        ]
    );
    let written = shared::write_file(Format::Pi, &heads(&found)[0], &found);
    let written = std::fs::read_to_string(written.path()).expect("reads");
    assert!(
        written.contains(r#""tokensBefore":9,"tokensAfter":4"#),
        "{written}"
    );
}

#[test]
fn a_compaction_without_a_first_kept_entry_on_its_branch_is_set_aside_with_the_reason() {
    let compaction = |id: &str, kept: &str| {
        format!(r#"{{"type":"compaction","id":"{id}","parentId":"c","summary":"so far"{kept}}}"#)
    };
    let no_entry = "a compaction that names no earlier entry as the first one that it keeps";
    for (kept, reason) in [
        ("", no_entry),
        (r#","firstKeptEntryId":"gone""#, no_entry),
        (
            r#","firstKeptEntryId":"b""#,
            "a compaction whose first kept entry is not on the branch",
        ),
    ] {
        let lines = [
            HEADER.to_owned(),
            entry("a", None),
            entry("b", Some("a")),
            entry("c", Some("a")),
            compaction("d", kept),
        ];
        let found = read_text(lines.join("\n"), Format::Pi);
        assert!(summaries(&found).is_empty(), "{kept}");
        let reasons: Vec<String> = remarks(&found)
            .into_iter()
            .map(|remark| remark.what)
            .filter(|what| what.starts_with("a compaction"))
            .collect();
        assert_eq!(reasons, [reason], "{kept}");
    }
}

#[test]
fn entries_after_the_last_message_stay_with_the_conversation() {
    let label = r#"{"type":"label","id":"l","parentId":"b","label":"here"}"#;
    let large = format!(
        r#"{{"type":"custom","id":"x","parentId":"l","data":"{}"}}"#,
        "x".repeat(5_000)
    );
    let mut lines = vec![
        HEADER.to_owned(),
        entry("a", None),
        entry("b", Some("a")),
        label.to_owned(),
        large,
    ];
    let found = read_text(lines.join("\n"), Format::Pi);
    // Of an entry that does not fit into the metadata, only the type and the id are kept.
    let type_and_id = r#"{"type":"custom","id":"x"}"#;
    assert_eq!(
        heads(&found)[0].metadata["pi.entries"],
        format!("{label}\n{type_and_id}")
    );
    assert_eq!(remarks(&found).iter().map(line).collect::<Vec<_>>(), [5]);
    let before = messages(&found);
    // The file grows. The messages that were read before stay the same.
    lines.push(entry("c", Some("x")));
    let found = read_text(lines.join("\n"), Format::Pi);
    assert_eq!(messages(&found)[..2], before);
    assert_eq!(
        messages(&found)[2].metadata["pi.entries"],
        format!("{label}\n{type_and_id}")
    );
    assert_eq!(remarks(&found).len(), 1);
}

#[test]
fn times_are_written_in_the_format_of_pi() {
    let panel = r#"{"type":"session","version":3,"agentId":"a","createdAt":1708300000000}
{"type":"message","message":{"role":"user","content":"a"},"timestamp":1708300001000}
{"type":"message","message":{"role":"user","content":"b","timestamp":1708300002500}}"#;
    let found = read_text(panel, Format::Pi);
    assert_eq!(
        messages(&found)[1].metadata["pi.messageTimestamp"],
        "1708300002500"
    );
    let written = shared::write_file(Format::Pi, &heads(&found)[0], &found);
    let lines = std::fs::read_to_string(written.path()).expect("reads");
    let lines: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    // The header, the entry with the title, and the two messages.
    assert_eq!(lines[0]["timestamp"], "2024-02-18T23:46:40.000Z");
    assert_eq!(lines[2]["timestamp"], "2024-02-18T23:46:41.000Z");
    assert_eq!(lines[3]["message"]["timestamp"], 1_708_300_002_500_i64);
    assert_eq!(
        messages(&shared::read_all(written.path(), Format::Pi)),
        messages(&found)
    );

    let head = Head {
        title: "t".into(),
        created_us: Some(1_795_245_647_355_999),
        ..Default::default()
    };
    let written =
        std::fs::read_to_string(shared::write_file(Format::Pi, &head, &[]).path()).expect("reads");
    // The time is in the header and in the entry with the title.
    assert_eq!(
        written
            .matches(r#""timestamp":"2026-11-21T07:20:47.355Z""#)
            .count(),
        2,
        "{written}"
    );
}

#[test]
fn a_missing_parent_is_remarked_on_once() {
    let lines = [HEADER.to_owned(), entry("a", Some("gone"))];
    let found = read_text(lines.join("\n"), Format::Pi);
    assert_eq!(
        remarks(&found)
            .iter()
            .map(|remark| remark.outcome)
            .collect::<Vec<_>>(),
        [ImportOutcome::Changed]
    );
}
