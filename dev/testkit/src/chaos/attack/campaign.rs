//! A campaign of one tenant against another. It starts an installation, a tenant that does ordinary
//! work (the neighbor), and a tenant that follows a plan of attacks (the attacker).

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
    neighbor::{Neighbor, wait_for_counts_and_compare},
    neighbor_state::NeighborState,
    plan::AttackPlan,
    running_attack::AttackContext,
    stored_conversations::StoredConversations,
    tallies::Tallies,
};

/// Number of the neighbor's concurrent clients.
const CLIENTS: usize = 2;
/// Number of calls that the neighbor makes before the attack begins.
const CALLS_BEFORE: usize = 40;

/// The settings of a campaign.
#[derive(Clone)]
pub struct NeighborCampaign {
    /// The path of the binary of servers and worker.
    pub binary: &'static str,
    /// The attacks.
    pub plan: AttackPlan,
    /// Further settings of the servers, `key=value` each. They remove limits.
    pub settings: &'static [&'static str],
    /// The change of the database that removes a limit for which there is no setting.
    pub sabotage: Option<&'static Sabotage>,
}

/// The outcome of a campaign.
pub struct NeighborReport {
    /// The findings, which are promises to the neighbor that were found broken, and counts of what
    /// was done.
    pub report: Report,
    /// The attacker's calls, by attack.
    pub calls: Tally,
    /// The attacker's refusals, by reason.
    pub refusals: Tally,
    /// The neighbor's calls that took more than a second, by the attacks that were running.
    pub slow_calls: Tally,
    /// Latencies of the neighbor's calls and jobs, and of the probes.
    pub latencies: Latencies,
    /// Warnings and errors in the logs of the processes, by message.
    pub warnings: Tally,
    /// Peak memory of each server, in MiB.
    pub memory: Vec<u64>,
}

impl fmt::Display for NeighborReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.report)?;
        writeln!(f, "the attacker's calls: {}", self.calls)?;
        writeln!(f, "the attacker's refusals: {}", self.refusals)?;
        writeln!(
            f,
            "the neighbor's slow calls, by the attacks that were running: {}",
            self.slow_calls
        )?;
        writeln!(f, "warnings: {}", self.warnings)?;
        writeln!(f, "the servers' peak memory: {:?} MiB", self.memory)?;
        write!(f, "{}", self.latencies)
    }
}

impl NeighborCampaign {
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
    pub async fn run(&self) -> NeighborReport {
        let mut running = RunningCampaign::start(self).await;
        running.watch_processes_during_attack().await;
        running.finish().await
    }

    /// Runs the campaign until the first finding, or to its end. Returns the finding and its time
    /// since the attack began, or the report if nothing was found.
    pub async fn first_finding(&self) -> Result<(Finding, Duration), Box<NeighborReport>> {
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
    state: Arc<NeighborState>,
    /// The tasks of the neighbor, of the probes, and of the periodic check of latencies and pending
    /// messages.
    tasks: JoinSet<()>,
    tallies: Arc<Tallies>,
    /// Resolves when the attacker has performed its plan.
    attack_end: oneshot::Receiver<()>,
    /// Stops the attacker on drop.
    _attacker_stop: tokio_util::sync::DropGuard,
    seed: u64,
    began: Instant,
}

impl RunningCampaign {
    /// Starts the installation and the neighbor, then the attack.
    async fn start(campaign: &NeighborCampaign) -> Self {
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
        let state = Arc::new(NeighborState::new(
            servers.clone(),
            installation.anna.clone(),
            Arc::clone(&findings),
            Arc::clone(&tallies),
        ));
        let mut tasks = JoinSet::new();
        for number in 0..CLIENTS {
            tasks.spawn(Neighbor::new(Arc::clone(&state), number).run());
        }
        for server in servers.clone() {
            let state = Arc::clone(&state);
            tasks.spawn(async move { state.probe(server).await });
        }
        tasks.spawn({
            let state = Arc::clone(&state);
            async move { state.check_periodically().await }
        });
        let mut ticks = interval(Duration::from_millis(20));
        while state.latencies.count(Kind::Call) < CALLS_BEFORE {
            ticks.tick().await;
        }
        let context = Arc::new(AttackContext::new(
            servers,
            installation.eve.clone(),
            stored,
            findings,
            Arc::clone(&tallies),
        ));
        let stop = CancellationToken::new();
        let attack_end = start_attacker(context, campaign.plan.clone(), stop.clone());
        Self {
            installation,
            state,
            tasks,
            tallies,
            attack_end,
            _attacker_stop: stop.drop_guard(),
            seed: campaign.plan.seed,
            began,
        }
    }

    /// Checks the processes once a second until the attacker has performed its plan.
    async fn watch_processes_during_attack(&mut self) {
        let mut ticks = interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                _ = &mut self.attack_end => return,
                _ = ticks.tick() => {
                    self.installation.check_processes(&self.state.findings);
                    self.installation.check_logs(&self.state.findings);
                }
            }
        }
    }

    /// Waits until the neighbor's messages are counted, checks its data once more and stops the
    /// processes.
    async fn finish(mut self) -> NeighborReport {
        self.state.over.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("the tasks do not panic");
        }
        let began = Instant::now();
        wait_for_counts_and_compare(&self.state).await;
        let settling_time = began.elapsed();
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
        let (calls, refusals, slow_calls) = (
            copy(&self.tallies.calls),
            copy(&self.tallies.refusals),
            copy(&self.tallies.slow_calls),
        );
        let report = Report {
            seed: self.seed,
            findings: state.findings.all(),
            tally: state.tally,
            settling_time,
            took: self.began.elapsed(),
        };
        NeighborReport {
            report,
            calls,
            refusals,
            slow_calls,
            latencies: state.latencies,
            warnings,
            memory,
        }
    }
}

/// Starts the attacker on its own thread, so that its CPU work does not delay the neighbor or the
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
