//! Turns that are stopped after each event of an answer, in every protocol: all that has come by
//! then is stored, in complete parts, and nothing else.

use anneal_llm::provider::Api;
use anneal_testkit::{
    MODEL, Say, Script, ScriptedModel, SeededRandom, TestApp, TurnOutcome, gate_or_nightly, pb,
};
use pb::{CancelOutcome, chat_response::Event, part::Part};
use tonic::Streaming;

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

/// How much of an answer has come to the caller.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Come {
    thought_bytes: usize,
    text_bytes: usize,
    calls: usize,
}

impl Come {
    fn add(&mut self, say: &Say) {
        match say {
            Say::Thought(text) => self.thought_bytes += text.len(),
            Say::Text(text) => self.text_bytes += text.len(),
            Say::ToolUse { .. } => self.calls += 1,
            Say::Signature(_) | Say::Redacted(_) | Say::OutputLimit => {}
        }
    }
}

/// How much has come after each number of events, from none up to all but the one that ends the
/// answer.
fn come_after(api: Api, says: &[Say]) -> Vec<Come> {
    let mut come = Come::default();
    let mut after = vec![come];
    for complete in completed_by_event(api, says) {
        if let Some(say) = complete {
            come.add(say);
        }
        after.push(come);
    }
    after
}

/// For each event but the one that ends the answer: what is complete with it.
fn completed_by_event(api: Api, says: &[Say]) -> Vec<Option<&Say>> {
    match api {
        Api::OpenAi => {
            let mut events = vec![None];
            for say in says {
                match say {
                    Say::Text(_) | Say::Thought(_) => events.push(Some(say)),
                    // Two fragments of the input. That a call is complete is known at the end.
                    Say::ToolUse { .. } => events.extend([None, None]),
                    Say::Signature(_) | Say::Redacted(_) | Say::OutputLimit => {}
                }
            }
            // The reason of the end, and the usage.
            events.extend([None, None]);
            events
        }
        Api::Anthropic => completed_by_anthropic_event(says),
        // The reason of the end is in an event of its own. The end itself is that of the body.
        Api::Gemini => says.iter().map(Some).chain([None]).collect(),
    }
}

/// [`completed_by_event`] of Anthropic's protocol, in which blocks start and stop.
fn completed_by_anthropic_event(says: &[Say]) -> Vec<Option<&Say>> {
    // The start of the message, and a ping.
    let mut events = vec![None, None];
    let mut open_block = None;
    for say in says {
        let kind = match say {
            Say::Text(_) => "text",
            Say::ToolUse { .. } => "tool_use",
            _ => "thinking",
        };
        if open_block != Some(kind) {
            events.extend(open_block.map(|_| None));
            events.push(None);
        }
        open_block = Some(kind);
        match say {
            Say::ToolUse { .. } => events.extend([None, None, Some(say)]),
            Say::Signature(_) => events.extend([None, None]),
            _ => events.push(Some(say)),
        }
        if matches!(say, Say::ToolUse { .. } | Say::Signature(_)) {
            open_block = None;
        }
    }
    events.extend(open_block.map(|_| None));
    // The reason of the end.
    events.push(None);
    events
}

/// Reads a turn until so much has come.
async fn read_until(stream: &mut Streaming<pb::ChatResponse>, come: Come, what: &str) {
    let mut read = Come::default();
    while read != come {
        let response = stream.message().await.expect("the turn goes on");
        match response.and_then(|response| response.event) {
            Some(Event::Started(_) | Event::ReasoningEnd(_)) => {}
            Some(Event::ReasoningDelta(text)) => read.thought_bytes += text.len(),
            Some(Event::TextDelta(text)) => read.text_bytes += text.len(),
            Some(Event::ToolCall(_)) => read.calls += 1,
            other => panic!("{what}: {other:?} after {read:?} of {come:?}"),
        }
    }
}

/// The parts of the whole answer that must be kept when so much has come: up to the last call, or
/// the last text that is not blank. None: nothing is kept.
fn kept_parts(whole: &[pb::Part], come: Come) -> Option<Vec<pb::Part>> {
    let (mut text_bytes, mut calls) = (come.text_bytes, come.calls);
    let (mut kept, mut length) = (Vec::new(), None);
    for part in whole {
        let mut part = part.clone();
        let has_content = match part.part.as_mut() {
            Some(Part::Reasoning(_)) => false,
            Some(Part::Text(text)) if text_bytes > 0 => {
                text.text.truncate(text_bytes);
                text_bytes -= text.text.len();
                !text.text.trim().is_empty()
            }
            Some(Part::ToolUse(_)) if calls > 0 => {
                calls -= 1;
                true
            }
            _ => break,
        };
        kept.push(part);
        if has_content {
            length = Some(kept.len());
        }
    }
    kept.truncate(length?);
    Some(kept)
}

#[tokio::test]
async fn a_turn_that_is_stopped_after_any_event_keeps_all_that_has_come() {
    let mut random = SeededRandom(23);
    for round in 0..gate_or_nightly(2, 20) {
        for api in [Api::OpenAi, Api::Anthropic, Api::Gemini] {
            let says = random_answer(&mut random);
            let after = come_after(api, &says);
            let stops = after.len();
            let model = ScriptedModel::start(move |request| {
                let whole = Script::says(request, says.clone());
                match request.nth {
                    nth if (1..=stops).contains(&nth) => whole.hanging_after(nth - 1),
                    // The first turn and the last one are not stopped.
                    _ => whole,
                }
            })
            .await;
            let app = TestApp::with_models(model.settings_of(api, &[MODEL]), MODEL).await;
            let conversation = app.conversation().await;
            conversation.chat("Go.").await.done();
            let whole = conversation.messages().await[1].parts.clone();
            for (events, come) in after.into_iter().enumerate() {
                let what = format!("{api:?}, round {round}, after {events} events");
                let conversation = app.conversation().await;
                let turn = conversation.chat("Go.").request_id("r");
                let mut stream = turn.open().await.expect("begins");
                model.wait_for_calls(events + 2).await;
                read_until(&mut stream, come, &what).await;
                let cancelled = conversation.cancel_turn("r", Some(true)).await;
                assert!(TurnOutcome::read(stream).await.done().stopped, "{what}");
                let messages = conversation.messages().await;
                let answer = messages.get(1);
                let (outcome, id) = answer.map_or((CancelOutcome::Dropped, 0), |answer| {
                    (CancelOutcome::Kept, answer.message_id)
                });
                assert_eq!(
                    (cancelled.outcome(), cancelled.answer_message_id),
                    (outcome, id),
                    "{what}"
                );
                assert!(answer.is_none_or(|answer| answer.stopped), "{what}");
                let kept = answer.map(|answer| answer.parts.clone());
                assert_eq!(kept, kept_parts(&whole, come), "{what}");
            }
            let conversation = app.conversation().await;
            let outcome = conversation.chat("Go.").request_id("r").await;
            assert!(!outcome.done().stopped, "{api:?}, round {round}");
            let cancelled = conversation.cancel_turn("r", Some(true)).await;
            assert_eq!(cancelled.outcome(), CancelOutcome::Answered);
            assert_eq!(conversation.messages().await[1].parts, whole);
        }
    }
}
