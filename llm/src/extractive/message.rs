//! Summary of one large message: the digests of its blocks. The blocks share the target by their
//! weights, which grow with their size and depend on their kind.

use crate::summarizer::SummaryAsk;

use super::{
    digest,
    fragments::{CallNames, Fragment, FragmentKind, fragments},
    structure::{Block, Kind, blocks},
    terms, text,
    token_counter::TokenCounter,
};

/// Fewest tokens of a useful digest of a block.
const MIN_BLOCK_TOKENS: u64 = 24;

/// A block of the message, which gets a share of the budget. The first block of a fragment has the
/// fragment's lead, such as `← name`; the leads of the others are empty.
struct Share<'a> {
    lead: &'a str,
    fragment_kind: FragmentKind,
    block: Block<'a>,
}

impl Share<'_> {
    /// The block's weight when the budget is shared. It grows with the square root of the block's
    /// length.
    fn weight(&self) -> f64 {
        let kind_weight = match self.block.kind {
            Kind::Prose => 1.6,
            Kind::Table => 0.7,
            _ => 1.0,
        };
        let fragment_weight = if self.fragment_kind == FragmentKind::Reasoning {
            0.3
        } else {
            1.0
        };
        (self.block.text.len() as f64).sqrt() * kind_weight * fragment_weight
    }
}

/// The digests of the message's blocks, one below the other, within about `limit` tokens: the
/// caller clips the rare result that is longer.
pub(crate) fn summary(ask: &SummaryAsk<'_>, counter: TokenCounter<'_>, limit: u64) -> String {
    let names = CallNames::of(ask.sources);
    let all: Vec<Fragment<'_>> = ask
        .sources
        .iter()
        .flat_map(|source| fragments(source, &names))
        .collect();
    let mut shares = Vec::new();
    for fragment in &all {
        let mut lead = fragment.lead.as_str();
        let mut found = blocks(&fragment.text);
        if found.is_empty() {
            found.push(Block {
                kind: Kind::Prose,
                text: "",
                shape: None,
            });
        }
        for block in found {
            shares.push(Share {
                lead: std::mem::take(&mut lead),
                fragment_kind: fragment.kind,
                block,
            });
        }
    }
    let focus = terms::focus(ask.focus);
    let mut budget = limit;
    // The counts of the digests do not add up exactly, so the result may exceed the limit: then it
    // is written again with a smaller budget.
    for _ in 0..3 {
        let whole = share_budget(&shares, counter, budget, |share, budget| {
            digest(&share.block, counter, budget, &focus)
        });
        let tokens = counter.count(&whole);
        if tokens <= limit && !whole.trim().is_empty() {
            return whole;
        }
        budget = budget.saturating_sub(tokens.saturating_sub(limit) + budget / 20 + 1);
    }
    share_budget(&shares, counter, limit / 2, |share, budget| {
        digest(&share.block, counter, budget, &focus)
    })
}

/// Shares the budget among the blocks and joins their digests. If there are too many blocks, those
/// of least weight are left out. Small blocks get their share first, so that large blocks get what
/// the small ones leave.
fn share_budget<'a>(
    shares: &[Share<'a>],
    counter: TokenCounter<'_>,
    budget: u64,
    digest: impl Fn(&Share<'a>, u64) -> String,
) -> String {
    let mut chosen: Vec<usize> = (0..shares.len()).collect();
    let most = usize::try_from(budget / MIN_BLOCK_TOKENS)
        .unwrap_or(usize::MAX)
        .max(1);
    if chosen.len() > most {
        chosen.sort_by(|a, b| {
            shares[*b]
                .weight()
                .total_cmp(&shares[*a].weight())
                .then(a.cmp(b))
        });
        chosen.truncate(most);
    }
    // One token for the line feed before each block, and one for the blank after a lead.
    let lead_tokens: u64 = chosen
        .iter()
        .map(|i| {
            if shares[*i].lead.is_empty() {
                1
            } else {
                counter.count(shares[*i].lead) + 2
            }
        })
        .sum();
    let mut left = budget.saturating_sub(lead_tokens).max(1);
    let mut weight_left: f64 = chosen.iter().map(|i| shares[*i].weight()).sum();
    chosen.sort_by_key(|i| (shares[*i].block.text.len(), *i));
    let mut digests = vec![None; shares.len()];
    for (done, i) in chosen.iter().copied().enumerate() {
        let fraction = shares[i].weight() / weight_left.max(f64::MIN_POSITIVE);
        // No block gets less than half of an even share, because a short question before a pasted
        // log matters.
        let least = left / (2 * (chosen.len() - done) as u64);
        let block_budget = ((left as f64 * fraction.min(1.0)) as u64).max(least).max(1);
        let text = digest(&shares[i], block_budget);
        left = left.saturating_sub(counter.count(&text));
        weight_left -= shares[i].weight();
        digests[i] = Some(text);
    }
    let mut out = String::new();
    for (share, digest) in shares.iter().zip(digests) {
        let Some(digest) = digest else { continue };
        for text in [share.lead, digest.as_str()]
            .into_iter()
            .filter(|text| !text.is_empty())
        {
            if !out.is_empty() {
                out.push(if text == share.lead || share.lead.is_empty() {
                    '\n'
                } else {
                    ' '
                });
            }
            out.push_str(text);
        }
    }
    text::escape_labels(&out)
}
