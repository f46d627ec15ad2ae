//! The token estimate of each message of the real conversations is at most 5 % below the count.
//! Until a worker has counted a message, the estimate stands for the count. The test is skipped if
//! the transcripts are missing.

use anneal_core::tokens::{Encoding, count_message};
use anneal_testkit::{TranscriptFolder, parsed};

/// Estimate and exact count of one message, in tokens.
#[derive(Clone, Default)]
struct EstimateAndCount {
    /// The conversation, and the message's number in it.
    place: String,
    /// The beginning of the message.
    text: String,
    exact: u64,
    estimated: u64,
}

impl EstimateAndCount {
    fn ratio(&self) -> f64 {
        self.estimated as f64 / self.exact as f64
    }

    /// Whether the estimate is more than 5 % below the count, computed in integers.
    fn is_too_low(&self) -> bool {
        self.estimated * 100 < self.exact * 95
    }
}

/// The estimates and counts of all messages of the family (the conversations of one source) that
/// have at least one token.
fn estimates_and_counts(
    family: &anneal_testkit::Family,
    encoding: Encoding,
) -> Vec<EstimateAndCount> {
    let messages = family.chats.iter().flat_map(|chat| {
        let numbered = chat.messages.iter().enumerate();
        numbered.map(move |(index, new)| (chat, index, new))
    });
    let all = messages.map(|(chat, index, new)| {
        let message = parsed(new);
        let text = message
            .parts
            .iter()
            .map(anneal_core::message::part_text)
            .collect::<Vec<_>>()
            .join(" | ");
        EstimateAndCount {
            place: format!("{}, message {}", chat.name, index + 1),
            text: text.chars().take(80).collect(),
            exact: count_message(encoding, &message).get(),
            estimated: encoding.estimate_message(&message).get(),
        }
    });
    all.filter(|one| one.exact > 0).collect()
}

#[test]
fn estimates_never_undercount_by_more_than_5_percent_on_any_real_message() {
    let Some(folder) = TranscriptFolder::find() else {
        return;
    };
    let mut too_low = 0;
    for family in folder.all() {
        for encoding in Encoding::ALL {
            let all = estimates_and_counts(&family, encoding);
            let by_ratio =
                |a: &&EstimateAndCount, b: &&EstimateAndCount| a.ratio().total_cmp(&b.ratio());
            let (Some(lowest), Some(highest)) =
                (all.iter().min_by(by_ratio), all.iter().max_by(by_ratio))
            else {
                continue;
            };
            let sum = |read: fn(&EstimateAndCount) -> u64| all.iter().map(read).sum::<u64>() as f64;
            println!(
                "{:14} {:11} {:6} messages, all {:.3}, lowest {:.3} ({} for {}, {}), highest {:.3} ({} for {}, {})",
                family.name,
                encoding.name(),
                all.len(),
                sum(|one| one.estimated) / sum(|one| one.exact),
                lowest.ratio(),
                lowest.estimated,
                lowest.exact,
                lowest.place,
                highest.ratio(),
                highest.estimated,
                highest.exact,
                highest.place,
            );
            for one in all.iter().filter(|one| one.is_too_low()) {
                too_low += 1;
                println!(
                    "    too low: {} for {} at {}: {:?}",
                    one.estimated, one.exact, one.place, one.text
                );
            }
        }
    }
    assert_eq!(too_low, 0, "messages whose estimate is too low");
}
