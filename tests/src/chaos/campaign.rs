//! A campaign: a database, servers, workers and a model; clients that write and read; a plan of faults; a checker that looks all
//! the time, and once more in the end.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use sqlx::{Connection as _, PgConnection};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::{
    audit, checker,
    client::Client,
    clocks::Clocks,
    cluster::{Cluster, Database},
    crew::Crew,
    findings::{Finding, Findings, Tally, held},
    model::Witness,
    nemesis::Nemesis,
    plan::{Plan, Step},
    reader::Reader,
    scene::Scene,
};
use crate::Pooler;

/// What takes part, and what is done to it.
#[derive(Clone)]
pub struct Campaign {
    /// The binary of servers and workers.
    pub binary: &'static str,
    /// What is done.
    pub plan: Plan,
    /// Servers.
    pub servers: usize,
    /// Workers, two at least.
    pub workers: usize,
    /// Clients that write.
    pub writers: usize,
    /// Clients that a model answers.
    pub chatting: usize,
    /// Clients that read.
    pub readers: usize,
    /// Commits of a thousand that are cut.
    pub cut: u32,
    /// Commits of a thousand that are delayed.
    pub slow: u32,
    /// How long a snapshot is held, beyond forty appends.
    pub snapshot: Duration,
    /// Clocks of servers and workers that may jump; None: they have the system's.
    pub clocks: Option<Arc<Clocks>>,
    /// Whether PgBouncer stands before the database.
    pub is_pooled: bool,
    /// The promise that servers and workers are told to break.
    pub sabotage: Option<&'static str>,
}

/// What came of it.
pub struct Report {
    /// The seed from which all of it follows.
    pub seed: u64,
    /// Promises that were broken.
    pub findings: Vec<Finding>,
    /// What was done.
    pub tally: Tally,
    /// How long jobs took to end after the last fault.
    pub settled: Duration,
    /// How long everything took.
    pub took: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (took, settled) = (self.took.as_secs_f64(), self.settled.as_secs_f64());
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
    /// A campaign of the usual size.
    pub const fn new(binary: &'static str, plan: Plan) -> Self {
        Self {
            binary,
            plan,
            servers: 2,
            workers: 2,
            writers: 6,
            chatting: 2,
            readers: 2,
            cut: 50,
            slow: 20,
            snapshot: Duration::ZERO,
            clocks: None,
            is_pooled: false,
            sabotage: None,
        }
    }

    /// Runs it in a database of its own on the cluster.
    pub async fn run(&self, cluster: &mut Cluster) -> Report {
        let mut stage = Stage::set(self, cluster, Arc::default()).await;
        stage.act(&self.plan.steps).await;
        stage.end().await
    }

    /// Runs it until the first finding, or to its end. What the nemesis has begun it ends: the cluster is sound.
    pub async fn first_finding(&self, cluster: &mut Cluster) -> Result<Finding, Report> {
        let findings = Arc::<Findings>::default();
        let mut stage = Stage::set(self, cluster, Arc::clone(&findings)).await;
        for step in &self.plan.steps {
            tokio::select! {
                biased;
                finding = findings.first() => return Ok(finding),
                goes_on = stage.nemesis.goes_on(step.after) => if !goes_on { break },
            }
            stage.nemesis.does(*step).await;
        }
        tokio::select! {
            biased;
            finding = findings.first() => return Ok(finding),
            _ = stage.nemesis.goes_on(20) => {}
        }
        let report = stage.end().await;
        match report.findings.first() {
            Some(finding) => Ok(finding.clone()),
            None => Err(report),
        }
    }
}

/// A campaign under way.
pub(super) struct Stage<'a> {
    pub(super) nemesis: Nemesis<'a>,
    /// What stands before the proxy, if anything does.
    pub(super) pooler: Option<Pooler>,
    taking_part: JoinSet<()>,
    seed: u64,
    began: Instant,
}

