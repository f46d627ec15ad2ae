//! Throughput of the extractive summarizer by kind of text, in megabytes per second:
//! `cargo run --release -p anneal-llm --example throughput`.
#![allow(clippy::unwrap_used, reason = "a measurement may stop at once")]

use std::time::Instant;

use anneal_core::{
    message::{MessageId, Part, Role},
    tokens::Tokens,
};
use anneal_llm::{Extractive, Purpose, Source, SourceBody, Summarizer as _, SummaryAsk};

/// Each text has about this many bytes.
const BYTES: usize = 10_000_000;

fn main() {
    let numbered = |line: &dyn Fn(usize) -> String| {
        let mut text = String::with_capacity(BYTES + 200);
        let mut number = 0;
        while text.len() < BYTES {
            text.push_str(&line(number));
            number += 1;
        }
        text
    };
    let texts = [
        (
            "prose",
            numbered(&|i| {
                format!(
                    "Section {i} explains how the Baltic fleet repaired its rudders in port {}. ",
                    i * 7 % 911
                )
            }),
        ),
        (
            "chinese prose",
            numbered(&|i| format!("第{i}节说明船队如何在港口修理船舵，并记录了费用。")),
        ),
        (
            "json",
            format!(
                "[{}]",
                numbered(&|i| format!(
                    "{{\"id\": {i}, \"name\": \"row {i}\", \"tags\": [\"a\", \"b\"]}},\n"
                ))
            ),
        ),
        (
            "log",
            numbered(&|i| {
                format!(
                    "2026-01-02 10:00:{:02}.{:03} INFO http: GET /orders/{i} took {}ms\n",
                    i % 60,
                    i % 1000,
                    i % 90
                )
            }),
        ),
        (
            "code",
            numbered(&|i| {
                format!("def compute_{i}(a, b):\n    total = a * b + {i}\n    return total\n\n")
            }),
        ),
        ("one line without spaces", "x".repeat(BYTES)),
        ("10 MB of [", "[".repeat(BYTES)),
        ("10 MB of {", "{".repeat(BYTES)),
        (
            "10 MB of line feeds",
            format!("{}end of it", "\n".repeat(BYTES)),
        ),
        ("1.7 M short sentences", "Ab c. ".repeat(BYTES / 6)),
    ];
    // Linear like the real counter, but so cheap that only the summarizer's own work is timed.
    let measure = |text: &str| Tokens::new(text.len().div_ceil(4) as u64);
    for (name, text) in texts {
        let body = SourceBody::Original(vec![Part::Text { text }]);
        let sources = [Source {
            message_id: MessageId(1),
            role: Role::User,
            body,
        }];
        for purpose in [Purpose::Message, Purpose::Range] {
            let target = Tokens::new(2_000);
            let ask = SummaryAsk {
                purpose,
                previous: None,
                quoted: None,
                sources: &sources,
                focus: None,
                target,
                measure: &measure,
            };
            let start = Instant::now();
            let summary = Extractive.summarize(&ask).map_or_else(
                |e| e.to_string(),
                |summary| format!("{} tokens", summary.tokens),
            );
            let seconds = start.elapsed().as_secs_f64();
            println!(
                "{name:>24} {purpose:?}: {:.0} MB/s ({summary})",
                BYTES as f64 / 1e6 / seconds
            );
        }
    }
}
