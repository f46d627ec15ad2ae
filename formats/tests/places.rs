//! Remarks say where something stands, and whose it is.

mod shared;

use anneal_formats::{Branches, Fate, Format, Found, Place, ReadOptions, Scope};
use shared::{FORMATS, file, found, messages, of_text, options, try_found};

/// Each remark: where it stands, and the title of the conversation that it is about; empty for the file's own.
fn remarked(found: &[Found]) -> Vec<(Place, String)> {
    let mut title = String::new();
    let mut all = Vec::new();
    for one in found {
        match one {
            Found::Conversation(head) => title.clone_from(&head.title),
            Found::Remark(remark) => {
                let whose = if remark.scope == Scope::File { String::new() } else { title.clone() };
                all.push((remark.place, whose));
            }
            _ => {}
        }
    }
    all
}

fn of(title: &str) -> String {
    title.to_owned()
}

const fn entry(line: u64, entry: u64) -> Place {
    Place::Entry { line, entry }
}

#[test]
fn lines_that_are_conversations_say_the_line_and_the_entry() {
    let wizard = r#"{"role":"wizard","content":"w"}"#;
    let user = r#"{"role":"user","content":"a"}"#;
    let lines = format!(
        "{{\"title\":\"one\",\"messages\":[{user},{user}]}}\n{{oops\n{{\"title\":\"two\",\"messages\":[{user},{wizard},7]}}\n{{\"title\":\"three\",\"messages\":[{wizard},{user}]}} more\n"
    );
    let found = of_text(&lines, Format::OpenAi);
    let wanted = [
        (Place::Line(2), of("")),
        (entry(3, 2), of("two")),
        (entry(3, 3), of("two")),
        (entry(4, 1), of("three")),
        (Place::Line(4), of("")),
    ];
    assert_eq!(remarked(&found), wanted);
}

#[test]
fn lists_over_several_lines_say_the_line_and_the_entry() {
    let list = "[\n  {\n    \"role\": \"user\",\n    \"content\": \"a\"\n  },\n  {\n    \"role\": \"wizard\"\n  },\n  7,\n  {\"role\": \"user\", \"content\": \"b\"}\n]\n";
    let found = of_text(list, Format::OpenAi);
    assert_eq!(messages(&found).len(), 2);
    assert_eq!(remarked(&found), [(entry(6, 2), of("file")), (entry(9, 3), of("file"))]);
    let talks = format!("[\n{{\"messages\":\n{list}}},\n7,\n{{\"messages\":{list}}}]");
    let found = of_text(talks, Format::OpenAi);
    let wanted = [
        (entry(8, 2), of("file 1")),
        (entry(11, 3), of("file 1")),
        (entry(15, 2), of("")),
        (entry(21, 2), of("file 3")),
        (entry(24, 3), of("file 3")),
    ];
    assert_eq!(remarked(&found), wanted);
}

#[test]
fn what_is_said_of_a_head_is_said_of_its_own_conversation() {
    let user = r#"{"role":"user","content":"a"}"#;
    let first = format!("{{\"title\":\"one\",\"messages\":[{user}]}}");
    let aside = format!("{{\"title\":\"two\",\"extra\":{{}},\"messages\":[{user}]}}");
    let marks = format!("{{\"anneal_marks\":7,\"messages\":[{user}]}}");
    let long = format!("{{\"title\":\"{}\",\"messages\":[]}}", "t".repeat(600));
    let found = of_text([first, aside, marks, long].join("\n"), Format::OpenAi);
    let wanted = [(Place::Line(2), of("two")), (Place::Line(3), of("file 3")), (Place::Line(4), of(&"t".repeat(512)))];
    assert_eq!(remarked(&found), wanted);
}

