//! Files that are broken, cut off, or made to harm.

mod shared;

use std::io::Write as _;

use anneal_core::message::Part;
use anneal_formats::{Fate, Format, Found, Place, ReadError, ReadOptions, Stopped, Strictness, detect, read};
use proptest::prelude::*;
use shared::{FORMATS, file, found, heads, line, messages, of_text, options, remarks, try_found};

fn texts(found: &[Found]) -> Vec<String> {
    let parts = messages(found).into_iter().flat_map(|message| message.parts);
    parts.map(|part| anneal_core::message::part_text(&part).to_owned()).collect()
}

/// The line of each remark, 0 for none, and its fate.
fn fates(found: &[Found]) -> Vec<(u64, Fate)> {
    remarks(found).into_iter().map(|remark| (line(&remark), remark.fate)).collect()
}

#[test]
fn a_bad_line_is_remarked_on_and_the_others_are_read() {
    let lines = "{\"role\":\"user\",\"content\":\"a\"}\n{broken\n\n{\"role\":\"wizard\",\"content\":\"w\"}\r\n{\"role\":\"user\",\"content\":\"b\"}\n{\"role\":\"user\",\"cont";
    let found = of_text(lines, Format::OpenAi);
    assert_eq!(texts(&found), ["a", "b"]);
    assert_eq!(fates(&found), [(2, Fate::Refused), (4, Fate::Refused), (6, Fate::Refused)]);
    assert!(remarks(&found)[1].what.contains("unknown role wizard"));
}

#[test]
fn a_strict_reading_ends_at_the_first_bad_line() {
    let file = file("{\"role\":\"user\",\"content\":\"a\"}\n{broken\n{\"role\":\"user\",\"content\":\"b\"}\n");
    let strict = ReadOptions { strict: Strictness::Strict, ..options() };
    let error = try_found(file.path(), Format::OpenAi, &strict).expect_err("is refused");
    assert!(matches!(error, ReadError::Refused { place: Place::Line(2), .. }), "{error}");
    assert!(error.to_string().contains('2'));
}

#[test]
fn a_first_line_that_breaks_off_costs_no_other() {
    let whole = "{\"role\":\"user\",\"content\":\"a\"}\n";
    for torn in ["{", "{\"role\"", "{\"role\":", "{\"role\":\"user\",", "{\"role\":\"user\",\"content\":[{\"type\":"] {
        let found = of_text(format!("{torn}\n{}", whole.repeat(3)), Format::OpenAi);
        assert_eq!(texts(&found), ["a", "a", "a"], "{torn}");
        assert_eq!(fates(&found), [(1, Fate::Refused)], "{torn}");
    }
}

#[test]
fn a_record_that_is_refused_or_missing_takes_no_other_message_with_it() {
    let first = r#"{"role":"tool","tool_call_id":"1","content":"x","anneal":{"more":1,"metadata":{"k":"v"}}}"#;
    let answer = r#"{"role":"assistant","content":"done"}"#;
    for between in ["{broken\n", r#"{"role":"wizard"}"#, ""] {
        let found = of_text(format!("{first}\n{between}\n{answer}\n"), Format::OpenAi);
        assert_eq!(texts(&found), ["x", "done"], "{between}");
        assert_eq!(messages(&found)[0].metadata["k"], "v");
        assert!(fates(&found).contains(&(1, Fate::Changed)), "{between}");
    }
}

#[test]
fn a_list_that_breaks_off_keeps_what_is_whole() {
    for cut in [
        "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"con",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]",
    ] {
        let found = of_text(cut, Format::OpenAi);
        assert_eq!(texts(&found), ["a"], "{cut}");
        assert_eq!(remarks(&found).len(), 1, "{cut}");
    }
}

#[test]
fn marks_blanks_and_nul_do_no_harm() {
    let text = "\u{feff}\r\n{\"role\":\"user\",\"content\":\"a\\u0000\u{2028}b\"}\r\n \r\n{\"role\":\"user\",\"content\":\"c\"}";
    let found = of_text(text, Format::OpenAi);
    assert_eq!(texts(&found), ["a\0\u{2028}b", "c"]);
    assert!(remarks(&found).is_empty());
}

#[test]
fn lone_surrogates_and_bytes_that_are_no_utf8_are_mended_and_said() {
    let mut bytes =
        b"{\"type\":\"user\",\"content\":\"a\\ud800b\",\"ts\":1}\n{\"type\":\"user\",\"content\":\"".to_vec();
    bytes.extend_from_slice(b"\xffc\"}\n");
    let found = of_text(bytes, Format::Claw0);
    assert_eq!(texts(&found), ["a\u{fffd}b", "\u{fffd}c"]);
    assert_eq!(fates(&found), [(1, Fate::Changed), (2, Fate::Changed)]);
}

