//! The budget: what gives way, in which order, until the context fits.
//!
//! Cool large messages are swapped before this. Then: old tool results are clipped, the oldest whole turns are dropped,
//! tool results and exchanges of the newest turn go the same way, the newest user message is clipped in its middle, and
//! last of all the checkpoint's summary. Every step is in the manifest.

use std::collections::BTreeMap;

use super::{BudgetTooSmall, Draft, Entry, Reason, Representation, Segment};
use crate::{
    message::{MessageId, PART_JOIN, Part, Role, part_text},
    tokens::{Encoding, Tokens, clip_middle},
};

/// What a clipped tool result keeps.
const CLIPPED_RESULT: Tokens = Tokens::new(400);
/// The least that a clipped message or summary keeps.
const LEAST_KEPT: Tokens = Tokens::new(64);

/// Makes the draft fit its budget, if it has one.
pub(super) fn fit(draft: &mut Draft) -> Result<(), BudgetTooSmall> {
    let Some(budget) = draft.budget else { return Ok(()) };
    let total = draft.total();
    let mut fitting = Fitting { draft, budget, total };
    let newest = fitting.newest_turn();
    fitting.clip_results(|entry| entry.turn < newest);
    fitting.drop_turns(newest);
    fitting.clip_results(|_| true);
    fitting.drop_exchanges();
    fitting.clip_newest();
    fitting.clip_summary();
    if fitting.over() == Tokens::ZERO { Ok(()) } else { Err(fitting.too_small()) }
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

    fn newest_turn(&self) -> i32 {
        self.draft.entries.iter().map(|entry| entry.turn).max().unwrap_or(0)
    }

    /// Clips tool results in the middle, oldest first, where `among` says so, until the context fits.
    fn clip_results(&mut self, among: impl Fn(&Entry) -> bool) {
        for index in 0..self.draft.entries.len() {
            if self.over() == Tokens::ZERO {
                return;
            }
            let entry = &self.draft.entries[index];
            if entry.role == Role::Tool && entry.tokens > CLIPPED_RESULT && among(entry) {
                self.clip(index, CLIPPED_RESULT);
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
                dropped.extend(entry.message());
            }
            !goes
        });
        self.total = self.total.less(freed);
        for id in dropped {
            if let Some(line) = self.draft.fate(id) {
                line.representation = Representation::Dropped;
                line.reason = Reason::Budget;
                line.tokens = Tokens::ZERO;
                line.clipped.clear();
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

    /// Clips the texts of one entry until it counts at most `keep`, the largest first.
    fn clip(&mut self, index: usize, keep: Tokens) {
        let encoding = self.draft.encoding;
        let entry = &mut self.draft.entries[index];
        let before = entry.tokens;
        let mut texts = clippable(entry, encoding);
        texts.sort_by_key(|text| std::cmp::Reverse(text.tokens));
        let mut clipped = Vec::new();
        for text in texts {
            let excess = entry.tokens.less(keep);
            if excess == Tokens::ZERO {
                break;
            }
            let room = text.tokens.less(excess).max(LEAST_KEPT);
            if let Some((range, tokens)) = clip_part(entry, &text, room, encoding) {
                entry.tokens = entry.tokens.less(text.tokens) + tokens;
                clipped.push(range);
            }
        }
        if clipped.is_empty() {
            return;
        }
        let (tokens, original, message) = (entry.tokens, entry.original, entry.message());
        self.total = self.total.less(before) + tokens;
        if let Some(line) = message.and_then(|id| self.draft.fate(id)) {
            line.representation = Representation::Clipped;
            line.reason = Reason::Budget;
            line.tokens = tokens;
            if original {
                line.clipped.extend(clipped);
                line.clipped.sort_by_key(|range| range.start);
            }
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

/// A text of an entry that may be clipped: its part, its place in the plain text, its tokens.
struct Clippable {
    part: usize,
    offset: usize,
    tokens: Tokens,
}

/// The texts of an entry that may be clipped: what people, models and tools said, not calls and thoughts.
fn clippable(entry: &Entry, encoding: Encoding) -> Vec<Clippable> {
    let mut offset = 0;
    let mut texts = Vec::new();
    for (part, content) in entry.parts.iter().enumerate() {
        let text = part_text(content);
        if matches!(content, Part::Text { .. } | Part::ToolResult { .. }) {
            texts.push(Clippable { part, offset, tokens: encoding.counter().count(text) });
        }
        if !text.is_empty() {
            offset += text.len() + PART_JOIN.len();
        }
    }
    texts
}

/// Clips one part's text to `room` tokens. Returns the bytes of the plain text that were left out, and what is left.
/// A tool result that is JSON is left out whole: half of it would be broken JSON.
fn clip_part(
    entry: &mut Entry,
    clippable: &Clippable,
    room: Tokens,
    encoding: Encoding,
) -> Option<(std::ops::Range<usize>, Tokens)> {
    let id = entry.message();
    let original = entry.original;
    let offset = clippable.offset;
    let marker = move |range: std::ops::Range<usize>| {
        let (start, end) = (offset + range.start, offset + range.end);
        match id {
            Some(id) if original => {
                format!("\n[{} bytes left out: bytes {start} to {end} of message {id}]\n", range.len())
            }
            _ => format!("\n[{} bytes left out]\n", range.len()),
        }
    };
    let result = matches!(entry.parts[clippable.part], Part::ToolResult { .. });
    let (Part::Text { text } | Part::ToolResult { text, .. }) = &mut entry.parts[clippable.part] else { return None };
    if clippable.tokens <= room {
        return None;
    }
    let (clipped, tokens, omitted) = if result && is_json(text) {
        let line = marker(0..text.len()).trim().to_owned();
        let tokens = encoding.counter().count(&line);
        (line, tokens, 0..text.len())
    } else {
        let clipped = clip_middle(encoding, text, room, marker)?;
        (clipped.text, clipped.tokens, clipped.omitted)
    };
    if tokens >= clippable.tokens {
        return None;
    }
    *text = clipped;
    Some((offset + omitted.start..offset + omitted.end, tokens))
}

fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[']) && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}
