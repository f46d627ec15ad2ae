//! The plan of a campaign: which faults, and when. All of it follows from one seed.

use std::fmt;

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// PostgreSQL is shut down immediately and started again.
    StopDatabase,
    /// The postmaster is killed with SIGKILL.
    KillPostmaster,
    /// One backend is killed with SIGKILL: PostgreSQL ends all sessions and runs recovery.
    KillBackend,
    /// Random sessions are terminated.
    TerminateSessions,
    /// A server is killed with SIGKILL and started again.
    KillServer,
    /// A worker is killed with SIGKILL and started again.
    KillWorker,
    /// A worker is suspended in the middle of a summary until it has lost its lease, and is
    /// resumed.
    StallWorker,
    /// Connections to PostgreSQL stall: they stay open, but no byte passes.
    FallSilent,
    /// The model is rate-limited, fails, hangs, or answers with nonsense.
    Storm,
    /// All connections of PostgreSQL are taken.
    TakeConnections,
    /// The rows of all conversations are locked for a while, so that pooled connections wait for
    /// them.
    HoldRows,
    /// A snapshot is kept open.
    HoldSnapshot,
    /// Servers are terminated and started, one after the other.
    RestartServers,
    /// Two migrations run at the same time.
    MigrateTwice,
    /// The clock of each server and worker is set an hour ahead, an hour back, or to the right
    /// time, at random.
    JumpClocks,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 15] = [
        Self::StopDatabase,
        Self::KillPostmaster,
        Self::KillBackend,
        Self::TerminateSessions,
        Self::KillServer,
        Self::KillWorker,
        Self::StallWorker,
        Self::FallSilent,
        Self::Storm,
        Self::TakeConnections,
        Self::HoldRows,
        Self::HoldSnapshot,
        Self::RestartServers,
        Self::MigrateTwice,
        Self::JumpClocks,
    ];

    /// The name under which the fault is counted.
    pub const fn name(self) -> &'static str {
        match self {
            Self::StopDatabase => "immediate stops",
            Self::KillPostmaster => "postmasters killed",
            Self::KillBackend => "backends killed",
            Self::TerminateSessions => "rounds of terminated sessions",
            Self::KillServer => "servers killed",
            Self::KillWorker => "workers killed",
            Self::StallWorker => "workers stalled past their lease",
            Self::FallSilent => "silent connections",
            Self::Storm => "model storms",
            Self::TakeConnections => "times without connections",
            Self::HoldRows => "times with all rows held",
            Self::HoldSnapshot => "held snapshots",
            Self::RestartServers => "rolling restarts",
            Self::MigrateTwice => "pairs of migrators",
            Self::JumpClocks => "times that clocks jumped",
        }
    }
}

/// A fault, and the number of acknowledged appends between the step before and this fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Acknowledged appends since the step before.
    pub after: u64,
    /// The fault.
    pub fault: Fault,
    /// A number from which the fault chooses its process, session or model behavior.
    pub choice: u32,
}

/// The steps of a campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The seed of all choices, including those of clients and proxies.
    pub seed: u64,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

impl Plan {
    /// A plan with each of these faults as often as given. The order and the numbers of appends
    /// between them follow from the seed.
    pub fn of(seed: u64, faults: &[(Fault, usize)]) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut all: Vec<Fault> = faults
            .iter()
            .flat_map(|(fault, times)| std::iter::repeat_n(*fault, *times))
            .collect();
        random.shuffle(&mut all);
        // Half of the range, so that the addition below cannot overflow.
        let first: u32 = random.u32(..u32::MAX / 2);
        // Faults of one kind get consecutive choices, so that several of them cover all targets.
        let step = |(place, fault)| {
            let before = all[..place].iter().filter(|other| **other == fault).count();
            Step {
                after: random.u64(5..30),
                fault,
                choice: first + before as u32,
            }
        };
        Self {
            seed,
            steps: all.iter().copied().enumerate().map(step).collect(),
        }
    }
}

impl Plan {
    /// This plan with `times` times as many appends between its steps, so that long operations can
    /// complete between two crashes.
    #[must_use]
    pub fn slower(mut self, times: u64) -> Self {
        self.steps.iter_mut().for_each(|step| step.after *= times);
        self
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}:", self.seed)?;
        for Step {
            after,
            fault,
            choice,
        } in &self.steps
        {
            // Two digits tell the choices of a fault apart. The seed gives the whole number.
            write!(f, " +{after} {fault:?}({})", choice % 100)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_plan_with_each_fault_as_often_as_asked() {
        let ask = [(Fault::StopDatabase, 10), (Fault::KillServer, 3)];
        let plan = Plan::of(7, &ask);
        assert_eq!(plan, Plan::of(7, &ask));
        assert_ne!(plan.steps, Plan::of(8, &ask).steps);
        let stops = plan
            .steps
            .iter()
            .filter(|step| step.fault == Fault::StopDatabase)
            .count();
        assert_eq!((plan.steps.len(), stops), (13, 10));
    }
}
