//! Bytes that other systems leave in files, end to end and in every format that is a text: what is read is told byte for
//! byte, and what cannot be is said by line.

use anneal_tests::{Files, House, pb};
use serde_json::{Value, json};

use crate::BINARY;

/// A line of the format in which the user says this JSON text.
fn line(format: &str, text: &str) -> String {
    match format {
        "claw0" => format!("{{\"type\":\"user\",\"content\":{text},\"ts\":1}}"),
        "pi" => format!("{{\"type\":\"message\",\"message\":{{\"role\":\"user\",\"content\":{text}}}}}"),
        "sharegpt" => format!("{{\"conversations\":[{{\"from\":\"human\",\"value\":{text}}}]}}"),
        _ => format!("{{\"messages\":[{{\"role\":\"user\",\"content\":{text}}}]}}"),
    }
}

#[tokio::test]
async fn marks_line_ends_surrogates_and_raw_bytes_are_read_or_said_in_every_format() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    for format in ["claw0", "pi", "sharegpt", "openai", "anthropic"] {
        let header = (format == "pi").then(|| json!({"type": "session", "version": 3, "id": "odd"}).to_string());
        let mut lines: Vec<Vec<u8>> = header.into_iter().map(String::into_bytes).collect();
        let first = lines.len() as u64 + 1;
        let not_utf8 = line(format, "\"not UTF\"");
        let (before, after) = not_utf8.split_once("UTF").expect("is there");
        let not_utf8 = [before.as_bytes(), b"\xff\xfe", after.as_bytes()].concat();
        lines.extend([
            line(format, r#""a\u0000b\u2028\r\n""#).into_bytes(),
            line(format, r#""half \ud800 a pair, whole \ud83e\uddca""#).into_bytes(),
            line(format, "\"raw \0 in it\"").into_bytes(),
            line(format, "\"x\"").replace('x', "\u{1}").into_bytes(),
            not_utf8,
            b"\0\0\0\0".to_vec(),
            line(format, r#""冷たい 🧊""#).into_bytes(),
        ]);
        let bytes = [b"\xef\xbb\xbf".to_vec(), lines.join(b"\r\n".as_slice())].concat();
        std::fs::write(files.folder.path().join(format), bytes).expect("writes");
        let import = [format, "--format", format, "--report", "report.jsonl"];
        let ran = files.import(&import).await;
        assert_eq!(ran.code, Some(1), "{format}: {ran:?}");
        let mut said = Vec::new();
        for talk in files.talks(&ran) {
            said.extend(talk.said().await.into_iter().map(|(role, text)| {
                assert_eq!(role, pb::Role::User, "{format}");
                text
            }));
            talk.verify().await;
        }
        let wanted = ["a\0b\u{2028}\r\n", "half \u{fffd} a pair, whole 🧊", "not \u{fffd}\u{fffd}", "冷たい 🧊"];
        assert_eq!(said, wanted, "{format}: {ran:?}");
        let report = std::fs::read_to_string(files.folder.path().join("report.jsonl")).expect("the report is there");
        let remarks = report.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let mut remarks: Vec<(u64, String)> = remarks
            .map(|line| (line["line"].as_u64().expect("a line") - first, line["fate"].as_str().expect("a fate").into()))
            .collect();
        remarks.sort();
        let wanted = [(1, "changed"), (2, "refused"), (3, "refused"), (4, "changed"), (5, "refused")];
        assert_eq!(remarks, wanted.map(|(line, fate)| (line, fate.to_owned())), "{format}: {report}");
        let again = files.import(&import).await;
        assert!(again.out.contains(", 0 messages stored, 4 there already"), "{format}: {again:?}");
    }
}
