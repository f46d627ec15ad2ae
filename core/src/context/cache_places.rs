//! The places of a finished draft up to which a provider can cache it: which of them the last call
//! left in the cache, and which ones this call marks.

use super::{Draft, Entry, Segment};
use crate::{
    cache::{CacheAsk, CacheKind, CacheMark, CachePoint, CachePointKind, CacheTtl, marks},
    message::{MessageId, Part, Role},
    tokens::{Tokens, count_parts},
};

/// How much of the context the last call has sent too, from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unchanged {
    /// Nothing, or the cache has expired.
    Nothing,
    /// The declared tools, which come before the context.
    Tools,
    /// Up to the end of the system prompt.
    SystemPrompt,
    /// Everything before this message.
    Until(MessageId),
}

/// The last model call, as far as stored messages tell.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastCall {
    /// Its answer. It has sent the messages before.
    pub(super) answer: MessageId,
    /// The answer of the call before it.
    pub(super) answer_before: Option<MessageId>,
    /// The oldest large message that it has sent as its original.
    pub(super) oldest_large: Option<MessageId>,
}

/// What this call gets from the provider's cache, and what it asks it to keep.
#[derive(Debug, Default)]
pub(super) struct CacheUse {
    /// Tokens that the cache should hold.
    pub(super) cached: Tokens,
    /// The marks, in order.
    pub(super) marks: Vec<CacheMark>,
    /// How long the declared tools are kept; None: they are not marked.
    pub(super) tools_ttl: Option<CacheTtl>,
}

/// The end of a message of the draft.
#[derive(Debug, Clone, Copy)]
struct MessageEnd<'d> {
    segment: Segment,
    /// The stored messages that end there.
    ids: &'d [MessageId],
    /// Tokens up to there, with those of the tools.
    tokens: Tokens,
    /// The last place up to there that can be marked. Its kind says nothing yet.
    place: Option<CachePoint>,
}

impl MessageEnd<'_> {
    /// Whether later contexts have the message too: it is stored or will be. Messages that the
    /// build has added may be absent there.
    fn is_lasting(&self) -> bool {
        !self.ids.is_empty() || self.segment != Segment::Tail
    }
}

/// A finished draft for a model with a cache.
pub(super) struct CachedDraft<'d> {
    ask: &'d CacheAsk,
    /// The model's tokens per token counted here.
    ratio: Option<f64>,
    ends: Vec<MessageEnd<'d>>,
    /// Blocks before each message.
    blocks_before: Vec<usize>,
}

/// A place is marked if the next mark is so far behind it that the cache searches only so many more
/// blocks: the provider may count a block more than we do.
const LOOKBACK_MARGIN: usize = 2;

impl<'d> CachedDraft<'d> {
    pub(super) fn new(draft: &'d Draft, ask: &'d CacheAsk, ratio: Option<f64>) -> Self {
        let mut ends: Vec<MessageEnd<'d>> = Vec::with_capacity(draft.entries.len());
        let mut blocks_before = Vec::with_capacity(draft.entries.len());
        let mut tokens_before = ask.identity.tools_tokens;
        let mut blocks = 0;
        let mut place = None;
        for (message, entry) in draft.entries.iter().enumerate() {
            let (mut first_part, mut first_id) = (0, 0);
            for extent in entry.joins.iter().copied().chain([entry.extent()]) {
                let tokens = tokens_before + extent.tokens;
                let part = (first_part..extent.parts)
                    .rev()
                    .find(|part| can_be_marked(entry, *part, ask.rules.kind));
                if let Some(part) = part {
                    let behind = count_parts(draft.encoding, &entry.parts[part + 1..extent.parts]);
                    place = Some(CachePoint {
                        kind: CachePointKind::End,
                        message,
                        part,
                        tokens: tokens.less(behind),
                    });
                }
                ends.push(MessageEnd {
                    segment: entry.segment,
                    ids: &entry.ids[first_id..extent.ids],
                    tokens,
                    place,
                });
                (first_part, first_id) = (extent.parts, extent.ids);
            }
            tokens_before += entry.framed_tokens();
            blocks_before.push(blocks);
            blocks += entry.parts.len();
        }
        Self {
            ask,
            ratio,
            ends,
            blocks_before,
        }
    }

    /// What this call reads and marks. `oldest_large`: the oldest large message that it sends as
    /// its original.
    pub(super) fn plan(
        &self,
        last_call: Option<LastCall>,
        unchanged: Unchanged,
        oldest_large: Option<MessageId>,
    ) -> CacheUse {
        let has_system_prompt = self
            .ends
            .iter()
            .any(|end| end.segment == Segment::SystemPrompt);
        let tools_ttl = self.ask.tools_ttl(has_system_prompt, self.ratio);
        let unchanged_tokens = self.tokens_of(unchanged);
        let held = last_call
            .zip(unchanged_tokens)
            .and_then(|(last_call, tokens)| self.find_held(last_call, tokens));
        let cached = match (self.ask.rules.kind, unchanged_tokens, held) {
            (_, None, _) => Tokens::ZERO,
            (CacheKind::Marked | CacheKind::Breakpoints, _, Some(held)) => held.tokens,
            (CacheKind::Marked | CacheKind::Breakpoints, _, None) => {
                tools_ttl.map_or(Tokens::ZERO, |_| self.ask.identity.tools_tokens)
            }
            (CacheKind::None | CacheKind::AnyPrefix | CacheKind::Implicit, Some(tokens), _) => {
                self.ask.rules.round_down(tokens, self.ratio)
            }
        };
        let points = self.points(&self.ends, oldest_large, held);
        CacheUse {
            cached,
            marks: marks(&points, self.ask, self.ratio),
            tools_ttl,
        }
    }

