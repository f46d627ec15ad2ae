//! What is done to the service, and when: all of it follows from one seed.

use std::fmt;

/// Something that is done to the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// PostgreSQL is stopped at once, and started again.
    StopDatabase,
    /// kill -9 of the postmaster.
    KillPostmaster,
    /// kill -9 of one backend: PostgreSQL throws everybody out and recovers.
    KillBackend,
    /// Sessions are terminated at random.
    TerminateSessions,
    /// kill -9 of a server, which is started again.
    KillServer,
    /// kill -9 of a worker, which is started again.
    KillWorker,
    /// A worker is stopped in the middle of a summary, past its lease, and goes on.
    StallWorker,
    /// What was connected to PostgreSQL stays connected, and nothing comes through.
    FallSilent,
    /// The model limits, fails, hangs, speaks nonsense.
    Storm,
    /// PostgreSQL has no connection left.
    TakeConnections,
    /// Somebody holds the rows of all conversations, until every connection of the servers' pools waits for them.
    HoldRows,
    /// Somebody reads one snapshot for a while.
    HoldSnapshot,
    /// Servers are asked to stop, one after the other, and others start.
    RestartServers,
    /// Two migrators start at once.
    MigrateTwice,
    /// Clocks of servers and workers jump by an hour, each somewhere else.
    JumpClocks,
}

impl Fault {
    /// Every kind.
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

    /// What it is called where it is counted.
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

/// One step: after so many more appends were acknowledged, this is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Appends acknowledged before it.
    pub after: u64,
    /// What is done.
    pub fault: Fault,
    /// Which process, session or weather: whatever the fault chooses from.
    pub choice: u32,
}

/// The steps of a campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// All that is chosen, here and in clients and proxies, follows from it.
    pub seed: u64,
    /// In this order.
    pub steps: Vec<Step>,
}

impl Plan {
    /// These faults, so often each, in an order and at times that follow from the seed.
    pub fn of(seed: u64, faults: &[(Fault, usize)]) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut all: Vec<Fault> =
            faults.iter().flat_map(|(fault, times)| std::iter::repeat_n(*fault, *times)).collect();
        random.shuffle(&mut all);
        let first: u32 = random.u32(..u32::MAX / 2);
        // Faults of a kind choose one after the other: several of them leave nothing out.
        let step = |(place, fault)| {
            let before = all[..place].iter().filter(|other| **other == fault).count();
            Step { after: random.u64(5..30), fault, choice: first + before as u32 }
        };
        Self { seed, steps: all.iter().copied().enumerate().map(step).collect() }
    }
}

impl Plan {
    /// The same with so many times as many appends between its steps: what takes long has time to end between two crashes.
    #[must_use]
    pub fn slower(mut self, times: u64) -> Self {
        self.steps.iter_mut().for_each(|step| step.after *= times);
        self
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}:", self.seed)?;
        for Step { after, fault, choice } in &self.steps {
            write!(f, " +{after} {fault:?}({})", choice % 100)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_plan_with_each_fault_as_often_as_asked() {
        let ask = [(Fault::StopDatabase, 10), (Fault::KillServer, 3)];
        let plan = Plan::of(7, &ask);
        assert_eq!(plan, Plan::of(7, &ask));
        assert_ne!(plan.steps, Plan::of(8, &ask).steps);
        let stops = plan.steps.iter().filter(|step| step.fault == Fault::StopDatabase).count();
        assert_eq!((plan.steps.len(), stops), (13, 10));
    }
}
