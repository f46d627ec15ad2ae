//! The budget: what is clipped or dropped, and in which order, until the context fits. To clip a
//! text is to leave out its middle.
//!
//! Cool large messages are swapped for their summaries before this. The manifest records what
//! happens to stored messages in these steps:
//!
//! 1. Clip tool results of older turns.
//! 2. Drop the oldest whole turns.
//! 3. Clip tool results of the newest turn. Drop its exchanges (a message with the tool messages
//!    that follow it), oldest first. Then clip all results to the minimum.
//! 4. Clip the newest user message; if there is none, the newest message that is not a tool
//!    message.
//! 5. Clip the checkpoint's summary.
//!
//! A larger budget never drops or clips more than a smaller one.

use std::collections::{BTreeMap, HashSet};

use super::{BudgetTooSmall, Draft, Entry, Pressure, Reason, Representation, Segment, repair};
use crate::{
    message::{MessageId, Part, Role, part_text},
    tokens::Tokens,
};

/// Most tokens that a clipped tool result keeps.
const CLIPPED_RESULT_TOKENS: Tokens = Tokens::new(400);
/// The lowest limit to which a result, message or summary is clipped.
const MIN_CLIPPED_TOKENS: Tokens = Tokens::new(64);

/// Makes the draft fit its budget, if it has one.
pub(super) fn fit(draft: &mut Draft) -> Result<(), BudgetTooSmall> {
    let Some(budget) = draft.budget else {
        return Ok(());
    };
    let total = draft.total() + repair::reserved_tokens(draft);
    if total <= budget {
        return Ok(());
    }
    let mut fit = BudgetFit {
        draft,
        budget,
        total,
    };
    let newest_turn = fit.newest_turn();
    fit.clip_results(CLIPPED_RESULT_TOKENS, |entry| entry.turn < newest_turn);
    fit.drop_turns(newest_turn);
    fit.clip_results(CLIPPED_RESULT_TOKENS, |_| true);
    fit.drop_exchanges();
    fit.clip_results(MIN_CLIPPED_TOKENS, |_| true);
    fit.clip_newest();
    fit.clip_summary();
    if fit.excess() == Tokens::ZERO {
        Ok(())
    } else {
        Err(fit.too_small())
    }
}

/// Clips every tool result of more than [`CLIPPED_RESULT_TOKENS`] if a model has refused the
/// context as too long, with or without a budget.
pub(super) fn apply_pressure(draft: &mut Draft, pressure: Pressure) {
    if pressure == Pressure::None {
        return;
    }
    for index in 0..draft.entries.len() {
        clip_results_of(draft, index, CLIPPED_RESULT_TOKENS, Reason::Pressure);
    }
}

/// Clips each result of more than `keep` tokens in one entry. Returns the tokens freed.
fn clip_results_of(draft: &mut Draft, index: usize, keep: Tokens, reason: Reason) -> Tokens {
    let entry = &draft.entries[index];
    // The true count of an estimated entry may be higher than its estimate.
    if entry.role != Role::Tool || (entry.tokens <= keep && !entry.estimated) {
        return Tokens::ZERO;
    }
    let mut freed = Tokens::ZERO;
    for part in 0..draft.entries[index].parts.len() {
        let text = part_text(&draft.entries[index].parts[part]);
        let tokens = draft.encoding.counter().count(text);
        freed += draft.clip(index, part, tokens, keep, reason);
    }
    freed
}

/// A draft while it is made to fit its budget.
struct BudgetFit<'a> {
    draft: &'a mut Draft,
    budget: Tokens,
    /// Tokens of the draft, and those that are reserved for later repairs.
    total: Tokens,
}

