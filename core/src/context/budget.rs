//! The budget: what gives way, in which order, until the context fits.
//!
//! Cool large messages are swapped before this. Then: old tool results are clipped, the oldest whole turns are dropped,
//! tool results and exchanges of the newest turn go the same way, the newest user message is clipped in its middle, and
//! last of all the checkpoint's summary. Every step is in the manifest. A larger budget never takes more.

use std::collections::{BTreeMap, HashSet};

use super::{BudgetTooSmall, Draft, Entry, Pressure, Reason, Representation, Segment, close};
use crate::{
    message::{MessageId, Part, Role, part_text},
    tokens::Tokens,
};

/// What a clipped tool result keeps.
const CLIPPED_RESULT: Tokens = Tokens::new(400);
/// The least that a clipped message or summary keeps.
const LEAST_KEPT: Tokens = Tokens::new(64);

/// Makes the draft fit its budget, if it has one.
pub(super) fn fit(draft: &mut Draft) -> Result<(), BudgetTooSmall> {
    let Some(budget) = draft.budget else { return Ok(()) };
    let total = draft.total() + close::reserve(draft);
    if total <= budget {
        return Ok(());
    }
    let mut fitting = Fitting { draft, budget, total };
    let newest = fitting.newest_turn();
    fitting.clip_results(CLIPPED_RESULT, |entry| entry.turn < newest);
    fitting.drop_turns(newest);
    fitting.clip_results(CLIPPED_RESULT, |_| true);
    fitting.drop_exchanges();
    fitting.clip_results(LEAST_KEPT, |_| true);
    fitting.clip_newest();
    fitting.clip_summary();
    if fitting.over() == Tokens::ZERO { Ok(()) } else { Err(fitting.too_small()) }
}

/// Clips every oversized tool result if a model has refused the context, whatever the budget.
pub(super) fn relieve(draft: &mut Draft, pressure: Pressure) {
    if pressure == Pressure::None {
        return;
    }
    for index in 0..draft.entries.len() {
        clip_results_of(draft, index, CLIPPED_RESULT, Reason::Pressure);
    }
}

/// Clips every result of one entry that counts more than `keep`. Returns the tokens gained.
fn clip_results_of(draft: &mut Draft, index: usize, keep: Tokens, reason: Reason) -> Tokens {
    let entry = &draft.entries[index];
    if entry.role != Role::Tool || (entry.tokens <= keep && !entry.estimated) {
        return Tokens::ZERO;
    }
    let mut gained = Tokens::ZERO;
    for part in 0..draft.entries[index].parts.len() {
        let text = part_text(&draft.entries[index].parts[part]);
        let tokens = draft.encoding.counter().count(text);
        gained += draft.clip(index, part, tokens, keep, reason);
    }
    gained
}

struct Fitting<'a> {
    draft: &'a mut Draft,
    budget: Tokens,
    total: Tokens,
}

