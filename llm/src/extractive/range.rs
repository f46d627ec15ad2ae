//! Summary of a run of messages: the previous summary, the quoted opening, then one line per
//! important message. A message's line is made of its most important units. A unit is a sentence of
//! prose, the digest of another block, or a whole short tool result.

use std::hash::Hasher;

use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use crate::summarizer::{Quote, Source, SummaryAsk};

use super::{
    candidates::{Candidate, TopCandidates},
    digest,
    fragments::{CallNames, Fragment, FragmentKind, fragments},
    previous,
    prose::{self, Sentences},
    structure::{Kind, blocks},
    terms::{self, Focus, Frequencies, Signals},
    text,
    token_counter::TokenCounter,
};
use anneal_core::message::Role;

/// Each message has this many order numbers for its units. If it has more units, the rest share the
/// last number.
const UNITS_PER_MESSAGE: usize = 1 << 12;
/// At least this many units of one message may become candidates, and more if there are few
/// messages.
const MIN_UNITS: usize = 24;
/// Fewest tokens to which a unit is clipped.
const MIN_CLIPPED_TOKENS: u64 = 10;
/// Most characters of a whole fragment that is one unit. The digest of a block may have twice as
/// many.
const MAX_UNIT_CHARS: usize = 420;

/// The summary, of at most `limit` tokens.
pub(crate) fn summary(ask: &SummaryAsk<'_>, counter: TokenCounter<'_>, limit: u64) -> String {
    let (previous_summary, left_out) = previous::parse(ask.previous.unwrap_or_default());
    let label = |quote: &Quote<'_>| format!("[{} user]", quote.message_id);
    let quoted = ask
        .quoted
        .map(|quote| previous::quote(&quote, &label(&quote), counter, limit / 3))
        .unwrap_or_default();
    let reserved = counter.count(&previous_summary).min(limit / 2) + counter.count(&quoted);
    // A message that is quoted without a cut needs no line of its own.
    let quoted_whole = ask
        .quoted
        .filter(|_| !quoted.is_empty() && !quoted.contains('…'))
        .map(|quote| quote.message_id);
    let sources: Vec<&Source> = ask
        .sources
        .iter()
        .filter(|source| Some(source.message_id) != quoted_whole)
        .collect();
    let ranked_sources = RankedSources::of(&sources, ask, counter);
    let ranked = ranked_sources.candidates(limit).into_ranked();
    let messages_with_content = ranked_sources.messages_with_content;

    // Four tokens, and six below, are for line feeds and the last line. The counts of the parts do
    // not add up exactly: if the result exceeds the limit, it is written again with a smaller
    // budget.
    let mut budget = limit.saturating_sub(reserved + 4);
    for _ in 0..6 {
        let (lines, shown) = ranked_sources.lines(&ranked, counter, budget);
        if shown == 0 && previous_summary.is_empty() && quoted.is_empty() {
            break;
        }
        let rest = limit.saturating_sub(counter.count(&lines) + counter.count(&quoted) + 6);
        let (shrunk, dropped) = previous::shrink(
            &previous_summary,
            counter,
            rest.max(limit / 4),
            &ranked_sources.focus,
        );
        let missing = left_out + dropped + messages_with_content.saturating_sub(shown);
        let last = if missing > 0 {
            format!("[… ×{missing}]")
        } else {
            String::new()
        };
        let out = joined([&shrunk, &quoted, &lines, &last]);
        let tokens = counter.count(&out);
        if tokens <= limit {
            return out;
        }
        budget = budget.saturating_sub(tokens - limit + 1 + budget / 32);
    }
    // The budget is too small for labels: the text matters more.
    let only = ranked
        .first()
        .map_or("", |candidate| candidate.text.as_str());
    counter.clip(
        &text::escape_labels(if previous_summary.is_empty() {
            only
        } else {
            &previous_summary
        }),
        limit,
    )
}

fn joined(parts: [&str; 4]) -> String {
    parts
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

/// A message and its texts.
struct MessageTexts<'a> {
    source: &'a Source,
    fragments: Vec<Fragment<'a>>,
}

/// The messages, and what is needed to rank them.
struct RankedSources<'a> {
    messages: Vec<MessageTexts<'a>>,
    frequencies: Frequencies,
    focus: Focus,
    counter: TokenCounter<'a>,
    /// Number of messages that are not blank.
    messages_with_content: usize,
    /// Index of the last message of a user; `usize::MAX` if there is none.
    last_user: usize,
    /// Index of the first message of a user; `usize::MAX` if there is none.
    first_user: usize,
}

