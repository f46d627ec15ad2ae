//! A campaign. It starts a database, servers, workers and a scripted model. Clients write and read
//! while the faults of a plan are injected. Meanwhile the audit (`audit.rs`) checks stored rows; at
//! the end the checker (`checker.rs`) checks everything.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use sqlx::{Connection as _, PgConnection};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::{
    audit,
    campaign_state::CampaignState,
    checker,
    client::Client,
    clocks::Clocks,
    cluster::{Cluster, Database},
    fault_injector::FaultInjector,
    findings::{Finding, Findings, Tally, lock},
    model::RecordingModel,
    plan::{Plan, Step},
    processes::Processes,
    reader::Reader,
    sabotage::Sabotage,
};
use crate::Pooler;

/// The settings of a campaign.
#[derive(Clone)]
pub struct Campaign {
    /// The path of the binary of servers and workers.
    pub binary: &'static str,
    /// The plan of faults.
    pub plan: Plan,
    /// Number of servers.
    pub servers: usize,
    /// Number of workers, at least two.
    pub workers: usize,
    /// Number of clients that append.
    pub writers: usize,
    /// Number of clients that run chat turns.
    pub chat_clients: usize,
    /// Number of clients that read.
    pub readers: usize,
    /// Commits per thousand at which the proxy closes the connection.
    pub cut_commits_per_thousand: u32,
    /// Commits per thousand that the proxy delays.
    pub slow_commits_per_thousand: u32,
    /// How long `Fault::HoldSnapshot` keeps its snapshot open, after the forty appends for which it
    /// waits anyway.
    pub snapshot_duration: Duration,
    /// Clocks of servers and workers that can jump. None: they use the system's clock.
    pub clocks: Option<Arc<Clocks>>,
    /// Whether PgBouncer runs in front of the proxy.
    pub is_pooled: bool,
    /// Whether clients withdraw, rewind, restore, edit, erase and fork.
    pub has_changes: bool,
    /// How a promise is broken on purpose, if at all.
    pub sabotage: Option<&'static Sabotage>,
}

/// The outcome of a campaign.
pub struct Report {
    /// The seed of all choices.
    pub seed: u64,
    /// The promises that were found broken.
    pub findings: Vec<Finding>,
    /// Counts of what was done.
    pub tally: Tally,
    /// The time from the stop of the clients until all jobs had ended. In a campaign of
    /// `attack/campaign.rs`: until the stored messages of the neighbor had been compared.
    pub settling_time: Duration,
    /// The duration of the campaign.
    pub took: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (took, settled) = (self.took.as_secs_f64(), self.settling_time.as_secs_f64());
        write!(
            f,
            "seed {}: {} violations in {took:.0} s; {}; settled in {settled:.1} s",
            self.seed,
            self.findings.len(),
            self.tally
        )
    }
}

impl Campaign {
    /// A campaign with the usual numbers of processes and clients.
    pub const fn new(binary: &'static str, plan: Plan) -> Self {
        Self {
            binary,
            plan,
            servers: 2,
            workers: 2,
            writers: 6,
            chat_clients: 2,
            readers: 2,
            cut_commits_per_thousand: 50,
            slow_commits_per_thousand: 20,
            snapshot_duration: Duration::ZERO,
            clocks: None,
            is_pooled: false,
            has_changes: true,
            sabotage: None,
        }
    }

    /// Runs the campaign in a new database of the cluster.
    pub async fn run(&self, cluster: &mut Cluster) -> Report {
        let mut running = RunningCampaign::start(self, cluster, Arc::default()).await;
        running.run_steps(&self.plan.steps).await;
        running.finish().await
    }

    /// Runs the campaign until the first finding, or to its end. Returns the finding, or the report
    /// if nothing was found. The fault injector completes a fault that it has begun, so that the
    /// cluster stays usable.
    pub async fn first_finding(&self, cluster: &mut Cluster) -> Result<Finding, Report> {
        let findings = Arc::<Findings>::default();
        let mut running = RunningCampaign::start(self, cluster, Arc::clone(&findings)).await;
        for step in &self.plan.steps {
            tokio::select! {
                biased;
                finding = findings.wait_for_first() => return Ok(finding),
                go_on = running.injector.wait_for_appends(step.after) => if !go_on { break },
            }
            running.injector.inject(*step).await;
        }
        tokio::select! {
            biased;
            finding = findings.wait_for_first() => return Ok(finding),
            _ = running.injector.wait_for_appends(20) => {}
        }
        let report = running.finish().await;
        match report.findings.first() {
            Some(finding) => Ok(finding.clone()),
            None => Err(report),
        }
    }
}

/// A running campaign.
pub(super) struct RunningCampaign<'a> {
    pub(super) injector: FaultInjector<'a>,
    /// PgBouncer in front of the proxy, if the campaign has one.
    pub(super) pooler: Option<Pooler>,
    /// The tasks of the clients and of the audit.
    participants: JoinSet<()>,
    seed: u64,
    began: Instant,
}

