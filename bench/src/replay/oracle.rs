//! The cheapest times to swap, known afterwards: what rules are measured against.

use super::{prices::Prices, script::Play};

/// Units that a conversation costs at least when each swap takes all that is cool, whatever the times of the swaps.
///
/// A dynamic program over calls and the number of messages swapped so far. Behind a swap everything is written again;
/// without one, a call writes only what came since the last.
pub(crate) fn least_units(play: &Play, prices: Prices) -> u64 {
    // By messages swapped: the least cost of the calls so far. None has been made with any swapped.
    let mut least: Vec<Option<u64>> = vec![None; play.large.len() + 1];
    least[0] = Some(0);
    for (call, at) in play.calls.iter().enumerate() {
        let mut then = vec![None; least.len()];
        for (swapped, so_far) in least.iter().enumerate().filter_map(|(swapped, least)| Some((swapped, (*least)?))) {
            let before = call.checked_sub(1).map_or(0, |before| play.sent(before, swapped));
            improve(&mut then[swapped], so_far + prices.bill(play.sent(call, swapped), before));
            if at.cool > swapped {
                let kept = play.kept_by_swap(swapped).min(before);
                improve(&mut then[at.cool], so_far + prices.bill(play.sent(call, at.cool), kept));
            }
        }
        least = then;
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
        prices,
        rules::{Rule, bill},
        script::{Said, Script, Zone},
    };

    /// A conversation of at most 14 messages, some of them large.
    fn random(dice: &mut fastrand::Rng) -> Play {
        let mut turn = 0;
        let messages = 4 + dice.u64(..11);
        let (system, turns, calls) = (dice.u64(..500), dice.u64(..3) as i32, dice.u64(..3));
        let said = (0..messages).map(|_| {
            let is_answer = dice.u64(..3) > 0;
            turn += i32::from(!is_answer);
            let tokens = if dice.u64(..3) == 0 { 1_000 + dice.u64(..9_000) } else { dice.u64(..300) };
            Said { tokens, turn, is_answer, summary: None }
        });
        let script = Script { system, said: said.collect() };
        script.under(Zone { threshold: 999, turns, calls })
    }

    /// The cheapest of all choices of calls to swap at, each metered.
    fn brute_force(play: &Play, prices: Prices) -> u64 {
        let choices = 0..1_u32 << play.calls.len();
        let costs = choices.map(|swaps| {
            let mut swapped = 0;
            let schedule: Vec<usize> = play
                .calls
                .iter()
                .enumerate()
                .map(|(call, at)| {
                    swapped = if swaps >> call & 1 == 1 { at.cool } else { swapped };
                    swapped
                })
                .collect();
            bill(play, &schedule).units(prices)
        });
        costs.min().expect("at least one choice")
    }

    #[test]
    fn no_choice_of_swaps_is_cheaper_than_the_oracle() {
        let mut dice = fastrand::Rng::with_seed(7);
        let mut swaps_pay = 0;
        for _ in 0..400 {
            let play = random(&mut dice);
            for prices in prices::ALL {
                let least = least_units(&play, prices);
                assert_eq!(least, brute_force(&play, prices), "{play:?}");
                let costs = Rule::ALL.map(|rule| bill(&play, &rule.schedule(&play, prices)).units(prices));
                assert!(costs.iter().all(|cost| *cost >= least), "{costs:?} {least}");
                swaps_pay += usize::from(least < costs[0]);
            }
        }
        assert!(swaps_pay > 100, "the conversations are worth a choice: {swaps_pay}");
    }
}
