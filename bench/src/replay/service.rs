//! The same transcripts through a running service, call by call: what its contexts cost, beside the simulation of the same
//! rule with the service's own summaries, and beside what the service works out by itself. A table, and
//! target/bench/replay.json.
//!
//! The service is the tests' house: server and worker in this process, the worker stepped by hand, so that every run
//! gives the same figures. What every answer promises of its beginning is checked while they play.

use std::collections::BTreeMap;

use anneal_core::{
    context::Swapped,
    message::{MessageId, outline, plain_text_bytes},
    tokens::Encoding,
};
use anneal_tests::House;
use anneal_transcripts::{Chat, Data, parsed};
use serde::Serialize;

use super::{
    families::Family,
    kept::{Kept, keep},
    meter::Bill,
    oracle::least_units,
    prices::{self, Prices},
    rules::bill,
    script::{Play, Script},
    table::{self, Beside, Row, Setting},
    ways::Way,
};

/// Plays a family, or all, in every way; prints and writes the tables.
pub(crate) async fn measure(only: Option<&str>) -> anyhow::Result<()> {
    let Some(data) = Data::find() else { return Ok(()) };
    let house = House::start().await;
    let mut all = Vec::new();
    for mut family in Family::all(&data).into_iter().filter(|family| only.is_none_or(|only| family.name == only)) {
        // Dialogues of these two are alike; one conversation of thirty shows what there is to see.
        if matches!(family.name, "CrossWOZ" | "KdConv") {
            family.chats.truncate(1);
        }
        let compared = play(&house, &family).await?;
        compared.print();
        all.push(compared);
        table::write("replay.json", &all)?;
    }
    Ok(())
}

/// A family played in every way.
#[derive(Serialize)]
struct Compared {
    rows: Vec<Row>,
    checks: Vec<Check>,
}

/// One way on one family, beside what else says what it costs.
#[derive(Debug, Serialize)]
struct Check {
    family: &'static str,
    way: &'static str,
    /// The prices that decided, where prices decide.
    prices: &'static str,
    conversations: usize,
    calls: u64,
    /// What the service sent.
    metered: Bill,
    /// The simulation, where there is one.
    simulated: Option<Bill>,
    /// Calls at which the simulation has another number of messages swapped.
    otherwise: usize,
    /// What the service works out from its rows.
    worked_out: Bill,
    /// Tokens that the answers expected the cache to hold.
    expected: u64,
}

async fn play(house: &House, family: &Family) -> anyhow::Result<Compared> {
    let scripts = family.scripts();
    let mut ways = Vec::new();
    for way in Way::all() {
        let mut all = Vec::new();
        for (chat, script) in family.chats.iter().zip(&scripts) {
            all.push(keep(house, chat, script, way).await?);
        }
        ways.push((way, all));
    }
    let summaries: Vec<BTreeMap<i64, u64>> = (0..scripts.len())
        .map(|index| ways.iter().flat_map(|(_, all)| all[index].summaries.clone()).collect())
        .collect();
    let known = Known { family, scripts, summaries };
    let checks = ways.iter().map(|(way, all)| known.check(*way, all)).collect();
    let rows = prices::ALL.into_iter().flat_map(|prices| known.rows(prices, &ways)).collect();
    Ok(Compared { rows, checks })
}

/// A family's conversations, counted, with the summaries that the service made.
struct Known<'a> {
    family: &'a Family,
    scripts: Vec<Script>,
    /// Tokens by message id, for each conversation.
    summaries: Vec<BTreeMap<i64, u64>>,
}

