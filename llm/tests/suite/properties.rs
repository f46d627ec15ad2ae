//! Properties of extractive summaries for any sources: no panic, within the target, shorter than
//! the source, no control character.
#![allow(clippy::unwrap_used, clippy::format_push_string, reason = "a test may")]

use crate::fixtures::{call, checked_summary, is_labeled, measure, result, text};
use anneal_core::{
    message::{MessageId, Part, Role},
    tokens::Tokens,
};
use anneal_llm::{Purpose, Quote, Source, SourceBody, SummaryAsk, SummaryFailure};
use proptest::prelude::*;

/// Arbitrary characters, mixed with fragments of JSON, code, logs, diffs and labels.
fn content() -> impl Strategy<Value = String> {
    let fragment = prop_oneof![
        4 => "\\PC{0,30}",
        2 => any::<String>(),
        2 => "[a-zA-Z ]{0,60}[.!?\n]",
        1 => "[\\[\\]{}\":,0-9a-z\\\\\n ]{0,60}",
        1 => "[\u{4e00}-\u{4e20}。？\n]{0,30}",
        1 => prop::sample::select(vec![
            "{\"a\": [1, {\"b\": \"c\\n\"}]}\n", "```rust\nfn f() {\n```\n", "2026-01-01 00:00:00 ERROR x 12\n", "| a | b |\n", "[13 assistant] ",
            "diff --git a/x b/y\n@@ -1 +1 @@\n-a\n+b\n", "def f(x):\n    pass\n", "\0\u{1b}[31m\r\u{85}\u{2028}", "👩‍👩‍👧‍👦", "a\tb\tc\n", "> ", "[… ×3]\n",
        ]).prop_map(str::to_owned),
    ];
    prop::collection::vec(fragment, 0..14).prop_map(|fragments| fragments.concat())
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        4 => content().prop_map(text),
        1 => (content(), content()).prop_map(|(name, input)| call("c", &name, &input)),
        1 => content().prop_map(|answer| result("c", &answer)),
        1 => content().prop_map(|text| Part::Reasoning { text, signature: String::new(), provider: String::new(), redacted: false }),
    ]
}

fn sources() -> impl Strategy<Value = Vec<Source>> {
    let role = prop::sample::select(vec![Role::User, Role::Assistant, Role::Tool, Role::System]);
    let body = prop_oneof![
        5 => prop::collection::vec(part(), 0..4).prop_map(SourceBody::Original),
        1 => content().prop_map(SourceBody::CachedSummary),
    ];
    prop::collection::vec((role, body), 0..8).prop_map(|messages| {
        let source = |(i, (role, body))| Source {
            message_id: MessageId(i as i64 + 1),
            role,
            body,
        };
        messages.into_iter().enumerate().map(source).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sources_give_a_valid_summary(
        sources in sources(),
        previous in prop::option::of(content()),
        quoted in prop::option::of(content()),
        focus in prop::option::of("[a-z]{4,8}"),
        target in 0_u64..300,
        is_range in any::<bool>(),
    ) {
        let ask = SummaryAsk {
            purpose: if is_range { Purpose::Range } else { Purpose::Message },
            previous: previous.as_deref(),
            quoted: quoted.as_deref().map(|text| Quote { message_id: MessageId(1), text }),
            sources: &sources,
            focus: focus.as_deref(),
            target: Tokens::new(target),
            measure: &measure,
        };
        // The summary of a range has labels, unless it has too few tokens for them or begins with
        // a previous summary, which may lack them.
        match checked_summary(&ask) {
            Ok(summary) if is_range && previous.is_none() && target > 60 && ask.source_tokens(ask.target) > Tokens::new(60) => {
                prop_assert!(is_labeled(&summary.text), "{}", summary.text);
            }
            Ok(_) | Err(SummaryFailure::EmptySource | SummaryFailure::NotShorter | SummaryFailure::TargetTooSmall(_)) => {}
            Err(other) => prop_assert!(false, "{other:?}"),
        }
    }
}
