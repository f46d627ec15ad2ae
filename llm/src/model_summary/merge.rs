//! Reduces any number of items to one text. If the items do not fit one call, each chunk of them is
//! replaced by its part, a summary of that chunk. The parts are the items of the next level. This
//! is repeated until the items of a level fit one call.
//!
//! The parts of a level are written side by side, and keep the order of their chunks. Chunks are cut
//! one after another, so their limits, and with them the stored parts, do not depend on what is
//! written at the same time.
//!
//! Why this ends: all chunks but the last are more than half full ([`super::chunks`]), and the line
//! of a part has at most an eighth of the budget ([`super::token_budget`]). So a level of T tokens
//! becomes at most T / 4 plus an eighth of the budget. A level of one chunk becomes one part, which
//! fits a call beside a previous summary that takes three quarters of the budget. A refusal by the
//! provider shrinks the budget by at least an eighth, until it is too small to work with.

use std::cell::Cell;

use anneal_core::{
    digest::{self, Digest},
    tokens::Tokens,
};
use futures::stream::{FuturesOrdered, StreamExt as _};

use crate::{
    extractive::token_counter::TokenCounter,
    provider::{CallFailure, Model},
    provider_error::Confidence,
    summarizer::{Purpose, SummaryAsk, SummaryCalls, SummaryFailure},
};

use super::{
    ModelSummarizer, TargetSplit,
    chunks::{Chunk, Position, next_chunk},
    gates::DialogueIdentifiers,
    items::{Item, items},
    prompt::{self, Stage, Task},
    token_budget::{self, MAX_CARRIED_TOKENS, TokenBudget},
};

/// Quarters of the last call's budget that the previous summary may take. A longer one is itself
/// summarized first.
const PREVIOUS_QUARTERS: u64 = 3;

/// Most parts that are written side by side: a summary of many parts takes a quarter of the time,
/// and leaves the rest of the model's calls to other jobs.
const MAX_SIDE_BY_SIDE: usize = 4;

/// One summary being written.
pub(super) struct SummaryRun<'a> {
    pub(super) model: &'a Model,
    pub(super) calls: &'a dyn SummaryCalls,
    pub(super) ask: &'a SummaryAsk<'a>,
    pub(super) split: TargetSplit,
    /// Identifiers that a text may be required to keep.
    pub(super) dialogue: DialogueIdentifiers<'a>,
    /// The model's window, or the smaller one that the provider has named in a refusal.
    pub(super) window: Tokens,
    /// Most source tokens of a call, lowered when the provider refuses more.
    cap: u64,
    /// Most tokens of a call beside its source lines.
    overhead: u64,
    /// Whether the model has written a part in this run.
    has_answer: Cell<bool>,
    /// Whether the budget was shrunk after a refusal that only seems to be about the length.
    has_shrunk_on_doubt: bool,
}

/// The parts of chunks that follow each other.
struct WrittenParts<'a> {
    parts: Vec<Item<'a>>,
    /// Where the chunk begins that has no part.
    end: Position,
    /// Why that chunk has none, and its tokens; None: no chunk is left.
    failure: Option<(SummaryFailure, u64)>,
}

/// What has become of a chunk.
enum Replaced<'a> {
    /// These items replace it, and it ends there.
    By(Vec<Item<'a>>, Position),
    /// There is no part of it, and it has this many tokens.
    Failed(SummaryFailure, u64),
    /// It was left out because another chunk had failed.
    NotBegun,
}

impl<'a> SummaryRun<'a> {
    pub(super) fn new(
        model: &'a Model,
        calls: &'a dyn SummaryCalls,
        ask: &'a SummaryAsk<'a>,
        split: TargetSplit,
    ) -> Self {
        let overhead = overhead(ask);
        let dialogue = DialogueIdentifiers::of(ask);
        Self {
            model,
            calls,
            ask,
            split,
            dialogue,
            window: model.window(),
            cap: u64::MAX,
            overhead,
            has_answer: Cell::new(false),
            has_shrunk_on_doubt: false,
        }
    }

