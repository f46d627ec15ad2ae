//! A campaign of one tenant against another: an installation, a neighbour that works in it, and an
//! attacker that follows a plan.

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
        sabotage::Sabotage,
    },
    installation::Installation,
    latencies::{Kind, Latencies},
    neighbour::{Neighbour, wait_for_counts},
    neighbour_state::NeighbourState,
    plan::AttackPlan,
    running_attack::AttackContext,
    stored_conversations::StoredConversations,
    tallies::Tallies,
};

/// Concurrent clients of the neighbour.
const CLIENTS: usize = 2;
/// Calls of the neighbour before the attack begins.
const CALLS_BEFORE: usize = 40;

/// The settings of a campaign.
#[derive(Clone)]
pub struct NeighbourCampaign {
    /// The path of the binary of servers and worker.
    pub binary: &'static str,
    /// The attacks.
    pub plan: AttackPlan,
    /// Further settings of the servers, which remove limits.
    pub settings: &'static [&'static str],
    /// How a limit is removed that no setting removes.
    pub sabotage: Option<&'static Sabotage>,
}

/// The outcome of a campaign.
pub struct NeighbourReport {
    /// Broken promises to the neighbour, and counts of what was done.
    pub report: Report,
    /// The attacker's calls, by attack.
    pub calls: Tally,
    /// The attacker's refusals, by reason.
    pub refusals: Tally,
    /// The neighbour's calls that took more than a second, by the attacks that were running.
    pub slow: Tally,
    /// Latencies of the neighbour's calls and jobs, and of the probes.
    pub latencies: Latencies,
    /// Warnings in the logs of the processes.
    pub warnings: Tally,
    /// Peak memory of each server, in MiB.
    pub memory: Vec<u64>,
}

impl fmt::Display for NeighbourReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.report)?;
        writeln!(f, "the attacker's calls: {}", self.calls)?;
        writeln!(f, "its refusals: {}", self.refusals)?;
        writeln!(
            f,
            "the neighbour's slow calls, by what was under way: {}",
            self.slow
        )?;
        writeln!(f, "warnings: {}", self.warnings)?;
        writeln!(f, "the servers' memory at most: {:?} MiB", self.memory)?;
        write!(f, "{}", self.latencies)
    }
}

impl NeighbourCampaign {
    /// A campaign with the default settings of the servers.
    pub const fn new(binary: &'static str, plan: AttackPlan) -> Self {
        Self {
            binary,
            plan,
            settings: &[],
            sabotage: None,
        }
    }

    /// Runs the campaign to its end.
    pub async fn run(&self) -> NeighbourReport {
        let mut running = RunningCampaign::start(self).await;
        running.watch_processes_during_attack().await;
        running.finish().await
    }

    /// Runs the campaign until the first finding, or to its end. Returns the finding and its time
    /// since the attack began.
    pub async fn first_finding(&self) -> Result<(Finding, Duration), Box<NeighbourReport>> {
        let mut running = RunningCampaign::start(self).await;
        let (findings, began) = (Arc::clone(&running.state.findings), Instant::now());
        tokio::select! {
            finding = findings.wait_for_first() => return Ok((finding, began.elapsed())),
            () = running.watch_processes_during_attack() => {}
        }
        let report = running.finish().await;
        match report.report.findings.first() {
            Some(finding) => Ok((finding.clone(), began.elapsed())),
            None => Err(Box::new(report)),
        }
    }
}

/// A running campaign.
struct RunningCampaign {
    installation: Installation,
    state: Arc<NeighbourState>,
    working: JoinSet<()>,
    tallies: Arc<Tallies>,
    /// Resolves when the attacker has performed its plan.
    attacked: oneshot::Receiver<()>,
    /// Stops the attacker on drop.
    _attack: tokio_util::sync::DropGuard,
    seed: u64,
    began: Instant,
}

