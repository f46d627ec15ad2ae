//! Remarks give the right location and conversation.

use crate::shared::{self, FORMATS, file, messages, options, read_all, read_text, try_read_all};
use anneal_formats::{Branches, FileEvent, Format, ImportOutcome, Location, ReadOptions, Scope};

/// The location of each remark, and the title of its conversation; empty if the remark is about
/// the file.
fn remark_locations(found: &[FileEvent]) -> Vec<(Location, String)> {
    let mut title = String::new();
    let mut all = Vec::new();
    for one in found {
        match one {
            FileEvent::Conversation(head) => title.clone_from(&head.title),
            FileEvent::Remark(remark) => {
                let title_or_empty = if remark.scope == Scope::File {
                    String::new()
                } else {
                    title.clone()
                };
                all.push((remark.location, title_or_empty));
            }
            _ => {}
        }
    }
    all
}

fn titled(title: &str) -> String {
    title.to_owned()
}

const fn entry(line: u64, entry: u64) -> Location {
    Location::Entry { line, entry }
}

#[test]
fn remarks_on_messages_within_a_line_give_line_and_entry() {
    let wizard = r#"{"role":"wizard","content":"w"}"#;
    let user = r#"{"role":"user","content":"a"}"#;
    let lines = format!(
        "{{\"title\":\"one\",\"messages\":[{user},{user}]}}\n{{oops\n{{\"title\":\"two\",\"messages\":[{user},{wizard},7]}}\n{{\"title\":\"three\",\"messages\":[{wizard},{user}]}} more\n"
    );
    let found = read_text(&lines, Format::OpenAi);
    let wanted = [
        (Location::Line(2), titled("")),
        (entry(3, 2), titled("two")),
        (entry(3, 3), titled("two")),
        (entry(4, 1), titled("three")),
        (Location::Line(4), titled("")),
    ];
    assert_eq!(remark_locations(&found), wanted);
}

#[test]
fn remarks_on_messages_of_a_multiline_list_give_line_and_entry() {
    let list = "[\n  {\n    \"role\": \"user\",\n    \"content\": \"a\"\n  },\n  {\n    \"role\": \"wizard\"\n  },\n  7,\n  {\"role\": \"user\", \"content\": \"b\"}\n]\n";
    let found = read_text(list, Format::OpenAi);
    assert_eq!(messages(&found).len(), 2);
    assert_eq!(
        remark_locations(&found),
        [(entry(6, 2), titled("file")), (entry(9, 3), titled("file"))]
    );
    let conversations = format!("[\n{{\"messages\":\n{list}}},\n7,\n{{\"messages\":{list}}}]");
    let found = read_text(conversations, Format::OpenAi);
    let wanted = [
        (entry(8, 2), titled("file 1")),
        (entry(11, 3), titled("file 1")),
        (entry(15, 2), titled("")),
        (entry(21, 2), titled("file 3")),
        (entry(24, 3), titled("file 3")),
    ];
    assert_eq!(remark_locations(&found), wanted);
}

#[test]
fn remarks_on_the_fields_of_a_conversation_are_about_that_conversation() {
    let user = r#"{"role":"user","content":"a"}"#;
    let first = format!("{{\"title\":\"one\",\"messages\":[{user}]}}");
    let extra_field = format!("{{\"title\":\"two\",\"extra\":{{}},\"messages\":[{user}]}}");
    let marks = format!("{{\"anneal_marks\":7,\"messages\":[{user}]}}");
    let long_title = format!("{{\"title\":\"{}\",\"messages\":[]}}", "t".repeat(600));
    let lines = [first, extra_field, marks, long_title].join("\n");
    let found = read_text(lines, Format::OpenAi);
    let wanted = [
        (Location::Line(2), titled("two")),
        (Location::Line(3), titled("file 3")),
        (Location::Line(4), titled(&"t".repeat(512))),
    ];
    assert_eq!(remark_locations(&found), wanted);
}