    /// Writes the summary and returns its text.
    pub(super) async fn write_summary(mut self) -> Result<String, SummaryFailure> {
        let mut previous: Vec<Item<'a>> = self
            .ask
            .previous
            .map(Item::previous_summary)
            .into_iter()
            .filter(|item| !item.text.trim().is_empty())
            .collect();
        let mut messages = items(self.ask);
        loop {
            let budget = self.budget()?.whole;
            let Some(previous_tokens) =
                self.tokens_within(&previous, budget * PREVIOUS_QUARTERS / 4)
            else {
                previous = self.reduce_level(&previous).await?;
                continue;
            };
            if self
                .tokens_within(&messages, budget - previous_tokens)
                .is_none()
            {
                messages = self.reduce_level(&messages).await?;
                continue;
            }
            let everything: Vec<Item<'a>> = previous.iter().chain(&messages).cloned().collect();
            let (all, end) = self.next_chunk(&everything, Position::default(), budget);
            // The items may have more tokens when they are counted together, because their
            // stretches are then cut at other places.
            if !end.is_end(&everything) {
                messages = self.reduce_level(&messages).await?;
                continue;
            }
            match self.write_whole(&all).await {
                Err(failure) => self.shrink_budget(failure, all.tokens)?,
                written => return written,
            }
        }
    }

