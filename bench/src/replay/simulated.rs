//! The rules on real transcripts, without a service: a table, and target/bench/replay-simulated.json.

use anneal_transcripts::Data;

use super::{
    families::Family,
    meter::Bill,
    oracle::least_units,
    prices::{self, Prices},
    rules::{Rule, bill},
    script::{Play, Script, Zone},
    table::{self, Beside, Played, Row, Setting},
};

/// What is large and cool: as the profile for agents has it, with a lower threshold, and with the shorter zone that the
/// rule was first measured with.
const ZONES: [(&str, Zone); 3] = [
    ("large > 1,000, cool > 5 turns or 10 calls", Zone { threshold: 1_000, turns: 5, calls: 10 }),
    ("large > 500, cool > 5 turns or 10 calls", Zone { threshold: 500, turns: 5, calls: 10 }),
    ("large > 1,000, cool > 5 calls", Zone { threshold: 1_000, turns: i32::MAX, calls: 5 }),
];

/// A family, counted once for all settings.
struct Counted {
    name: &'static str,
    scripts: Vec<Script>,
}

fn counted(data: &Data) -> Vec<Counted> {
    let all = Family::all(data).into_iter();
    all.map(|family| Counted { name: family.name, scripts: family.scripts() }).collect()
}

/// Every rule on one family.
fn rows(family: &Counted, (zone_name, zone): (&'static str, Zone), prices: Prices) -> Vec<Row> {
    let plays: Vec<Play> = family.scripts.iter().map(|script| script.under(zone)).collect();
    let bills =
        |rule: Rule| -> Vec<Bill> { plays.iter().map(|play| bill(play, &rule.schedule(play, prices))).collect() };
    let beside = Beside {
        full: bills(Rule::None),
        strict: bills(Rule::Strict),
        least: plays.iter().map(|play| least_units(play, prices)).sum(),
    };
    let row = |rule: Rule| {
        let played = plays.iter().map(|play| {
            let schedule = rule.schedule(play, prices);
            Played { bill: bill(play, &schedule), raw: play.raw_shares(&schedule) }
        });
        let setting = Setting { zone: zone_name, prices, family: family.name, rule: rule.name() };
        Row::of(setting, played.collect::<Vec<_>>().iter(), &beside)
    };
    Rule::ALL.map(row).into()
}

/// Prints the table and writes it.
pub(crate) fn measure() -> anyhow::Result<()> {
    let Some(data) = Data::find() else { return Ok(()) };
    let families = counted(&data);
    let mut all = Vec::new();
    for zone in ZONES {
        for prices in prices::ALL {
            table::heading(zone.0, prices);
            for family in &families {
                let rows = rows(family, zone, prices);
                // Where nothing is ever swapped, the rules are one.
                let alike = rows.iter().all(|row| row.breaks == rows[0].breaks);
                for row in rows.iter().take(if alike { 1 } else { rows.len() }) {
                    row.print();
                }
                all.extend(rows);
            }
        }
    }
    table::write("replay-simulated.json", &all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stepped_is_near_the_oracle_and_hardly_ever_dearer_than_doing_nothing() {
        let Some(data) = Data::find() else { return };
        let families = counted(&data);
        let conversations: usize = families.iter().map(|family| family.scripts.len()).sum();
        for zone in ZONES {
            for prices in &prices::ALL[..2] {
                let mut dearer = 0;
                for rows in families.iter().map(|family| rows(family, zone, *prices)) {
                    let stepped = rows.iter().find(|row| row.rule == "stepped").expect("every rule is played");
                    assert!(stepped.oracle <= 1.10 && stepped.raw_messages >= 0.85, "{stepped:?}");
                    dearer += stepped.dearer;
                }
                assert!(dearer * 100 <= conversations, "{dearer} of {conversations}");
            }
        }
    }

    #[test]
    fn where_rewriting_is_dear_stepped_costs_at_most_a_hundredth_more_than_strict_and_mostly_less() {
        let Some(data) = Data::find() else { return };
        for family in counted(&data) {
            for zone in &ZONES[..2] {
                let rows = rows(&family, *zone, prices::ANTHROPIC);
                let bill = |rule| rows.iter().find(|row| row.rule == rule).expect("every rule is played").bill;
                assert!(bill("stepped") <= 1.01 * bill("strict"), "{rows:?}");
            }
        }
    }
}
