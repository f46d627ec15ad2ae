//! Starts, kills and stops the servers and workers of a campaign. Each start of a worker has a
//! number, by which the model tells the processes apart.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use tonic::transport::Channel;

use super::{clocks::Clocks, findings::Findings, model::RecordingModel, sabotage::Sabotage};
use crate::{AnnealBinary, Folder, Process, TcpProxy};

/// A running worker.
pub(super) struct Worker {
    pub(super) process: Process,
    /// The number of this start of a worker.
    pub(super) number: u32,
    /// The worker's name in the queue.
    pub(super) name: String,
}

/// A period in which a worker was suspended for so long that it lost its leases.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stall {
    /// The worker's number.
    pub(super) worker_number: u32,
    /// The time just before the worker was suspended.
    pub(super) from: SystemTime,
    /// A time at which the worker had lost all its leases.
    pub(super) lost_leases_by: SystemTime,
}

/// The processes of a campaign.
pub(super) struct Processes {
    anneal: AnnealBinary,
    folder: Folder,
    /// In front of each server, so that its address stays the same.
    proxies: Vec<TcpProxy>,
    servers: Vec<Option<Process>>,
    workers: Vec<Option<Worker>>,
    /// Number of starts of workers so far.
    starts: u32,
    findings: Arc<Findings>,
    /// The clocks of the processes. None: they use the system's clock.
    pub(super) clocks: Option<Arc<Clocks>>,
}

impl Processes {
    /// This many servers and workers of this binary on this database, with the environment
    /// variables of this sabotage, if any. None of them runs yet.
    pub(super) async fn new(
        binary: &'static str,
        url: &str,
        sabotage: Option<&Sabotage>,
        (servers, workers): (usize, usize),
        findings: Arc<Findings>,
    ) -> Self {
        let folder = Folder::new();
        let mut anneal = AnnealBinary::on_durable(binary, &folder, url);
        for (name, value) in sabotage.into_iter().flat_map(Sabotage::variables) {
            anneal = anneal.with_variable(name, value);
        }
        let mut proxies = Vec::new();
        for _ in 0..servers {
            // Port 1, on which nothing listens, is the target until the server has started.
            proxies.push(TcpProxy::to_port(1).await);
        }
        let (servers, workers) = (
            (0..servers).map(|_| None).collect(),
            (0..workers).map(|_| None).collect(),
        );
        Self {
            anneal,
            folder,
            proxies,
            servers,
            workers,
            starts: 0,
            findings,
            clocks: None,
        }
    }

    /// Configures the processes for a pooler that gives each transaction another session.
    pub(super) fn use_transaction_pooling(&mut self) {
        self.anneal = self
            .anneal
            .clone()
            .with_variable("ANNEAL_DATABASE_POOLING", "transaction");
    }

    /// Channels to the servers. They stay valid across restarts.
    pub(super) fn channels(&self) -> Vec<Channel> {
        let channel = |proxy: &TcpProxy| {
            let address = format!("http://127.0.0.1:{}", proxy.port());
            Channel::from_shared(address)
                .expect("a valid address")
                .connect_lazy()
        };
        self.proxies.iter().map(channel).collect()
    }

    pub(super) fn server_count(&self) -> usize {
        self.servers.len()
    }

    pub(super) fn worker_count(&self) -> usize {
        self.workers.len()
    }

    /// Starts all processes that do not run.
    pub(super) async fn start_all(&mut self, model: &RecordingModel) {
        self.folder
            .file(SERVER_SETTINGS_FILE, &model.server_settings());
        for place in 0..self.servers.len() {
            self.start_server(place).await;
        }
        for place in 0..self.workers.len() {
            self.start_worker(place, model).await;
        }
    }

    /// The binary for the server or worker with this index, with its clock if it has one.
    fn binary_for(&self, what: &str, place: usize) -> AnnealBinary {
        let variables = self
            .clocks
            .iter()
            .flat_map(|clocks| clocks.variables(&format!("{what}-{place}")));
        variables.fold(self.anneal.clone(), |anneal, (name, value)| {
            anneal.with_variable(name, &value)
        })
    }

    /// Sets each clock an hour ahead, an hour back, or to the right time, at random. Returns
    /// whether the campaign has clocks.
    pub(super) fn jump_clocks(&self, choice: usize) -> bool {
        let Some(clocks) = &self.clocks else {
            return false;
        };
        let mut random = fastrand::Rng::with_seed(choice as u64);
        for (what, places) in [
            ("server", self.server_count()),
            ("worker", self.worker_count()),
        ] {
            for place in 0..places {
                clocks.set(
                    &format!("{what}-{place}"),
                    HOUR_SECONDS * random.i64(-1..=1),
                );
            }
        }
        true
    }

