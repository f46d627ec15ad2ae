//! The calls for a summary by a model: how many, their output limits, and what an overflow changes.
#![allow(clippy::unwrap_used, clippy::format_collect, reason = "a test may")]

use crate::fixtures::{ask, dialogue, talk};
use crate::scripted_model::{
    ScriptedCalls, answer, ended, likely_overflow, model, model_that_writes, overflow, report,
    summarize,
};
use anneal_core::tokens::Tokens;
use anneal_llm::{
    Purpose, Source, SummaryFailure,
    provider::{CallFailure, StopReason},
};

#[test]
fn a_source_that_fits_takes_one_call_and_its_answer_is_the_summary() {
    let scripted = ScriptedCalls::answering(
        r#"{"summary": "Lots were moved.", "decisions": ["Nobody objects"], "open": []}"#,
    );
    let sources = talk(20);
    let summary = summarize(
        &model(8_192),
        &scripted,
        &ask(Purpose::Range, &sources, 200),
    )
    .unwrap();
    assert_eq!(
        summary.text,
        "Lots were moved.\n\nDecisions:\n- Nobody objects"
    );
    assert_eq!(scripted.calls(), 1);
    assert!(
        scripted.parts.lock().unwrap().is_empty(),
        "only the caller stores a whole summary"
    );
}

#[test]
fn no_call_is_made_when_no_summary_is_possible() {
    let scripted = ScriptedCalls::reporting();
    let failure = |sources: &[Source], target| {
        summarize(
            &model(8_192),
            &scripted,
            &ask(Purpose::Range, sources, target),
        )
        .unwrap_err()
    };
    assert!(matches!(failure(&[], 200), SummaryFailure::EmptySource));
    assert!(matches!(
        failure(&dialogue(&[" \n\0", "\t"]), 200),
        SummaryFailure::EmptySource
    ));
    assert!(
        matches!(failure(&talk(20), 20), SummaryFailure::TargetTooSmall(target) if target == Tokens::new(20))
    );
    assert!(matches!(
        failure(&dialogue(&["Move it.", "Done."]), 200),
        SummaryFailure::NotShorter
    ));
    assert_eq!(scripted.calls(), 0);
}

#[test]
fn a_truncated_answer_gets_a_larger_output_limit_once() {
    let scripted = ScriptedCalls::new(|number, _| {
        Ok(if number == 0 {
            ended("Lots were", StopReason::OutputLimit)
        } else {
            answer("Lots were moved.")
        })
    });
    let sources = talk(20);
    summarize(
        &model(8_192),
        &scripted,
        &ask(Purpose::Range, &sources, 200),
    )
    .unwrap();
    let prompts = scripted.prompts();
    assert_eq!(prompts[1].output, 4 * prompts[0].output);
    let scripted = ScriptedCalls::new(|_, _| Ok(ended("Lots were", StopReason::OutputLimit)));
    // This model's own output limit leaves no room for a larger one.
    let small = model_that_writes(8_192, 256);
    let failure = summarize(&small, &scripted, &ask(Purpose::Range, &sources, 200)).unwrap_err();
    assert!(matches!(failure, SummaryFailure::Truncated), "{failure:?}");
    assert_eq!(
        scripted
            .prompts()
            .iter()
            .map(|prompt| prompt.output)
            .collect::<Vec<_>>(),
        [256, 256]
    );
}

#[test]
fn every_call_leaves_a_margin_for_another_tokenizer() {
    let sources = talk(1_500);
    for window in [3_000, 8_192, 20_000] {
        for target in [60, 150, 400, 2_000] {
            let scripted = ScriptedCalls::reporting();
            summarize(
                &model(window),
                &scripted,
                &ask(Purpose::Range, &sources, target),
            )
            .unwrap();
            for prompt in scripted.prompts() {
                // The margin is 15 %: `MARGIN_PERCENT` in `model_summary/token_budget.rs`.
                assert!(
                    prompt.sent * 115 / 100 + prompt.output <= window,
                    "{} and {} of {window}",
                    prompt.sent,
                    prompt.output
                );
            }
        }
    }
}

#[test]
fn an_overflow_makes_chunks_smaller_and_loses_no_message() {
    let sources = talk(1_000);
    for named_window in [None, Some(4_000)] {
        // From the third call on, the model refuses prompts of more than 3,000 tokens.
        let scripted = ScriptedCalls::new(move |number, prompt| {
            if number > 1 && prompt.sent > 3_000 {
                Err(overflow(named_window))
            } else {
                Ok(answer(report(prompt)))
            }
        });
        summarize(
            &model(8_192),
            &scripted,
            &ask(Purpose::Range, &sources, 300),
        )
        .unwrap();
        let prompts = scripted.prompts();
        let refused = prompts
            .iter()
            .skip(2)
            .filter(|prompt| prompt.sent > 3_000)
            .count();
        assert!((1..=2).contains(&refused), "{refused} refused");
        let answered: Vec<_> = prompts
            .iter()
            .enumerate()
            .filter(|(number, prompt)| *number < 2 || prompt.sent <= 3_000)
            .collect();
        let lines_answered: usize = answered
            .iter()
            .map(|(_, prompt)| {
                prompt
                    .kinds()
                    .iter()
                    .filter(|kind| **kind == "said")
                    .count()
            })
            .sum();
        assert!(
            lines_answered >= 1_000,
            "a message was lost: {lines_answered}"
        );
    }
}

#[test]
fn a_model_that_refuses_every_length_fails_after_a_few_calls() {
    let scripted = ScriptedCalls::new(|_, _| Err(overflow(None)));
    let sources = talk(1_000);
    let failure = summarize(
        &model(128_000),
        &scripted,
        &ask(Purpose::Range, &sources, 300),
    )
    .unwrap_err();
    assert!(
        matches!(
            failure,
            SummaryFailure::Call(CallFailure::Overflow { rule: "test", .. })
        ),
        "{failure:?}"
    );
    assert!(scripted.calls() < 12, "{} calls", scripted.calls());
}

#[test]
fn a_refusal_that_only_seems_to_be_about_the_length_shortens_one_call() {
    let sources = talk(1_000);
    let always = ScriptedCalls::new(|_, _| Err(likely_overflow()));
    let asked = ask(Purpose::Range, &sources, 300);
    let failure = summarize(&model(8_192), &always, &asked).unwrap_err();
    assert!(
        matches!(failure, SummaryFailure::Call(CallFailure::Overflow { .. })),
        "{failure:?}"
    );
    let sent: Vec<u64> = always.prompts().iter().map(|prompt| prompt.sent).collect();
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert!(sent[1] < sent[0], "{sent:?}");
    let once = ScriptedCalls::new(|number, prompt| {
        if number == 0 {
            Err(likely_overflow())
        } else {
            Ok(answer(report(prompt)))
        }
    });
    summarize(&model(8_192), &once, &asked).unwrap();
}

#[test]
fn a_window_that_cannot_hold_the_instructions_fails_without_a_call() {
    let sources = talk(1_000);
    let scripted = ScriptedCalls::reporting();
    let failure = summarize(
        &model(1_500),
        &scripted,
        &ask(Purpose::Range, &sources, 300),
    )
    .unwrap_err();
    assert!(
        matches!(failure, SummaryFailure::Call(CallFailure::Overflow { .. })),
        "{failure:?}"
    );
    assert_eq!(scripted.calls(), 0);
}
