//! Token estimates of every message of the real conversations undercount by at most 5 %. An append
//! returns the estimate until the worker has counted.

use anneal_core::tokens::{Encoding, count_message};
use anneal_testkit::{TranscriptFolder, parsed};

/// Estimate and exact count of one message, in tokens.
#[derive(Clone, Default)]
struct EstimateAndCount {
    at: String,
    text: String,
    exact: u64,
    estimated: u64,
}

impl EstimateAndCount {
    fn ratio(&self) -> f64 {
        self.estimated as f64 / self.exact as f64
    }

    /// Whether the estimate is more than 5 % below the count, computed in integers.
    fn is_short(&self) -> bool {
        self.estimated * 100 < self.exact * 95
    }
}

/// All messages of the family with at least one token.
fn estimates_and_counts(
    family: &anneal_testkit::Family,
    encoding: Encoding,
) -> Vec<EstimateAndCount> {
    let messages = family
        .chats
        .iter()
        .flat_map(|chat| chat.messages.iter().enumerate().map(move |all| (chat, all)));
    let all = messages.map(|(chat, (index, new))| {
        let message = parsed(new);
        let text = message
            .parts
            .iter()
            .map(anneal_core::message::part_text)
            .collect::<Vec<_>>()
            .join(" | ");
        EstimateAndCount {
            at: format!("{}, message {}", chat.name, index + 1),
            text: text.chars().take(80).collect(),
            exact: count_message(encoding, &message).get(),
            estimated: encoding.estimate_message(&message).get(),
        }
    });
    all.filter(|beside| beside.exact > 0).collect()
}

#[test]
fn estimates_never_undercount_by_more_than_5_percent_on_any_real_message() {
    let Some(data) = TranscriptFolder::find() else {
        return;
    };
    let mut short = 0;
    for family in data.all() {
        for encoding in Encoding::ALL {
            let all = estimates_and_counts(&family, encoding);
            let by_ratio =
                |a: &&EstimateAndCount, b: &&EstimateAndCount| a.ratio().total_cmp(&b.ratio());
            let (Some(lowest), Some(highest)) =
                (all.iter().min_by(by_ratio), all.iter().max_by(by_ratio))
            else {
                continue;
            };
            let sum = |of: fn(&EstimateAndCount) -> u64| all.iter().map(of).sum::<u64>() as f64;
            println!(
                "{:14} {:11} {:6} messages, all {:.3}, lowest {:.3} ({} for {}, {}), highest {:.3} ({} for {}, {})",
                family.name,
                encoding.name(),
                all.len(),
                sum(|one| one.estimated) / sum(|one| one.exact),
                lowest.ratio(),
                lowest.estimated,
                lowest.exact,
                lowest.at,
                highest.ratio(),
                highest.estimated,
                highest.exact,
                highest.at,
            );
            for one in all.iter().filter(|one| one.is_short()) {
                short += 1;
                println!(
                    "    short: {} for {} at {}: {:?}",
                    one.estimated, one.exact, one.at, one.text
                );
            }
        }
    }
    assert_eq!(short, 0, "messages whose estimate is more than 5 % short");
}
