//! `anneal import` of NUL, line separators, surrogates, byte order marks and invalid UTF-8 in every
//! text format. Valid texts are stored byte for byte, and every line that is changed or refused is
//! reported.

use anneal_testkit::{ImportFolder, TestApp, pb};
use serde_json::{Value, json};

use crate::files::BINARY;

/// A line of a file in this format: a user message whose text is the JSON string `text`.
fn line(format: &str, text: &str) -> String {
    match format {
        "claw0" => format!("{{\"type\":\"user\",\"content\":{text},\"ts\":1}}"),
        "pi" => {
            format!("{{\"type\":\"message\",\"message\":{{\"role\":\"user\",\"content\":{text}}}}}")
        }
        "sharegpt" => format!("{{\"conversations\":[{{\"from\":\"human\",\"value\":{text}}}]}}"),
        _ => format!("{{\"messages\":[{{\"role\":\"user\",\"content\":{text}}}]}}"),
    }
}

#[tokio::test]
async fn every_format_stores_or_reports_odd_bytes() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    for format in ["claw0", "pi", "sharegpt", "openai", "anthropic"] {
        let header = (format == "pi")
            .then(|| json!({"type": "session", "version": 3, "id": "odd"}).to_string());
        let mut lines: Vec<Vec<u8>> = header.into_iter().map(String::into_bytes).collect();
        let first_line_number = lines.len() as u64 + 1;
        let not_utf8 = line(format, "\"not UTF\"");
        let (before, after) = not_utf8.split_once("UTF").expect("exists");
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
        std::fs::write(imports.folder.path().join(format), bytes).expect("writes");
        let import = [format, "--format", format, "--report", "report.jsonl"];
        let ran = imports.import(&import).await;
        assert_eq!(ran.code, Some(1), "{format}: {ran:?}");
        let mut texts = Vec::new();
        for conversation in imports.conversations(&ran) {
            texts.extend(
                conversation
                    .texts_by_role()
                    .await
                    .into_iter()
                    .map(|(role, text)| {
                        assert_eq!(role, pb::Role::User, "{format}");
                        text
                    }),
            );
            conversation.verify().await;
        }
        let expected = [
            "a\0b\u{2028}\r\n",
            "half \u{fffd} a pair, whole 🧊",
            "not \u{fffd}\u{fffd}",
            "冷たい 🧊",
        ];
        assert_eq!(texts, expected, "{format}: {ran:?}");
        let report = std::fs::read_to_string(imports.folder.path().join("report.jsonl"))
            .expect("the report is there");
        let remarks = report
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let mut remarks: Vec<(u64, String)> = remarks
            .map(|line| {
                (
                    line["line"].as_u64().expect("a line") - first_line_number,
                    line["fate"].as_str().expect("a fate").into(),
                )
            })
            .collect();
        remarks.sort();
        let expected = [
            (1, "changed"),
            (2, "refused"),
            (3, "refused"),
            (4, "changed"),
            (5, "refused"),
        ];
        assert_eq!(
            remarks,
            expected.map(|(index, fate)| (index, fate.to_owned())),
            "{format}: {report}"
        );
        let again = imports.import(&import).await;
        assert!(
            again.out.contains(", 0 messages stored, 4 there already"),
            "{format}: {again:?}"
        );
    }
}
