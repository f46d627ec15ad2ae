//! Prints an answer while it streams: reasoning, text, tool calls, further attempts. Afterwards it
//! gives the closing lines, with the usage.

use std::io;

use anneal_proto::v1 as pb;
use pb::{
    AttemptReason, Pressure, StopReason,
    chat_response::{Attempt, Done, Event},
};

use super::screen::Screen;
use crate::{
    columns::{clipped, grouped},
    sanitize::sanitize,
};

/// Most columns that the input of a tool call takes on the screen.
const MAX_INPUT_COLUMNS: usize = 60;

/// The kind of output that the model produces at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum AnswerPhase {
    /// No output yet, or a tool call or a new attempt since the last output.
    #[default]
    Idle,
    Reasoning,
    Text,
}

impl AnswerPhase {
    /// Prints an event of the answer, except `ReasoningEnd`, `Started` and `Done`.
    pub(super) fn show(&mut self, screen: &mut Screen, event: &Event) -> io::Result<()> {
        match event {
            Event::ReasoningDelta(text) => {
                self.enter(Self::Reasoning, screen)?;
                screen.print_reasoning(text)
            }
            Event::TextDelta(text) => {
                self.enter(Self::Text, screen)?;
                screen.print_text(text)
            }
            Event::ToolCall(call) => {
                *self = Self::Idle;
                screen.print_note(&format!(
                    "{}: this terminal runs no tools",
                    tool_call_line(call)
                ))
            }
            Event::Attempt(attempt) => {
                *self = Self::Idle;
                screen.print_note(&attempt_note(attempt))
            }
            Event::ReasoningEnd(_) | Event::Started(_) | Event::Done(_) => Ok(()),
        }
    }

    /// Ends the line if another kind of output begins.
    fn enter(&mut self, phase: Self, screen: &mut Screen) -> io::Result<()> {
        if *self != phase {
            screen.end_line()?;
            *self = phase;
        }
        Ok(())
    }
}

/// A tool call on one line.
pub(super) fn tool_call_line(call: &pb::ToolUsePart) -> String {
    format!(
        "-> {} {}",
        sanitize(&call.name),
        clipped(&sanitize(&call.input), MAX_INPUT_COLUMNS)
    )
}

fn attempt_note(attempt: &Attempt) -> String {
    let why = match attempt.reason() {
        AttemptReason::OverLearntWindow => "the context is longer than the model's window",
        _ => "the context was too long for the model",
    };
    let how = match attempt.pressure() {
        Pressure::Compact => "the older half as a summary",
        _ => "oversized tool results clipped",
    };
    format!("{why}: trying again with {how}; the text so far is discarded")
}

/// The lines after an answer: the models that did not answer; why it stopped, unless it is
/// complete; a note if nothing of it is stored; and the figures: its usage, the tokens of the
/// conversation, the model.
pub(super) fn closing_lines(done: &Done) -> Vec<String> {
    let passed_over = done.fallbacks.iter().map(|fallback| {
        let (model, reason) = (sanitize(&fallback.model), sanitize(&fallback.reason));
        format!("{model} did not answer ({reason})")
    });
    let mut lines: Vec<String> = passed_over.collect();
    let stopped = match done.stop_reason() {
        StopReason::OutputLimit => Some("cut off: the model reached its output limit"),
        StopReason::Filtered => Some("the provider's filter stopped the model"),
        StopReason::Stopped if done.answer_message_id == 0 => Some("stopped"),
        StopReason::Stopped => Some("stopped: the answer so far is stored"),
        StopReason::ToolUse => {
            Some("the model waits for a tool, and this terminal runs none: reply in words")
        }
        StopReason::Done | StopReason::Unspecified => None,
    };
    lines.extend(stopped.map(str::to_owned));
    if done.answer_message_id == 0 {
        lines.push("nothing of this answer is stored".to_owned());
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
    figures.push(format!(
        "{} tokens in the conversation",
        grouped(done.token_estimate)
    ));
    if done.replayed {
        figures.push("a repetition of the stored answer".to_owned());
    }
    if !done.model.is_empty() {
        figures.push(sanitize(&done.model));
    }
    lines.push(format!("[{}]", figures.join("; ")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_lines_show_why_the_answer_stopped_whether_it_is_stored_and_its_usage() {
        let usage = pb::ModelUsage {
            input_tokens: 1_200,
            cached_tokens: 900,
            written_tokens: 0,
            output_tokens: 7,
            reasoning_tokens: 0,
        };
        let done = Done {
            usage: Some(usage),
            token_estimate: 4_321,
            answer_message_id: 2,
            model: "small".into(),
            ..Default::default()
        };
        assert_eq!(
            closing_lines(&done),
            ["[1,200 in (75 % cached), 7 out; 4,321 tokens in the conversation; small]"]
        );
        let fallback = pb::Fallback {
            model: "large".into(),
            reason: "MODEL_BUSY".into(),
        };
        let answered_by_another = Done {
            fallbacks: vec![fallback],
            ..done.clone()
        };
        assert_eq!(
            closing_lines(&answered_by_another)[0],
            "large did not answer (MODEL_BUSY)"
        );
        let cut = Done {
            stop_reason: StopReason::OutputLimit.into(),
            answer_message_id: 0,
            ..done
        };
        assert!(
            closing_lines(&cut)[0].contains("output limit")
                && closing_lines(&cut)[1].contains("nothing"),
            "{:?}",
            closing_lines(&cut)
        );
    }

    #[test]
    fn a_stopped_answer_says_what_is_stored() {
        let mut done = Done {
            stop_reason: StopReason::Stopped.into(),
            answer_message_id: 2,
            ..Done::default()
        };
        assert_eq!(
            closing_lines(&done)[0],
            "stopped: the answer so far is stored"
        );
        done.answer_message_id = 0;
        assert_eq!(
            closing_lines(&done)[..2],
            ["stopped", "nothing of this answer is stored"]
        );
    }

    #[test]
    fn a_shortened_attempt_says_why_and_how() {
        let attempt = Attempt {
            number: 1,
            pressure: Pressure::Compact.into(),
            reason: AttemptReason::Overflow.into(),
        };
        let note = attempt_note(&attempt);
        assert!(
            note.contains("was too long") && note.contains("older half as a summary"),
            "{note}"
        );
    }
}
