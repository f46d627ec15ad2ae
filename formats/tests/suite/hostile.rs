//! Broken, truncated and malicious files.

use std::io::Write as _;

use crate::shared::{
    self, FORMATS, file, heads, line, messages, options, read_all, read_text, remarks, try_read_all,
};
use anneal_core::message::Part;
use anneal_formats::{
    FileEvent, Format, ImportOutcome, Location, ReadError, ReadOptions, Stopped, Strictness,
    detect, read,
};
use proptest::prelude::*;

fn texts(found: &[FileEvent]) -> Vec<String> {
    let parts = messages(found)
        .into_iter()
        .flat_map(|message| message.parts);
    parts
        .map(|part| anneal_core::message::part_text(&part).to_owned())
        .collect()
}

/// The line (0 for none) and the outcome of each remark.
fn outcomes(found: &[FileEvent]) -> Vec<(u64, ImportOutcome)> {
    remarks(found)
        .into_iter()
        .map(|remark| (line(&remark), remark.outcome))
        .collect()
}

#[test]
fn a_bad_line_is_remarked_on_and_the_others_are_read() {
    let lines = "{\"role\":\"user\",\"content\":\"a\"}\n{broken\n\n{\"role\":\"wizard\",\"content\":\"w\"}\r\n{\"role\":\"user\",\"content\":\"b\"}\n{\"role\":\"user\",\"cont";
    let found = read_text(lines, Format::OpenAi);
    assert_eq!(texts(&found), ["a", "b"]);
    assert_eq!(
        outcomes(&found),
        [
            (2, ImportOutcome::Refused),
            (4, ImportOutcome::Refused),
            (6, ImportOutcome::Refused)
        ]
    );
    assert!(remarks(&found)[1].what.contains("unknown role wizard"));
}

