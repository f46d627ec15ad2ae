//! Replays the transcripts through a running service, call by call. Compares the cost of its
//! contexts with the simulation of the same rule (using the service's own summaries) and with the
//! cost that the service itself computes. Prints a table and writes target/bench/replay.json.
//!
//! The service is the tests' app: server and worker run in this process, and the worker is stepped
//! explicitly, so that every run gives the same figures. What every answer states about its
//! unchanged beginning is checked on the way.

use std::collections::BTreeMap;

use anneal_testkit::TestApp;
use anneal_transcripts::TranscriptFolder;
use serde::Serialize;

use super::{
    cooling_variant::CoolingVariant,
    counted_conversation::{CooledConversation, CountedConversation, sent_summaries},
    families::Family,
    meter::CacheUsage,
    oracle::least_units,
    played_conversation::{PlayedConversation, play_conversation},
    prices::{self, Prices},
    rules::meter_schedule,
    table::{self, Baselines, Row, Setting},
};

/// Plays one family, or all, with every variant; prints and writes the tables.
pub(crate) async fn measure(only: Option<&str>) -> anyhow::Result<()> {
    let Some(data) = TranscriptFolder::find() else {
        return Ok(());
    };
    let app = TestApp::start().await;
    let mut all = Vec::new();
    for mut family in Family::all(&data)
        .into_iter()
        .filter(|family| only.is_none_or(|only| family.name == only))
    {
        // The dialogues of these two families are all similar; one conversation made of thirty of
        // them is enough.
        if matches!(family.name, "CrossWOZ" | "KdConv") {
            family.chats.truncate(1);
        }
        let compared = play_family(&app, &family).await?;
        compared.print();
        all.push(compared);
        table::write("replay.json", &all)?;
    }
    Ok(())
}

/// A family played with every variant.
#[derive(Serialize)]
struct Compared {
    rows: Vec<Row>,
    checks: Vec<Check>,
}

/// The usage of one variant on one family, computed in three ways. The tests compare them.
#[derive(Debug, Serialize)]
struct Check {
    family: &'static str,
    variant: &'static str,
    /// The prices that decided when to swap, if the variant depends on prices.
    prices: &'static str,
    conversations: usize,
    calls: u64,
    /// The usage of the contexts that the service sent.
    metered: CacheUsage,
    /// The usage in the simulation, if there is one for this variant.
    simulated: Option<CacheUsage>,
    /// Number of calls at which the simulation has a different number of swapped messages.
    differing_calls: usize,
    /// The usage that the service computes from its own rows.
    service_usage: CacheUsage,
    /// Sum of the tokens that the answers expected to be in the cache.
    expected: u64,
}

async fn play_family(app: &TestApp, family: &Family) -> anyhow::Result<Compared> {
    let counted = family.counted_conversations();
    let mut variants = Vec::new();
    for variant in CoolingVariant::all() {
        let mut all = Vec::new();
        for (chat, conversation) in family.chats.iter().zip(&counted) {
            all.push(play_conversation(app, chat, conversation, variant).await?);
        }
        variants.push((variant, all));
    }
    let summaries: Vec<BTreeMap<i64, u64>> = (0..counted.len())
        .map(|index| {
            variants
                .iter()
                .flat_map(|(_, all)| all[index].summaries.clone())
                .collect()
        })
        .collect();
    let family_run = FamilyRun {
        family,
        counted,
        summaries,
    };
    let checks = variants
        .iter()
        .map(|(variant, all)| family_run.compute_usages(*variant, all))
        .collect();
    let rows = prices::ALL
        .into_iter()
        .flat_map(|prices| family_run.rows(prices, &variants))
        .collect();
    Ok(Compared { rows, checks })
}

/// A family's conversations with their token counts and with the summaries that the service wrote.
struct FamilyRun<'a> {
    family: &'a Family,
    counted: Vec<CountedConversation>,
    /// Tokens by message id, for each conversation.
    summaries: Vec<BTreeMap<i64, u64>>,
}

