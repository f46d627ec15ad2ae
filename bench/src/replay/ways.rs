//! The ways in which the service keeps conversations, and what the simulation calls the same.

use anneal_transcripts::pb;

use super::{
    prices::{self, Prices},
    rules::Rule,
    script::Zone,
};

/// What is large.
const THRESHOLD: u64 = 1_000;

/// A checkpoint of the threshold way comes at so many tokens, and leaves so many.
const CHECKPOINT_AT: u64 = 64_000;
const CHECKPOINT_KEEPS: u64 = 20_000;

/// A way of keeping conversations.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way {
    /// Full histories.
    None,
    /// Large messages are swapped as soon as they are cool.
    Strict,
    /// Large messages are swapped in steps, whose times depend on these prices.
    Stepped(Prices),
    /// Checkpoints at a number of tokens, and nothing else.
    Threshold,
}

impl Way {
    /// Every way, stepped cooling once for each price list.
    pub(super) fn all() -> Vec<Self> {
        let stepped = prices::ALL.into_iter().map(Self::Stepped);
        [Self::None, Self::Strict].into_iter().chain(stepped).chain([Self::Threshold]).collect()
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Strict => "strict",
            Self::Stepped(_) => "stepped",
            Self::Threshold => "64k-20k",
        }
    }

    /// The price lists that it is billed at.
    pub(super) fn prices(self) -> Vec<Prices> {
        match self {
            Self::None | Self::Strict | Self::Threshold => prices::ALL.into(),
            Self::Stepped(prices) => vec![prices],
        }
    }

    /// The simulation's rule, where it has one.
    pub(super) const fn rule(self) -> Option<Rule> {
        match self {
            Self::None => Some(Rule::None),
            Self::Strict => Some(Rule::Strict),
            Self::Stepped(_) => Some(Rule::Stepped),
            Self::Threshold => None,
        }
    }

    /// What is large and cool, for the simulation. Only steps know an age in calls.
    pub(super) const fn zone(self) -> Zone {
        let calls = if let Self::Stepped(_) = self { 10 } else { u64::MAX };
        Zone { threshold: THRESHOLD, turns: 5, calls }
    }

    /// The settings under which the service keeps conversations so.
    pub(super) fn policy(self) -> pb::Policy {
        let none = pb::Policy {
            token_threshold: Some(i64::MAX as u64),
            max_message_count: Some(0),
            large_message_threshold: Some(i64::MAX as u64),
            ..Default::default()
        };
        let large = pb::Policy {
            large_message_threshold: Some(THRESHOLD),
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
                cache_read_price: Some(prices.cached as u32 * 10),
                cache_write_price: Some(prices.written as u32 * 10),
                ..large
            },
            Self::Threshold => {
                pb::Policy { token_threshold: Some(CHECKPOINT_AT), keep_recent_tokens: Some(CHECKPOINT_KEEPS), ..none }
            }
        }
    }
}
