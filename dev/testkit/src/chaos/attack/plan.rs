//! The plan of attacks: which attack, when, on which server, with which choices. All of it follows
//! from one seed.

use std::{fmt, time::Duration};

use super::kind::Attack;

/// Number of attacks that run at the same time.
pub(super) const ATTACKS_AT_ONCE: usize = 3;
/// The duration of one attack, in milliseconds.
const LASTS_MS: std::ops::Range<u64> = 1_500..2_500;

/// A planned attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlannedAttack {
    pub(super) attack: Attack,
    pub(super) lasts: Duration,
    /// The seed of the attack's own choices, including the server.
    pub(super) seed: u64,
}

/// The attacks of a campaign, in order. Each free slot takes the next one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttackPlan {
    /// The seed of all choices.
    pub seed: u64,
    pub(super) attacks: Vec<PlannedAttack>,
}

impl AttackPlan {
    /// A plan of at least this duration, in whole rounds. A round has each of these attacks once,
    /// in a random order.
    pub fn of(seed: u64, at_least: Duration, attacks: &[Attack]) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut planned, mut total) = (Vec::new(), Duration::ZERO);
        // ATTACKS_AT_ONCE attacks run at a time, so their durations add up to that many times the
        // duration of the plan.
        while total < at_least * ATTACKS_AT_ONCE as u32 {
            let mut round = attacks.to_vec();
            random.shuffle(&mut round);
            for attack in round {
                let lasts = Duration::from_millis(random.u64(LASTS_MS));
                planned.push(PlannedAttack {
                    attack,
                    lasts,
                    seed: random.u64(..),
                });
                total += lasts;
            }
        }
        Self {
            seed,
            attacks: planned,
        }
    }
}

impl fmt::Display for AttackPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}, {} attacks:", self.seed, self.attacks.len())?;
        for PlannedAttack {
            attack,
            lasts,
            seed,
        } in &self.attacks
        {
            // Two digits tell the attacks of one kind apart. The plan's seed gives the whole
            // number.
            write!(
                f,
                " {attack:?}({}, {:.1} s)",
                seed % 100,
                lasts.as_secs_f64()
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_plan_in_which_all_attacks_occur_before_any_repeats() {
        let plan = AttackPlan::of(7, Duration::from_mins(1), Attack::ALL);
        assert_eq!(plan, AttackPlan::of(7, Duration::from_mins(1), Attack::ALL));
        assert_ne!(
            plan.attacks,
            AttackPlan::of(8, Duration::from_mins(1), Attack::ALL).attacks
        );
        for round in plan.attacks.chunks(Attack::ALL.len()) {
            let mut kinds: Vec<Attack> = round.iter().map(|planned| planned.attack).collect();
            kinds.sort_unstable();
            assert_eq!(kinds, Attack::ALL);
        }
    }
}