impl FamilyRun<'_> {
    /// One row for each of the variants that are billed with these prices.
    fn rows(
        &self,
        prices: Prices,
        variants: &[(CoolingVariant, Vec<PlayedConversation>)],
    ) -> Vec<Row> {
        // The least possible cost is computed once, for the cool messages of stepped cooling. All
        // variants are compared with it.
        let cooled = self.cooled_conversations(CoolingVariant::Stepped(prices), SummarySize::Sent);
        let usages = |index: usize| -> Vec<CacheUsage> {
            variants[index]
                .1
                .iter()
                .map(|replayed| replayed.result.usage)
                .collect()
        };
        // The first of the variants is `None`, the second `Strict`.
        let baselines = Baselines {
            full: usages(0),
            strict: usages(1),
            least: cooled
                .iter()
                .map(|conversation| least_units(conversation, prices))
                .sum(),
        };
        let billed = variants.iter().filter(|(variant, _)| {
            variant
                .prices()
                .iter()
                .any(|price_list| price_list.name == prices.name)
        });
        let row = |(variant, all): &(CoolingVariant, Vec<PlayedConversation>)| {
            let setting = Setting {
                zone: "service",
                prices,
                family: self.family.name,
                rule: variant.name(),
            };
            Row::of(
                setting,
                all.iter().map(|replayed| &replayed.result),
                &baselines,
            )
        };
        billed.map(row).collect()
    }

    fn compute_usages(&self, variant: CoolingVariant, all: &[PlayedConversation]) -> Check {
        let (simulated, differing_calls) = self
            .simulate(variant, all)
            .map_or((None, 0), |(usage, calls)| (Some(usage), calls));
        let sum = |part: fn(&PlayedConversation) -> CacheUsage| {
            all.iter()
                .map(part)
                .fold(CacheUsage::default(), |mut sum, usage| {
                    sum += usage;
                    sum
                })
        };
        let metered = sum(|replayed| replayed.result.usage);
        Check {
            family: self.family.name,
            variant: variant.name(),
            prices: if let CoolingVariant::Stepped(prices) = variant {
                prices.name
            } else {
                ""
            },
            conversations: all.len(),
            calls: metered.calls,
            metered,
            simulated,
            differing_calls,
            service_usage: sum(|replayed| replayed.service_usage),
            expected: all
                .iter()
                .map(|replayed| replayed.expected_cached_tokens)
                .sum(),
        }
    }

    /// The usage of the simulation, and the number of calls at which it has a different number of
    /// swapped messages.
    fn simulate(
        &self,
        variant: CoolingVariant,
        all: &[PlayedConversation],
    ) -> Option<(CacheUsage, usize)> {
        let rule = variant.rule()?;
        let (mut simulated, mut differing_calls) = (CacheUsage::default(), 0);
        for ((with_stored_sizes, with_sent_sizes), replayed) in self
            .cooled_conversations(variant, SummarySize::Stored)
            .iter()
            .zip(self.cooled_conversations(variant, SummarySize::Sent))
            .zip(all)
        {
            let schedule = rule.schedule(with_stored_sizes, variant.prices()[0]);
            simulated += meter_schedule(&with_sent_sizes, &schedule);
            differing_calls += schedule
                .iter()
                .zip(&replayed.schedule)
                .filter(|(simulated, replayed)| simulated != replayed)
                .count();
        }
        Some((simulated, differing_calls))
    }

    /// The conversations with the service's summaries.
    fn cooled_conversations(
        &self,
        variant: CoolingVariant,
        size: SummarySize,
    ) -> Vec<CooledConversation> {
        let counted = self
            .counted
            .iter()
            .zip(&self.summaries)
            .zip(&self.family.chats);
        counted
            .map(|((conversation, summaries), chat)| {
                let sizes = match size {
                    SummarySize::Stored => summaries.clone(),
                    SummarySize::Sent => sent_summaries(chat, summaries),
                };
                conversation
                    .clone()
                    .with_summaries(&sizes)
                    .in_zone(variant.zone())
            })
            .collect()
    }
}

/// The size that a summary counts with.
#[derive(Clone, Copy)]
enum SummarySize {
    /// The summary's own tokens, by which the rules decide.
    Stored,
    /// The tokens of the summary and of the text that is sent around it.
    Sent,
}

impl Compared {
    fn print(&self) {
        for (index, prices) in prices::ALL.into_iter().enumerate() {
            table::heading("through the service", prices);
            let rows_per_prices = self.rows.len() / prices::ALL.len();
            self.rows[index * rows_per_prices..][..rows_per_prices]
                .iter()
                .for_each(Row::print);
        }
        println!("\nchecks (sent/cached/breaks)");
        for check in &self.checks {
            let Check {
                variant,
                prices,
                metered,
                simulated,
                differing_calls,
                service_usage,
                expected,
                ..
            } = check;
            println!(
                "{variant:<8} {prices:<20} metered {}, simulated {}, {differing_calls} calls differ, computed by the service {}, {expected} cached tokens expected",
                usage_text(metered),
                simulated.as_ref().map_or("-".to_owned(), usage_text),
                usage_text(service_usage),
            );
        }
    }
}

fn usage_text(usage: &CacheUsage) -> String {
    format!("{}/{}/{}", usage.sent, usage.cached, usage.breaks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_service_agrees_with_the_simulation_on_swaps_and_costs() {
        let Some(data) = TranscriptFolder::find() else {
            return;
        };
        let app = TestApp::start().await;
        let families = Family::all(&data);
        let family = families
            .iter()
            .find(|family| family.name == "swe-agent")
            .expect("the family swe-agent exists");
        let compared = play_family(&app, family)
            .await
            .expect("the replay succeeds and every check holds");
        for check in &compared.checks {
            assert_eq!(check.differing_calls, 0, "{check:?}");
            assert!(
                check
                    .simulated
                    .is_none_or(|simulated| simulated == check.metered),
                "{check:?}"
            );
            let (metered, service_usage) = (check.metered, check.service_usage);
            let within_a_thousandth = |one: u64, other: u64| one.abs_diff(other) * 1_000 <= one;
            assert!(
                within_a_thousandth(metered.sent, service_usage.sent)
                    && within_a_thousandth(metered.cached, service_usage.cached),
                "{check:?}"
            );
            assert_eq!(metered.breaks, service_usage.breaks, "{check:?}");
            assert_eq!(check.expected, metered.cached, "{check:?}");
        }
    }
}