impl BudgetFit<'_> {
    /// Tokens above the budget.
    fn excess(&self) -> Tokens {
        self.total.less(self.budget)
    }

    /// The turn from which on whole turns are kept: the turn of the newest user message, or the
    /// last turn if there is no user message.
    fn newest_turn(&self) -> i32 {
        let is_user = |entry: &&Entry| entry.is_conversation() && entry.role == Role::User;
        let user = self
            .draft
            .entries
            .iter()
            .rfind(is_user)
            .map(|entry| entry.turn);
        user.or_else(|| self.draft.entries.iter().map(|entry| entry.turn).max())
            .unwrap_or(0)
    }

    /// Clips tool results of the entries that `is_wanted` accepts to `keep` tokens, oldest first,
    /// until the context fits.
    fn clip_results(&mut self, keep: Tokens, is_wanted: impl Fn(&Entry) -> bool) {
        for index in 0..self.draft.entries.len() {
            if self.excess() == Tokens::ZERO {
                return;
            }
            if is_wanted(&self.draft.entries[index]) {
                self.total =
                    self.total
                        .less(clip_results_of(self.draft, index, keep, Reason::Budget));
            }
        }
    }

    /// Drops whole turns older than `newest_turn`, oldest first. One pass sums the tokens of each
    /// turn, a second pass drops.
    fn drop_turns(&mut self, newest_turn: i32) {
        let mut turn_tokens: BTreeMap<i32, Tokens> = BTreeMap::new();
        for entry in self
            .draft
            .entries
            .iter()
            .filter(|entry| entry.is_conversation() && entry.turn < newest_turn)
        {
            *turn_tokens.entry(entry.turn).or_default() += entry.framed_tokens();
        }
        let mut excess = self.excess();
        let mut last_dropped = None;
        for (turn, tokens) in turn_tokens {
            if excess == Tokens::ZERO {
                break;
            }
            excess = excess.less(tokens);
            last_dropped = Some(turn);
        }
        if let Some(last_dropped) = last_dropped {
            self.drop_where(|_, entry| entry.is_conversation() && entry.turn <= last_dropped);
        }
    }

    /// Drops exchanges of the newest turn, oldest first. An exchange is a message together with the
    /// tool messages that follow it. The exchange of [`Self::newest_message`] stays.
    fn drop_exchanges(&mut self) {
        let kept_index = self.newest_message();
        let mut excess = self.excess();
        let mut is_dropped = vec![false; self.draft.entries.len()];
        let mut drops_exchange = false;
        for (index, entry) in self
            .draft
            .entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.is_conversation())
        {
            if entry.role != Role::Tool {
                drops_exchange = excess > Tokens::ZERO && Some(index) != kept_index;
            }
            if drops_exchange {
                is_dropped[index] = true;
                excess = excess.less(entry.framed_tokens());
            }
        }
        self.drop_where(|index, _| is_dropped[index]);
    }

    /// Drops the entries that `is_dropped` accepts, and reports their messages as dropped.
    fn drop_where(&mut self, is_dropped: impl Fn(usize, &Entry) -> bool) {
        let mut index = 0;
        let mut dropped: Vec<MessageId> = Vec::new();
        let mut freed = Tokens::ZERO;
        self.draft.entries.retain(|entry| {
            let drops_entry = is_dropped(index, entry);
            index += 1;
            if drops_entry {
                freed += entry.framed_tokens();
                dropped.extend(&entry.ids);
            }
            !drops_entry
        });
        self.total = self.total.less(freed);
        // One tool message may hold results for calls of several turns. Some of these may stay.
        let kept: HashSet<MessageId> = if dropped.is_empty() {
            HashSet::new()
        } else {
            self.draft
                .entries
                .iter()
                .flat_map(|entry| &entry.ids)
                .copied()
                .collect()
        };
        for id in dropped.into_iter().filter(|id| !kept.contains(id)) {
            if let Some(manifest_entry) = self.draft.manifest_entry_mut(id) {
                manifest_entry.representation = Representation::Dropped;
                manifest_entry.reason = Reason::Budget;
                manifest_entry.tokens = Tokens::ZERO;
            }
        }
    }

    /// Index of the newest user message. If there is none: of the newest message that is not a tool
    /// message.
    fn newest_message(&self) -> Option<usize> {
        let entries = &self.draft.entries;
        let user = entries
            .iter()
            .rposition(|entry| entry.is_conversation() && entry.role == Role::User);
        user.or_else(|| {
            entries
                .iter()
                .rposition(|entry| entry.is_conversation() && entry.role != Role::Tool)
        })
    }

    fn clip_newest(&mut self) {
        if let Some(index) = self
            .newest_message()
            .filter(|_| self.excess() > Tokens::ZERO)
        {
            let keep = self.draft.entries[index].tokens.less(self.excess());
            self.clip(index, keep.max(MIN_CLIPPED_TOKENS));
        }
    }

    fn clip_summary(&mut self) {
        let summary = self
            .draft
            .entries
            .iter()
            .position(|entry| entry.segment == Segment::CheckpointSummary);
        if let Some(index) = summary.filter(|_| self.excess() > Tokens::ZERO) {
            let keep = self.draft.entries[index].tokens.less(self.excess());
            self.clip(index, keep.max(MIN_CLIPPED_TOKENS));
        }
    }

    /// Clips the texts of one entry until it has at most `keep` tokens, the largest text first.
    /// Tool calls and reasoning are not clipped.
    fn clip(&mut self, index: usize, keep: Tokens) {
        let entry = &self.draft.entries[index];
        let counter = self.draft.encoding.counter();
        let texts = entry
            .parts
            .iter()
            .enumerate()
            .filter(|(_, part)| matches!(part, Part::Text { .. }));
        let mut texts: Vec<(usize, Tokens)> = texts
            .map(|(part_index, part)| (part_index, counter.count(part_text(part))))
            .collect();
        texts.sort_by_key(|(_, tokens)| std::cmp::Reverse(*tokens));
        for (part, tokens) in texts {
            let surplus = self.draft.entries[index].tokens.less(keep);
            if surplus == Tokens::ZERO {
                return;
            }
            let limit = tokens.less(surplus).max(MIN_CLIPPED_TOKENS);
            self.total =
                self.total
                    .less(self.draft.clip(index, part, tokens, limit, Reason::Budget));
        }
    }

    fn too_small(&self) -> BudgetTooSmall {
        let segment_tokens = |segment| {
            let entries = self
                .draft
                .entries
                .iter()
                .filter(move |entry| entry.segment == segment);
            entries.map(Entry::framed_tokens).sum::<Tokens>()
        };
        let system_prompt = segment_tokens(Segment::SystemPrompt);
        BudgetTooSmall {
            budget: self.budget,
            system_prompt,
            newest: self.total.less(system_prompt),
        }
    }
}
