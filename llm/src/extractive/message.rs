//! One oversized message: each block keeps what its kind asks for, sharing the target by size.

use crate::port::SummaryAsk;

use super::{
    digest,
    fit::Scale,
    pieces::{CallNames, Piece, Voice, pieces},
    structure::{Block, Kind, blocks},
    terms, text,
};

/// With less room than this a block says nothing.
const LEAST_ROOM: u64 = 24;

/// A block of the message, and the mark of the piece that it opens.
struct Share<'a> {
    lead: &'a str,
    voice: Voice,
    block: Block<'a>,
}

impl Share<'_> {
    /// How much of the room it asks for: long blocks more, but not in proportion.
    fn weight(&self) -> f64 {
        let kind = match self.block.kind {
            Kind::Prose => 1.6,
            Kind::Table => 0.7,
            _ => 1.0,
        };
        let voice = if self.voice == Voice::Thought { 0.3 } else { 1.0 };
        (self.block.text.len() as f64).sqrt() * kind * voice
    }
}

/// The digest of the message, one block below the other.
pub(crate) fn summary(ask: &SummaryAsk<'_>, scale: Scale<'_>, limit: u64) -> String {
    let names = CallNames::of(ask.sources);
    let said: Vec<Piece<'_>> = ask.sources.iter().flat_map(|source| pieces(source, &names)).collect();
    let mut shares = Vec::new();
    for piece in &said {
        let mut lead = piece.lead.as_str();
        let mut found = blocks(&piece.text);
        if found.is_empty() {
            found.push(Block { kind: Kind::Prose, text: "", shape: None });
        }
        for block in found {
            shares.push(Share { lead: std::mem::take(&mut lead), voice: piece.voice, block });
        }
    }
    let focus = terms::focus(ask.focus);
    let mut room = limit;
    for _ in 0..3 {
        let whole = shared(&shares, scale, room, |share, room| digest(&share.block, scale, room, &focus));
        let tokens = scale.weigh(&whole);
        if tokens <= limit && !whole.trim().is_empty() {
            return whole;
        }
        room = room.saturating_sub(tokens.saturating_sub(limit) + room / 20 + 1);
    }
    shared(&shares, scale, limit / 2, |share, room| digest(&share.block, scale, room, &focus))
}

/// Gives every block its share of the room, small ones first, so that what they leave goes to the large ones.
fn shared<'a>(shares: &[Share<'a>], scale: Scale<'_>, room: u64, digest: impl Fn(&Share<'a>, u64) -> String) -> String {
    let mut chosen: Vec<usize> = (0..shares.len()).collect();
    let most = usize::try_from(room / LEAST_ROOM).unwrap_or(usize::MAX).max(1);
    if chosen.len() > most {
        chosen.sort_by(|a, b| shares[*b].weight().total_cmp(&shares[*a].weight()).then(a.cmp(b)));
        chosen.truncate(most);
    }
    let leads: u64 =
        chosen.iter().map(|i| if shares[*i].lead.is_empty() { 1 } else { scale.weigh(shares[*i].lead) + 2 }).sum();
    let mut left = room.saturating_sub(leads).max(1);
    let mut weight: f64 = chosen.iter().map(|i| shares[*i].weight()).sum();
    chosen.sort_by_key(|i| (shares[*i].block.text.len(), *i));
    let mut digests = vec![None; shares.len()];
    for (done, i) in chosen.iter().copied().enumerate() {
        let part = shares[i].weight() / weight.max(f64::MIN_POSITIVE);
        // A question before a pasted log is short and matters: no block gets less than half of an even share.
        let even = left / (2 * (chosen.len() - done) as u64);
        let own = ((left as f64 * part.min(1.0)) as u64).max(even).max(1);
        let text = digest(&shares[i], own);
        left = left.saturating_sub(scale.weigh(&text));
        weight -= shares[i].weight();
        digests[i] = Some(text);
    }
    let mut out = String::new();
    for (share, digest) in shares.iter().zip(digests) {
        let Some(digest) = digest else { continue };
        for text in [share.lead, digest.as_str()].into_iter().filter(|text| !text.is_empty()) {
            if !out.is_empty() {
                out.push(if text == share.lead || share.lead.is_empty() { '\n' } else { ' ' });
            }
            out.push_str(text);
        }
    }
    text::unforged(&out)
}
