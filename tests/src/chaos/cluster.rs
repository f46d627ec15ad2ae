//! A durable PostgreSQL of one's own that is crashed and started again, with the proxy before it.

use std::path::{Path, PathBuf};

use anneal_local_postgres::{Binaries, LocalPostgres, Settings, Stop, StopOnDrop};
use anneal_store::{Migrations, StoreSettings, create_database};
use sqlx::{Connection as _, PgConnection};
use tokio::process::Command;

use super::proxy::Proxy;
use crate::{Folder, postgres_binaries};

/// A cluster; stopped when dropped.
pub struct Cluster {
    postgres: StopOnDrop,
    port: u16,
    settings: Settings,
    _folder: Folder,
}

impl Cluster {
    /// A new one with these settings of the server beside its own.
    pub async fn start(extra: &[(&str, &str)]) -> Self {
        let folder = Folder::new();
        let mut settings = Settings::new(folder.path().join("postgres"), postgres_binaries());
        settings.extra = owned(extra);
        Self::of(settings, folder).await
    }

    /// The same with these programs.
    pub async fn start_with(binaries: Binaries) -> Self {
        let folder = Folder::new();
        let settings = Settings::new(folder.path().join("postgres"), binaries);
        Self::of(settings, folder).await
    }

    /// The same in a folder that somebody else keeps.
    pub(super) async fn start_in(place: &Path, extra: &[(&str, &str)]) -> Self {
        let mut settings = Settings::new(place.join("postgres"), postgres_binaries());
        settings.extra = owned(extra);
        Self::of(settings, Folder::new()).await
    }

    /// The one with these settings; the folder is gone with it.
    pub(super) async fn of(settings: Settings, folder: Folder) -> Self {
        let postgres = LocalPostgres::start(settings.clone()).await.expect("a cluster of the test's own");
        Self { port: postgres.port(), postgres: postgres.stop_on_drop(), settings, _folder: folder }
    }

    /// Stops it at once; the next start recovers.
    pub async fn stop_at_once(&self) {
        self.postgres.stop(Stop::Immediate).await.expect("stops");
    }

    /// kill -9 of the postmaster: what it has started notices by itself.
    pub async fn kill(&self) {
        if let Some(pid) = self.postmaster() {
            signal(pid, "KILL").await;
        }
    }

    /// Starts it again; where another process has taken its port, on another one.
    pub async fn restart(&mut self) {
        self.port = LocalPostgres::start(self.settings.clone()).await.expect("starts again").port();
    }

    /// Its port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    fn postmaster(&self) -> Option<u32> {
        let file: PathBuf = self.postgres.folder().join("data/postmaster.pid");
        std::fs::read_to_string(file).ok()?.lines().next()?.trim().parse().ok()
    }

    /// What it was started with beside its own settings.
    pub(super) fn extra(&self) -> Vec<(String, String)> {
        self.settings.extra.clone()
    }

    /// Whether its log holds these words.
    pub(super) fn has_said(&self, words: &str) -> bool {
        std::fs::read_to_string(self.postgres.log_path()).is_ok_and(|log| log.contains(words))
    }

    /// The folder with its data.
    pub fn folder(&self) -> &Path {
        self.postgres.folder()
    }

    /// The URL of a database, until it starts again.
    pub fn url(&self, database: &str) -> String {
        self.postgres.url(database).replace(&format!(":{}/", self.postgres.port()), &format!(":{}/", self.port))
    }
}

fn owned(extra: &[(&str, &str)]) -> Vec<(String, String)> {
    extra.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Sends a signal by its name to a process of this test's own.
pub(super) async fn signal(pid: u32, name: &str) {
    // It may be gone already, which is what most signals are for.
    let _ = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).output().await;
}

/// A migrated database on a cluster: what anneal reaches through a proxy, and the tests directly.
pub struct Database {
    name: String,
    port: u16,
    direct: String,
    /// What stands before it.
    pub proxy: Proxy,
}

impl Database {
    /// Makes it.
    pub async fn make(cluster: &Cluster, name: &str, seed: u64) -> Self {
        create_database(&cluster.url("postgres"), name, None).await.expect("a database");
        let direct = cluster.url(name);
        let mut migrations = Migrations::connect(&StoreSettings::at(&direct)).await.expect("connects");
        migrations.run(std::time::Duration::from_secs(30)).await.expect("migrates");
        let proxy = Proxy::to(cluster.port(), seed).await;
        Self { name: name.to_owned(), port: cluster.port(), direct, proxy }
    }

    /// Its URL through the proxy: stays the same whatever becomes of the cluster.
    pub fn url(&self) -> String {
        self.direct.replace(&format!("@127.0.0.1:{}/", self.port), &format!("@127.0.0.1:{}/", self.proxy.port()))
    }

    /// The cluster has started again.
    pub fn moved(&mut self, cluster: &Cluster) {
        self.port = cluster.port();
        self.direct = cluster.url(&self.name);
        self.proxy.leads_to(self.port);
    }

    /// Its URL without the proxy, until the cluster starts again.
    pub fn direct(&self) -> String {
        self.direct.clone()
    }
}

/// A connection for looking; None while the database is away.
pub(super) async fn look(url: &str) -> Option<PgConnection> {
    PgConnection::connect(url).await.ok()
}