impl<'a> RunningCampaign<'a> {
    /// Starts the processes and the clients.
    pub(super) async fn start(
        campaign: &Campaign,
        cluster: &'a mut Cluster,
        findings: Arc<Findings>,
    ) -> Self {
        let (began, seed) = (Instant::now(), campaign.plan.seed);
        let database = Database::create(
            cluster,
            &format!("campaign_{}", Uuid::new_v4().simple()),
            seed,
        )
        .await;
        let foreign = insert_foreign_conversation(&database.direct_url()).await;
        if let Some(sabotage) = campaign.sabotage {
            sabotage.apply(&database.direct_url()).await;
            database.proxy.sabotage(sabotage);
        }
        let model = Arc::new(RecordingModel::start().await);
        let pooler = if campaign.is_pooled {
            Pooler::start(&database.url()).await
        } else {
            None
        };
        let process_url = pooler
            .as_ref()
            .map_or_else(|| database.url(), |pooler| pooler.url.clone());
        let counts = (campaign.servers, campaign.workers);
        let mut processes = Processes::new(
            campaign.binary,
            &process_url,
            campaign.sabotage,
            counts,
            Arc::clone(&findings),
        )
        .await;
        if pooler.is_some() {
            processes.use_transaction_pooling();
        }
        processes.clocks.clone_from(&campaign.clocks);
        processes.start_all(&model).await;
        let state = Arc::new(CampaignState::new(
            findings,
            processes.channels(),
            foreign,
            PACE,
        ));
        if !campaign.has_changes {
            state.forbid_changes();
        }
        let (stalls, url) = (
            Arc::new(Mutex::default()),
            Arc::new(Mutex::new(database.direct_url())),
        );
        let mut participants = JoinSet::new();
        for number in 0..campaign.writers {
            participants.spawn(Client::new(Arc::clone(&state), number, seed).run());
        }
        for number in (campaign.writers..).take(campaign.chat_clients) {
            participants.spawn(Client::new(Arc::clone(&state), number, seed).run_turns());
        }
        for number in 0..campaign.readers {
            participants.spawn(Reader::new(Arc::clone(&state), number, seed).run());
        }
        participants.spawn({
            let (state, model, stalls, url) = (
                Arc::clone(&state),
                Arc::clone(&model),
                Arc::clone(&stalls),
                Arc::clone(&url),
            );
            async move { audit::run(state, &model, &stalls, || lock(&url).clone()).await }
        });
        database.proxy.disturb(
            campaign.cut_commits_per_thousand,
            campaign.slow_commits_per_thousand,
        );
        let snapshot_duration = campaign.snapshot_duration;
        let injector = FaultInjector {
            cluster,
            database,
            processes,
            model,
            state,
            stalls,
            url,
            snapshot_duration,
        };
        Self {
            injector,
            pooler,
            participants,
            seed,
            began,
        }
    }

    /// Injects the faults of these steps while appends continue.
    pub(super) async fn run_steps(&mut self, steps: &[Step]) {
        for step in steps {
            if !self.injector.wait_for_appends(step.after).await {
                return;
            }
            self.injector.inject(*step).await;
        }
        self.injector.wait_for_appends(20).await;
    }

    /// Stops all faults and clients, waits until all jobs have ended, checks everything and stops
    /// the processes.
    pub(super) async fn finish(mut self) -> Report {
        let state = Arc::clone(&self.injector.state);
        self.injector.stop_faults().await;
        state.stop_clients();
        while let Some(ended) = self.participants.join_next().await {
            ended.expect("tasks do not panic");
        }
        let direct = lock(&self.injector.url).clone();
        let settling_time = checker::wait_for_jobs(&state, &direct).await;
        let stalls = lock(&self.injector.stalls).clone();
        checker::check(&state, &self.injector.model, &stalls, &direct).await;
        for code in self.injector.processes.stop_all().await {
            state.findings.add(
                "draining",
                format!("a process that was asked to stop ended with {code:?}"),
            );
        }
        let commits = self.injector.database.proxy.commits();
        let tally = Tally::default();
        tally.merge(&state.tally);
        tally.add("commits", commits.total);
        tally.add("commits cut before", commits.cut_before);
        tally.add("commits cut after", commits.cut_after);
        tally.add("model calls", self.injector.model.call_count() as u64);
        Report {
            seed: self.seed,
            findings: state.findings.all(),
            tally,
            settling_time,
            took: self.began.elapsed(),
        }
    }
}

/// The interval between two calls of a client.
const PACE: Duration = Duration::from_millis(20);

/// Inserts another tenant with a conversation of one message. Returns the conversation's id.
async fn insert_foreign_conversation(url: &str) -> String {
    let mut db = PgConnection::connect(url)
        .await
        .expect("the connection succeeds");
    let (tenant, conversation) = (Uuid::new_v4(), Uuid::new_v4());
    for (statement, ids) in [
        ("insert into tenant (tenant_id, name) values ($1, $2::text)", (tenant, tenant)),
        (
            "insert into ai_conversation (tenant_id, conversation_id, agent_id, user_id, title, pinned, metadata,
                 system_prompt, system_prompt_tokens, policy, encoding, last_message_id, last_role, counted_message_id)
             values ($1, $2, '', '', 'theirs', false, '{}', '', 0, '{}', 1, 1, 1, 1)",
            (tenant, conversation),
        ),
        (
            "insert into ai_message (tenant_id, conversation_id, message_id, role, turn, token_estimate, token_count,
                 text_bytes, content, content_digest)
             values ($1, $2, 1, 1, 1, 0, 0, 0, '[]', sha256('[]'))",
            (tenant, conversation),
        ),
    ] {
        sqlx::query(statement).bind(ids.0).bind(ids.1).execute(&mut db).await.expect("another tenant's rows");
    }
    db.close().await.expect("the connection is closed");
    conversation.to_string()
}
