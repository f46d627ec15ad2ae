//! One text: asked for, judged, asked for once more where it was badly written.

use crate::{
    extractive::fit::Scale,
    port::{SummaryFailure, Unfit},
    provider::{Answer, Call, StopReason},
};
use anneal_core::tokens::Tokens;

use super::{
    answer, gates,
    merge::Run,
    pieces::{Piece, escaped},
    prompt::{Order, Refused, Stage, prompt},
    request::request,
    room,
};

/// A part may be longer than asked for by one in so many: merging shortens it again, a second call costs more.
const PART_SLACK: u64 = 4;

/// Bytes of an answer for each token of its room: seldom are there more than sixteen, blanks excepted. An answer beyond
/// them is not read: what is made of a byte takes many.
const TOKEN_BYTES: u64 = 32;

/// The most that the strings that must be kept take of a text: one in so many of its tokens.
const KEPT_SHARE: u64 = 4;

/// A call's answer, and what judging it needs.
struct Heard {
    answer: Answer,
    boundary: String,
    sent: u64,
}

impl Run<'_> {
    /// The part that stands for a piece. A part in which a string is missing twice is taken as it is: it is one of many,
    /// and without it there would be no summary at all.
    pub(super) async fn part(&self, piece: &Piece<'_>, target: u64) -> Result<String, SummaryFailure> {
        self.written(piece, self.order(Stage::Part, target, piece)).await
    }

    /// The summary of everything, with the quoted words behind it.
    pub(super) async fn whole(&self, piece: &Piece<'_>) -> Result<String, SummaryFailure> {
        self.written(piece, self.order(Stage::Whole, self.frame.text, piece)).await
    }

    fn order(&self, stage: Stage, target: u64, piece: &Piece<'_>) -> Order {
        let room = (target / KEPT_SHARE).min(room::MUST_KEEP);
        Order {
            stage,
            target,
            output: room::output(self.model, self.window, target),
            must_keep: gates::must_keep(piece, &self.spoken, Scale(self.ask.measure), room),
            refused: None,
        }
    }

    async fn written(&self, piece: &Piece<'_>, mut order: Order) -> Result<String, SummaryFailure> {
        let lines = piece.lines();
        let first = self.call(&order, &lines).await?;
        let failure = match self.judged(&first, piece, &order) {
            Ok(text) => return Ok(text),
            Err(failure) => failure,
        };
        order.refused = Refused::of(&failure);
        if order.refused.is_none() {
            return Err(failure);
        }
        if order.refused == Some(Refused::CutOff) {
            order.output = room::more_output(self.model, self.window, order.output, first.sent);
        }
        let second = self.call(&order, &lines).await?;
        if order.stage == Stage::Part {
            order.must_keep.clear();
        }
        self.judged(&second, piece, &order)
    }

    async fn call(&self, order: &Order, lines: &str) -> Result<Heard, SummaryFailure> {
        let prompt = prompt(self.ask, order, lines);
        let scale = Scale(self.ask.measure);
        let sent = scale.weigh(&prompt.system) + scale.weigh(&prompt.user);
        let context = request(self.model.format(), &prompt.system, &prompt.user);
        let call = Call {
            context: &context,
            tools: &[],
            output: Tokens::new(order.output),
            // The provider's own: models that think refuse any other.
            temperature: None,
            input: Tokens::new(sent),
            sent_tokens: Some(Tokens::new(room::at_least(sent))),
        };
        let answer = self.desk.ask(&call).await?;
        Ok(Heard { answer, boundary: prompt.boundary, sent })
    }

    /// The text of an answer that passes every gate.
    fn judged(&self, heard: &Heard, piece: &Piece<'_>, order: &Order) -> Result<String, SummaryFailure> {
        match heard.answer.end.stop {
            StopReason::OutputLimit => return Err(SummaryFailure::CutOff),
            StopReason::Filtered => return Err(SummaryFailure::Filtered),
            StopReason::Done | StopReason::ToolUse => {}
        }
        let most = order.output.saturating_mul(TOKEN_BYTES);
        if heard.answer.text.len() as u64 > most {
            let [tokens, target] = [order.output + 1, order.target].map(Tokens::new);
            return Err(SummaryFailure::OverTarget { tokens, target });
        }
        let text = answer::text(&heard.answer.text).ok_or(SummaryFailure::Unfit(Unfit::NotTheSchema))?;
        if text.trim().is_empty() {
            return Err(SummaryFailure::Empty);
        }
        let accepted = match order.stage {
            Stage::Part => self.accepted_part(&text, order.target)?,
            Stage::Whole => self.ask.accept(self.frame.around(text.clone()))?.text,
        };
        if let Some(unfit) = gates::unfit(&text, &self.frame.quote, &heard.boundary, piece, order) {
            return Err(SummaryFailure::Unfit(unfit));
        }
        Ok(accepted)
    }

    /// A part's text, if it is not longer than it may be.
    fn accepted_part(&self, text: &str, target: u64) -> Result<String, SummaryFailure> {
        let tokens = Scale(self.ask.measure).weigh(&escaped(text));
        if tokens > target + target / PART_SLACK {
            let [tokens, target] = [tokens, target].map(Tokens::new);
            return Err(SummaryFailure::OverTarget { tokens, target });
        }
        Ok(text.to_owned())
    }
}