#[test]
fn what_is_set_aside_at_a_branchs_end_is_said_of_that_branch() {
    let said = |id: &str, parent: &str| {
        format!(r#"{{"type":"message","id":"{id}","parentId":{parent},"message":{{"role":"user","content":"{id}"}}}}"#)
    };
    let large = |id: &str, parent: &str| {
        format!(r#"{{"type":"custom","id":"{id}","parentId":"{parent}","data":"{}"}}"#, "x".repeat(5_000))
    };
    let lines = [
        r#"{"type":"session","version":3,"id":"s"}"#.to_owned(),
        said("a", "null"),
        said("b", "\"a\""),
        large("x", "b"),
        said("c", "\"a\""),
        large("y", "c"),
    ];
    let all = ReadOptions { branches: Branches::All, ..options() };
    let found = try_found(file(lines.join("\n")).path(), Format::Pi, &all).expect("reads");
    assert_eq!(remarked(&found), [(Place::Line(4), of("file")), (Place::Line(6), of("file"))]);
    let heads = shared::heads(&found);
    assert_eq!(heads.iter().map(|head| head.identity.as_str()).collect::<Vec<_>>(), ["s", "s/c"]);
    let order: Vec<bool> = found.iter().map(|one| matches!(one, Found::Conversation(_))).collect();
    let second = order.iter().rposition(|is| *is).expect("two");
    let remarks: Vec<usize> = (0..found.len()).filter(|place| matches!(found[*place], Found::Remark(_))).collect();
    assert!(remarks[0] < second && remarks[1] > second, "each stands behind its own head");
}

#[test]
fn rows_of_a_database_are_no_lines() {
    let written = tempfile::NamedTempFile::new().expect("a file");
    let database = rusqlite::Connection::open(written.path()).expect("opens");
    database
        .execute_batch(
            "create table session_messages (id integer primary key, session_id text, role text, content text);
             insert into session_messages values (1, 's', 'user', 'a'), (70, 's', 'wizard', 'b'), (71, null, 'user', 'c');",
        )
        .expect("fills");
    drop(database);
    let found = found(written.path(), Format::ZeroClaw);
    assert_eq!(remarked(&found), [(Place::Whole, of("")), (Place::Row(70), of("file s"))]);
}

#[test]
fn a_comma_too_many_costs_no_message() {
    let said = |text: &str| format!("{{\"role\":\"user\",\"content\":\"{text}\"}}");
    let (a, b, c) = (said("a"), said("b"), said("c"));
    for list in [format!("[{a},,{b},{c}]"), format!("[,{a},{b} , ,\n,{c},]"), format!("[{a} {b},,,,,,,,,{c}")] {
        for text in [
            list.clone(),
            format!("{{\"messages\":{list}}}"),
            format!("{{\"messages\":{list}}}\n{{\"messages\":[{a}]}}"),
        ] {
            let found = of_text(&text, Format::OpenAi);
            let talks = shared::heads(&found).len();
            assert_eq!(messages(&found).len(), 2 + talks, "{text}: {found:?}");
            let refused = shared::remarks(&found).into_iter().filter(|remark| remark.fate == Fate::Refused).count();
            assert!((1..=2).contains(&refused), "{text}: {found:?}");
        }
    }
    let talks = format!("[{{\"messages\":[{a}]}},,{{\"messages\":[{b}]}},{{\"messages\":[{c}]}}]");
    let found = of_text(talks, Format::OpenAi);
    assert_eq!((shared::heads(&found).len(), messages(&found).len()), (3, 3));
    assert_eq!(remarked(&found), [(entry(1, 2), of(""))]);
}

#[test]
fn what_is_lost_where_a_list_breaks_off_is_counted() {
    let cut = r#"[{"role":"user","content":"a"},{"role":"user","content":"b},{"role":"user","content":"c"}]"#;
    let found = of_text(cut, Format::OpenAi);
    let lost = cut.len() - 31;
    assert_eq!(shared::remarks(&found)[0].what, format!("it breaks off, or is no JSON: {lost} bytes up to the end"));
}

#[test]
fn fields_counted_at_the_end_of_a_file_are_the_files() {
    let line = r#"{"messages":[{"role":"user","content":"a","uuid":"u"}]}"#;
    let found = of_text(format!("{line}\n{line}\n"), Format::OpenAi);
    assert_eq!(remarked(&found), [(entry(1, 1), of("file 1")), (entry(1, 1), of(""))]);
    for format in FORMATS.into_iter().filter(|format| *format != Format::ZeroClaw) {
        // nothing of this is any format's: whatever is said before a conversation is the file's own
        if let Ok(found) = try_found(file("{oops\n").path(), format, &options()) {
            assert!(matches!(found[0], Found::Remark(ref remark) if remark.scope == Scope::File), "{found:?}");
        }
    }
}
