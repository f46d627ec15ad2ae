//! A run of messages: previous summary, quoted opening, then one line for each message that matters.

use std::hash::Hasher;

use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use crate::port::{Quote, Source, SummaryAsk};

use super::{
    digest,
    fit::{Best, Candidate, Scale},
    pieces::{CallNames, Piece, Voice, pieces},
    previous,
    prose::{self, Sentences},
    structure::{Kind, blocks},
    terms::{self, Focus, Frequencies, Signals},
    text,
};
use anneal_core::message::Role;

/// Places that one message has among the candidates: its later units share the last one.
const PLACES: usize = 1 << 12;
/// Units of one message that compete; more when there are few messages.
const LEAST_UNITS: usize = 24;
/// Tokens that the beginning of a clipped unit has at least.
const LEAST_CLIPPED: u64 = 10;
/// Characters shown of one unit.
const SHOWN: usize = 420;

/// The summary: at most `limit` tokens, but for the last few that rounding may add.
pub(crate) fn summary(ask: &SummaryAsk<'_>, scale: Scale<'_>, limit: u64) -> String {
    let (before, left_out) = previous::parse(ask.previous.unwrap_or_default());
    let label = |quote: &Quote<'_>| format!("[{} user]", quote.message_id);
    let quoted = ask.quoted.map(|quote| previous::quote(&quote, &label(&quote), scale, limit / 3)).unwrap_or_default();
    let held = scale.weigh(&before).min(limit / 2) + scale.weigh(&quoted);
    let whole = ask.quoted.filter(|_| !quoted.contains('…')).map(|quote| quote.message_id);
    let sources: Vec<&Source> = ask.sources.iter().filter(|source| Some(source.message_id) != whole).collect();
    let reading = Reading::of(&sources, ask, scale);
    let ranked = reading.candidates(limit).into_ranked();
    let said = reading.spoken;

    let mut room = limit.saturating_sub(held + 4);
    for _ in 0..6 {
        let (lines, shown) = reading.lines(&ranked, scale, room);
        if shown == 0 && before.is_empty() && quoted.is_empty() {
            break;
        }
        let rest = limit.saturating_sub(scale.weigh(&lines) + scale.weigh(&quoted) + 6);
        let (before, dropped) = previous::shrunk(&before, scale, rest.max(limit / 4), &reading.focus);
        let missing = left_out + dropped + said.saturating_sub(shown);
        let last = if missing > 0 { format!("[… ×{missing}]") } else { String::new() };
        let out = joined([&before, &quoted, &lines, &last]);
        let tokens = scale.weigh(&out);
        if tokens <= limit {
            return out;
        }
        room = room.saturating_sub(tokens - limit + 1 + room / 32);
    }
    // No room for labels: what was said matters more than where.
    let only = ranked.first().map_or("", |candidate| candidate.text.as_str());
    scale.clip(&text::unforged(if before.is_empty() { only } else { &before }), limit)
}

fn joined(parts: [&str; 4]) -> String {
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

/// The sources with everything that ranking them needs.
struct Reading<'a> {
    sources: Vec<(&'a Source, Vec<Piece<'a>>)>,
    frequencies: Frequencies,
    focus: Focus,
    scale: Scale<'a>,
    /// Messages that say anything at all.
    spoken: usize,
    last_user: usize,
    first_user: usize,
}

