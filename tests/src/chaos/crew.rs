//! The processes of one campaign: servers and workers that are killed, stopped, continued and started again. Each start is
//! another process by number, which is how the model tells them apart.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use tonic::transport::Channel;

use super::{clocks::Clocks, findings::Findings, model::Witness};
use crate::{Anneal, Folder, Line, Process};

/// A worker that runs.
pub(super) struct Worker {
    pub(super) process: Process,
    /// Which start it is.
    pub(super) number: u32,
    /// What it calls itself in the queue.
    pub(super) name: String,
}

/// A worker was stopped for so long that others have taken its jobs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stall {
    pub(super) process: u32,
    pub(super) from: SystemTime,
    /// When all its leases had been lost.
    pub(super) lost: SystemTime,
}

/// The processes.
pub(super) struct Crew {
    anneal: Anneal,
    folder: Folder,
    lines: Vec<Line>,
    servers: Vec<Option<Process>>,
    workers: Vec<Option<Worker>>,
    jobs: u32,
    starts: u32,
    findings: Arc<Findings>,
    /// Clocks of their own, if they have some.
    pub(super) clocks: Option<Arc<Clocks>>,
}

impl Crew {
    /// So many servers and workers of this binary on this database, with this sabotage if any. Nothing runs yet.
    pub(super) async fn new(
        binary: &'static str,
        url: &str,
        sabotage: Option<&str>,
        (servers, workers): (usize, usize),
        findings: Arc<Findings>,
    ) -> Self {
        let folder = Folder::new();
        let mut anneal = Anneal::on_durable(binary, &folder, url);
        if let Some(sabotage) = sabotage {
            anneal = anneal.with_variable("ANNEAL_SABOTAGE", sabotage);
        }
        let mut lines = Vec::new();
        for _ in 0..servers {
            // Nobody listens there until a server has started.
            lines.push(Line::to_port(1).await);
        }
        let (servers, workers) = ((0..servers).map(|_| None).collect(), (0..workers).map(|_| None).collect());
        let (clocks, jobs) = (None, JOBS);
        Self { anneal, folder, lines, servers, workers, jobs, starts: 0, findings, clocks }
    }

    /// Each transaction may have another session of the database.
    pub(super) fn shares_sessions(&mut self) {
        self.anneal = self.anneal.clone().with_variable("ANNEAL_DATABASE_POOLING", "transaction");
    }

    /// Channels to the servers, whichever processes they are.
    pub(super) fn channels(&self) -> Vec<Channel> {
        let channel = |line: &Line| {
            let address = format!("http://127.0.0.1:{}", line.port());
            Channel::from_shared(address).expect("an address").connect_lazy()
        };
        self.lines.iter().map(channel).collect()
    }

    pub(super) fn servers(&self) -> usize {
        self.servers.len()
    }

    pub(super) fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Starts everything that does not run.
    pub(super) async fn start_all(&mut self, model: &Witness) {
        self.folder.file(SERVERS, &model.server_settings());
        for place in 0..self.servers.len() {
            self.start_server(place).await;
        }
        for place in 0..self.workers.len() {
            self.start_worker(place, model).await;
        }
    }

    /// How the process in this place is started: with its clock, if it has one.
    fn started_as(&self, what: &str, place: usize) -> Anneal {
        let variables = self.clocks.iter().flat_map(|clocks| clocks.variables(&format!("{what}-{place}")));
        variables.fold(self.anneal.clone(), |anneal, (name, value)| anneal.with_variable(name, &value))
    }

    /// Sets each clock an hour ahead, an hour back or right, by chance; whether there are some.
    pub(super) fn jump_clocks(&self, choice: usize) -> bool {
        let Some(clocks) = &self.clocks else { return false };
        let mut random = fastrand::Rng::with_seed(choice as u64);
        for (what, places) in [("server", self.servers()), ("worker", self.workers())] {
            for place in 0..places {
                clocks.set(&format!("{what}-{place}"), HOUR * random.i64(-1..=1));
            }
        }
        true
    }