impl Fitting<'_> {
    /// Tokens above the budget.
    fn over(&self) -> Tokens {
        self.total.less(self.budget)
    }

    /// The turn from which on nothing is dropped whole: that of the newest user message, or where there is none the last.
    fn newest_turn(&self) -> i32 {
        let asked = |entry: &&Entry| entry.is_spoken() && entry.role == Role::User;
        let user = self.draft.entries.iter().rfind(asked).map(|entry| entry.turn);
        user.or_else(|| self.draft.entries.iter().map(|entry| entry.turn).max()).unwrap_or(0)
    }

    /// Clips tool results to `keep`, oldest first, where `among` says so, until the context fits.
    fn clip_results(&mut self, keep: Tokens, among: impl Fn(&Entry) -> bool) {
        for index in 0..self.draft.entries.len() {
            if self.over() == Tokens::ZERO {
                return;
            }
            if among(&self.draft.entries[index]) {
                self.total = self.total.less(clip_results_of(self.draft, index, keep, Reason::Budget));
            }
        }
    }

    /// Drops whole turns older than `newest`, oldest first. One pass to weigh the turns, one to drop.
    fn drop_turns(&mut self, newest: i32) {
        let mut weights: BTreeMap<i32, Tokens> = BTreeMap::new();
        for entry in self.draft.entries.iter().filter(|entry| entry.is_spoken() && entry.turn < newest) {
            *weights.entry(entry.turn).or_default() += entry.framed();
        }
        let mut over = self.over();
        let mut last = None;
        for (turn, weight) in weights {
            if over == Tokens::ZERO {
                break;
            }
            over = over.less(weight);
            last = Some(turn);
        }
        if let Some(last) = last {
            self.drop_where(|_, entry| entry.is_spoken() && entry.turn <= last);
        }
    }

    /// Drops the newest turn's exchanges (a message with calls goes with its results), oldest first; the newest user
    /// message stays, and where there is none the newest message.
    fn drop_exchanges(&mut self) {
        let kept = self.newest_message();
        let mut over = self.over();
        let mut gone = vec![false; self.draft.entries.len()];
        let mut exchange_goes = false;
        for (index, entry) in self.draft.entries.iter().enumerate().filter(|(_, entry)| entry.is_spoken()) {
            if entry.role != Role::Tool {
                exchange_goes = over > Tokens::ZERO && Some(index) != kept;
            }
            if exchange_goes {
                gone[index] = true;
                over = over.less(entry.framed());
            }
        }
        self.drop_where(|index, _| gone[index]);
    }

    fn drop_where(&mut self, gone: impl Fn(usize, &Entry) -> bool) {
        let mut index = 0;
        let mut dropped: Vec<MessageId> = Vec::new();
        let mut freed = Tokens::ZERO;
        self.draft.entries.retain(|entry| {
            let goes = gone(index, entry);
            index += 1;
            if goes {
                freed += entry.framed();
                dropped.extend(&entry.ids);
            }
            !goes
        });
        self.total = self.total.less(freed);
        // The results of one tool message may have gone to calls of several turns, of which some stay.
        let kept: HashSet<MessageId> = if dropped.is_empty() {
            HashSet::new()
        } else {
            self.draft.entries.iter().flat_map(|entry| &entry.ids).copied().collect()
        };
        for id in dropped.into_iter().filter(|id| !kept.contains(id)) {
            if let Some(line) = self.draft.fate(id) {
                line.representation = Representation::Dropped;
                line.reason = Reason::Budget;
                line.tokens = Tokens::ZERO;
            }
        }
    }

    /// The newest user message, or the newest message where there is none; a result belongs to the message with its call.
    fn newest_message(&self) -> Option<usize> {
        let entries = &self.draft.entries;
        let user = entries.iter().rposition(|entry| entry.is_spoken() && entry.role == Role::User);
        user.or_else(|| entries.iter().rposition(|entry| entry.is_spoken() && entry.role != Role::Tool))
    }

    fn clip_newest(&mut self) {
        if let Some(index) = self.newest_message().filter(|_| self.over() > Tokens::ZERO) {
            let keep = self.draft.entries[index].tokens.less(self.over());
            self.clip(index, keep.max(LEAST_KEPT));
        }
    }

    fn clip_summary(&mut self) {
        let summary = self.draft.entries.iter().position(|entry| entry.segment == Segment::CheckpointSummary);
        if let Some(index) = summary.filter(|_| self.over() > Tokens::ZERO) {
            let keep = self.draft.entries[index].tokens.less(self.over());
            self.clip(index, keep.max(LEAST_KEPT));
        }
    }

    /// Clips the texts of one entry until it counts at most `keep`, the largest first: what people and models said, not
    /// calls and thoughts.
    fn clip(&mut self, index: usize, keep: Tokens) {
        let entry = &self.draft.entries[index];
        let counter = self.draft.encoding.counter();
        let texts = entry.parts.iter().enumerate().filter(|(_, part)| matches!(part, Part::Text { .. }));
        let mut texts: Vec<(usize, Tokens)> =
            texts.map(|(index, part)| (index, counter.count(part_text(part)))).collect();
        texts.sort_by_key(|(_, tokens)| std::cmp::Reverse(*tokens));
        for (part, tokens) in texts {
            let excess = self.draft.entries[index].tokens.less(keep);
            if excess == Tokens::ZERO {
                return;
            }
            let room = tokens.less(excess).max(LEAST_KEPT);
            self.total = self.total.less(self.draft.clip(index, part, tokens, room, Reason::Budget));
        }
    }

    fn too_small(&self) -> BudgetTooSmall {
        let of = |segment| {
            let entries = self.draft.entries.iter().filter(move |entry| entry.segment == segment);
            entries.map(Entry::framed).sum::<Tokens>()
        };
        let system_prompt = of(Segment::SystemPrompt);
        BudgetTooSmall { budget: self.budget, system_prompt, newest: self.total.less(system_prompt) }
    }
}
