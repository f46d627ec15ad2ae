//! Writes one text: calls the model, checks the answer, and calls once more with feedback if the
//! answer is refused for something that the model can do better.

use anneal_core::{chat_options::ChatOptions, tokens::Tokens};

use crate::{
    extractive::token_counter::TokenCounter,
    provider::{Answer, Call, StopReason},
    summarizer::{RejectedSummary, SummaryFailure},
};

use super::{
    answer_text::answer_text,
    chunks::{Chunk, escaped},
    gates,
    merge::SummaryRun,
    prompt::{Feedback, Stage, Task, prompt},
    request::request,
    token_budget,
};

/// A part may exceed its target by a quarter of it: the merge shortens the part again, and a second
/// call would cost more. This is the divisor.
const PART_TOLERANCE_DIVISOR: u64 = 4;

/// Most bytes of an answer per token of its output limit. Texts rarely have more than sixteen bytes
/// per token, except for blanks. A longer answer is not parsed, because each of its bytes would
/// take many bytes in memory.
const MAX_BYTES_PER_TOKEN: u64 = 32;

/// The strings that must be kept take at most a quarter of a text's tokens. This is the divisor.
const MUST_KEEP_DIVISOR: u64 = 4;

/// A call's answer, and the facts of the call that its checks need.
struct AnsweredCall {
    answer: Answer,
    /// The random string in the prompt's lines BEGIN and END.
    boundary: String,
    /// Tokens of the prompt.
    sent: u64,
}

impl SummaryRun<'_> {
    /// The task of writing the part that stands for a chunk.
    pub(super) fn part_task(&self, chunk: &Chunk<'_>, target: u64) -> Task {
        self.task(Stage::Part, target, chunk)
    }

    /// Writes the part that stands for a chunk. If its second version still lacks a string that it
    /// must keep, it is accepted all the same: it is one of many parts, and without it there would
    /// be no summary.
    pub(super) async fn write_part(
        &self,
        chunk: &Chunk<'_>,
        task: Task,
    ) -> Result<String, SummaryFailure> {
        self.write(chunk, task).await
    }

    /// Writes the whole summary. The result has the quoted words at its end.
    pub(super) async fn write_whole(&self, chunk: &Chunk<'_>) -> Result<String, SummaryFailure> {
        self.write(chunk, self.task(Stage::Whole, self.split.text, chunk))
            .await
    }

    fn task(&self, stage: Stage, target: u64, chunk: &Chunk<'_>) -> Task {
        let budget = (target / MUST_KEEP_DIVISOR).min(token_budget::MUST_KEEP_TOKENS);
        let counter = TokenCounter(self.ask.measure);
        Task {
            stage,
            target,
            output: token_budget::answer_tokens(self.model, self.window, target),
            must_keep: gates::must_keep(chunk, &self.dialogue, counter, budget),
            feedback: None,
        }
    }

    /// Writes the text of a task. If the first answer is refused for something that the model can
    /// do better, the second answer is accepted or fails.
    async fn write(&self, chunk: &Chunk<'_>, mut task: Task) -> Result<String, SummaryFailure> {
        let lines = chunk.lines();
        let first = self.call_model(&task, &lines).await?;
        let failure = match self.accepted_text(&first, chunk, &task) {
            Ok(text) => return Ok(text),
            Err(failure) => failure,
        };
        task.feedback = Feedback::of(&failure);
        if task.feedback.is_none() {
            return Err(failure);
        }
        if task.feedback == Some(Feedback::Truncated) {
            task.output = token_budget::enlarged_answer_tokens(
                self.model,
                self.window,
                task.output,
                first.sent,
            );
        }
        let second = self.call_model(&task, &lines).await?;
        if task.stage == Stage::Part {
            task.must_keep.clear();
        }
        self.accepted_text(&second, chunk, &task)
    }

    async fn call_model(&self, task: &Task, lines: &str) -> Result<AnsweredCall, SummaryFailure> {
        let prompt = prompt(self.ask, task, lines);
        let counter = TokenCounter(self.ask.measure);
        let sent = counter.count(&prompt.system) + counter.count(&prompt.user);
        let context = request(self.model.format(), &prompt.system, &prompt.user);
        // Without a temperature, because reasoning models refuse any value but their default.
        let options = ChatOptions::default();
        let call = Call {
            context: &context,
            options: &options,
            output: Tokens::new(task.output),
            mark_tools: None,
            cache_key: None,
            long_retention: false,
            input: Tokens::new(sent),
            least_sent_tokens: Some(Tokens::new(token_budget::least_provider_count(sent))),
            window: Some(self.window),
        };
        let answer = self.calls.call(&call).await?;
        Ok(AnsweredCall {
            answer,
            boundary: prompt.boundary,
            sent,
        })
    }

    /// The text of an answer, if it passes the length checks and every gate. The whole summary has
    /// the quoted words at its end.
    fn accepted_text(
        &self,
        call: &AnsweredCall,
        chunk: &Chunk<'_>,
        task: &Task,
    ) -> Result<String, SummaryFailure> {
        match call.answer.end.stop {
            StopReason::OutputLimit => return Err(SummaryFailure::Truncated),
            StopReason::Filtered => return Err(SummaryFailure::Filtered),
            StopReason::Done | StopReason::ToolUse => {}
        }
        let max_bytes = task.output.saturating_mul(MAX_BYTES_PER_TOKEN);
        if call.answer.text.len() as u64 > max_bytes {
            // Its tokens are not counted: it is reported as one more than the output limit.
            let [tokens, target] = [task.output + 1, task.target].map(Tokens::new);
            return Err(SummaryFailure::OverTarget { tokens, target });
        }
        let text = answer_text(&call.answer.text)
            .ok_or(SummaryFailure::Rejected(RejectedSummary::WrongSchema))?;
        if text.trim().is_empty() {
            return Err(SummaryFailure::EmptyAnswer);
        }
        let accepted = match task.stage {
            Stage::Part => self.accepted_part(&text, task.target)?,
            Stage::Whole => self.ask.accept(self.split.with_quote(text.clone()))?.text,
        };
        let quote = &self.split.quote;
        match gates::first_rejection(&text, quote, &call.boundary, chunk, task) {
            Some(rejection) => Err(SummaryFailure::Rejected(rejection)),
            None => Ok(accepted),
        }
    }

    /// The text of a part, if it exceeds its target by no more than the tolerance.
    fn accepted_part(&self, text: &str, target: u64) -> Result<String, SummaryFailure> {
        let tokens = TokenCounter(self.ask.measure).count(&escaped(text));
        if tokens > target + target / PART_TOLERANCE_DIVISOR {
            let [tokens, target] = [tokens, target].map(Tokens::new);
            return Err(SummaryFailure::OverTarget { tokens, target });
        }
        Ok(text.to_owned())
    }
}
