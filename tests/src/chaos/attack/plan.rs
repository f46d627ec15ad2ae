//! Which attacks are performed when, against which server, with which choices: all of it follows from one seed.

use std::{fmt, time::Duration};

use super::kind::Attack;

/// Attacks that are performed at a time.
pub(super) const LANES: usize = 3;
/// How long one attack lasts, in milliseconds.
const LASTS_MS: std::ops::Range<u64> = 1_500..2_500;

/// One attack of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlannedAttack {
    pub(super) attack: Attack,
    pub(super) lasts: Duration,
    /// Its own choices follow from it; the server too.
    pub(super) seed: u64,
}

/// The attacks of a campaign, in order. Whichever lane is free takes the next one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttackPlan {
    /// All choices follow from it.
    pub seed: u64,
    pub(super) attacks: Vec<PlannedAttack>,
}

impl AttackPlan {
    /// For so long, at least one round; a round has each of these attacks once.
    pub fn of(seed: u64, lasts: Duration, attacks: &[Attack]) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut planned, mut total) = (Vec::new(), Duration::ZERO);
        while total < lasts * LANES as u32 {
            let mut round = attacks.to_vec();
            random.shuffle(&mut round);
            for attack in round {
                let lasts = Duration::from_millis(random.u64(LASTS_MS));
                planned.push(PlannedAttack { attack, lasts, seed: random.u64(..) });
                total += lasts;
            }
        }
        Self { seed, attacks: planned }
    }
}

impl fmt::Display for AttackPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}, {} attacks:", self.seed, self.attacks.len())?;
        for PlannedAttack { attack, lasts, seed } in &self.attacks {
            write!(f, " {attack:?}({}, {:.1} s)", seed % 100, lasts.as_secs_f64())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_plan_and_each_attack_comes_once_before_any_comes_again() {
        let plan = AttackPlan::of(7, Duration::from_mins(1), Attack::ALL);
        assert_eq!(plan, AttackPlan::of(7, Duration::from_mins(1), Attack::ALL));
        assert_ne!(plan.attacks, AttackPlan::of(8, Duration::from_mins(1), Attack::ALL).attacks);
        for round in plan.attacks.chunks(Attack::ALL.len()) {
            let mut kinds: Vec<Attack> = round.iter().map(|planned| planned.attack).collect();
            kinds.sort_unstable();
            assert_eq!(kinds, Attack::ALL);
        }
    }
}