impl<'a> Stage<'a> {
    /// Everything is there, and clients have begun.
    pub(super) async fn set(campaign: &Campaign, cluster: &'a mut Cluster, findings: Arc<Findings>) -> Self {
        let (began, seed) = (Instant::now(), campaign.plan.seed);
        let database = Database::make(cluster, &format!("campaign_{}", Uuid::new_v4().simple()), seed).await;
        let foreign = another_tenants(&database.direct()).await;
        let witness = Arc::new(Witness::start().await);
        let pooler = if campaign.is_pooled { Pooler::before(&database.url()).await } else { None };
        let url = pooler.as_ref().map_or_else(|| database.url(), |pooler| pooler.url.clone());
        let processes = (campaign.servers, campaign.workers);
        let mut crew = Crew::new(campaign.binary, &url, campaign.sabotage, processes, Arc::clone(&findings)).await;
        if pooler.is_some() {
            crew.shares_sessions();
        }
        crew.clocks.clone_from(&campaign.clocks);
        crew.start_all(&witness).await;
        let scene = Arc::new(Scene::new(findings, crew.channels(), foreign, PACE));
        let (stalls, url) = (Arc::new(Mutex::default()), Arc::new(Mutex::new(database.direct())));
        let mut taking_part = JoinSet::new();
        for number in 0..campaign.writers {
            taking_part.spawn(Client::new(Arc::clone(&scene), number, seed).run());
        }
        for number in (campaign.writers..).take(campaign.chatting) {
            taking_part.spawn(Client::new(Arc::clone(&scene), number, seed).run_turns());
        }
        for number in 0..campaign.readers {
            taking_part.spawn(Reader::new(Arc::clone(&scene), number, seed).run());
        }
        taking_part.spawn({
            let (scene, witness, stalls, url) =
                (Arc::clone(&scene), Arc::clone(&witness), Arc::clone(&stalls), Arc::clone(&url));
            async move { audit::watch(scene, &witness, &stalls, || held(&url).clone()).await }
        });
        database.proxy.disturb(campaign.cut, campaign.slow);
        let snapshot = campaign.snapshot;
        let nemesis = Nemesis { cluster, database, crew, witness, scene, stalls, url, snapshot };
        Self { nemesis, pooler, taking_part, seed, began }
    }

    /// Does what the plan says while appends go on.
    pub(super) async fn act(&mut self, steps: &[Step]) {
        for step in steps {
            if !self.nemesis.goes_on(step.after).await {
                return;
            }
            self.nemesis.does(*step).await;
        }
        self.nemesis.goes_on(20).await;
    }

    /// Nothing disturbs any more; everything settles, and is looked at once more.
    pub(super) async fn end(mut self) -> Report {
        let scene = Arc::clone(&self.nemesis.scene);
        self.nemesis.rests().await;
        scene.end();
        while let Some(ended) = self.taking_part.join_next().await {
            ended.expect("who takes part does not panic");
        }
        let direct = held(&self.nemesis.url).clone();
        let settled = checker::settle(&scene, &direct).await;
        let stalls = held(&self.nemesis.stalls).clone();
        checker::check(&scene, &self.nemesis.witness, &stalls, &direct).await;
        for code in self.nemesis.crew.stop_all().await {
            scene.findings.add("draining", format!("a process that was asked to stop ended with {code:?}"));
        }
        let commits = self.nemesis.database.proxy.commits();
        let tally = Tally::default();
        tally.take_in(&scene.tally);
        tally.add("commits", commits.seen);
        tally.add("commits cut before", commits.cut_before);
        tally.add("commits cut after", commits.cut_after);
        tally.add("model calls", self.nemesis.witness.calls() as u64);
        Report { seed: self.seed, findings: scene.findings.all(), tally, settled, took: self.began.elapsed() }
    }
}

/// Between two calls of a client.
const PACE: Duration = Duration::from_millis(20);

/// A conversation with a message that belongs to another tenant.
async fn another_tenants(url: &str) -> String {
    let mut db = PgConnection::connect(url).await.expect("connects");
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
    db.close().await.expect("closes");
    conversation.to_string()
}