#[test]
fn remarks_on_the_end_of_a_branch_are_about_that_branch() {
    let message_line = |id: &str, parent: &str| {
        format!(
            r#"{{"type":"message","id":"{id}","parentId":{parent},"message":{{"role":"user","content":"{id}"}}}}"#
        )
    };
    let large = |id: &str, parent: &str| {
        format!(
            r#"{{"type":"custom","id":"{id}","parentId":"{parent}","data":"{}"}}"#,
            "x".repeat(5_000)
        )
    };
    let lines = [
        r#"{"type":"session","version":3,"id":"s"}"#.to_owned(),
        message_line("a", "null"),
        message_line("b", "\"a\""),
        large("x", "b"),
        message_line("c", "\"a\""),
        large("y", "c"),
    ];
    let all = ReadOptions {
        branches: Branches::All,
        ..options()
    };
    let found = try_read_all(file(lines.join("\n")).path(), Format::Pi, &all).expect("reads");
    assert_eq!(
        remark_locations(&found),
        [
            (Location::Line(4), titled("file")),
            (Location::Line(6), titled("file"))
        ]
    );
    let heads = shared::heads(&found);
    assert_eq!(
        heads
            .iter()
            .map(|head| head.identity.as_str())
            .collect::<Vec<_>>(),
        ["s", "s/c"]
    );
    let is_head: Vec<bool> = found
        .iter()
        .map(|one| matches!(one, FileEvent::Conversation(_)))
        .collect();
    let second_head = is_head.iter().rposition(|is| *is).expect("two");
    let remarks: Vec<usize> = (0..found.len())
        .filter(|index| matches!(found[*index], FileEvent::Remark(_)))
        .collect();
    assert!(
        remarks[0] < second_head && remarks[1] > second_head,
        "each remark follows its own head"
    );
}

#[test]
fn remarks_on_a_database_give_the_row() {
    let written = tempfile::NamedTempFile::new().expect("a file");
    let database = rusqlite::Connection::open(written.path()).expect("opens");
    database
        .execute_batch(
            "create table session_messages (id integer primary key, session_id text, role text, content text);
             insert into session_messages values (1, 's', 'user', 'a'), (70, 's', 'wizard', 'b'), (71, null, 'user', 'c');",
        )
        .expect("fills");
    drop(database);
    let found = read_all(written.path(), Format::ZeroClaw);
    assert_eq!(
        remark_locations(&found),
        [
            (Location::WholeFile, titled("")),
            (Location::Row(70), titled("file s"))
        ]
    );
}

#[test]
fn extra_and_missing_commas_lose_no_message() {
    let message_line = |text: &str| format!("{{\"role\":\"user\",\"content\":\"{text}\"}}");
    let (a, b, c) = (message_line("a"), message_line("b"), message_line("c"));
    for list in [
        format!("[{a},,{b},{c}]"),
        format!("[,{a},{b} , ,\n,{c},]"),
        format!("[{a} {b},,,,,,,,,{c}"),
    ] {
        for text in [
            list.clone(),
            format!("{{\"messages\":{list}}}"),
            format!("{{\"messages\":{list}}}\n{{\"messages\":[{a}]}}"),
        ] {
            let found = read_text(&text, Format::OpenAi);
            let conversations = shared::heads(&found).len();
            // The first conversation has three messages, a second one has one.
            assert_eq!(
                messages(&found).len(),
                2 + conversations,
                "{text}: {found:?}"
            );
            let refused = shared::remarks(&found)
                .into_iter()
                .filter(|remark| remark.outcome == ImportOutcome::Refused)
                .count();
            assert!((1..=2).contains(&refused), "{text}: {found:?}");
        }
    }
    let conversations =
        format!("[{{\"messages\":[{a}]}},,{{\"messages\":[{b}]}},{{\"messages\":[{c}]}}]");
    let found = read_text(conversations, Format::OpenAi);
    assert_eq!(
        (shared::heads(&found).len(), messages(&found).len()),
        (3, 3)
    );
    assert_eq!(remark_locations(&found), [(entry(1, 2), titled(""))]);
}

#[test]
fn the_remark_on_a_truncated_list_counts_the_lost_bytes() {
    let cut = r#"[{"role":"user","content":"a"},{"role":"user","content":"b},{"role":"user","content":"c"}]"#;
    let found = read_text(cut, Format::OpenAi);
    // The bracket, the first message and the comma after it have 31 bytes.
    let lost = cut.len() - 31;
    assert_eq!(
        shared::remarks(&found)[0].what,
        format!("it is cut off, or is not JSON: {lost} bytes up to the end of the file")
    );
}

#[test]
fn counts_of_unread_fields_and_remarks_before_any_conversation_are_about_the_file() {
    let line = r#"{"messages":[{"role":"user","content":"a","uuid":"u"}]}"#;
    let found = read_text(format!("{line}\n{line}\n"), Format::OpenAi);
    // The field `uuid` is remarked on where it first occurs, and then counted for the whole file.
    assert_eq!(
        remark_locations(&found),
        [(entry(1, 1), titled("file 1")), (entry(1, 1), titled(""))]
    );
    for format in FORMATS
        .into_iter()
        .filter(|format| *format != Format::ZeroClaw)
    {
        // No format accepts this line.
        if let Ok(found) = try_read_all(file("{oops\n").path(), format, &options()) {
            assert!(
                matches!(found[0], FileEvent::Remark(ref remark) if remark.scope == Scope::File),
                "{found:?}"
            );
        }
    }
}
