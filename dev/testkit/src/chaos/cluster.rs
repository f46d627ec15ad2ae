//! A durable PostgreSQL cluster that a test crashes and restarts, and the proxy in front of it.

use std::path::{Path, PathBuf};

use anneal_local_postgres::{Binaries, LocalPostgres, Settings, Stop, StopOnDrop};
use anneal_store::{Migrations, StoreSettings, create_database};
use sqlx::{Connection as _, PgConnection};
use tokio::process::Command;

use super::proxy::Proxy;
use crate::{Folder, postgres_binaries};

/// A PostgreSQL cluster. PostgreSQL stops when this is dropped.
pub struct Cluster {
    /// The PostgreSQL of the first start. It returns its first port, also after a restart.
    postgres: StopOnDrop,
    /// The current port.
    port: u16,
    settings: Settings,
    _folder: Folder,
}

impl Cluster {
    /// Starts a new cluster with these further settings.
    pub async fn start(extra: &[(&str, &str)]) -> Self {
        let folder = Folder::new();
        let mut settings = Settings::new(folder.path().join("postgres"), postgres_binaries());
        settings.extra = to_owned_settings(extra);
        Self::start_from(settings, folder).await
    }

    /// Starts a new cluster with these binaries.
    pub async fn start_with(binaries: Binaries) -> Self {
        let folder = Folder::new();
        let settings = Settings::new(folder.path().join("postgres"), binaries);
        Self::start_from(settings, folder).await
    }

    /// Starts a new cluster in a folder that the caller owns.
    pub(super) async fn start_in(parent: &Path, extra: &[(&str, &str)]) -> Self {
        let mut settings = Settings::new(parent.join("postgres"), postgres_binaries());
        settings.extra = to_owned_settings(extra);
        Self::start_from(settings, Folder::new()).await
    }

    /// Starts a cluster with these settings. The folder is deleted with the cluster.
    pub(super) async fn start_from(settings: Settings, folder: Folder) -> Self {
        let postgres = LocalPostgres::start(settings.clone())
            .await
            .expect("a cluster of the test's own");
        Self {
            port: postgres.port(),
            postgres: postgres.stop_on_drop(),
            settings,
            _folder: folder,
        }
    }

    /// Stops PostgreSQL with an immediate shutdown. The next start runs recovery.
    pub async fn stop_immediately(&self) {
        self.postgres
            .stop(Stop::Immediate)
            .await
            .expect("PostgreSQL stops");
    }

    /// Kills the postmaster with SIGKILL. Its child processes notice that and exit.
    pub async fn kill(&self) {
        if let Some(pid) = self.postmaster_pid() {
            signal(pid, "KILL").await;
        }
    }

    /// Starts PostgreSQL again, on another port if its old one is taken.
    pub async fn restart(&mut self) {
        self.port = LocalPostgres::start(self.settings.clone())
            .await
            .expect("PostgreSQL starts again")
            .port();
    }

    /// The port of PostgreSQL. It may change with a restart.
    pub const fn port(&self) -> u16 {
        self.port
    }

    fn postmaster_pid(&self) -> Option<u32> {
        let file: PathBuf = self.postgres.folder().join("data/postmaster.pid");
        std::fs::read_to_string(file)
            .ok()?
            .lines()
            .next()?
            .trim()
            .parse()
            .ok()
    }

    /// The further settings with which the cluster was started.
    pub(super) fn extra(&self) -> Vec<(String, String)> {
        self.settings.extra.clone()
    }

    /// Whether PostgreSQL's log contains these words.
    pub(super) fn log_contains(&self, words: &str) -> bool {
        std::fs::read_to_string(self.postgres.log_path()).is_ok_and(|log| log.contains(words))
    }

    /// The folder with the cluster's data directory.
    pub fn folder(&self) -> &Path {
        self.postgres.folder()
    }

    /// The URL of a database. It may change with a restart.
    pub fn url(&self, database: &str) -> String {
        self.postgres.url(database).replace(
            &format!(":{}/", self.postgres.port()),
            &format!(":{}/", self.port),
        )
    }
}

fn to_owned_settings(extra: &[(&str, &str)]) -> Vec<(String, String)> {
    extra
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// Sends a signal by name to a process of the test.
pub(super) async fn signal(pid: u32, name: &str) {
    // The process may already be gone.
    let _ = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .output()
        .await;
}

/// A migrated database of a cluster. anneal reaches it through a proxy, the test directly.
pub struct Database {
    name: String,
    port: u16,
    direct_url: String,
    /// The proxy in front of the database.
    pub proxy: Proxy,
}

impl Database {
    /// Creates and migrates the database and starts its proxy.
    pub async fn create(cluster: &Cluster, name: &str, seed: u64) -> Self {
        create_database(&cluster.url("postgres"), name, None)
            .await
            .expect("a database");
        let direct_url = cluster.url(name);
        let mut migrations = Migrations::connect(&StoreSettings::at(&direct_url))
            .await
            .expect("the connection succeeds");
        migrations
            .run(std::time::Duration::from_secs(30))
            .await
            .expect("the migrations are applied");
        let proxy = Proxy::start(cluster.port(), seed).await;
        Self {
            name: name.to_owned(),
            port: cluster.port(),
            direct_url,
            proxy,
        }
    }

    /// The database's URL through the proxy. It stays the same across restarts.
    pub fn url(&self) -> String {
        self.direct_url.replace(
            &format!("@127.0.0.1:{}/", self.port),
            &format!("@127.0.0.1:{}/", self.proxy.port()),
        )
    }

    /// Points the proxy to a cluster that has started again, or to another cluster.
    pub fn follow(&mut self, cluster: &Cluster) {
        self.port = cluster.port();
        self.direct_url = cluster.url(&self.name);
        self.proxy.set_target(self.port);
    }

    /// The database's URL without the proxy. It may change with a restart.
    pub fn direct_url(&self) -> String {
        self.direct_url.clone()
    }
}

/// A new connection; None while the database is down.
pub(super) async fn try_connect(url: &str) -> Option<PgConnection> {
    PgConnection::connect(url).await.ok()
}
