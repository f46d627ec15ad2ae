//! Turns that are stopped after each event of an answer, in every protocol: what is stored is a
//! beginning of the whole answer, of complete parts, or nothing.

use anneal_llm::provider::Api;
use anneal_testkit::{
    MODEL, Say, Script, ScriptedModel, SeededRandom, TestApp, TurnOutcome, gate_or_nightly, pb,
};
use pb::{CancelOutcome, part::Part};

/// A random answer with reasoning, texts and calls.
fn random_answer(random: &mut SeededRandom) -> Vec<Say> {
    let mut says = vec![Say::thought("so"), Say::Signature("signed".into())];
    for place in 0..=random.below(4) {
        match random.below(4) {
            0 => says.push(Say::text(&format!("text {place}\n"))),
            1 => says.push(Say::text(" ")),
            2 => says.extend([Say::thought("then"), Say::Signature("signed too".into())]),
            _ => says.push(Say::tool(
                &format!("call{place}"),
                "look",
                &format!("{{\"place\":{place}}}"),
            )),
        }
    }
    says.push(Say::text("end"));
    says
}

/// Asserts that these parts are a beginning of the whole answer: all but the last one are equal,
/// and a text may end early.
fn assert_begins(whole: &[pb::Part], kept: &[pb::Part], what: &str) {
    assert!(kept.len() <= whole.len(), "{what}: {kept:?} of {whole:?}");
    let Some((last, before)) = kept.split_last() else {
        panic!("{what}: a stored answer has parts")
    };
    assert_eq!(before, &whole[..before.len()], "{what}");
    assert!(
        !matches!(last.part, Some(Part::Reasoning(_))),
        "{what}: it ends with reasoning, which providers refuse"
    );
    let counterpart = &whole[before.len()];
    match (&last.part, &counterpart.part) {
        (Some(Part::Text(kept)), Some(Part::Text(whole))) => {
            assert!(
                whole.text.starts_with(&kept.text),
                "{what}: {kept:?} of {whole:?}"
            );
        }
        _ => assert_eq!(last, counterpart, "{what}: half a part is stored"),
    }
}

#[tokio::test]
async fn a_turn_that_is_stopped_after_any_event_keeps_a_beginning_of_its_answer_or_nothing() {
    let mut random = SeededRandom(23);
    for round in 0..gate_or_nightly(2, 20) {
        for api in [Api::OpenAi, Api::Anthropic, Api::Gemini] {
            let says = random_answer(&mut random);
            let model = ScriptedModel::start(move |request| {
                let whole = Script::says(request, says.clone());
                match request.nth {
                    0 => whole,
                    nth => whole.hanging_after(nth - 1),
                }
            })
            .await;
            let app = TestApp::with_models(model.settings_of(api, &[MODEL]), MODEL).await;
            let conversation = app.conversation().await;
            conversation.chat("Go.").await.done();
            let whole = conversation.messages().await[1].parts.clone();
            // No answer has as many events.
            for events in 0..100 {
                let what = format!("{api:?}, round {round}, after {events} events");
                let conversation = app.conversation().await;
                let turn = conversation.chat("Go.").request_id("r");
                let stream = turn.open().await.expect("begins");
                model.wait_for_calls(events + 2).await;
                let cancelled = conversation.cancel_turn("r", Some(true)).await;
                let outcome = TurnOutcome::read(stream).await;
                let messages = conversation.messages().await;
                assert_eq!(
                    messages.get(1).map_or(0, |answer| answer.message_id),
                    cancelled.answer_message_id,
                    "{what}"
                );
                match cancelled.outcome() {
                    CancelOutcome::Kept => {
                        assert!(outcome.done().stopped && messages[1].stopped, "{what}");
                        assert_begins(&whole, &messages[1].parts, &what);
                    }
                    CancelOutcome::Dropped => assert!(outcome.done().stopped, "{what}"),
                    CancelOutcome::Answered => {
                        assert!(!outcome.done().stopped, "{what}");
                        assert_eq!(messages[1].parts, whole, "{what}");
                    }
                    other => panic!("{what}: {other:?}"),
                }
                if cancelled.outcome() == CancelOutcome::Answered {
                    break;
                }
                assert!(events < 99, "{what}: it is never answered");
            }
        }
    }
}
