//! The table that a replay prints and writes.

use std::{fs, path::Path};

use serde::Serialize;

use super::{counted_conversation::RawShares, meter::CacheUsage, prices::Prices};

/// A conversation counts as dearer than without a rule if it costs more than this many times as
/// much.
const DEARER: f64 = 1.01;

/// The result of one replayed conversation.
pub(super) struct ReplayResult {
    pub(super) usage: CacheUsage,
    /// For each call with at least one message before it.
    pub(super) raw_shares: Vec<RawShares>,
}

/// The family and the settings of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    /// When messages cool, in words; "service" if the service decided it.
    pub(super) zone: &'static str,
    pub(super) prices: Prices,
    pub(super) family: &'static str,
    pub(super) rule: &'static str,
}

/// The other costs of the same conversations that a row is compared with.
pub(super) struct Baselines {
    /// The usage of each conversation with its full history.
    pub(super) full: Vec<CacheUsage>,
    /// The usage of each conversation if messages are swapped as soon as they are cool.
    pub(super) strict: Vec<CacheUsage>,
    /// The cost of all conversations together with swaps at the best times, in the price list's
    /// unit.
    pub(super) least: u64,
}

/// The result of one rule on one family with one price list.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    zone: &'static str,
    prices: &'static str,
    family: &'static str,
    pub(super) rule: &'static str,
    calls: u64,
    sent_tokens: u64,
    /// The share of the sent tokens that were in the cache.
    hit: f64,
    /// The cost, as a share of the cost of full histories.
    pub(super) bill: f64,
    pub(super) breaks: u64,
    /// The shares of tokens and of messages that are sent in their original form, of all that
    /// precede a call; averaged over the calls.
    raw_tokens: f64,
    pub(super) raw_messages: f64,
    /// The cost, as a multiple of the cost with swaps at the best times.
    pub(super) oracle: f64,
    /// The largest ratio of a conversation's cost to the cost of its full history.
    worst: f64,
    /// The largest ratio of a conversation's cost to its cost if messages are swapped as soon as
    /// they are cool.
    worst_of_strict: f64,
    /// Number of conversations that cost more than 1.01 times as much as their full history.
    pub(super) dearer: usize,
}

impl Row {
    /// The total of the conversations, compared with the baselines.
    pub(super) fn of<'a>(
        setting: Setting,
        results: impl Iterator<Item = &'a ReplayResult>,
        baselines: &Baselines,
    ) -> Self {
        let Setting {
            zone,
            prices,
            family,
            rule,
        } = setting;
        let units = |usage: &CacheUsage| usage.units(prices) as f64;
        let results: Vec<&ReplayResult> = results.collect();
        let mut all = CacheUsage::default();
        for result in &results {
            all += result.usage;
        }
        let full: f64 = baselines.full.iter().map(units).sum();
        let ratios = |others: &[CacheUsage]| -> Vec<f64> {
            let pairs = results
                .iter()
                .zip(others)
                .filter(|(_, other)| other.sent > 0);
            pairs
                .map(|(result, other)| units(&result.usage) / units(other))
                .collect()
        };
        let most = |ratios: &[f64]| ratios.iter().copied().fold(0.0, f64::max);
        let of_full = ratios(&baselines.full);
        let raw_shares: Vec<RawShares> = results
            .iter()
            .flat_map(|result| result.raw_shares.iter().copied())
            .collect();
        let mean = |share: fn(&RawShares) -> f64| {
            raw_shares.iter().map(share).sum::<f64>() / raw_shares.len() as f64
        };
        Self {
            zone,
            prices: prices.name,
            family,
            rule,
            calls: all.calls,
            sent_tokens: all.sent,
            hit: all.hit(),
            bill: units(&all) / full,
            breaks: all.breaks,
            raw_tokens: mean(|shares| shares.tokens),
            raw_messages: mean(|shares| shares.messages),
            oracle: units(&all) / baselines.least as f64,
            worst: most(&of_full),
            worst_of_strict: most(&ratios(&baselines.strict)),
            dearer: of_full.iter().filter(|ratio| **ratio > DEARER).count(),
        }
    }

    /// Prints the row, below a [`heading`].
    pub(super) fn print(&self) {
        println!(
            "{:<10} {:<8} {:>6} {:>9} {:>6.1} {:>7.3} {:>7} {:>6.0} {:>6.0} {:>7.3} {:>7.3} {:>7.3} {:>6}",
            self.family,
            self.rule,
            self.calls,
            self.sent_tokens / 1_000,
            self.hit * 100.0,
            self.bill,
            self.breaks,
            self.raw_tokens * 100.0,
            self.raw_messages * 100.0,
            self.oracle,
            self.worst,
            self.worst_of_strict,
            self.dearer,
        );
    }
}

/// Prints the heading of the table. The fields of [`Row`] explain the columns.
pub(super) fn heading(zone: &str, prices: Prices) {
    println!("\n{zone}; {}", prices.name);
    println!(
        "{:<10} {:<8} {:>6} {:>9} {:>6} {:>7} {:>7} {:>6} {:>6} {:>7} {:>7} {:>7} {:>6}",
        "family",
        "rule",
        "calls",
        "sent k",
        "hit %",
        "bill",
        "breaks",
        "raw %",
        "msgs %",
        "oracle",
        "worst",
        "/strict",
        "dearer"
    );
}

/// Writes the results to target/bench with this file name.
pub(super) fn write(name: &str, results: &impl Serialize) -> anyhow::Result<()> {
    let folder = Path::new("target/bench");
    fs::create_dir_all(folder)?;
    fs::write(folder.join(name), serde_json::to_string_pretty(results)?)?;
    Ok(())
}