impl Known<'_> {
    /// The ways that are billed at these prices.
    fn rows(&self, prices: Prices, ways: &[(Way, Vec<Kept>)]) -> Vec<Row> {
        // Whatever the way, the oracle may swap what is cool by calls or by turns.
        let plays = self.plays(Way::Stepped(prices), Size::Sent);
        let bills = |way: usize| -> Vec<Bill> { ways[way].1.iter().map(|kept| kept.played.bill).collect() };
        let beside = Beside {
            full: bills(0),
            strict: bills(1),
            least: plays.iter().map(|play| least_units(play, prices)).sum(),
        };
        let billed = ways.iter().filter(|(way, _)| way.prices().iter().any(|billed| billed.name == prices.name));
        let row = |(way, all): &(Way, Vec<Kept>)| {
            let setting = Setting { zone: "service", prices, family: self.family.name, rule: way.name() };
            Row::of(setting, all.iter().map(|kept| &kept.played), &beside)
        };
        billed.map(row).collect()
    }

    fn check(&self, way: Way, all: &[Kept]) -> Check {
        let (simulated, otherwise) = self.simulate(way, all).map_or((None, 0), |(bill, other)| (Some(bill), other));
        let sum = |part: fn(&Kept) -> Bill| {
            all.iter().map(part).fold(Bill::default(), |mut sum, bill| {
                sum += bill;
                sum
            })
        };
        let metered = sum(|kept| kept.played.bill);
        Check {
            family: self.family.name,
            way: way.name(),
            prices: if let Way::Stepped(prices) = way { prices.name } else { "" },
            conversations: all.len(),
            calls: metered.calls,
            metered,
            simulated,
            otherwise,
            worked_out: sum(|kept| kept.worked_out),
            expected: all.iter().map(|kept| kept.expected).sum(),
        }
    }

    /// The simulation's bill, and the calls at which it has another number of messages swapped.
    fn simulate(&self, way: Way, all: &[Kept]) -> Option<(Bill, usize)> {
        let rule = way.rule()?;
        let (mut simulated, mut otherwise) = (Bill::default(), 0);
        for ((decided, sent), kept) in self.plays(way, Size::Stored).iter().zip(self.plays(way, Size::Sent)).zip(all) {
            let schedule = rule.schedule(decided, way.prices()[0]);
            simulated += bill(&sent, &schedule);
            otherwise += schedule.iter().zip(&kept.schedule).filter(|(simulated, kept)| simulated != kept).count();
        }
        Some((simulated, otherwise))
    }

    /// The conversations with the service's summaries.
    fn plays(&self, way: Way, size: Size) -> Vec<Play> {
        let scripts = self.scripts.iter().zip(&self.summaries).zip(&self.family.chats);
        scripts
            .map(|((script, summaries), chat)| {
                let sizes = match size {
                    Size::Stored => summaries.clone(),
                    Size::Sent => summaries.iter().map(|(id, tokens)| (*id, tokens + around(chat, *id))).collect(),
                };
                script.clone().with_summaries(&sizes).under(way.zone())
            })
            .collect()
    }
}

/// Which size of a summary counts: its own, by which is decided, or with what is sent around it.
#[derive(Clone, Copy)]
enum Size {
    Stored,
    Sent,
}

/// Tokens that are sent around the summary of a message.
fn around(chat: &Chat, id: i64) -> u64 {
    let message = parsed(&chat.messages[id as usize - 1]);
    let swapped = Swapped {
        id: MessageId(id),
        role: message.role,
        original_bytes: plain_text_bytes(&message.parts) as u64,
        outline: outline(&message.parts),
    };
    swapped.tokens_around(Encoding::O200kBase).get()
}

impl Compared {
    fn print(&self) {
        for (index, prices) in prices::ALL.into_iter().enumerate() {
            table::heading("through the service", prices);
            let each = self.rows.len() / prices::ALL.len();
            self.rows[index * each..][..each].iter().for_each(Row::print);
        }
        println!("\nchecks (sent/cached/breaks)");
        for check in &self.checks {
            let Check { way, prices, metered, simulated, otherwise, worked_out, expected, .. } = check;
            println!(
                "{way:<8} {prices:<20} metered {}, simulated {}, {otherwise} calls otherwise, worked out {}, {expected} tokens expected",
                short(metered),
                simulated.as_ref().map_or("-".to_owned(), short),
                short(worked_out),
            );
        }
    }
}

fn short(bill: &Bill) -> String {
    format!("{}/{}/{}", bill.sent, bill.cached, bill.breaks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_service_swaps_when_the_simulation_does_costs_the_same_and_knows_it() {
        let Some(data) = Data::find() else { return };
        let house = House::start().await;
        let families = Family::all(&data);
        let family = families.iter().find(|family| family.name == "swe-agent").expect("it is at hand");
        let compared = play(&house, family).await.expect("plays, and every promise is kept");
        for check in &compared.checks {
            assert_eq!(check.otherwise, 0, "{check:?}");
            assert!(check.simulated.is_none_or(|simulated| simulated == check.metered), "{check:?}");
            let (metered, worked_out) = (check.metered, check.worked_out);
            let near = |one: u64, other: u64| one.abs_diff(other) * 1_000 <= one;
            assert!(near(metered.sent, worked_out.sent) && near(metered.cached, worked_out.cached), "{check:?}");
            assert_eq!(metered.breaks, worked_out.breaks, "{check:?}");
            assert_eq!(check.expected, metered.cached, "{check:?}");
        }
    }
}
