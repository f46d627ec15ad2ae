//! The attacked installation: two servers with API keys, a worker, a PostgreSQL and a scripted
//! model. Servers and worker have the default settings, except for addresses, API keys, the model,
//! `drain_delay_ms`, `poll_ms`, and limits that the campaign removes.

use std::{net::SocketAddr, sync::Arc};

use anneal_core::caller::Verb;
use futures::future::join_all;
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use super::{
    super::{
        cluster::{Cluster, Database},
        findings::{Findings, Tally},
        sabotage::Sabotage,
    },
    model,
};
use crate::{AnnealBinary, Folder, Process, ScriptedModel, make_key};

/// Highest allowed peak memory of a server, in MiB.
const MAX_MEMORY_MIB: u64 = 512;
/// Number of servers.
const SERVERS: usize = 2;
/// Name of the servers' settings file.
const SERVER_FILE: &str = "servers.toml";
/// Name of the worker's settings file.
const WORKER_FILE: &str = "worker.toml";

/// The addresses of a server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addresses {
    pub(super) grpc: SocketAddr,
    pub(super) http: SocketAddr,
}

/// The processes, and the credentials of their callers.
pub(super) struct Installation {
    servers: Vec<Process>,
    worker: Process,
    pub(super) addresses: Vec<Addresses>,
    /// The database's URL.
    pub(super) url: String,
    /// The attacker's `authorization`.
    pub(super) eve: String,
    /// The attacker's tenant.
    pub(super) eve_tenant: Uuid,
    /// The neighbor's `authorization`.
    pub(super) anna: String,
    model: ScriptedModel,
    _cluster: Cluster,
    _folder: Folder,
}

impl Installation {
    /// Starts everything. Servers and worker are processes of this binary; the servers get these
    /// further settings. The sabotage, if any, changes the database.
    pub(super) async fn start(
        binary: &'static str,
        settings: &[&str],
        sabotage: Option<&Sabotage>,
        findings: &Arc<Findings>,
    ) -> Self {
        let (cluster, folder) = (
            Cluster::start(&[("max_connections", "200")]).await,
            Folder::new(),
        );
        let url = Database::create(&cluster, "attacked", 0).await.direct_url();
        let model = model::start(Arc::clone(findings)).await;
        let (server_file, worker_file) = model::settings(&model);
        folder.file(SERVER_FILE, &server_file);
        folder.file(WORKER_FILE, &worker_file);
        let mut keys = Vec::new();
        for tenant in ["eve", "anna"] {
            keys.push(format!(
                "Bearer {}",
                make_key(&url, tenant, &Verb::ALL).await.text
            ));
        }
        let [eve, anna] = keys.try_into().expect("there are two keys");
        if let Some(sabotage) = sabotage {
            assert!(
                !sabotage.needs_proxy(),
                "no proxy is in front of this database"
            );
            sabotage.apply(&url).await;
        }
        let anneal = AnnealBinary::on_durable(binary, &folder, &url);
        let server_settings = [&["auth.api_keys=true"][..], settings].concat();
        let (mut servers, mut addresses) = (Vec::new(), Vec::new());
        for _ in 0..SERVERS {
            let started = anneal
                .clone()
                .with_variable("ANNEAL_CONFIG", SERVER_FILE)
                .try_server(&server_settings)
                .await;
            let (server, port) = started.unwrap_or_else(|ended| {
                panic!("the server exited before it served: {:#?}", ended.lines())
            });
            let http = server.http_client().await.address();
            addresses.push(Addresses {
                grpc: ([127, 0, 0, 1], port).into(),
                http,
            });
            servers.push(server);
        }
        let worker = anneal
            .with_variable("ANNEAL_CONFIG", WORKER_FILE)
            .worker()
            .await;
        let eve_tenant = tenant_of(&url, "eve").await;
        Self {
            servers,
            worker,
            addresses,
            url,
            eve,
            eve_tenant,
            anna,
            model,
            _cluster: cluster,
            _folder: folder,
        }
    }

    /// Checks that all processes run and that the servers stay within [`MAX_MEMORY_MIB`].
    pub(super) fn check_processes(&mut self, findings: &Findings) {
        for (server, memory) in self.memory().into_iter().enumerate() {
            findings.demand(memory <= MAX_MEMORY_MIB, "memory", || {
                format!("server {server} has taken more than {MAX_MEMORY_MIB} MiB")
            });
        }
        for process in self.servers.iter_mut().chain([&mut self.worker]) {
            if process.has_ended() {
                findings.add(
                    "availability",
                    format!(
                        "a process has ended by itself: {:?}",
                        process.lines().last()
                    ),
                );
            }
        }
    }

    /// Checks that no task of a process has panicked.
    pub(super) fn check_logs(&self, findings: &Findings) {
        for process in self.servers.iter().chain([&self.worker]) {
            if let Some(line) = process
                .lines()
                .iter()
                .find(|line| line.contains("panicked"))
            {
                findings.add("panics", line.clone());
            }
        }
    }

    /// The warnings and errors in the logs, counted by message.
    pub(super) fn warnings(&self) -> Tally {
        let tally = Tally::default();
        for line in self
            .servers
            .iter()
            .chain([&self.worker])
            .flat_map(Process::lines)
        {
            let line: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            if matches!(line["level"].as_str(), Some("WARN" | "ERROR")) {
                let message = line["fields"]["message"]
                    .as_str()
                    .or(line["message"].as_str())
                    .unwrap_or_default();
                tally.increment(message.chars().take(120).collect::<String>());
            }
        }
        tally
    }

    /// The peak memory of each server so far, in MiB; 0 for a server that has exited.
    pub(super) fn memory(&self) -> Vec<u64> {
        self.servers
            .iter()
            .map(|server| server.try_peak_memory().unwrap_or_default())
            .collect()
    }

    /// Terminates all processes and checks their exit codes.
    pub(super) async fn stop(self, findings: &Findings) {
        // Otherwise the processes wait for answers that never come, as long as a drain may take.
        drop(self.model);
        let processes: Vec<Process> = self.servers.into_iter().chain([self.worker]).collect();
        // All get the signal before any is waited for, because a process waits for the open calls
        // of its callers before it exits.
        join_all(processes.iter().map(Process::terminate)).await;
        for process in processes {
            let code = process.wait_for_exit().await;
            findings.demand(code == Some(0), "draining", || {
                format!("a process that was asked to stop exited with {code:?}")
            });
        }
    }
}

/// The id of a tenant.
async fn tenant_of(url: &str, name: &str) -> Uuid {
    let mut db = PgConnection::connect(url)
        .await
        .expect("the connection succeeds");
    let found = sqlx::query_scalar("select tenant_id from tenant where name = $1")
        .bind(name)
        .fetch_one(&mut db)
        .await;
    found.expect("the tenant exists")
}
