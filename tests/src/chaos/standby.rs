//! A standby that takes over while the old primary is still there.

use std::{path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use anneal_local_postgres::Settings;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::process::Command;

use super::{
    campaign::{Campaign, Report, Stage},
    cluster::Cluster,
    findings::{Findings, held},
};
use crate::{Folder, eventually, postgres_binaries};

impl Cluster {
    /// A standby of this cluster, for which every commit waits from now on.
    async fn standby(&self) -> Self {
        let folder = Folder::new();
        let mut settings = Settings::new(folder.path().join("postgres"), postgres_binaries());
        settings.extra = self.extra();
        let data = settings.folder.join("data");
        std::fs::create_dir_all(&settings.folder).expect("a folder of its own");
        let url = PathBuf::from(self.url("postgres"));
        let url = url.to_str().expect("a URL");
        let backup = settings.binaries.program("pg_basebackup");
        run(Command::new(backup).args(["-R", "-X", "stream", "-c", "fast", "-d", url, "-D"]).arg(&data)).await;
        // What stands beside the data says whose folder it is; its port is another's.
        for entry in std::fs::read_dir(self.folder()).expect("the primary's folder").flatten() {
            let name = entry.file_name();
            if entry.path().is_file() && name != "port" && name != "postgres.log" {
                std::fs::copy(entry.path(), settings.folder.join(name)).expect("copies");
            }
        }
        let like = format!("--reference={}", self.folder().join("data").display());
        run(Command::new("chown").args(["-R", &like]).arg(&settings.folder)).await;
        run(Command::new("chmod").arg("700").arg(&settings.folder).arg(&data)).await;
        let standby = Self::of(settings, folder).await;
        let mut primary = PgConnection::connect(&self.url("postgres")).await.expect("the primary answers");
        for setting in ["alter system set synchronous_standby_names = '*'", "select pg_reload_conf()"] {
            sqlx::query(AssertSqlSafe(setting)).execute(&mut primary).await.expect("sets");
        }
        eventually("commits wait for the standby", async || {
            let waits = "select count(*) from pg_stat_replication where sync_state = 'sync'";
            sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut primary).await.is_ok_and(|waits| waits == 1)
        })
        .await;
        standby
    }
}

async fn run(command: &mut Command) {
    let ran = command.stdin(Stdio::null()).output().await.expect("the program is there");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

/// Promotes a standby under load. The old primary stays, and whoever is connected to it stays connected.
pub async fn takeover(campaign: &Campaign, primary: &mut Cluster) -> Report {
    let mut stage = Stage::set(campaign, primary, Arc::<Findings>::default()).await;
    let standby = stage.nemesis.cluster.standby().await;
    stage.nemesis.goes_on(100).await;
    let mut db = PgConnection::connect(&standby.url("postgres")).await.expect("the standby answers");
    sqlx::query("select pg_promote()").execute(&mut db).await.expect("takes over");
    stage.nemesis.scene.tally.one("takeovers");
    stage.nemesis.database.moved(&standby);
    *held(&stage.nemesis.url) = stage.nemesis.database.direct();
    // Each connection to the old primary is found out by one call, at its deadline.
    stage.nemesis.goes_on_within(Duration::from_mins(3), 100).await;
    // Whoever only reads must not read there for ever.
    stage.nemesis.database.proxy.cut_all();
    stage.end().await
}
