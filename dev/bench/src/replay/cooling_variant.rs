//! The cooling settings that are compared, and their equivalents in the simulation.

use anneal_transcripts::pb;

use super::{
    counted_conversation::CoolingZone,
    prices::{self, Prices},
    rules::Rule,
};

/// Messages with more tokens are large.
const LARGE_MESSAGE_TOKENS: u64 = 1_000;

/// The variant `Threshold` makes a checkpoint when the tail has this many tokens.
const CHECKPOINT_AT: u64 = 64_000;
/// Tokens that such a checkpoint leaves in the tail.
const CHECKPOINT_KEEPS: u64 = 20_000;

/// A setting for cooling, or for checkpoints instead.
#[derive(Debug, Clone, Copy)]
pub(super) enum CoolingVariant {
    /// No cooling and no checkpoints: full histories.
    None,
    /// Large messages are swapped for their summaries as soon as they are cool.
    Strict,
    /// Large messages are swapped in steps; these prices decide when.
    Stepped(Prices),
    /// Only checkpoints, at a number of tokens.
    Threshold,
}

impl CoolingVariant {
    /// All variants; stepped cooling once for each price list.
    pub(super) fn all() -> Vec<Self> {
        let stepped = prices::ALL.into_iter().map(Self::Stepped);
        [Self::None, Self::Strict]
            .into_iter()
            .chain(stepped)
            .chain([Self::Threshold])
            .collect()
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Strict => "strict",
            Self::Stepped(_) => "stepped",
            Self::Threshold => "64k-20k",
        }
    }

    /// The price lists that the variant's usage is billed with.
    pub(super) fn prices(self) -> Vec<Prices> {
        match self {
            Self::None | Self::Strict | Self::Threshold => prices::ALL.into(),
            Self::Stepped(prices) => vec![prices],
        }
    }

    /// The simulation's rule for this variant, if there is one.
    pub(super) const fn rule(self) -> Option<Rule> {
        match self {
            Self::None => Some(Rule::None),
            Self::Strict => Some(Rule::Strict),
            Self::Stepped(_) => Some(Rule::Stepped),
            Self::Threshold => None,
        }
    }

    /// When messages are large and cool in the simulation: the same ages as in [`Self::policy`].
    /// Only stepped cooling uses an age in calls.
    pub(super) const fn zone(self) -> CoolingZone {
        let calls = if let Self::Stepped(_) = self {
            10
        } else {
            u64::MAX
        };
        CoolingZone {
            threshold: LARGE_MESSAGE_TOKENS,
            turns: 5,
            calls,
        }
    }

    /// The service's policy for this variant.
    pub(super) fn policy(self) -> pb::Policy {
        let none = pb::Policy {
            token_threshold: Some(i64::MAX as u64),
            max_message_count: Some(0),
            large_message_threshold: Some(i64::MAX as u64),
            ..Default::default()
        };
        let large = pb::Policy {
            large_message_threshold: Some(LARGE_MESSAGE_TOKENS),
            hot_zone_radius: Some(5),
            large_summaries: pb::LargeSummaries::Eager.into(),
            ..none.clone()
        };
        match self {
            Self::None => none,
            Self::Strict => large,
            Self::Stepped(prices) => pb::Policy {
                cooling: pb::Cooling::Stepped.into(),
                hot_zone_calls: Some(10),
                // A policy has prices in thousandths, a price list in hundredths.
                cache_read_price: Some(prices.cached as u32 * 10),
                cache_write_price: Some(prices.written as u32 * 10),
                ..large
            },
            Self::Threshold => pb::Policy {
                token_threshold: Some(CHECKPOINT_AT),
                keep_recent_tokens: Some(CHECKPOINT_KEEPS),
                ..none
            },
        }
    }
}
