//! The second call after a refused answer: its prompt carries feedback, and its answer is accepted
//! or fails the summary. A filtered answer or a failed call is not followed by a second call.
#![allow(clippy::unwrap_used, clippy::format_collect, reason = "a test may")]

use crate::fixtures::{ask, source, text};
use crate::gate_checks::english;
use crate::scripted_model::{ScriptedCalls, answer, ended, model, report, summarize};
use anneal_core::message::Role;
use anneal_llm::{
    Purpose, RejectedSummary, Source, SummaryFailure,
    provider::{CallFailure, StopReason},
};

#[test]
fn a_valid_second_answer_is_the_summary() {
    let refused_answers = [
        "",
        "User: hi\nAssistant: hello",
        "The same thing happened once more today. The same thing happened once more today. The same thing happened once more today. The same thing happened once more today.",
    ];
    for refused_answer in refused_answers {
        let scripted = ScriptedCalls::new(move |number, _| {
            Ok(answer(if number == 0 {
                refused_answer
            } else {
                "Places open and close, week by week, and Bob pays."
            }))
        });
        let summary = summarize(
            &model(32_768),
            &scripted,
            &ask(Purpose::Range, &english(), 400),
        )
        .unwrap();
        assert_eq!(
            summary.text,
            "Places open and close, week by week, and Bob pays."
        );
    }
}

#[test]
fn a_parts_second_answer_may_lack_an_identifier_but_must_pass_the_other_gates() {
    let mut sources: Vec<Source> = (0..12).flat_map(|_| english()).collect();
    for (at, source) in sources.iter_mut().enumerate() {
        source.message_id.0 = at as i64 + 1;
    }
    sources[1] = source(
        2,
        Role::User,
        vec![text("OPS-4711, OPS-4711 and OPS-4711 again.")],
    );
    let lacks_identifier = ScriptedCalls::new(|_, prompt| {
        Ok(answer(if prompt.is_whole() {
            report(prompt)
        } else {
            format!(
                "Plans for places that open and close, week by week, part {}.",
                prompt.lines[0]["message"]
            )
        }))
    });
    summarize(
        &model(8_192),
        &lacks_identifier,
        &ask(Purpose::Range, &sources, 400),
    )
    .unwrap();
    assert!(
        lacks_identifier.prompts()[0].must_keep == ["OPS-4711"]
            && lacks_identifier.prompts()[1].feedback().is_some()
    );
    // The second answer may lack the identifier even if the first was refused for another reason.
    let markers_first = ScriptedCalls::new(|_, prompt| {
        Ok(answer(match (prompt.is_whole(), prompt.feedback()) {
            (true, _) => report(prompt),
            (false, None) => "User: hi".to_owned(),
            (false, Some(_)) => "Plans for places that open and close, week by week.".to_owned(),
        }))
    });
    summarize(
        &model(8_192),
        &markers_first,
        &ask(Purpose::Range, &sources, 400),
    )
    .unwrap();
    let markers_twice = ScriptedCalls::new(|_, prompt| {
        Ok(answer(if prompt.is_whole() {
            report(prompt)
        } else {
            "User: hi".to_owned()
        }))
    });
    let failure = summarize(
        &model(8_192),
        &markers_twice,
        &ask(Purpose::Range, &sources, 400),
    )
    .unwrap_err();
    assert!(
        matches!(
            failure,
            SummaryFailure::Rejected(RejectedSummary::RoleMarkers)
        ),
        "{failure:?}"
    );
    assert!(
        markers_twice.parts.lock().unwrap().is_empty(),
        "a refused part was stored"
    );
}

#[test]
fn filtered_answers_and_failed_calls_get_no_second_call() {
    let sources = english();
    let filtered = ScriptedCalls::new(|_, _| Ok(ended("Ann wants", StopReason::Filtered)));
    let failure = summarize(
        &model(32_768),
        &filtered,
        &ask(Purpose::Range, &sources, 400),
    )
    .unwrap_err();
    assert!(
        matches!(failure, SummaryFailure::Filtered) && filtered.calls() == 1,
        "{failure:?}"
    );
    assert!(!failure.is_bad_output() && !failure.is_retryable());
    let refused = ScriptedCalls::new(|_, _| Err(CallFailure::Refused { status: 401 }.into()));
    let failure = summarize(
        &model(32_768),
        &refused,
        &ask(Purpose::Range, &sources, 400),
    )
    .unwrap_err();
    assert!(
        matches!(
            failure,
            SummaryFailure::Call(CallFailure::Refused { status: 401 })
        ) && refused.calls() == 1
    );
}
