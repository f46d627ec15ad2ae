//! An answer as it comes: thoughts, text, calls of tools, and what it cost.

use std::io;

use anneal_proto::v1 as pb;
use pb::{
    AttemptReason, Pressure, StopReason,
    chat_response::{Attempt, Done, Event},
};

use super::{
    columns::{clipped, grouped},
    screen::Screen,
};
use crate::paint::harmless;

/// Columns of a tool call's input.
const INPUT: usize = 60;

/// What the model does just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Doing {
    /// Nothing was heard of it.
    #[default]
    Nothing,
    Thinking,
    Speaking,
}

impl Doing {
    /// Shows an event of the answer; its end is another matter.
    pub(super) fn show(&mut self, screen: &mut Screen, event: &Event) -> io::Result<()> {
        match event {
            Event::ReasoningDelta(text) => {
                self.now(Self::Thinking, screen)?;
                screen.thought(text)
            }
            Event::TextDelta(text) => {
                self.now(Self::Speaking, screen)?;
                screen.said(text)
            }
            Event::ToolCall(call) => {
                *self = Self::Nothing;
                screen.note(&format!("{}: this terminal runs no tools", called(call)))
            }
            Event::Attempt(attempt) => {
                *self = Self::Nothing;
                screen.note(&shorter(attempt))
            }
            Event::Started(_) | Event::Done(_) => Ok(()),
        }
    }

    fn now(&mut self, doing: Self, screen: &mut Screen) -> io::Result<()> {
        if *self != doing {
            screen.end_line()?;
            *self = doing;
        }
        Ok(())
    }
}

/// A call of a tool on one line.
pub(super) fn called(call: &pb::ToolUsePart) -> String {
    format!("-> {} {}", harmless(&call.name), clipped(&harmless(&call.input), INPUT))
}

fn shorter(attempt: &Attempt) -> String {
    let why = match attempt.reason() {
        AttemptReason::OverLearntWindow => "the context is longer than the model's window",
        _ => "the context was too long for the model",
    };
    let how = match attempt.pressure() {
        Pressure::Compact => "the older half as a summary",
        _ => "oversized tool results clipped",
    };
    format!("{why}: trying again with {how}; what was said so far is void")
}

/// The end of an answer: how it ended where that is not as it should be, then what it cost.
pub(super) fn end(done: &Done) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let stopped = match done.stop_reason() {
        StopReason::OutputLimit => Some("cut off: the model reached its output limit"),
        StopReason::Filtered => Some("the provider's filter stopped the model"),
        StopReason::ToolUse => Some("the model waits for a tool that this terminal does not run: go on in words"),
        StopReason::Done | StopReason::Unspecified => None,
    };
    lines.extend(stopped.map(str::to_owned));
    if done.answer_message_id == 0 {
        lines.push("nothing of this answer is kept".to_owned());
    }
    let mut figures = Vec::new();
    if let Some(usage) = &done.usage {
        let cached = 100.0 * usage.cached_tokens as f64 / usage.input_tokens.max(1) as f64;
        figures.push(format!(
            "{} in ({cached:.0} % cached), {} out",
            grouped(usage.input_tokens),
            grouped(usage.output_tokens)
        ));
    }
    figures.push(format!("{} tokens in the conversation", grouped(done.token_estimate)));
    if done.replayed {
        figures.push("told again, it was stored before".to_owned());
    }
    if !done.model.is_empty() {
        figures.push(harmless(&done.model));
    }
    lines.push(format!("[{}]", figures.join("; ")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_says_tokens_in_and_out_the_cached_share_and_the_conversation() {
        let usage = pb::ModelUsage { input_tokens: 1_200, cached_tokens: 900, written_tokens: 0, output_tokens: 7 };
        let done = Done {
            usage: Some(usage),
            token_estimate: 4_321,
            answer_message_id: 2,
            model: "small".into(),
            ..Default::default()
        };
        assert_eq!(end(&done), ["[1,200 in (75 % cached), 7 out; 4,321 tokens in the conversation; small]"]);
        let cut = Done { stop_reason: StopReason::OutputLimit.into(), answer_message_id: 0, ..done };
        assert!(end(&cut)[0].contains("output limit") && end(&cut)[1].contains("nothing"), "{:?}", end(&cut));
    }

    #[test]
    fn a_shorter_try_says_why_and_how() {
        let attempt = Attempt { number: 1, pressure: Pressure::Compact.into(), reason: AttemptReason::Overflow.into() };
        let said = shorter(&attempt);
        assert!(said.contains("was too long") && said.contains("older half as a summary"), "{said}");
    }
}
