//! A disk that is full: a small file system of the test's own, where that can be mounted.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::{process::Command, time::timeout};

use super::{
    campaign::{Campaign, Report, Stage},
    cluster::Cluster,
    findings::Findings,
};
use crate::Folder;

/// A file system of 200 MiB; unmounted when dropped.
struct SmallDisk(Folder);

impl SmallDisk {
    /// None where it cannot be mounted.
    async fn mount() -> Option<Self> {
        let folder = Folder::new();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=200m,mode=755", "tmpfs"]).arg(folder.path());
        let mounted = mount.output().await.ok()?;
        mounted.status.success().then_some(Self(folder))
    }

    fn ballast(&self) -> PathBuf {
        self.0.path().join("ballast")
    }

    /// Takes all the room that is left.
    async fn fill(&self) {
        let path = self.ballast();
        let all = tokio::task::spawn_blocking(move || {
            let mut ballast = std::fs::File::create(path).expect("there is room for a name");
            let piece = vec![0_u8; 64 * 1024];
            while std::io::Write::write_all(&mut ballast, &piece).is_ok() {}
        });
        all.await.expect("writes until it cannot");
    }

    fn make_room(&self) {
        let _ = std::fs::remove_file(self.ballast());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("--lazy").arg(self.0.path()).output();
    }
}

/// Fills PostgreSQL's disk under load, and makes room again. None where no file system can be mounted.
pub async fn full_disk(campaign: &Campaign) -> Option<Report> {
    let disk = SmallDisk::mount().await?;
    let small = [("max_wal_size", "48MB"), ("min_wal_size", "32MB"), ("wal_recycle", "off")];
    let mut cluster = Cluster::start_in(disk.0.path(), &small).await;
    let mut stage = Stage::set(campaign, &mut cluster, Arc::<Findings>::default()).await;
    stage.nemesis.goes_on(50).await;
    disk.fill().await;
    stage.nemesis.scene.tally.one("full disks");
    // Long enough for what is left in open files to be used up; nothing tells when.
    let _ = timeout(Duration::from_secs(5), std::future::pending::<()>()).await;
    disk.make_room();
    let noticed = stage.nemesis.cluster.has_said("No space left on device");
    stage.nemesis.scene.findings.demand(noticed, "disk", || "PostgreSQL has not noticed that its disk was full".into());
    // It may have given itself up.
    stage.nemesis.restart_database().await;
    stage.nemesis.goes_on(50).await;
    let report = stage.end().await;
    drop(cluster);
    Some(report)
}