#[test]
fn what_is_nested_too_deeply_is_refused() {
    for depth in [200, 1_000_000] {
        let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let lines = format!(
            "{{\"type\":\"tool_use\",\"tool_use_id\":\"c\",\"name\":\"n\",\"input\":{deep}}}\n{{\"type\":\"user\",\"content\":\"a\"}}\n{deep}\n"
        );
        let found = of_text(&lines, Format::Claw0);
        assert_eq!(texts(&found), ["a"]);
        assert_eq!(fates(&found), [(1, Fate::Refused), (3, Fate::Refused)]);
        for (format, line) in [
            (Format::OpenAi, r#"{"role":"user","content":"a"}"#),
            (Format::Anthropic, r#"{"role":"user","content":"a"}"#),
            (Format::ShareGpt, r#"{"from":"human","value":"a"}"#),
            (Format::Pi, r#"{"type":"message","message":{"role":"user","content":"a"}}"#),
        ] {
            let within = line.replace("\"a\"", &deep);
            let found = of_text(format!("{line}\n{within}\n{line}\n{deep}\n"), format);
            assert_eq!(texts(&found), ["a", "a"], "{format:?}");
            let refused = fates(&found).into_iter().filter(|(_, fate)| *fate == Fate::Refused);
            assert_eq!(refused.map(|(line, _)| line).collect::<Vec<_>>(), [2, 4], "{format:?}");
        }
        detect(file(&deep).path()).expect_err("it is nothing");
    }
}

#[test]
fn equal_keys_and_odd_numbers_do_no_harm() {
    let line = r#"{"type":"tool_use","tool_use_id":"x","tool_use_id":"c","name":"n","input":{"a":1e2,"a":-0.0,"b":12345678901234567890123}}"#;
    let found = of_text(line, Format::Claw0);
    let input = r#"{"a":1e2,"a":-0.0,"b":12345678901234567890123}"#.to_owned();
    assert_eq!(messages(&found)[0].parts, [Part::ToolUse { id: "c".into(), name: "n".into(), input }]);
}

#[test]
fn an_anneal_object_that_lies_is_refused_or_mended() {
    let lines = [
        r#"{"role":"user","content":"a","anneal":{"parts":[0,0]}}"#,
        r#"{"role":"user","content":"a","anneal":{"parts":[7]}}"#,
        r#"{"role":"user","content":"a","anneal":{"parts":[{"at":0,"type":"tool_use"}]}}"#,
        r#"{"role":"user","content":"a","anneal":{"more":18446744073709551615}}"#,
        r#"{"role":"user","content":"b","anneal":{"role":"tool"}}"#,
        r#"{"role":"user","content":"c","anneal":7}"#,
    ];
    let found = of_text(lines.join("\n"), Format::OpenAi);
    assert_eq!(texts(&found), ["a", "c"]);
    assert_eq!(remarks(&found).iter().filter(|remark| remark.fate == Fate::Refused).count(), 4);
}

#[test]
fn a_file_without_a_conversation_says_so() {
    for text in ["", "\n\n", "7", "[]", "[7]"] {
        let all = try_found(file(text).path(), Format::OpenAi, &options());
        assert!(matches!(all, Err(ReadError::Empty)), "{text}: {all:?}");
    }
    assert!(matches!(detect(file("").path()), Err(ReadError::Unknown)));
}

#[test]
fn a_sink_that_wants_no_more_ends_the_reading() {
    let lines = "{\"role\":\"user\",\"content\":\"a\"}\n".repeat(5);
    let mut left = 3;
    let mut sink = |_: Found| {
        left -= 1;
        if left == 0 { Err(Stopped) } else { Ok(()) }
    };
    let read = read(file(lines).path(), Format::OpenAi, &options(), &mut sink);
    assert!(matches!(read, Err(ReadError::Stopped(_))));
    assert_eq!(left, 0);
}

/// Most memory of this process so far, in bytes; None where the system does not say.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[test]
fn a_file_of_200_mb_is_read_a_message_at_a_time() {
    let message = format!("{{\"role\":\"user\",\"content\":\"{}\"}}", "x".repeat(1_000_000));
    let folder = tempfile::tempdir().expect("a folder");
    let layouts = [("[", ",", "]"), ("{\"messages\":[", ",", "],\"title\":\"t\"}"), ("", "\n", "\n")];
    for (begin, between, end) in layouts {
        let path = folder.path().join("large");
        let mut file = std::io::BufWriter::new(std::fs::File::create(&path).expect("creates"));
        file.write_all(begin.as_bytes()).expect("writes");
        for index in 0..200 {
            let before = if index == 0 { "" } else { between };
            write!(file, "{before}{message}").expect("writes");
        }
        file.write_all(end.as_bytes()).expect("writes");
        file.flush().expect("writes");
        drop(file);
        let before = peak();
        let mut count = 0;
        let mut sink = |found: Found| {
            count += u64::from(matches!(found, Found::Message(_)));
            Ok(())
        };
        assert_eq!(detect(&path).expect("is known"), Format::OpenAi);
        read(&path, Format::OpenAi, &options(), &mut sink).expect("reads");
        assert_eq!(count, 200);
        if let (Some(before), Some(after)) = (before, peak()) {
            assert!(after - before < 24_000_000, "{begin:?}: {} bytes more", after - before);
        }
    }
}

#[test]
fn a_session_of_many_small_entries_is_held_as_a_few_bytes_for_each() {
    const ENTRIES: u64 = 500_000;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("session");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).expect("creates"));
    writeln!(file, "{{\"type\":\"session\",\"version\":3,\"id\":\"s\"}}").expect("writes");
    for index in 0..ENTRIES {
        let parent = index.checked_sub(1).map_or_else(|| "null".into(), |before| format!("\"{before:032x}\""));
        writeln!(file, "{{\"type\":\"message\",\"id\":\"{index:032x}\",\"parentId\":{parent},\"message\":{{\"role\":\"user\",\"content\":\"a\"}}}}").expect("writes");
    }
    file.flush().expect("writes");
    drop(file);
    let (before, mut count) = (peak(), 0);
    let mut sink = |found: Found| {
        count += u64::from(matches!(found, Found::Message(_)));
        Ok(())
    };
    read(&path, Format::Pi, &options(), &mut sink).expect("reads");
    assert_eq!(count, ENTRIES);
    if let (Some(before), Some(after)) = (before, peak()) {
        assert!(after - before < 80 * ENTRIES, "{} bytes for each entry", (after - before) / ENTRIES);
    }
}

#[test]
fn a_line_longer_than_any_message_is_refused_without_being_held() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("long");
    let piece = vec![b'x'; 1024 * 1024];
    for (format, begin, end) in [
        (Format::Claw0, r#"{"type":"user","content":""#, r#""}"#),
        (Format::OpenAi, r#"{"role":"user","content":""#, r#""}"#),
        (Format::Pi, r#"{"type":"message","message":{"role":"user","content":""#, r#""}}"#),
        (Format::ShareGpt, r#"{"from":"human","value":""#, r#""}"#),
    ] {
        let mut file = std::io::BufWriter::new(std::fs::File::create(&path).expect("creates"));
        write!(file, "{begin}b{end}\n{begin}").expect("writes");
        for _ in 0..100 {
            file.write_all(&piece).expect("writes");
        }
        write!(file, "{end}\n{begin}a{end}\n").expect("writes");
        file.flush().expect("writes");
        drop(file);
        let before = peak();
        let found = found(&path, format);
        let refused: Vec<_> = fates(&found).into_iter().filter(|(_, fate)| *fate == Fate::Refused).collect();
        assert_eq!((texts(&found), refused), (vec!["b".to_owned(), "a".to_owned()], vec![(2, Fate::Refused)]));
        assert_eq!(detect(&path).expect("is known"), format);
        if let (Some(before), Some(after)) = (before, peak()) {
            assert!(after - before < 90_000_000, "{format:?}: {} bytes more", after - before);
        }
    }
}

/// Pieces that look like the formats' own.
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
            let _ = try_found(file.path(), format, &options());
        }
    }

    #[test]
    fn no_lines_make_a_reader_panic(pieces in prop::collection::vec(piece(), 0..12)) {
        let file = file(pieces.concat());
        let _ = detect(file.path());
        for format in FORMATS {
            let all = try_found(file.path(), format, &ReadOptions { branches: anneal_formats::Branches::All, ..options() });
            if let Ok(found) = all {
                prop_assert!(!heads(&found).is_empty());
            }
        }
    }

    #[test]
    fn a_database_with_any_bytes_in_it_makes_no_reader_panic(at in 100_usize..8_000, bytes in prop::collection::vec(any::<u8>(), 1..40)) {
        let written = shared::written(Format::ZeroClaw, &anneal_formats::Head::default(), &[]);
        let mut database = std::fs::read(written.path()).expect("reads");
        let end = database.len().min(at + bytes.len());
        if at < end {
            let length = end - at;
            database[at..end].copy_from_slice(&bytes[..length]);
        }
        let _ = try_found(file(&database).path(), Format::ZeroClaw, &options());
    }
}

#[test]
fn a_file_of_one_format_read_as_another_never_panics() {
    for written in FORMATS {
        let file = shared::written(written, &anneal_formats::Head::default(), &[]);
        for format in FORMATS {
            let _ = try_found(file.path(), format, &options());
        }
        assert!(!heads(&found(file.path(), written)).is_empty());
    }
}
