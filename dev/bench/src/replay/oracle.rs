//! The cheapest times to swap, computed afterwards. The rules are compared with this optimum.

use super::{counted_conversation::CooledConversation, prices::Prices};

/// The minimum cost of a conversation, in the price list's unit, if each swap takes all messages
/// that are cool at its time.
///
/// This is a dynamic program over the calls and the number of messages swapped so far. After a
/// swap, everything from the first swapped message on is written to the cache again. Without a
/// swap, a call writes only what was added since the previous call.
pub(crate) fn least_units(conversation: &CooledConversation, prices: Prices) -> u64 {
    // Indexed by the number of swapped messages: the minimum cost of the calls so far, or `None` if
    // that number cannot be reached. At first, no message is swapped.
    let mut least: Vec<Option<u64>> = vec![None; conversation.large.len() + 1];
    least[0] = Some(0);
    for (index, call) in conversation.calls.iter().enumerate() {
        let mut next = vec![None; least.len()];
        for (swapped, so_far) in least
            .iter()
            .enumerate()
            .filter_map(|(swapped, least)| Some((swapped, (*least)?)))
        {
            let previously_sent = index
                .checked_sub(1)
                .map_or(0, |previous| conversation.sent(previous, swapped));
            improve(
                &mut next[swapped],
                so_far + prices.cost(conversation.sent(index, swapped), previously_sent),
            );
            if call.cool_count > swapped {
                let kept = conversation.kept_by_swap(swapped).min(previously_sent);
                improve(
                    &mut next[call.cool_count],
                    so_far + prices.cost(conversation.sent(index, call.cool_count), kept),
                );
            }
        }
        least = next;
    }
    least.into_iter().flatten().min().unwrap_or(0)
}

fn improve(least: &mut Option<u64>, cost: u64) {
    *least = Some(least.map_or(cost, |least| least.min(cost)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{
        counted_conversation::{CoolingZone, CountedConversation, CountedMessage},
        prices,
        rules::{Rule, meter_schedule},
    };

    /// A random conversation of at most 14 messages, some of them large.
    fn random(random_source: &mut fastrand::Rng) -> CooledConversation {
        let mut turn = 0;
        let count = 4 + random_source.u64(..11);
        let (system, turns, calls) = (
            random_source.u64(..500),
            random_source.u64(..3) as i32,
            random_source.u64(..3),
        );
        let messages = (0..count).map(|_| {
            let is_answer = random_source.u64(..3) > 0;
            turn += i32::from(!is_answer);
            let tokens = if random_source.u64(..3) == 0 {
                1_000 + random_source.u64(..9_000)
            } else {
                random_source.u64(..300)
            };
            CountedMessage {
                tokens,
                added: 0,
                turn,
                is_answer,
                summary: None,
            }
        });
        let counted = CountedConversation {
            system,
            messages: messages.collect(),
        };
        counted.in_zone(CoolingZone {
            threshold: 999,
            turns,
            calls,
        })
    }

    /// The cheapest of all possible sets of calls to swap at, each of them metered.
    fn brute_force(conversation: &CooledConversation, prices: Prices) -> u64 {
        // One bit for each call: whether it swaps.
        let choices = 0..1_u32 << conversation.calls.len();
        let costs = choices.map(|swaps| {
            let mut swapped = 0;
            let schedule: Vec<usize> = conversation
                .calls
                .iter()
                .enumerate()
                .map(|(index, call)| {
                    swapped = if swaps >> index & 1 == 1 {
                        call.cool_count
                    } else {
                        swapped
                    };
                    swapped
                })
                .collect();
            meter_schedule(conversation, &schedule).units(prices)
        });
        costs.min().expect("at least one choice")
    }

    #[test]
    fn no_choice_of_swaps_is_cheaper_than_the_oracle() {
        let mut random_source = fastrand::Rng::with_seed(7);
        let mut swaps_pay = 0;
        for _ in 0..400 {
            let conversation = random(&mut random_source);
            for prices in prices::ALL {
                let least = least_units(&conversation, prices);
                assert_eq!(
                    least,
                    brute_force(&conversation, prices),
                    "{conversation:?}"
                );
                let costs = Rule::ALL.map(|rule| {
                    meter_schedule(&conversation, &rule.schedule(&conversation, prices))
                        .units(prices)
                });
                assert!(costs.iter().all(|cost| *cost >= least), "{costs:?} {least}");
                // The first rule never swaps.
                swaps_pay += usize::from(least < costs[0]);
            }
        }
        assert!(swaps_pay > 100, "swapping pays in only {swaps_pay} cases");
    }
}
