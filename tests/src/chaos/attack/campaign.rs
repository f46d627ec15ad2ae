//! The campaign: an installation, a neighbour that works in it, and an attacker that follows its plan.

use std::{
    fmt,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use tokio::{sync::oneshot, task::JoinSet, time::interval};
use tokio_util::sync::CancellationToken;

use super::{
    super::{
        campaign::Report,
        findings::{Finding, Findings, Tally},
    },
    attacker::{Means, Tallies},
    installation::Installation,
    latencies::{Kind, Latencies},
    neighbour::{Neighbour, settle},
    plan::AttackPlan,
    stock::Stock,
    work::Work,
};

/// Clients of the neighbour's.
const CLIENTS: usize = 2;
/// Calls that the neighbour makes before the attack begins.
const CALLS_BEFORE: usize = 40;

/// What is attacked, and how.
#[derive(Clone)]
pub struct NeighbourCampaign {
    /// The binary of servers and the worker.
    pub binary: &'static str,
    /// What the attacker does.
    pub plan: AttackPlan,
    /// Settings of the servers beside the default ones: limits that are taken away.
    pub settings: &'static [&'static str],
    /// A limit that the processes are told to do without.
    pub sabotage: Option<&'static str>,
}

/// What came of it.
pub struct NeighbourReport {
    /// Promises to the neighbour that were broken, and what was done.
    pub report: Report,
    /// The attacker's calls, by attack.
    pub calls: Tally,
    /// The attacker's refusals, by reason.
    pub refusals: Tally,
    /// The neighbour's calls that took more than a second, by the attacks that were under way.
    pub slow: Tally,
    /// How long the neighbour's calls, its jobs and the probes took.
    pub latencies: Latencies,
    /// What the processes have warned of.
    pub warnings: Tally,
    /// The most memory that each server has taken, in MiB.
    pub memory: Vec<u64>,
}

impl fmt::Display for NeighbourReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.report)?;
        writeln!(f, "the attacker's calls: {}", self.calls)?;
        writeln!(f, "its refusals: {}", self.refusals)?;
        writeln!(f, "the neighbour's slow calls, by what was under way: {}", self.slow)?;
        writeln!(f, "warnings: {}", self.warnings)?;
        writeln!(f, "the servers' memory at most: {:?} MiB", self.memory)?;
        write!(f, "{}", self.latencies)
    }
}

impl NeighbourCampaign {
    /// A campaign against the default settings.
    pub const fn new(binary: &'static str, plan: AttackPlan) -> Self {
        Self { binary, plan, settings: &[], sabotage: None }
    }

    /// Runs it to its end.
    pub async fn run(&self) -> NeighbourReport {
        let mut stage = Stage::start(self).await;
        stage.watch_until_attacked().await;
        stage.end().await
    }

    /// Runs it until the first finding, or to its end; how long after the attack's beginning that was.
    pub async fn first_finding(&self) -> Result<(Finding, Duration), Box<NeighbourReport>> {
        let mut stage = Stage::start(self).await;
        let (findings, began) = (Arc::clone(&stage.work.findings), Instant::now());
        tokio::select! {
            finding = findings.first() => return Ok((finding, began.elapsed())),
            () = stage.watch_until_attacked() => {}
        }
        let report = stage.end().await;
        match report.report.findings.first() {
            Some(finding) => Ok((finding.clone(), began.elapsed())),
            None => Err(Box::new(report)),
        }
    }
}

/// A campaign under way.
struct Stage {
    installation: Installation,
    work: Arc<Work>,
    working: JoinSet<()>,
    tallies: Arc<Tallies>,
    /// Comes when the attacker has done everything.
    attacked: oneshot::Receiver<()>,
    /// Ends the attacker, also where the stage is dropped.
    _attack: tokio_util::sync::DropGuard,
    seed: u64,
    began: Instant,
}

impl Stage {
    /// Everything is there; the neighbour works, and the attack has begun.
    async fn start(campaign: &NeighbourCampaign) -> Self {
        let (began, findings) = (Instant::now(), Arc::<Findings>::default());
        let installation = Installation::start(campaign.binary, campaign.settings, campaign.sabotage, &findings).await;
        let stock = Stock::store(&installation.url, installation.eves).await;
        let servers = installation.addresses.clone();
        let tallies = Arc::<Tallies>::default();
        let shared = (Arc::clone(&findings), Arc::clone(&tallies));
        let work = Arc::new(Work::new(servers.clone(), installation.anna.clone(), shared.0, shared.1));
        let mut working = JoinSet::new();
        for number in 0..CLIENTS {
            working.spawn(Neighbour::new(Arc::clone(&work), number).run());
        }
        for server in servers.clone() {
            let work = Arc::clone(&work);
            working.spawn(async move { work.probe(server).await });
        }
        let looking = Arc::clone(&work);
        working.spawn(async move { looking.look().await });
        let mut looks = interval(Duration::from_millis(20));
        while work.latencies.count(Kind::Call) < CALLS_BEFORE {
            looks.tick().await;
        }
        let means = Arc::new(Means::new(servers, installation.eve.clone(), stock, findings, Arc::clone(&tallies)));
        let stop = CancellationToken::new();
        let attacked = attack(means, campaign.plan.clone(), stop.clone());
        Self {
            installation,
            work,
            working,
            tallies,
            attacked,
            _attack: stop.drop_guard(),
            seed: campaign.plan.seed,
            began,
        }
    }

    /// Looks after the processes until the attacker has done everything.
    async fn watch_until_attacked(&mut self) {
        let mut looks = interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                _ = &mut self.attacked => return,
                _ = looks.tick() => {
                    self.installation.check_processes(&self.work.findings);
                    self.installation.check_logs(&self.work.findings);
                }
            }
        }
    }

    /// The attack is over: the neighbour's work is compared once more, and the processes stop.
    async fn end(mut self) -> NeighbourReport {
        self.work.over.cancel();
        while let Some(ended) = self.working.join_next().await {
            ended.expect("the neighbour's clients do not panic");
        }
        let began = Instant::now();
        settle(&self.work).await;
        let settled = began.elapsed();
        self.installation.check_processes(&self.work.findings);
        self.installation.check_logs(&self.work.findings);
        let (memory, warnings) = (self.installation.memory(), self.installation.warnings());
        self.installation.stop(&self.work.findings).await;
        let work = Arc::into_inner(self.work).expect("nobody works any more");
        let copy = |of: &Tally| {
            let copied = Tally::default();
            copied.take_in(of);
            copied
        };
        work.tally.take_in(&self.tallies.attacks);
        let (calls, refusals, slow) =
            (copy(&self.tallies.calls), copy(&self.tallies.refusals), copy(&self.tallies.slow));
        let report = Report {
            seed: self.seed,
            findings: work.findings.all(),
            tally: work.tally,
            settled,
            took: self.began.elapsed(),
        };
        NeighbourReport { report, calls, refusals, slow, latencies: work.latencies, warnings, memory }
    }
}

/// Starts the attacker on a thread of its own: whatever it computes, it keeps neither the neighbour nor the probes waiting.
fn attack(means: Arc<Means>, plan: AttackPlan, stop: CancellationToken) -> oneshot::Receiver<()> {
    let (ended, end) = oneshot::channel();
    let attacker = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            tokio::select! {
                () = means.perform(&plan) => {}
                () = stop.cancelled() => {}
            }
        });
        let _ = ended.send(());
    };
    thread::Builder::new().name("attacker".into()).spawn(attacker).expect("a thread");
    end
}