    /// Tokens of what the last call has sent too; None: nothing.
    fn tokens_of(&self, unchanged: Unchanged) -> Option<Tokens> {
        let count = match unchanged {
            Unchanged::Nothing => return None,
            Unchanged::Tools => 0,
            Unchanged::SystemPrompt => self
                .ends
                .iter()
                .take_while(|end| end.segment == Segment::SystemPrompt)
                .count(),
            Unchanged::Until(id) => self.sent_before(id).len(),
        };
        let last = self.ends[..count].iter().rfind(|end| end.is_lasting());
        Some(last.map_or(self.ask.identity.tools_tokens, |end| end.tokens))
    }

    /// The longest prefix that the last call has left in the cache, among those of at most
    /// `unchanged` tokens.
    fn find_held(&self, last_call: LastCall, unchanged: Tokens) -> Option<CachePoint> {
        let sent = self.sent_before(last_call.answer);
        let sent_before = last_call.answer_before.map(|id| self.sent_before(id));
        let read_by_it = sent_before.and_then(last_place);
        let points = self.points(sent, last_call.oldest_large, read_by_it);
        let marked = marks(&points, self.ask, self.ratio);
        // With breakpoints, the end of a call is kept without a mark, and whatever is there.
        let end = sent
            .iter()
            .rfind(|end| end.is_lasting())
            .filter(|_| self.ask.rules.kind == CacheKind::Breakpoints)
            .map(|end| CachePoint {
                kind: CachePointKind::End,
                message: 0,
                part: 0,
                tokens: end.tokens,
            })
            .filter(|end| self.ask.rules.reaches_minimum(end.tokens, self.ratio));
        marked
            .into_iter()
            .map(|mark| mark.point)
            // It is not known whether the last call could read there, and so had a mark there.
            .filter(|point| point.kind != CachePointKind::LastEnd)
            .chain(end)
            .filter(|point| point.tokens <= unchanged)
            .max_by_key(|point| point.tokens)
    }

    /// The points of a call that sends these messages. `held`: the longest prefix that it reads
    /// from the cache.
    fn points(
        &self,
        sent: &[MessageEnd<'_>],
        oldest_large: Option<MessageId>,
        held: Option<CachePoint>,
    ) -> Vec<CachePoint> {
        let end_of = |segment: Segment| {
            let end = sent.iter().rfind(|end| end.segment == segment);
            end.and_then(|end| end.place)
        };
        let stable = oldest_large
            .and_then(|id| sent.iter().position(|end| end.ids.contains(&id)))
            .and_then(|index| sent[..index].last()?.place);
        let mut points: Vec<CachePoint> = Vec::with_capacity(5);
        for (kind, place) in [
            (CachePointKind::System, end_of(Segment::SystemPrompt)),
            (CachePointKind::Summary, end_of(Segment::CheckpointSummary)),
            (CachePointKind::Stable, stable),
            (CachePointKind::End, last_place(sent)),
        ] {
            let new_place = place.filter(|place| !points.iter().any(|point| point.is_at(place)));
            points.extend(new_place.map(|place| CachePoint { kind, ..place }));
        }
        let reach = self
            .ask
            .rules
            .lookback_blocks
            .saturating_sub(LOOKBACK_MARGIN);
        let is_found = |held: &CachePoint| {
            points.iter().any(|point| {
                let distance = self.blocks(point).checked_sub(self.blocks(held));
                distance.is_some_and(|distance| distance <= reach)
            })
        };
        let far = held.filter(|held| !is_found(held));
        let kind = CachePointKind::LastEnd;
        points.extend(far.map(|place| CachePoint { kind, ..place }));
        points
    }

    /// The messages that a call has sent that was answered with this message, or before a message
    /// that differs.
    fn sent_before(&self, id: MessageId) -> &[MessageEnd<'d>] {
        let first_after = self.ends.iter().position(|end| {
            let is_input = end.ids.is_empty() && end.segment == Segment::CurrentInput;
            is_input || end.ids.iter().any(|message| *message >= id)
        });
        &self.ends[..first_after.unwrap_or(self.ends.len())]
    }

    /// Blocks up to a place.
    fn blocks(&self, point: &CachePoint) -> usize {
        self.blocks_before[point.message] + point.part + 1
    }
}

/// The last place of these messages, without those that later contexts may not have.
fn last_place(sent: &[MessageEnd<'_>]) -> Option<CachePoint> {
    let end = sent.iter().rfind(|end| end.is_lasting());
    end.and_then(|end| end.place)
}

/// Whether the provider accepts a mark at a part. Parts that rendering leaves out cannot have one.
fn can_be_marked(entry: &Entry, part: usize, kind: CacheKind) -> bool {
    match (kind, &entry.parts[part]) {
        (CacheKind::Marked, Part::Text { text }) => !text.trim().is_empty(),
        (CacheKind::Marked, Part::ToolUse { .. } | Part::ToolResult { .. } | Part::Media(_)) => {
            true
        }
        // Explicit breakpoints are fields of text parts, which an answer's content does not accept.
        (CacheKind::Breakpoints, Part::Text { text } | Part::ToolResult { text, .. }) => {
            entry.role != Role::Assistant && !text.is_empty()
        }
        _ => false,
    }
}