    /// Starts a server unless it runs. Retries while the database is down, as a supervisor would.
    pub(super) async fn start_server(&mut self, place: usize) {
        if self.servers[place].is_some() {
            return;
        }
        let began = Instant::now();
        loop {
            let server = self
                .binary_for("server", place)
                .with_variable("ANNEAL_CONFIG", SERVER_SETTINGS_FILE);
            match server.try_server(&[]).await {
                Ok((server, port)) => {
                    self.proxies[place].set_target(port);
                    self.servers[place] = Some(server);
                    return;
                }
                Err(ended) => assert!(
                    began.elapsed() < START_TIMEOUT,
                    "no server starts: {:#?}",
                    ended.lines()
                ),
            }
        }
    }

    /// Starts a worker unless it runs. Retries while the database is down, as a supervisor would.
    pub(super) async fn start_worker(&mut self, place: usize, model: &RecordingModel) {
        if self.workers[place].is_some() {
            return;
        }
        let began = Instant::now();
        loop {
            self.starts += 1;
            let file = format!("worker-{place}.toml");
            self.folder.file(
                &file,
                &model.worker_settings(self.starts, SUMMARY_CONCURRENCY),
            );
            let process = self
                .binary_for("worker", place)
                .start(&["worker", "--config", &file]);
            if let Some(line) = process.find_line("working as").await {
                let name = line
                    .split("working as ")
                    .nth(1)
                    .and_then(|rest| rest.split('"').next());
                let name = name.unwrap_or_default().to_owned();
                self.workers[place] = Some(Worker {
                    process,
                    number: self.starts,
                    name,
                });
                return;
            }
            assert!(
                began.elapsed() < START_TIMEOUT,
                "no worker starts: {:#?}",
                process.lines()
            );
        }
    }

    /// Kills a server with SIGKILL.
    pub(super) async fn kill_server(&mut self, place: usize) {
        if let Some(mut server) = self.servers[place].take() {
            self.check_running(&mut server, "a server");
            server.kill().await;
        }
    }

    /// Kills a worker with SIGKILL. Returns its name.
    pub(super) async fn kill_worker(&mut self, place: usize) -> Option<String> {
        let mut worker = self.workers[place].take()?;
        self.check_running(&mut worker.process, "a worker");
        worker.process.kill().await;
        Some(worker.name)
    }

    /// The index of the worker with this name.
    pub(super) fn place_of(&self, name: &str) -> Option<usize> {
        self.workers
            .iter()
            .position(|worker| worker.as_ref().is_some_and(|worker| worker.name == name))
    }

    /// Terminates a server. Returns its exit code.
    pub(super) async fn stop_server(&mut self, place: usize) -> Option<i32> {
        let mut server = self.servers[place].take()?;
        self.check_running(&mut server, "a server");
        server.terminate().await;
        server.wait_for_exit().await
    }

    pub(super) fn running_workers(&self) -> impl Iterator<Item = &Worker> {
        self.workers.iter().flatten()
    }

    /// Checks that a process has not exited by itself and that none of its tasks has panicked.
    fn check_running(&self, process: &mut Process, what: &str) {
        let ended = process.has_ended();
        let lines = process.lines();
        self.findings.demand(!ended, "availability", || {
            format!("{what} has ended by itself: {:?}", lines.last())
        });
        if let Some(line) = lines.iter().find(|line| line.contains("panicked")) {
            self.findings.add("panics", format!("{what}: {line}"));
        }
    }

    /// Terminates all processes. Returns the exit codes other than 0.
    pub(super) async fn stop_all(&mut self) -> Vec<Option<i32>> {
        let workers = self
            .workers
            .iter_mut()
            .filter_map(|worker| worker.take().map(|worker| worker.process));
        let all: Vec<Process> = self
            .servers
            .iter_mut()
            .filter_map(Option::take)
            .chain(workers)
            .collect();
        let mut bad = Vec::new();
        for mut process in all {
            self.check_running(&mut process, "a process");
            process.terminate().await;
            let code = process.wait_for_exit().await;
            if code != Some(0) {
                bad.push(code);
            }
        }
        bad
    }

    /// Runs two migrations at the same time on the database of this URL. Returns their exit codes.
    pub(super) async fn migrate_twice(&self, url: &str) -> [Option<i32>; 2] {
        let anneal = self.anneal.clone().on_database(url);
        let (one, other) = tokio::join!(anneal.run(&["migrate"]), anneal.run(&["migrate"]));
        [one.code, other.code]
    }
}

/// The name of the servers' settings file.
const SERVER_SETTINGS_FILE: &str = "servers.toml";
/// Concurrent summaries of a worker, so many that jobs do not wait for each other.
const SUMMARY_CONCURRENCY: u32 = 16;
const HOUR_SECONDS: i64 = 3_600;
/// How long a process may take to start while the database is down.
const START_TIMEOUT: Duration = Duration::from_mins(1);
