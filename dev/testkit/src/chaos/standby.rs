//! A campaign in which a standby takes over while the old primary still runs.

use std::{process::Stdio, sync::Arc, time::Duration};

use anneal_local_postgres::Settings;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::process::Command;

use super::{
    campaign::{Campaign, Report, RunningCampaign},
    cluster::Cluster,
    findings::{Findings, lock},
};
use crate::{Folder, eventually, postgres_binaries};

impl Cluster {
    /// Starts a synchronous standby of this cluster. From then on every commit waits for it.
    async fn start_standby(&self) -> Self {
        let folder = Folder::new();
        let mut settings = Settings::new(folder.path().join("postgres"), postgres_binaries());
        settings.extra = self.extra();
        let data = settings.folder.join("data");
        std::fs::create_dir_all(&settings.folder).expect("a folder of its own");
        let url = self.url("postgres");
        let backup = settings.binaries.program("pg_basebackup");
        run(Command::new(backup)
            .args(["-R", "-X", "stream", "-c", "fast", "-d", &url, "-D"])
            .arg(&data))
        .await;
        // Copies the files next to the data directory, by which local-postgres recognizes its
        // folder. The port file and the log are the primary's own, and are not copied.
        for entry in std::fs::read_dir(self.folder())
            .expect("the primary's folder")
            .flatten()
        {
            let name = entry.file_name();
            if entry.path().is_file() && name != "port" && name != "postgres.log" {
                std::fs::copy(entry.path(), settings.folder.join(name)).expect("the copy succeeds");
            }
        }
        let same_owner = format!("--reference={}", self.folder().join("data").display());
        run(Command::new("chown")
            .args(["-R", &same_owner])
            .arg(&settings.folder))
        .await;
        run(Command::new("chmod")
            .arg("700")
            .arg(&settings.folder)
            .arg(&data))
        .await;
        let standby = Self::start_from(settings, folder).await;
        let mut primary = PgConnection::connect(&self.url("postgres"))
            .await
            .expect("the primary answers");
        for statement in [
            "alter system set synchronous_standby_names = '*'",
            "select pg_reload_conf()",
        ] {
            sqlx::query(AssertSqlSafe(statement))
                .execute(&mut primary)
                .await
                .expect("the setting is changed");
        }
        eventually("commits wait for the standby", async || {
            let standbys = "select count(*) from pg_stat_replication where sync_state = 'sync'";
            sqlx::query_scalar::<_, i64>(standbys)
                .fetch_one(&mut primary)
                .await
                .is_ok_and(|standbys| standbys == 1)
        })
        .await;
        standby
    }
}

async fn run(command: &mut Command) {
    let ran = command
        .stdin(Stdio::null())
        .output()
        .await
        .expect("the program is installed");
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

/// Runs a campaign in which a standby is promoted under load. The old primary keeps running, with
/// its connections.
pub async fn run_with_promoted_standby(campaign: &Campaign, primary: &mut Cluster) -> Report {
    let mut running = RunningCampaign::start(campaign, primary, Arc::<Findings>::default()).await;
    let standby = running.injector.cluster.start_standby().await;
    running.injector.wait_for_appends(100).await;
    let mut db = PgConnection::connect(&standby.url("postgres"))
        .await
        .expect("the standby answers");
    sqlx::query("select pg_promote()")
        .execute(&mut db)
        .await
        .expect("the standby is promoted");
    running.injector.state.tally.increment("takeovers");
    running.injector.database.follow(&standby);
    *lock(&running.injector.url) = running.injector.database.direct_url();
    // Each write on a connection to the old primary waits for the standby until its deadline. Then
    // the connection is given up.
    running
        .injector
        .wait_for_appends_within(Duration::from_mins(3), 100)
        .await;
    // Closes all connections: those that only read would otherwise stay on the old primary.
    running.injector.database.proxy.cut_all();
    running.finish().await
}