#[test]
fn a_strict_reading_ends_at_the_first_bad_line() {
    let file = file(
        "{\"role\":\"user\",\"content\":\"a\"}\n{broken\n{\"role\":\"user\",\"content\":\"b\"}\n",
    );
    let strict = ReadOptions {
        strict: Strictness::Strict,
        ..options()
    };
    let error = try_read_all(file.path(), Format::OpenAi, &strict).expect_err("is refused");
    assert!(
        matches!(
            error,
            ReadError::Refused {
                location: Location::Line(2),
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains('2'));
}

#[test]
fn a_truncated_first_line_loses_no_other_line() {
    let whole = "{\"role\":\"user\",\"content\":\"a\"}\n";
    for truncated in [
        "{",
        "{\"role\"",
        "{\"role\":",
        "{\"role\":\"user\",",
        "{\"role\":\"user\",\"content\":[{\"type\":",
    ] {
        let found = read_text(format!("{truncated}\n{}", whole.repeat(3)), Format::OpenAi);
        assert_eq!(texts(&found), ["a", "a", "a"], "{truncated}");
        assert_eq!(
            outcomes(&found),
            [(1, ImportOutcome::Refused)],
            "{truncated}"
        );
    }
}

#[test]
fn a_refused_or_missing_record_loses_no_other_message() {
    // `more` announces one more record of the same message, but none follows.
    let first = r#"{"role":"tool","tool_call_id":"1","content":"x","anneal":{"more":1,"metadata":{"k":"v"}}}"#;
    let answer = r#"{"role":"assistant","content":"done"}"#;
    for between in ["{broken\n", r#"{"role":"wizard"}"#, ""] {
        let found = read_text(format!("{first}\n{between}\n{answer}\n"), Format::OpenAi);
        assert_eq!(texts(&found), ["x", "done"], "{between}");
        assert_eq!(messages(&found)[0].metadata["k"], "v");
        assert!(
            outcomes(&found).contains(&(1, ImportOutcome::Changed)),
            "{between}"
        );
    }
}

#[test]
fn a_truncated_list_keeps_its_complete_messages() {
    for cut in [
        "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"con",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]",
    ] {
        let found = read_text(cut, Format::OpenAi);
        assert_eq!(texts(&found), ["a"], "{cut}");
        assert_eq!(remarks(&found).len(), 1, "{cut}");
    }
}

#[test]
fn byte_order_marks_blanks_and_nul_are_accepted() {
    let text = "\u{feff}\r\n{\"role\":\"user\",\"content\":\"a\\u0000\u{2028}b\"}\r\n \r\n{\"role\":\"user\",\"content\":\"c\"}";
    let found = read_text(text, Format::OpenAi);
    assert_eq!(texts(&found), ["a\0\u{2028}b", "c"]);
    assert!(remarks(&found).is_empty());
}

#[test]
fn lone_surrogates_and_invalid_utf8_are_replaced_and_remarked_on() {
    let mut bytes =
        b"{\"type\":\"user\",\"content\":\"a\\ud800b\",\"ts\":1}\n{\"type\":\"user\",\"content\":\"".to_vec();
    bytes.extend_from_slice(b"\xffc\"}\n");
    let found = read_text(bytes, Format::Claw0);
    assert_eq!(texts(&found), ["a\u{fffd}b", "\u{fffd}c"]);
    assert_eq!(
        outcomes(&found),
        [(1, ImportOutcome::Changed), (2, ImportOutcome::Changed)]
    );
}

#[test]
fn deeply_nested_values_are_refused() {
    for depth in [200, 1_000_000] {
        let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let lines = format!(
            "{{\"type\":\"tool_use\",\"tool_use_id\":\"c\",\"name\":\"n\",\"input\":{deep}}}\n{{\"type\":\"user\",\"content\":\"a\"}}\n{deep}\n"
        );
        let found = read_text(&lines, Format::Claw0);
        assert_eq!(texts(&found), ["a"]);
        assert_eq!(
            outcomes(&found),
            [(1, ImportOutcome::Refused), (3, ImportOutcome::Refused)]
        );
        for (format, line) in [
            (Format::OpenAi, r#"{"role":"user","content":"a"}"#),
            (Format::Anthropic, r#"{"role":"user","content":"a"}"#),
            (Format::ShareGpt, r#"{"from":"human","value":"a"}"#),
            (
                Format::Pi,
                r#"{"type":"message","message":{"role":"user","content":"a"}}"#,
            ),
        ] {
            let within = line.replace("\"a\"", &deep);
            let found = read_text(format!("{line}\n{within}\n{line}\n{deep}\n"), format);
            assert_eq!(texts(&found), ["a", "a"], "{format:?}");
            let refused = outcomes(&found)
                .into_iter()
                .filter(|(_, outcome)| *outcome == ImportOutcome::Refused);
            assert_eq!(
                refused.map(|(line, _)| line).collect::<Vec<_>>(),
                [2, 4],
                "{format:?}"
            );
        }
        detect(file(&deep).path()).expect_err("it has no format");
    }
}

#[test]
fn duplicate_keys_and_unusual_numbers_are_read() {
    let line = r#"{"type":"tool_use","tool_use_id":"x","tool_use_id":"c","name":"n","input":{"a":1e2,"a":-0.0,"b":12345678901234567890123}}"#;
    let found = read_text(line, Format::Claw0);
    let input = r#"{"a":1e2,"a":-0.0,"b":12345678901234567890123}"#.to_owned();
    assert_eq!(
        messages(&found)[0].parts,
        [Part::ToolUse {
            id: "c".into(),
            name: "n".into(),
            input
        }]
    );
}

#[test]
fn an_invalid_anneal_object_is_refused_or_repaired() {
    let lines = [
        r#"{"role":"user","content":"r","anneal":{"parts":[0,0]}}"#,
        r#"{"role":"user","content":"r","anneal":{"parts":[7]}}"#,
        r#"{"role":"user","content":"r","anneal":{"parts":[{"at":0,"type":"tool_use"}]}}"#,
        r#"{"role":"user","content":"a","anneal":{"more":18446744073709551615}}"#,
        r#"{"role":"user","content":"r","anneal":{"role":"tool"}}"#,
        r#"{"role":"user","content":"b","anneal":7}"#,
    ];
    let found = read_text(lines.join("\n"), Format::OpenAi);
    assert_eq!(texts(&found), ["a", "b"]);
    assert_eq!(
        remarks(&found)
            .iter()
            .filter(|remark| remark.outcome == ImportOutcome::Refused)
            .count(),
        4
    );
}

#[test]
fn a_file_without_a_conversation_is_an_error() {
    for text in ["", "\n\n", "7", "[]", "[7]"] {
        let read = try_read_all(file(text).path(), Format::OpenAi, &options());
        assert!(matches!(read, Err(ReadError::Empty)), "{text}: {read:?}");
    }
    assert!(matches!(detect(file("").path()), Err(ReadError::Unknown)));
}

#[test]
fn a_page_of_text_with_an_example_of_a_message_has_no_format() {
    let page = "# Messages\n\nA message looks like this:\n\n```\n\
        {\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"a\"}\n```\n\nMore [here](there).\n";
    let error = detect(file(page).path()).expect_err("it is a text");
    assert_eq!(
        error.to_string(),
        "its content has none of the known formats: openai, anthropic, claw0, pi, sharegpt, zeroclaw"
    );
    let log = "a truncated line\n{\"role\":\"user\",\"content\":\"a\"}\n{\"role\":\"user\",\"content\":\"b\"}\n";
    assert_eq!(detect(file(log).path()).expect("is known"), Format::OpenAi);
}

#[test]
fn a_sink_can_stop_the_reading() {
    let lines = "{\"role\":\"user\",\"content\":\"a\"}\n".repeat(5);
    let mut events_until_stop = 3;
    let mut sink = |_: FileEvent| {
        events_until_stop -= 1;
        if events_until_stop == 0 {
            Err(Stopped)
        } else {
            Ok(())
        }
    };
    let read = read(file(lines).path(), Format::OpenAi, &options(), &mut sink);
    assert!(matches!(read, Err(ReadError::Stopped(_))));
    assert_eq!(events_until_stop, 0);
}

/// Peak memory of this process in bytes; None if the system does not report it.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(
        line.trim()
            .strip_suffix(" kB")?
            .trim()
            .parse::<u64>()
            .ok()?
            * 1024,
    )
}

/// Lowers the recorded peak memory to what the process uses now, and returns it. A peak never falls
/// by itself, so without this only the first of several reads could exceed a test's limit.
fn reset_peak_memory() -> Option<u64> {
    // Where the system has no such file, the peak stays.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    peak_memory()
}

#[test]
fn a_file_of_200_mb_is_read_one_message_at_a_time() {
    let message = format!(
        "{{\"role\":\"user\",\"content\":\"{}\"}}",
        "x".repeat(1_000_000)
    );
    let folder = tempfile::tempdir().expect("a folder");
    let layouts = [
        ("[", ",", "]"),
        ("{\"messages\":[", ",", "],\"title\":\"t\"}"),
        ("", "\n", "\n"),
    ];
    for (begin, between, end) in layouts {
        let path = folder.path().join("large");
        let mut file = std::io::BufWriter::new(std::fs::File::create(&path).expect("creates"));
        file.write_all(begin.as_bytes()).expect("writes");
        for index in 0..200 {
            let separator = if index == 0 { "" } else { between };
            write!(file, "{separator}{message}").expect("writes");
        }
        file.write_all(end.as_bytes()).expect("writes");
        file.flush().expect("writes");
        drop(file);
        let before = reset_peak_memory();
        let mut count = 0;
        let mut sink = |found: FileEvent| {
            count += u64::from(matches!(found, FileEvent::Message(_)));
            Ok(())
        };
        assert_eq!(detect(&path).expect("is known"), Format::OpenAi);
        read(&path, Format::OpenAi, &options(), &mut sink).expect("reads");
        assert_eq!(count, 200);
        // The reader may hold a few copies of one message of 1 MB, but not the file.
        if let (Some(before), Some(after)) = (before, peak_memory()) {
            let more = after.saturating_sub(before);
            assert!(more < 24_000_000, "{begin:?}: {more} bytes more");
        }
    }
}

#[test]
fn reading_a_session_takes_little_memory_for_each_entry() {
    const ENTRIES: u64 = 500_000;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("session");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).expect("creates"));
    writeln!(file, "{{\"type\":\"session\",\"version\":3,\"id\":\"s\"}}").expect("writes");
    for index in 0..ENTRIES {
        let parent = index
            .checked_sub(1)
            .map_or_else(|| "null".into(), |previous| format!("\"{previous:032x}\""));
        writeln!(file, "{{\"type\":\"message\",\"id\":\"{index:032x}\",\"parentId\":{parent},\"message\":{{\"role\":\"user\",\"content\":\"a\"}}}}").expect("writes");
    }
    file.flush().expect("writes");
    drop(file);
    let (before, mut count) = (reset_peak_memory(), 0);
    let mut sink = |found: FileEvent| {
        count += u64::from(matches!(found, FileEvent::Message(_)));
        Ok(())
    };
    read(&path, Format::Pi, &options(), &mut sink).expect("reads");
    assert_eq!(count, ENTRIES);
    // The tree of a session has 16 bytes for each entry and 17 for the hash of its id. Both
    // collections grow by doubling.
    if let (Some(before), Some(after)) = (before, peak_memory()) {
        let more = after.saturating_sub(before);
        assert!(
            more < 80 * ENTRIES,
            "{} bytes for each entry",
            more / ENTRIES
        );
    }
}

#[test]
fn a_line_longer_than_any_message_is_refused_in_bounded_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("long");
    let mebibyte = vec![b'x'; 1024 * 1024];
    for (format, begin, end) in [
        (Format::Claw0, r#"{"type":"user","content":""#, r#""}"#),
        (Format::OpenAi, r#"{"role":"user","content":""#, r#""}"#),
        (
            Format::Pi,
            r#"{"type":"message","message":{"role":"user","content":""#,
            r#""}}"#,
        ),
        (Format::ShareGpt, r#"{"from":"human","value":""#, r#""}"#),
    ] {
        let mut file = std::io::BufWriter::new(std::fs::File::create(&path).expect("creates"));
        write!(file, "{begin}b{end}\n{begin}").expect("writes");
        for _ in 0..100 {
            file.write_all(&mebibyte).expect("writes");
        }
        write!(file, "{end}\n{begin}a{end}\n").expect("writes");
        file.flush().expect("writes");
        drop(file);
        let before = reset_peak_memory();
        let found = read_all(&path, format);
        let refused: Vec<_> = outcomes(&found)
            .into_iter()
            .filter(|(_, outcome)| *outcome == ImportOutcome::Refused)
            .collect();
        assert_eq!(
            (texts(&found), refused),
            (
                vec!["b".to_owned(), "a".to_owned()],
                vec![(2, ImportOutcome::Refused)]
            )
        );
        assert_eq!(detect(&path).expect("is known"), format);
        // Up to 75 MB of a line are kept (`ELEMENT_BYTES`) before it is known to be too long.
        if let (Some(before), Some(after)) = (before, peak_memory()) {
            let more = after.saturating_sub(before);
            assert!(more < 90_000_000, "{format:?}: {more} bytes more");
        }
    }
}

/// Fragments that look like records of the formats.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(r#"{"role":"user","content":"#.to_owned()),
        Just(r#"{"type":"session","version":3,"id":"s"}"#.to_owned()),
        Just(r#"{"type":"message","id":"a","parentId":"a","message":"#.to_owned()),
        Just(r#"{"type":"compaction","summary":"s","firstKeptEntryId":"a"}"#.to_owned()),
        Just(r#"{"type":"compaction","summary":"s","firstKeptEntryIndex":4294967295}"#.to_owned()),
        Just(r#"{"type":"tool_use","tool_use_id":"c","name":"n","input":{}}"#.to_owned()),
        Just(r#"{"type":"tool_result","tool_use_id":"c","content":"#.to_owned()),
        Just(r#""conversations":[{"from":"human","value":"#.to_owned()),
        Just(r#""anneal":{"more":2,"parts":[0,{"at":0}]}"#.to_owned()),
        Just(r#""anneal_marks":[{"after":0}]"#.to_owned()),
        Just(r#"{"messages":["#.to_owned()),
        Just(r#"[{"type":"text","text":"t"}]"#.to_owned()),
        Just(r#""\ud800\\"#.to_owned()),
        r#"[\[\]{},:"\\\n0-9a ]{0,6}"#,
        Just("\n".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let file = file(&bytes);
        let _ = detect(file.path());
        for format in FORMATS {
            let _ = try_read_all(file.path(), format, &options());
        }
    }

    #[test]
    fn no_lines_make_a_reader_panic(pieces in prop::collection::vec(piece(), 0..12)) {
        let file = file(pieces.concat());
        let _ = detect(file.path());
        for format in FORMATS {
            let read = try_read_all(file.path(), format, &ReadOptions { branches: anneal_formats::Branches::All, ..options() });
            if let Ok(found) = read {
                prop_assert!(!heads(&found).is_empty());
            }
        }
    }

    #[test]
    fn a_database_with_any_bytes_in_it_does_not_make_its_reader_panic(offset in 100_usize..8_000, bytes in prop::collection::vec(any::<u8>(), 1..40)) {
        let written = shared::write_file(Format::ZeroClaw, &anneal_formats::Head::default(), &[]);
        let mut database = std::fs::read(written.path()).expect("reads");
        let end = database.len().min(offset + bytes.len());
        if offset < end {
            let length = end - offset;
            database[offset..end].copy_from_slice(&bytes[..length]);
        }
        let _ = try_read_all(file(&database).path(), Format::ZeroClaw, &options());
    }
}

#[test]
fn a_file_of_one_format_read_as_another_never_panics() {
    for written_format in FORMATS {
        let file = shared::write_file(written_format, &anneal_formats::Head::default(), &[]);
        for format in FORMATS {
            let _ = try_read_all(file.path(), format, &options());
        }
        assert!(!heads(&read_all(file.path(), written_format)).is_empty());
    }
}
