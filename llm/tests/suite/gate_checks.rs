//! Assertions that the gates refuse or pass a model's text. Two conversations for such texts to
//! summarize: `english` and `chinese`.
#![allow(clippy::unwrap_used, clippy::format_collect, reason = "a test may")]

use crate::fixtures::{ask, dialogue};
use crate::scripted_model::{ScriptedCalls, model, summarize};
use anneal_llm::{Purpose, RejectedSummary, Source, SummaryFailure};

/// The failure of a summary of `target` tokens, from a model that gives the answer `said` to both
/// calls.
pub(crate) fn refusal(sources: &[Source], said: &str, target: u64) -> SummaryFailure {
    let scripted = ScriptedCalls::answering(said);
    let failure = summarize(
        &model(32_768),
        &scripted,
        &ask(Purpose::Range, sources, target),
    )
    .unwrap_err();
    let prompts = scripted.prompts();
    assert_eq!(prompts.len(), 2, "one second call after {said:?}");
    assert!(prompts[0].feedback().is_none() && prompts[1].feedback().is_some());
    assert!(
        said.trim().is_empty() || !prompts[1].user.contains(said),
        "the refused text is sent back"
    );
    assert!(
        failure.is_bad_output() || matches!(failure, SummaryFailure::NotShorter),
        "{failure:?}"
    );
    failure
}

/// The reason for which a gate refuses the answer `said`.
pub(crate) fn rejection(sources: &[Source], said: &str) -> RejectedSummary {
    match refusal(sources, said, 400) {
        SummaryFailure::Rejected(reason) => reason,
        other => panic!("{other:?}"),
    }
}

/// Asserts that all gates pass the answer `said`.
pub(crate) fn assert_passes(sources: &[Source], said: &str) {
    let scripted = ScriptedCalls::answering(said);
    summarize(
        &model(32_768),
        &scripted,
        &ask(Purpose::Range, sources, 400),
    )
    .unwrap_or_else(|failure| panic!("{failure:?}: {said}"));
    assert_eq!(scripted.calls(), 1, "{said}");
}

/// English messages that all differ, about 1,400 tokens.
pub(crate) fn english() -> Vec<Source> {
    let topics = [
        "garden", "harbour", "ledger", "orchard", "printer", "station", "theatre", "workshop",
    ];
    let said = |i: usize| {
        let [a, b, c] = [
            topics[i % 8],
            topics[(i / 3 + 5) % 8],
            topics[(i * 5 + 2) % 8],
        ];
        format!(
            "Regarding the {a}: Ann would rather close the {b} in week {i} and then open the {c} once Bob has paid for it."
        )
    };
    let lines: Vec<String> = (0..48).map(said).collect();
    dialogue(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Chinese messages that all differ: orders get new addresses, and customers are told.
pub(crate) fn chinese() -> Vec<Source> {
    let lines: Vec<String> = (0..40)
        .flat_map(|i| {
            [
                format!(
                    "请把第{i}个订单的地址改成人民路{}号，并且今天之内通知客户。",
                    i * 3
                ),
                format!(
                    "第{i}个订单已经修改好了，客户在下午{}点确认收到通知。",
                    i % 5 + 1
                ),
            ]
        })
        .collect();
    dialogue(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}