impl<'a> RankedSources<'a> {
    fn of(sources: &[&'a Source], ask: &SummaryAsk<'a>, counter: TokenCounter<'a>) -> Self {
        let names = CallNames::of(ask.sources);
        let mut frequencies = Frequencies::new();
        let messages: Vec<_> = sources
            .iter()
            .map(|&source| MessageTexts {
                source,
                fragments: fragments(source, &names),
            })
            .collect();
        for message in &messages {
            for fragment in message
                .fragments
                .iter()
                .filter(|fragment| fragment.kind == FragmentKind::Text)
            {
                frequencies.add(&fragment.text);
            }
        }
        let is_user = |message: &MessageTexts<'_>| message.source.role == Role::User;
        Self {
            messages_with_content: messages
                .iter()
                .filter(|message| !message.fragments.is_empty())
                .count(),
            first_user: messages.iter().position(is_user).unwrap_or(usize::MAX),
            last_user: messages.iter().rposition(is_user).unwrap_or(usize::MAX),
            focus: terms::focus(ask.focus),
            messages,
            frequencies,
            counter,
        }
    }

    /// The units of all messages, ranked together.
    fn candidates(&self, limit: u64) -> TopCandidates {
        let mut best = TopCandidates::for_budget(limit);
        let mut seen = FxHashSet::default();
        let mut count_by_words: FxHashMap<u64, u32> = FxHashMap::default();
        // The units of each message if all messages got equally many units of four tokens each.
        let even = limit / (4 * self.messages.len().max(1)) as u64;
        let most = usize::try_from(even)
            .unwrap_or(UNITS_PER_MESSAGE)
            .clamp(MIN_UNITS, UNITS_PER_MESSAGE);
        let block_budget = (limit / 16).clamp(32, 160);
        for (at, MessageTexts { source, fragments }) in self.messages.iter().enumerate() {
            let mut units = TopCandidates::with_limit(most);
            let mut place = 0;
            for fragment in fragments {
                let budget = if fragment.kind == FragmentKind::ToolCall {
                    block_budget * 2
                } else {
                    block_budget
                };
                self.offer_units(&mut units, &mut place, fragment, budget);
            }
            let base = self.base_rank(at, source.role);
            // The first request is the task: its details matter almost as much as its first
            // sentence.
            let decay = if at == self.first_user { 0.9_f32 } else { 0.75 };
            for (nth, unit) in units.into_ranked().into_iter().enumerate() {
                // Long units cost more tokens, and later units of a message matter less than its
                // first.
                let cost = (unit.text.len() as f32 / 120.0).max(1.0).powf(0.35);
                let rank = (base + unit.rank) * decay.powi(nth as i32) / cost;
                let (words, figures) = sketch(&unit.text);
                let repeats = count_by_words.entry(words).or_default();
                // "Step 7 done" after "Step 6 done" adds little, so its rank is lower. An equal
                // unit adds nothing, so it is not offered.
                let rank = rank - 0.4 * (*repeats).min(4) as f32;
                *repeats += 1;
                if seen.insert(words.wrapping_add(figures)) {
                    best.offer(
                        at * UNITS_PER_MESSAGE + unit.order.min(UNITS_PER_MESSAGE - 1),
                        rank,
                        || unit.text,
                    );
                }
            }
        }
        best
    }

    /// The rank of a message by its role and its place.
    fn base_rank(&self, at: usize, role: Role) -> f32 {
        let base = match role {
            Role::User => 1.5,
            Role::System => 1.0,
            Role::Assistant => 0.9,
            Role::Tool => 0.4,
        };
        // From 0 for the oldest message to almost 1 for the newest.
        let recency = at as f32 / self.messages.len().max(1) as f32;
        let first_request = if at == self.first_user { 1.5 } else { 0.0 };
        let last_request = if at == self.last_user { 0.8 } else { 0.0 };
        let answer = if at > 0 && self.asks(at - 1) {
            0.5
        } else {
            0.0
        };
        base + 0.7 * recency * recency + first_request + last_request + answer
    }

    /// Whether the message ends with a question, so that the next message is the answer.
    fn asks(&self, at: usize) -> bool {
        let text = self.messages[at]
            .fragments
            .iter()
            .rev()
            .find(|fragment| fragment.kind == FragmentKind::Text);
        text.is_some_and(|fragment| fragment.text.trim_end().ends_with(['?', '？', '؟']))
    }

    /// Offers the units of a fragment. `place` is the order number of its first unit in the
    /// message, and is moved past its units.
    fn offer_units(
        &self,
        units: &mut TopCandidates,
        place: &mut usize,
        fragment: &Fragment<'_>,
        budget: u64,
    ) {
        let kind_rank = match fragment.kind {
            FragmentKind::ToolError => 1.5,
            FragmentKind::Reasoning => -0.6,
            FragmentKind::ToolCall => 0.8,
            FragmentKind::Text | FragmentKind::ToolResult => 0.0,
        };
        let mut lead = fragment.lead.as_str();
        let mut found = blocks(&fragment.text);
        if found.is_empty()
            || matches!(
                fragment.kind,
                FragmentKind::ToolResult | FragmentKind::ToolError
            ) && found.len() == 1
                && fragment.text.len() < MAX_UNIT_CHARS
        {
            let text = text::clip(&text::fold(&fragment.text), MAX_UNIT_CHARS).into_owned();
            let signals = Signals::read(&text, &self.frequencies, &self.focus);
            units.offer(*place, kind_rank + signals.weight() * 0.6, || {
                with_lead(lead, text)
            });
            // One number stays free, so that `prose::join` writes an ellipsis after this unit.
            *place += 2;
            return;
        }
        for block in found.drain(..) {
            if block.kind == Kind::Prose {
                for (nth, sentence) in Sentences::of(block.text).enumerate() {
                    let signals = Signals::read(sentence.text, &self.frequencies, &self.focus);
                    let opening = if nth == 0 { 0.35 } else { 0.0 } + 0.3 / (1 + *place) as f32
                        - prose::announcement_penalty(&sentence);
                    let blob = if sentence.blob.is_some() { -2.0 } else { 0.0 };
                    let lead = std::mem::take(&mut lead);
                    let little_content = 1.3 * (signals.substance() - 1.0);
                    units.offer(
                        *place,
                        kind_rank + signals.weight() + opening + blob + little_content,
                        || with_lead(lead, sentence.folded()),
                    );
                    *place += 1;
                }
            } else {
                let digest = text::fold(&digest(&block, self.counter, budget, &self.focus));
                let digest = text::clip(&digest, MAX_UNIT_CHARS * 2).into_owned();
                let signals = Signals::read(&digest, &self.frequencies, &self.focus);
                let lead = std::mem::take(&mut lead);
                units.offer(*place, kind_rank + 0.3 + signals.weight() * 0.5, || {
                    with_lead(lead, digest)
                });
                *place += 1;
            }
        }
    }

    /// The lines of the best candidates that fit, one per message, in order; and the number of
    /// these messages.
    fn lines(
        &self,
        ranked: &[Candidate],
        counter: TokenCounter<'_>,
        budget: u64,
    ) -> (String, usize) {
        let mut left = budget;
        let mut misses = 0;
        let mut taken: FxHashMap<usize, Vec<Candidate>> = FxHashMap::default();
        for candidate in ranked {
            let at = candidate.order / UNITS_PER_MESSAGE;
            let label_tokens = if taken.contains_key(&at) {
                1
            } else {
                counter.count(&self.label(at)) + 1
            };
            let cost = counter.count(&candidate.text) + label_tokens + 1;
            if cost <= left {
                left -= cost;
                taken.entry(at).or_default().push(candidate.clone());
            } else if cost > budget / 3 && left > label_tokens + MIN_CLIPPED_TOKENS {
                // The unit is too long, but ranks above the rest: its beginning is kept.
                let text = counter.clip(
                    &candidate.text,
                    (left - label_tokens - 1)
                        .min(budget / 3)
                        .max(MIN_CLIPPED_TOKENS),
                );
                left = left.saturating_sub(counter.count(&text) + label_tokens + 1);
                taken.entry(at).or_default().push(Candidate {
                    text,
                    ..candidate.clone()
                });
            } else {
                misses += 1;
            }
            // Hardly any unit has fewer than four tokens with its label. Ending after more than 128
            // units that did not fit bounds the counting.
            if left < 4 || misses > 128 {
                break;
            }
        }
        if taken.is_empty()
            && let Some(candidate) = ranked.first()
        {
            let label = self.label(candidate.order / UNITS_PER_MESSAGE);
            let budget = budget.saturating_sub(counter.count(&label) + 1);
            if budget < MIN_CLIPPED_TOKENS / 2 {
                return (String::new(), 0);
            }
            let text = counter.clip(&candidate.text, budget);
            return (format!("{label} {text}"), 1);
        }
        let mut out = String::new();
        let shown = taken.len();
        for at in 0..self.messages.len() {
            let Some(mut units) = taken.remove(&at) else {
                continue;
            };
            units.sort_by_key(|unit| unit.order);
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&self.label(at));
            out.push(' ');
            out.push_str(&prose::join(&units));
        }
        (out, shown)
    }

    fn label(&self, at: usize) -> String {
        let source = self.messages[at].source;
        format!("[{} {}]", source.message_id, source.role.name())
    }
}

/// Two sums of hashes: of the text's terms, which ignore case, punctuation and short words, and of
/// its words with digits, with the punctuation at these words. In a text without terms, the second
/// sum is of all words.
fn sketch(text: &str) -> (u64, u64) {
    let (mut words, mut figures) = (0_u64, 0_u64);
    terms::each_term(text, |term| words = words.wrapping_add(term));
    let no_words = words == 0;
    for word in text
        .split_whitespace()
        .filter(|word| no_words || word.contains(char::is_numeric))
    {
        let mut hasher = FxHasher::default();
        hasher.write(word.as_bytes());
        figures = figures.wrapping_add(hasher.finish());
    }
    (words, figures)
}

fn with_lead(lead: &str, text: String) -> String {
    match (lead.is_empty(), text.is_empty()) {
        (true, _) => text,
        (false, true) => lead.to_owned(),
        (false, false) => format!("{lead} {text}"),
    }
}
