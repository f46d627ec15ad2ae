//! Parts of a summary by a model: which survive a failure, and what they depend on.
#![allow(clippy::unwrap_used, clippy::format_collect, reason = "a test may")]

use crate::fixtures::{ask, call, result, source, talk};
use crate::scripted_model::{ScriptedCalls, answer, model, model_served_as, report, summarize};
use anneal_core::{
    message::{MessageId, Role},
    tokens::Tokens,
};
use anneal_llm::{Purpose, Quote, SummaryAsk, provider::CallFailure};

#[test]
fn finished_parts_survive_a_failure_of_any_call() {
    let sources = talk(1_000);
    let ask = ask(Purpose::Range, &sources, 500);
    let without_failure = ScriptedCalls::reporting();
    let expected = summarize(&model(8_192), &without_failure, &ask).unwrap();
    let total = without_failure.calls();
    for done in 0..total {
        let scripted = ScriptedCalls::new(move |number, prompt| {
            if number == done {
                Err(CallFailure::Broken("test").into())
            } else {
                Ok(answer(report(prompt)))
            }
        });
        let failure = summarize(&model(8_192), &scripted, &ask).unwrap_err();
        assert!(failure.is_retryable(), "{failure:?}");
        assert_eq!(scripted.calls(), done + 1);
        assert_eq!(summarize(&model(8_192), &scripted, &ask).unwrap(), expected);
        // The failed run made `done + 1` calls, the next run those that were not done.
        assert_eq!(
            scripted.calls(),
            done + 1 + total - done,
            "after {done} of {total}"
        );
    }
}

#[test]
fn appended_messages_do_not_change_the_parts_before_them() {
    let scripted = ScriptedCalls::reporting();
    let (fewer, more) = (talk(1_000), talk(1_200));
    summarize(&model(8_192), &scripted, &ask(Purpose::Range, &fewer, 500)).unwrap();
    let before = scripted.calls();
    let fresh = ScriptedCalls::reporting();
    summarize(&model(8_192), &fresh, &ask(Purpose::Range, &more, 500)).unwrap();
    summarize(&model(8_192), &scripted, &ask(Purpose::Range, &more, 500)).unwrap();
    // The first run made `before` calls: one per part, and one for the merge. All its parts but the
    // last, whose chunk was not full, are used again.
    assert_eq!(scripted.calls() - before, fresh.calls() - (before - 2));
}

#[test]
fn parts_differ_by_focus_target_and_purpose() {
    let sources = talk(400);
    let calls = |scripted: &ScriptedCalls, ask: &SummaryAsk<'_>| {
        let before = scripted.calls();
        summarize(&model(8_192), scripted, ask).unwrap();
        scripted.calls() - before
    };
    let scripted = ScriptedCalls::reporting();
    let plain = ask(Purpose::Range, &sources, 500);
    let first = calls(&scripted, &plain);
    assert!(first > 2);
    assert_eq!(calls(&scripted, &plain), 1);
    for focus in ["bays", "lots"] {
        assert_eq!(
            calls(
                &scripted,
                &SummaryAsk {
                    focus: Some(focus),
                    ..plain
                }
            ),
            first,
            "{focus}"
        );
    }
    assert_eq!(
        calls(
            &scripted,
            &SummaryAsk {
                target: Tokens::new(400),
                ..plain
            }
        ),
        first
    );
    let of_message = SummaryAsk {
        purpose: Purpose::Message,
        ..plain
    };
    assert_eq!(calls(&scripted, &of_message), first);
}

#[test]
fn parts_do_not_depend_on_the_quote_but_on_the_model_behind_the_name() {
    let sources = talk(1_000);
    let plain = ask(Purpose::Range, &sources, 500);
    let scripted = ScriptedCalls::reporting();
    let quoted = |text| SummaryAsk {
        quoted: Some(Quote {
            message_id: MessageId(1),
            text,
        }),
        ..plain
    };
    summarize(&model(8_192), &scripted, &quoted("Move them.")).unwrap();
    let before = scripted.calls();
    let long = "Move every lot to another bay. ".repeat(40);
    summarize(&model(8_192), &scripted, &quoted(&long)).unwrap();
    assert_eq!(
        scripted.calls(),
        before + 1,
        "only the merge is called again"
    );
    summarize(&model_served_as(8_192, "other"), &scripted, &quoted(&long)).unwrap();
    assert_eq!(
        scripted.calls(),
        before + 1 + before,
        "every call is made again"
    );
}

#[test]
fn a_part_that_must_keep_other_strings_is_written_again() {
    let mut sources = talk(400);
    // Only tools name it, so no part must keep it.
    let page = "See OPS-4711.";
    sources[2] = source(3, Role::Assistant, vec![call("c", "fetch", "{}")]);
    sources[3] = source(4, Role::Tool, vec![result("c", page)]);
    sources[4] = source(5, Role::Tool, vec![result("c", page)]);
    let quoting = |text| SummaryAsk {
        quoted: Some(Quote {
            message_id: MessageId(1),
            text,
        }),
        ..ask(Purpose::Range, &sources, 500)
    };
    let scripted = ScriptedCalls::reporting();
    summarize(&model(8_192), &scripted, &quoting("What is OPS-0000?")).unwrap();
    let before = scripted.calls();
    // Now the dialogue names it too, in a question of the same length.
    summarize(&model(8_192), &scripted, &quoting("What is OPS-4711?")).unwrap();
    let again = &scripted.prompts()[before..];
    // The part, and what is made from it. The other parts are those that were stored.
    assert!(again.len() < before, "{} of {before}", again.len());
    assert_eq!(again[0].must_keep, ["OPS-4711"]);
}