impl RunningCampaign {
    /// Starts the installation and the neighbour, then the attack.
    async fn start(campaign: &NeighbourCampaign) -> Self {
        let (began, findings) = (Instant::now(), Arc::<Findings>::default());
        let installation = Installation::start(
            campaign.binary,
            campaign.settings,
            campaign.sabotage,
            &findings,
        )
        .await;
        let stored = StoredConversations::store(&installation.url, installation.eve_tenant).await;
        let servers = installation.addresses.clone();
        let tallies = Arc::<Tallies>::default();
        let shared = (Arc::clone(&findings), Arc::clone(&tallies));
        let state = Arc::new(NeighbourState::new(
            servers.clone(),
            installation.anna.clone(),
            shared.0,
            shared.1,
        ));
        let mut working = JoinSet::new();
        for number in 0..CLIENTS {
            working.spawn(Neighbour::new(Arc::clone(&state), number).run());
        }
        for server in servers.clone() {
            let state = Arc::clone(&state);
            working.spawn(async move { state.probe(server).await });
        }
        let looking = Arc::clone(&state);
        working.spawn(async move { looking.check_periodically().await });
        let mut looks = interval(Duration::from_millis(20));
        while state.latencies.count(Kind::Call) < CALLS_BEFORE {
            looks.tick().await;
        }
        let context = Arc::new(AttackContext::new(
            servers,
            installation.eve.clone(),
            stored,
            findings,
            Arc::clone(&tallies),
        ));
        let stop = CancellationToken::new();
        let attacked = start_attacker(context, campaign.plan.clone(), stop.clone());
        Self {
            installation,
            state,
            working,
            tallies,
            attacked,
            _attack: stop.drop_guard(),
            seed: campaign.plan.seed,
            began,
        }
    }

    /// Checks the processes once a second until the attacker has performed its plan.
    async fn watch_processes_during_attack(&mut self) {
        let mut looks = interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                _ = &mut self.attacked => return,
                _ = looks.tick() => {
                    self.installation.check_processes(&self.state.findings);
                    self.installation.check_logs(&self.state.findings);
                }
            }
        }
    }

    /// Checks the neighbour's data once more and stops the processes.
    async fn finish(mut self) -> NeighbourReport {
        self.state.over.cancel();
        while let Some(ended) = self.working.join_next().await {
            ended.expect("the neighbour's clients do not panic");
        }
        let began = Instant::now();
        wait_for_counts(&self.state).await;
        let settled = began.elapsed();
        self.installation.check_processes(&self.state.findings);
        self.installation.check_logs(&self.state.findings);
        let (memory, warnings) = (self.installation.memory(), self.installation.warnings());
        self.installation.stop(&self.state.findings).await;
        let state = Arc::into_inner(self.state).expect("all tasks have ended");
        let copy = |of: &Tally| {
            let copied = Tally::default();
            copied.merge(of);
            copied
        };
        state.tally.merge(&self.tallies.attacks);
        let (calls, refusals, slow) = (
            copy(&self.tallies.calls),
            copy(&self.tallies.refusals),
            copy(&self.tallies.slow),
        );
        let report = Report {
            seed: self.seed,
            findings: state.findings.all(),
            tally: state.tally,
            settled,
            took: self.began.elapsed(),
        };
        NeighbourReport {
            report,
            calls,
            refusals,
            slow,
            latencies: state.latencies,
            warnings,
            memory,
        }
    }
}

/// Starts the attacker on its own thread, so that its CPU work does not delay the neighbour or the
/// probes.
fn start_attacker(
    context: Arc<AttackContext>,
    plan: AttackPlan,
    stop: CancellationToken,
) -> oneshot::Receiver<()> {
    let (ended, end) = oneshot::channel();
    let attacker = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            tokio::select! {
                () = context.perform(&plan) => {}
                () = stop.cancelled() => {}
            }
        });
        let _ = ended.send(());
    };
    thread::Builder::new()
        .name("attacker".into())
        .spawn(attacker)
        .expect("a thread");
    end
}