    /// Starts a server unless it runs. One that finds no database is started again, as its supervisor would.
    pub(super) async fn start_server(&mut self, place: usize) {
        if self.servers[place].is_some() {
            return;
        }
        let began = Instant::now();
        loop {
            let server = self.started_as("server", place).with_variable("ANNEAL_CONFIG", SERVERS);
            match server.try_server(&[]).await {
                Ok((server, port)) => {
                    self.lines[place].leads_to(port);
                    self.servers[place] = Some(server);
                    return;
                }
                Err(ended) => assert!(began.elapsed() < PATIENCE, "no server starts: {:#?}", ended.lines()),
            }
        }
    }

    pub(super) async fn start_worker(&mut self, place: usize, model: &Witness) {
        if self.workers[place].is_some() {
            return;
        }
        let began = Instant::now();
        loop {
            self.starts += 1;
            let file = format!("worker-{place}.toml");
            self.folder.file(&file, &model.settings(self.starts, self.jobs));
            let process = self.started_as("worker", place).start(&["worker", "--config", &file]);
            if let Some(line) = process.says("working as").await {
                let name = line.split("working as ").nth(1).and_then(|rest| rest.split('"').next());
                let name = name.unwrap_or_default().to_owned();
                self.workers[place] = Some(Worker { process, number: self.starts, name });
                return;
            }
            assert!(began.elapsed() < PATIENCE, "no worker starts: {:#?}", process.lines());
        }
    }

    /// kill -9.
    pub(super) async fn kill_server(&mut self, place: usize) {
        if let Some(mut server) = self.servers[place].take() {
            self.runs(&mut server, "a server");
            server.kill().await;
        }
    }

    /// kill -9; what it called itself.
    pub(super) async fn kill_worker(&mut self, place: usize) -> Option<String> {
        let mut worker = self.workers[place].take()?;
        self.runs(&mut worker.process, "a worker");
        worker.process.kill().await;
        Some(worker.name)
    }

    /// Where the worker of this name runs.
    pub(super) fn place_of(&self, name: &str) -> Option<usize> {
        self.workers.iter().position(|worker| worker.as_ref().is_some_and(|worker| worker.name == name))
    }

    /// Asks it to stop, and waits until it has.
    pub(super) async fn stop_server(&mut self, place: usize) -> Option<i32> {
        let mut server = self.servers[place].take()?;
        self.runs(&mut server, "a server");
        server.terminate().await;
        server.ended().await
    }

    /// The workers that run.
    pub(super) fn running(&self) -> impl Iterator<Item = &Worker> {
        self.workers.iter().flatten()
    }

    /// Whatever was done to others, a process runs until it is killed or asked to stop, and none of its tasks panics.
    fn runs(&self, process: &mut Process, what: &str) {
        let ended = process.has_ended();
        let lines = process.lines();
        self.findings.demand(!ended, "availability", || format!("{what} has ended by itself: {:?}", lines.last()));
        if let Some(line) = lines.iter().find(|line| line.contains("panicked")) {
            self.findings.add("panics", format!("{what}: {line}"));
        }
    }

    /// Asks all to stop; exit codes of those that did not end well.
    pub(super) async fn stop_all(&mut self) -> Vec<Option<i32>> {
        let workers = self.workers.iter_mut().filter_map(|worker| worker.take().map(|worker| worker.process));
        let all: Vec<Process> = self.servers.iter_mut().filter_map(Option::take).chain(workers).collect();
        let mut bad = Vec::new();
        for mut process in all {
            self.runs(&mut process, "a process");
            process.terminate().await;
            let code = process.ended().await;
            if code != Some(0) {
                bad.push(code);
            }
        }
        bad
    }

    /// Two migrators at once on the database of this URL; their exit codes.
    pub(super) async fn migrate_twice(&self, url: &str) -> [Option<i32>; 2] {
        let anneal = self.anneal.clone().at(url);
        let (one, other) = tokio::join!(anneal.run(&["migrate"]), anneal.run(&["migrate"]));
        [one.code, other.code]
    }
}

/// The settings of every server.
const SERVERS: &str = "servers.toml";
/// Summaries of a kind that a worker makes at once: more than there are conversations, so that none waits for another.
const JOBS: u32 = 16;
/// Seconds.
const HOUR: i64 = 3_600;
/// How long starting may be tried while the database is away.
const PATIENCE: Duration = Duration::from_mins(1);
