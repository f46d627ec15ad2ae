//! Summaries of one large message: how each block is shortened depends on the block's structure.
#![allow(clippy::unwrap_used, clippy::format_push_string, reason = "a test may")]

use std::fmt::Write as _;

use crate::fixtures::{ask, call, checked_summary, digest, result, source, text};
use anneal_core::message::{Media, Part, Role};
use anneal_llm::{Extractive, Purpose, Summarizer as _, SummaryFailure};

#[test]
fn json_keeps_its_outline() {
    let items: Vec<String> = (0..500)
        .map(|i| format!(r#"{{"sku":"A-{i}","price":{i}.5,"tags":["x","y"]}}"#))
        .collect();
    let json = format!(
        r#"{{"status":"partial","total":500,"items":[{}],"error":{{"code":"E42"}}}}"#,
        items.join(",")
    );
    let kept = digest(json, 160);
    for fact in [
        "status",
        "partial",
        "total: 500",
        "×500",
        "A-0",
        "A-499",
        "E42",
        "price",
    ] {
        assert!(kept.contains(fact), "{fact}: {kept}");
    }
}

#[test]
fn json_after_a_line_of_prose_is_found_and_the_prose_kept() {
    let rows: Vec<String> = (0..300)
        .map(|i| format!(r#"{{"id": {i}, "name": "row {i}"}}"#))
        .collect();
    let kept = digest(
        format!(
            "Which of these rows is wrong?\nresult: [{}]\nThank you.",
            rows.join(",\n")
        ),
        120,
    );
    assert!(
        kept.contains("Which of these rows is wrong?")
            && kept.contains("×300")
            && kept.contains("row 299"),
        "{kept}"
    );
}

#[test]
fn json_lines_are_one_list() {
    let rows: String = (0..300).fold(String::new(), |mut out, i| {
        let _ = writeln!(out, r#"{{"level": "info", "n": {i}}}"#);
        out
    });
    let kept = digest(rows, 80);
    assert!(kept.contains("×300") && kept.contains("level"), "{kept}");
}

#[test]
fn broken_json_has_a_digest() {
    for broken in [
        r#"{"a": [1, 2, {"b": "c"#,
        r#"{"a" 1,,, ]]] } "x": }"#,
        r#"[{"a": "\"#,
        "[1, 2, [3, 4",
    ] {
        let kept = digest(format!("{broken}{}", "   filler text here ".repeat(40)), 60);
        assert!(!kept.is_empty(), "{broken}: {kept}");
    }
}

#[test]
fn code_of_nine_languages_keeps_its_signatures() {
    let body = |open: &str, close: &str| {
        format!("{open}\n        let_it_run(1, 2);\n        x = x + 1;\n{close}\n")
    };
    let samples = [
        (
            "rust",
            "use std::fmt;\npub struct Order { id: u64 }\nimpl Order {\n    pub(crate) fn total(&self) -> u64 {",
            "}}",
            vec!["pub struct Order", "fn total(&self) -> u64"],
        ),
        (
            "python",
            "import os\nfrom a import b\nclass Cart(Base):\n    def add(self, item: str) -> None:",
            "    return None",
            vec!["class Cart(Base)", "def add(self, item: str)"],
        ),
        (
            "js",
            "import x from 'y';\nexport async function load(url) {",
            "}\nexport const go = (a) => {\n}",
            vec![
                "export async function load(url)",
                "export const go = (a) =>",
            ],
        ),
        (
            "ts",
            "export interface User { id: string }\ntype Id = string;\nexport class Api {",
            "}",
            vec!["export interface User", "export class Api"],
        ),
        (
            "go",
            "package main\nfunc (s *Server) Serve(ctx context.Context) error {",
            "}",
            vec!["func (s *Server) Serve(ctx context.Context) error"],
        ),
        (
            "java",
            "package a.b;\npublic final class Shop {\n    public int price(String sku) throws IOException {",
            "    }\n}",
            vec!["public final class Shop", "public int price(String sku)"],
        ),
        (
            "c",
            "#include <stdio.h>\nstatic int parse(const char *text, size_t len) {",
            "}",
            vec!["static int parse(const char *text, size_t len)"],
        ),
        (
            "sql",
            "create table orders (\n  id bigint primary key\n);\ncreate index orders_by_day on orders (day);",
            "-- end",
            vec!["create table orders", "create index orders_by_day"],
        ),
        ("shell", "#!/bin/sh\ndeploy() {", "}", vec!["deploy()"]),
    ];
    for (language, open, close, signatures) in samples {
        let filler = "        x = compute(x, 17); // step\n".repeat(120);
        let kept = digest(format!("{}{filler}", body(open, close)), 120);
        for signature in signatures {
            assert!(kept.contains(signature), "{language} {signature}: {kept}");
        }
    }
}

#[test]
fn diffs_keep_files_hunks_and_edits() {
    let mut diff = String::from(
        "diff --git a/node_modules/x.js b/node_modules/x.js\nnew file mode 100644\n--- /dev/null\n+++ b/node_modules/x.js\n@@ -0,0 +1,900 @@\n",
    );
    (0..900).for_each(|i| diff.push_str(&format!("+var a{i} = {i};\n")));
    diff.push_str("diff --git a/src/app.py b/src/app.py\n--- a/src/app.py\n+++ b/src/app.py\n@@ -10,4 +10,4 @@ def login(user):\n     check(user)\n-    return False\n+    return user.ok\n");
    let kept = digest(diff, 120);
    // `×1 +900`: one generated file with 900 added lines.
    for fact in [
        "M src/app.py +1 -1",
        "def login(user)",
        "-    return False",
        "+    return user.ok",
        "×1 +900",
    ] {
        assert!(kept.contains(fact), "{fact}: {kept}");
    }
}

#[test]
fn logs_keep_templates_counts_times_and_errors() {
    let mut log = String::new();
    for i in 0..2_000 {
        let _ = writeln!(
            log,
            "2026-01-02 10:{:02}:{:02}.{i:03} INFO http: GET /orders/{i} took {}ms",
            i / 60,
            i % 60,
            i * 7 % 90
        );
        if i % 400 == 7 {
            let _ = writeln!(
                log,
                "2026-01-02 10:{:02}:{:02}.{i:03} ERROR db: connection to 10.0.0.{i} lost",
                i / 60,
                i % 60
            );
        }
    }
    let kept = digest(log, 160);
    // 2,000 requests, and five errors: after requests 7, 407, 807, 1207 and 1607.
    for fact in [
        "[log ×2005, 2026-01-02 10:00:00.000 – ",
        "ERROR db: connection to 10.0.0.7 lost ×5",
        "INFO http: GET /orders/# took # ×2000",
    ] {
        assert!(kept.contains(fact), "{fact}: {kept}");
    }
}

#[test]
fn a_log_whose_lines_start_with_a_time_without_a_date_is_a_log() {
    let mut log = String::new();
    for i in 0..300 {
        let _ = writeln!(
            log,
            "14:{:02}:{:02}Z applied migration {i} in {}ms",
            i / 60,
            i % 60,
            i * 7 % 90
        );
    }
    let kept = digest(log, 120);
    assert!(kept.contains("[log ×300, 14:00:00Z – 14:04:59Z]"), "{kept}");
}

#[test]
fn a_question_before_a_pasted_log_is_kept_whole() {
    let log = "2026-01-02 10:00:00 INFO ticking along nicely 12\n".repeat(500);
    let kept = digest(
        format!("Why does the billing service restart every night?\n\n{log}"),
        100,
    );
    assert!(
        kept.starts_with("Why does the billing service restart every night?\n[log ×500"),
        "{kept}"
    );
}

#[test]
fn mixed_markdown_keeps_something_of_every_block() {
    let rows = "| 17 | Oslo | 3.5 |\n".repeat(200);
    let code = "    value = value + 1\n".repeat(200);
    let prose = "The committee talked about many small things at length. ".repeat(60);
    let kept = digest(
        format!(
            "# Report\n\n{prose}We decided to close the Lima office on 2026-05-01.\n\n| id | city | score |\n|---|---|---|\n{rows}\n\n```python\ndef close_office(name):\n{code}```\n"
        ),
        240,
    );
    // The table has 200 rows, a header and a separator.
    for fact in [
        "2026-05-01",
        "| id | city | score |",
        "def close_office(name)",
        "[table ×202]",
    ] {
        assert!(kept.contains(fact), "{fact}: {kept}");
    }
}

#[test]
fn a_blob_is_written_as_its_length() {
    let kept = digest(
        format!(
            "Here is the picture that you wanted. {}",
            "QUJD".repeat(10_000)
        ),
        60,
    );
    assert!(
        kept.contains("Here is the picture") && kept.contains("(40000)"),
        "4 characters 10,000 times: {kept}"
    );
}

#[test]
fn tool_calls_results_and_media_keep_their_names() {
    let list = "{\"a\": 1, \"b\": \"c\"}, ".repeat(200);
    let media = Media {
        uri: "s3://bucket/x.png".into(),
        media_type: "image/png".into(),
        bytes: 0,
        tokens: 0,
    };
    let parts = vec![
        call("c", "list_rows", "{\"table\": \"t\"}"),
        result("c", &format!("[{list}]")),
        Part::Media(media),
    ];
    let sources = [source(1, Role::Tool, parts)];
    let kept = checked_summary(&ask(Purpose::Message, &sources, 90))
        .unwrap()
        .text;
    assert!(
        kept.contains("→ list_rows {\"table\": \"t\"}") && kept.contains("← list_rows [×200"),
        "{kept}"
    );
    assert!(kept.contains("[image/png s3://bucket/x.png]"), "{kept}");
}

#[test]
fn control_characters_and_terminal_colors_are_removed() {
    let kept = digest(
        "\u{1b}[31mred\u{1b}[0m al\0ert\u{7}! The pump in hall 7 stopped.\r\nNext line\u{9b}. \u{202e}evil\u{202c} "
            .repeat(30),
        40,
    );
    assert!(
        kept.contains("red alert") && !kept.contains("[31m") && !kept.contains('\u{202e}'),
        "{kept}"
    );
}

#[test]
fn a_short_message_is_refused() {
    let sources = [source(1, Role::User, vec![text("a")])];
    assert!(matches!(
        Extractive.summarize(&ask(Purpose::Message, &sources, 100)),
        Err(SummaryFailure::NotShorter)
    ));
}

#[test]
fn hostile_messages_of_two_megabytes_are_digested() {
    assert_hostile_texts_are_summarized(Purpose::Message);
}

#[test]
fn hostile_messages_of_two_megabytes_are_summarized_in_a_range() {
    assert_hostile_texts_are_summarized(Purpose::Range);
}

fn assert_hostile_texts_are_summarized(purpose: Purpose) {
    let big = 2_000_000;
    let hostile = [
        "x".repeat(big),
        "[".repeat(big),
        "{".repeat(big),
        "{\"a\":".repeat(big / 5),
        "[{\"".repeat(big / 3),
        "\"".repeat(big),
        "Ab c. ".repeat(big / 6),
        "```\n".repeat(big / 4),
        "字".repeat(big / 3),
        "\u{301}".repeat(big / 2),
        "a\n{\"k\": 1}\n".repeat(big / 12),
        "2026-01-01 00:00:00 ERROR e\n".repeat(big / 28),
        "diff --git a/x b/x\n".repeat(big / 19),
        "(".repeat(big),
        ". ".repeat(big / 2),
    ];
    // A cheap measure, because the test is about the summarizer's own work.
    let cheap = |text: &str| anneal_core::tokens::Tokens::new(text.len().div_ceil(4) as u64);
    for content in hostile {
        let sources = [source(1, Role::User, vec![text(format!("{content}!"))])];
        let ask = anneal_llm::SummaryAsk {
            measure: &cheap,
            ..ask(purpose, &sources, 300)
        };
        let summary = Extractive.summarize(&ask).unwrap();
        assert!(!summary.text.trim().is_empty() && summary.tokens <= ask.target);
    }
    let newlines = [source(
        1,
        Role::User,
        vec![text(format!("{}a word or two", "\n".repeat(big)))],
    )];
    let ask = anneal_llm::SummaryAsk {
        measure: &cheap,
        ..ask(purpose, &newlines, 4)
    };
    assert!(Extractive.summarize(&ask).unwrap().text.starts_with("a w"));
}