    fn next_chunk<'i>(
        &self,
        items: &'i [Item<'i>],
        from: Position,
        budget: u64,
    ) -> (Chunk<'i>, Position) {
        next_chunk(items, from, budget, TokenCounter(self.ask.measure))
    }

    /// The tokens of the items, if all of them fit the budget.
    fn tokens_within(&self, items: &[Item<'_>], budget: u64) -> Option<u64> {
        let (all, end) = self.next_chunk(items, Position::default(), budget);
        end.is_end(items).then_some(all.tokens)
    }

    /// Replaces each chunk of the items by its part, in order. A chunk that is too short for a part
    /// stays unchanged.
    async fn reduce_level(&mut self, items: &[Item<'a>]) -> Result<Vec<Item<'a>>, SummaryFailure> {
        let mut parts = Vec::new();
        let mut at = Position::default();
        while !at.is_end(items) {
            let budget = self.budget()?;
            let written = self.write_parts(items, at, budget).await;
            parts.extend(written.parts);
            at = written.end;
            if let Some((failure, tokens)) = written.failure {
                self.shrink_budget(failure, tokens)?;
            }
        }
        Ok(parts)
    }

    /// Writes the parts of the chunks from a position on, side by side. After a failure no part
    /// begins; those under way end, so that they are stored and their cost is known.
    async fn write_parts(
        &self,
        items: &[Item<'a>],
        from: Position,
        budget: TokenBudget,
    ) -> WrittenParts<'a> {
        let mut written = WrittenParts {
            parts: Vec::new(),
            end: from,
            failure: None,
        };
        let has_failed = Cell::new(false);
        let mut under_way = FuturesOrdered::new();
        let mut next = from;
        loop {
            while !has_failed.get()
                && under_way.len() < self.most_side_by_side()
                && !next.is_end(items)
            {
                let (chunk, end) = self.next_chunk(items, next, budget.chunk);
                under_way.push_back(self.replace_chunk(chunk, end, budget, &has_failed));
                next = end;
            }
            let Some(replaced) = under_way.next().await else {
                return written;
            };
            match replaced {
                // What is written after a failure is stored for the next run.
                _ if written.failure.is_some() => {}
                Replaced::By(parts, end) => {
                    written.parts.extend(parts);
                    written.end = end;
                }
                Replaced::Failed(failure, tokens) => written.failure = Some((failure, tokens)),
                // A chunk before it has failed, and has ended the parts.
                Replaced::NotBegun => {}
            }
        }
    }

    /// Replaces a chunk that ends at `end`: by its part, or by its own items if it is too short for
    /// one. Does not begin once another chunk has failed.
    async fn replace_chunk(
        &self,
        chunk: Chunk<'_>,
        end: Position,
        budget: TokenBudget,
        has_failed: &Cell<bool>,
    ) -> Replaced<'a> {
        if has_failed.get() {
            return Replaced::NotBegun;
        }
        let slices = chunk.slices.iter();
        if chunk.tokens <= MAX_CARRIED_TOKENS {
            let carried = slices.map(|slice| slice.item.cut_to(slice.range.clone()));
            return Replaced::By(carried.collect(), end);
        }
        match self.load_or_write_part(&chunk, budget).await {
            Ok(text) => {
                let part = Item::part(slices.map(|slice| slice.item), text);
                Replaced::By(vec![part], end)
            }
            Err(failure) => {
                has_failed.set(true);
                Replaced::Failed(failure, chunk.tokens)
            }
        }
    }

    /// Most parts that may be written at once. One, until the model has answered this run: if it is
    /// down, or refuses the tenant's calls, one call shows it.
    fn most_side_by_side(&self) -> usize {
        if !self.has_answer.get() {
            return 1;
        }
        let of_model = self.model.concurrent_calls();
        of_model.map_or(MAX_SIDE_BY_SIDE, |calls| {
            MAX_SIDE_BY_SIDE.min(calls as usize)
        })
    }

    /// Returns the part of a chunk: loads the one that an earlier run has stored, or else writes
    /// and stores a new one.
    async fn load_or_write_part(
        &self,
        chunk: &Chunk<'_>,
        budget: TokenBudget,
    ) -> Result<String, SummaryFailure> {
        let task = self.part_task(chunk, budget.part_target(chunk.tokens));
        let key = self.part_key(chunk, &task);
        if let Some(text) = self.calls.load_part(&key).await {
            return Ok(text);
        }
        let text = self.write_part(chunk, task).await?;
        self.has_answer.set(true);
        self.calls.store_part(&key, &text).await;
        Ok(text)
    }

    /// A hash of what a part is made from. It leaves out the random string in the prompt's BEGIN
    /// and END lines, and the output limit.
    fn part_key(&self, chunk: &Chunk<'_>, task: &Task) -> Digest {
        let purpose = match self.ask.purpose {
            Purpose::Range => "range",
            Purpose::Message => "message",
        };
        let (version, target) = (
            ModelSummarizer::PROMPT_VERSION.to_be_bytes(),
            task.target.to_be_bytes(),
        );
        let lines = chunk.lines();
        let fields = [
            b"part".as_slice(),
            &version,
            self.model.name().as_bytes(),
            self.model.served_as().as_bytes(),
            purpose.as_bytes(),
            &target,
            self.ask.focus.unwrap_or_default().as_bytes(),
            lines.as_bytes(),
        ];
        let must_keep = task.must_keep.iter().map(String::as_bytes);
        digest::of_fields(fields.into_iter().chain(must_keep))
    }

    fn budget(&self) -> Result<TokenBudget, SummaryFailure> {
        // The budget depends on the whole target, not on what the quoted words leave of it: chunks,
        // and so the stored parts, must not change with the length of a quote.
        TokenBudget::of(
            self.model,
            self.window,
            self.overhead,
            self.ask.target.get(),
            self.cap,
        )
        .ok_or_else(|| {
            let rule = "too small for a summary's instructions";
            CallFailure::Overflow {
                window: Some(self.window),
                prompt: None,
                read: None,
                rule,
                confidence: Confidence::Certain,
                status: None,
                wording: None,
            }
            .into()
        })
    }

    /// Shrinks the budget after a failure that says that `sent` source tokens are too many: to the
    /// window that the provider names, if that is enough, or else to two thirds of `sent`. Returns
    /// the failure if it says anything else, if it only seems to say so for the second time, or if
    /// the budget gets too small to work with.
    fn shrink_budget(&mut self, failure: SummaryFailure, sent: u64) -> Result<(), SummaryFailure> {
        let (named_window, confidence) = match &failure {
            SummaryFailure::Call(CallFailure::Overflow {
                window, confidence, ..
            }) => (*window, *confidence),
            _ => return Err(failure),
        };
        if confidence == Confidence::Likely
            && std::mem::replace(&mut self.has_shrunk_on_doubt, true)
        {
            return Err(failure);
        }
        self.window = self.window.min(named_window.unwrap_or(self.window));
        let is_enough = |run: &Self| {
            run.budget()
                .is_ok_and(|budget| budget.chunk <= sent - sent / 8)
        };
        if !is_enough(self) {
            self.cap = sent * 2 / 3;
        }
        self.budget().map(|_| ()).map_err(|_| failure)
    }
}

/// Most tokens of a call beside its source lines.
fn overhead(ask: &SummaryAsk<'_>) -> u64 {
    let target = ask.target.get();
    let counter = TokenCounter(ask.measure);
    let prompt_tokens = |stage| {
        let task = Task {
            stage,
            target,
            output: target,
            must_keep: Vec::new(),
            feedback: None,
        };
        let prompt = prompt::empty(ask, &task);
        counter.count(&prompt.system) + counter.count(&prompt.user)
    };
    prompt_tokens(Stage::Whole).max(prompt_tokens(Stage::Part))
        + token_budget::MUST_KEEP_TOKENS
        + token_budget::OTHER_PROMPT_TOKENS
}
