//! What is printed and written of a replay.

use std::{fs, path::Path};

use serde::Serialize;

use super::{meter::Bill, prices::Prices};

/// A conversation is dearer than without a rule when it costs more than so many times as much.
const DEARER: f64 = 1.01;

/// One conversation, replayed.
pub(super) struct Played {
    pub(super) bill: Bill,
    /// For each call: the shares of tokens and of messages that are sent as they were said.
    pub(super) raw: Vec<(f64, f64)>,
}

/// What was replayed, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    pub(super) zone: &'static str,
    pub(super) prices: Prices,
    pub(super) family: &'static str,
    pub(super) rule: &'static str,
}

/// What the same conversations cost otherwise.
pub(super) struct Beside {
    /// With full histories, each.
    pub(super) full: Vec<Bill>,
    /// When swapped as soon as they are cool, each.
    pub(super) strict: Vec<Bill>,
    /// With swaps at the best times, all together, in the price list's units.
    pub(super) least: u64,
}

/// One rule on one family under one price list.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    zone: &'static str,
    prices: &'static str,
    family: &'static str,
    pub(super) rule: &'static str,
    calls: u64,
    sent_tokens: u64,
    hit: f64,
    /// Of what full histories cost.
    pub(super) bill: f64,
    pub(super) breaks: u64,
    /// Tokens that are sent as they were said, and messages; of all before the call, averaged over calls.
    raw_tokens: f64,
    pub(super) raw_messages: f64,
    /// Of what swaps at the best times cost.
    pub(super) oracle: f64,
    /// The dearest conversation, of what its full history costs.
    worst: f64,
    /// The same of what it costs when swapped as soon as it is cool.
    worst_of_strict: f64,
    /// Conversations that cost more than 1.01 times what their full history does.
    pub(super) dearer: usize,
}

impl Row {
    /// The conversations together, beside what they cost otherwise.
    pub(super) fn of<'a>(setting: Setting, played: impl Iterator<Item = &'a Played>, beside: &Beside) -> Self {
        let Setting { zone, prices, family, rule } = setting;
        let units = |bill: &Bill| bill.units(prices) as f64;
        let played: Vec<&Played> = played.collect();
        let mut all = Bill::default();
        for one in &played {
            all += one.bill;
        }
        let nothing: f64 = beside.full.iter().map(units).sum();
        let ratios = |others: &[Bill]| -> Vec<f64> {
            let pairs = played.iter().zip(others).filter(|(_, other)| other.sent > 0);
            pairs.map(|(one, other)| units(&one.bill) / units(other)).collect()
        };
        let most = |ratios: &[f64]| ratios.iter().copied().fold(0.0, f64::max);
        let of_full = ratios(&beside.full);
        let calls: Vec<(f64, f64)> = played.iter().flat_map(|one| one.raw.iter().copied()).collect();
        let mean = |share: fn(&(f64, f64)) -> f64| calls.iter().map(share).sum::<f64>() / calls.len() as f64;
        Self {
            zone,
            prices: prices.name,
            family,
            rule,
            calls: all.calls,
            sent_tokens: all.sent,
            hit: all.hit(),
            bill: units(&all) / nothing,
            breaks: all.breaks,
            raw_tokens: mean(|(tokens, _)| *tokens),
            raw_messages: mean(|(_, messages)| *messages),
            oracle: units(&all) / beside.least as f64,
            worst: most(&of_full),
            worst_of_strict: most(&ratios(&beside.strict)),
            dearer: of_full.iter().filter(|ratio| **ratio > DEARER).count(),
        }
    }

    /// Prints it under [`heading`].
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

/// Prints what stands above rows.
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

/// Writes figures to target/bench under this name.
pub(super) fn write(name: &str, rows: &impl Serialize) -> anyhow::Result<()> {
    let folder = Path::new("target/bench");
    fs::create_dir_all(folder)?;
    fs::write(folder.join(name), serde_json::to_string_pretty(rows)?)?;
    Ok(())
}