impl<'a> Reading<'a> {
    fn of(sources: &[&'a Source], ask: &SummaryAsk<'a>, scale: Scale<'a>) -> Self {
        let names = CallNames::of(ask.sources);
        let mut frequencies = Frequencies::new();
        let sources: Vec<_> = sources.iter().map(|source| (*source, pieces(source, &names))).collect();
        for (_, pieces) in &sources {
            for piece in pieces.iter().filter(|piece| piece.voice == Voice::Said) {
                frequencies.add(&piece.text);
            }
        }
        let is_user = |(source, _): &(&Source, Vec<Piece<'_>>)| source.role == Role::User;
        Self {
            spoken: sources.iter().filter(|(_, pieces)| !pieces.is_empty()).count(),
            first_user: sources.iter().position(is_user).unwrap_or(usize::MAX),
            last_user: sources.iter().rposition(is_user).unwrap_or(usize::MAX),
            focus: terms::focus(ask.focus),
            sources,
            frequencies,
            scale,
        }
    }

    /// The units of all messages, ranked against each other.
    fn candidates(&self, limit: u64) -> Best {
        let mut best = Best::for_room(limit);
        let mut said = FxHashSet::default();
        let mut alike: FxHashMap<u64, u32> = FxHashMap::default();
        let even = limit / (4 * self.sources.len().max(1)) as u64;
        let most = usize::try_from(even).unwrap_or(PLACES).clamp(LEAST_UNITS, PLACES);
        let block_room = (limit / 16).clamp(32, 160);
        for (at, (source, pieces)) in self.sources.iter().enumerate() {
            let mut units = Best::of(most);
            let mut place = 0;
            for piece in pieces {
                let room = if piece.voice == Voice::Called { block_room * 2 } else { block_room };
                self.offer_units(&mut units, &mut place, piece, room);
            }
            let base = self.base(at, source.role);
            // The opening request is the task: its details matter almost as much as its first sentence.
            let decay = if at == self.first_user { 0.9_f32 } else { 0.75 };
            for (nth, unit) in units.into_ranked().into_iter().enumerate() {
                // Long units cost more; the second thing that a message says matters less than its first.
                let cost = (unit.text.len() as f32 / 120.0).max(1.0).powf(0.35);
                let rank = (base + unit.rank) * decay.powi(nth as i32) / cost;
                let (words, figures) = sketch(&unit.text);
                let repeats = alike.entry(words).or_default();
                // "Step 7 done" after "Step 6 done" says little more; the same again says nothing.
                let rank = rank - 0.4 * (*repeats).min(4) as f32;
                *repeats += 1;
                if said.insert(words.wrapping_add(figures)) {
                    best.offer(at * PLACES + unit.order.min(PLACES - 1), rank, || unit.text);
                }
            }
        }
        best
    }

    /// What a message brings along: who speaks, and where it stands.
    fn base(&self, at: usize, role: Role) -> f32 {
        let base = match role {
            Role::User => 1.5,
            Role::System => 1.0,
            Role::Assistant => 0.9,
            Role::Tool => 0.4,
        };
        let age = at as f32 / self.sources.len().max(1) as f32;
        let opening = if at == self.first_user { 1.5 } else { 0.0 };
        let open = if at == self.last_user { 0.8 } else { 0.0 };
        let answer = if at > 0 && self.asks(at - 1) { 0.5 } else { 0.0 };
        base + 0.7 * age * age + opening + open + answer
    }

    /// Whether the message ends in a question: what follows it is the answer.
    fn asks(&self, at: usize) -> bool {
        let said = self.sources[at].1.iter().rev().find(|piece| piece.voice == Voice::Said);
        said.is_some_and(|piece| piece.text.trim_end().ends_with(['?', '？', '؟']))
    }

    fn offer_units(&self, units: &mut Best, place: &mut usize, piece: &Piece<'_>, room: u64) {
        let voice = match piece.voice {
            Voice::Failed => 1.5,
            Voice::Thought => -0.6,
            Voice::Called => 0.8,
            Voice::Said | Voice::Answered => 0.0,
        };
        let mut lead = piece.lead.as_str();
        let mut found = blocks(&piece.text);
        if found.is_empty()
            || matches!(piece.voice, Voice::Answered | Voice::Failed) && found.len() == 1 && piece.text.len() < SHOWN
        {
            let text = text::clip(&text::fold(&piece.text), SHOWN).into_owned();
            let signals = Signals::read(&text, &self.frequencies, &self.focus);
            units.offer(*place, voice + signals.weight() * 0.6, || with_lead(lead, text));
            *place += 2;
            return;
        }
        for block in found.drain(..) {
            if block.kind == Kind::Prose {
                for (nth, sentence) in Sentences::of(block.text).enumerate() {
                    let signals = Signals::read(sentence.text, &self.frequencies, &self.focus);
                    let opening =
                        if nth == 0 { 0.35 } else { 0.0 } + 0.3 / (1 + *place) as f32 - prose::announces(&sentence);
                    let blob = if sentence.blob.is_some() { -2.0 } else { 0.0 };
                    let lead = std::mem::take(&mut lead);
                    let hollow = 1.3 * (signals.substance() - 1.0);
                    units.offer(*place, voice + signals.weight() + opening + blob + hollow, || {
                        with_lead(lead, sentence.folded())
                    });
                    *place += 1;
                }
            } else {
                let digest = text::fold(&digest(&block, self.scale, room, &self.focus));
                let digest = text::clip(&digest, SHOWN * 2).into_owned();
                let signals = Signals::read(&digest, &self.frequencies, &self.focus);
                let lead = std::mem::take(&mut lead);
                units.offer(*place, voice + 0.3 + signals.weight() * 0.5, || with_lead(lead, digest));
                *place += 1;
            }
        }
    }

    /// One line per message for the best candidates that fit, in order, and how many messages have one.
    fn lines(&self, ranked: &[Candidate], scale: Scale<'_>, room: u64) -> (String, usize) {
        let mut left = room;
        let mut misses = 0;
        let mut taken: FxHashMap<usize, Vec<Candidate>> = FxHashMap::default();
        for candidate in ranked {
            let at = candidate.order / PLACES;
            let label = if taken.contains_key(&at) { 1 } else { scale.weigh(&self.label(at)) + 1 };
            let cost = scale.weigh(&candidate.text) + label + 1;
            if cost <= left {
                left -= cost;
                taken.entry(at).or_default().push(candidate.clone());
            } else if cost > room / 3 && left > label + LEAST_CLIPPED {
                // Long for this target, yet ranked above what follows: its beginning is better than nothing of it.
                let text = scale.clip(&candidate.text, (left - label - 1).min(room / 3).max(LEAST_CLIPPED));
                left = left.saturating_sub(scale.weigh(&text) + label + 1);
                taken.entry(at).or_default().push(Candidate { text, ..candidate.clone() });
            } else {
                misses += 1;
            }
            if left < 4 || misses > 128 {
                break;
            }
        }
        if taken.is_empty()
            && let Some(candidate) = ranked.first()
        {
            let label = self.label(candidate.order / PLACES);
            let room = room.saturating_sub(scale.weigh(&label) + 1);
            if room < LEAST_CLIPPED / 2 {
                return (String::new(), 0);
            }
            let text = scale.clip(&candidate.text, room);
            return (format!("{label} {text}"), 1);
        }
        let mut out = String::new();
        let shown = taken.len();
        for at in 0..self.sources.len() {
            let Some(mut units) = taken.remove(&at) else { continue };
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
        let source = self.sources[at].0;
        format!("[{} {}]", source.message_id, source.role.name())
    }
}

/// The text's words and its figures as two sums: equal for texts that say the same, however they are punctuated.
fn sketch(text: &str) -> (u64, u64) {
    let (mut words, mut figures) = (0_u64, 0_u64);
    terms::each_term(text, |term| words = words.wrapping_add(term));
    let no_words = words == 0;
    for word in text.split_whitespace().filter(|word| no_words || word.contains(char::is_numeric)) {
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
