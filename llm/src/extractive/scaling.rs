//! Tests that the work is linear: they count the bytes read for an input and for one four times as
//! long.

use anneal_core::{
    message::{MessageId, Part, Role},
    tokens::Tokens,
};

use crate::{Extractive, Purpose, Source, SourceBody, Summarizer as _, SummaryAsk};

use super::work;

/// Bytes that are read to summarize the sources.
fn work_of(purpose: Purpose, sources: &[Source]) -> u64 {
    let measure = |text: &str| Tokens::new(text.len().div_ceil(4) as u64);
    let target = Tokens::new(500);
    let ask = SummaryAsk {
        purpose,
        previous: None,
        quoted: None,
        sources,
        focus: None,
        target,
        measure: &measure,
    };
    work::take();
    let summary = Extractive.summarize(&ask);
    assert!(summary.is_ok(), "{summary:?}");
    work::take()
}

fn message(id: i64, text: String) -> Source {
    Source {
        message_id: MessageId(id),
        role: Role::User,
        body: SourceBody::Original(vec![Part::Text { text }]),
    }
}

#[test]
fn four_times_the_text_is_at_most_five_times_the_work() {
    let units = [
        "x",
        "[",
        "{",
        "\n",
        "\"",
        "[{\"a\":",
        "{\"a\":1}\n",
        "Ab c. ",
        "字",
        "句子很短。",
        "a,b,c,d\n",
        "```\n",
        "def f(a):\n",
        "| a | b |\n",
        "2026-01-01 00:00:00 WARN w 12\n",
        "diff --git a/x b/x\n+a\n",
        "\u{301}",
        "[1, 2, ",
        "\\",
        "word \n\n",
        "# ",
    ];
    for unit in units {
        for purpose in [Purpose::Message, Purpose::Range] {
            let text = |bytes: usize| {
                [message(
                    1,
                    format!("{}end.", unit.repeat(bytes / unit.len())),
                )]
            };
            let (one, four) = (
                work_of(purpose, &text(60_000)),
                work_of(purpose, &text(240_000)),
            );
            // The constant allows for the selection of candidates, which the target bounds.
            assert!(
                four <= one * 5 + 100_000,
                "{unit:?} {purpose:?}: {one} then {four}"
            );
            // On average, each byte is read at most 40 times.
            assert!(
                four <= 240_000 * 40,
                "{unit:?} {purpose:?}: {four} bytes read for 240,000"
            );
        }
    }
}

#[test]
fn four_times_the_messages_are_at_most_five_times_the_work() {
    let sources = |n: i64| -> Vec<Source> {
        (0..n)
            .map(|i| {
                message(
                    i + 1,
                    format!("Please look at file src/part{i}.rs. Then {{\"a\": [{i}, 2, 3]}}"),
                )
            })
            .collect()
    };
    let (one, four) = (
        work_of(Purpose::Range, &sources(1_000)),
        work_of(Purpose::Range, &sources(4_000)),
    );
    assert!(four <= one * 5, "{one} then {four}");
}
