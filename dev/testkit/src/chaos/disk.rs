//! A campaign in which PostgreSQL's disk becomes full. The disk is a small file system, which the
//! test needs permission to mount.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::{process::Command, time::timeout};

use super::{
    campaign::{Campaign, Report, RunningCampaign},
    cluster::Cluster,
    findings::Findings,
};
use crate::Folder;

/// A mounted file system of 200 MiB. It is unmounted on drop.
struct SmallDisk(Folder);

impl SmallDisk {
    /// Mounts the file system. None if this is not allowed.
    async fn mount() -> Option<Self> {
        let folder = Folder::new();
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=200m,mode=755", "tmpfs"])
            .arg(folder.path());
        let mounted = mount.output().await.ok()?;
        mounted.status.success().then_some(Self(folder))
    }

    /// The file that fills the file system.
    fn ballast(&self) -> PathBuf {
        self.0.path().join("ballast")
    }

    /// Fills the file system.
    async fn fill(&self) {
        let path = self.ballast();
        let writing = tokio::task::spawn_blocking(move || {
            let mut ballast =
                std::fs::File::create(path).expect("creating an empty file needs no space");
            let piece = vec![0_u8; 64 * 1024];
            while std::io::Write::write_all(&mut ballast, &piece).is_ok() {}
        });
        writing.await.expect("the task does not panic");
    }

    fn free_space(&self) {
        let _ = std::fs::remove_file(self.ballast());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("--lazy")
            .arg(self.0.path())
            .output();
    }
}

/// Runs a campaign in which PostgreSQL's disk becomes full under load and is freed again. None if
/// no file system can be mounted.
pub async fn run_on_full_disk(campaign: &Campaign) -> Option<Report> {
    let disk = SmallDisk::mount().await?;
    // PostgreSQL keeps few WAL files in reserve. With many, it would need no space while the disk
    // is full.
    let small_wal = [
        ("max_wal_size", "48MB"),
        ("min_wal_size", "32MB"),
        ("wal_recycle", "off"),
    ];
    let mut cluster = Cluster::start_in(disk.0.path(), &small_wal).await;
    let mut running =
        RunningCampaign::start(campaign, &mut cluster, Arc::<Findings>::default()).await;
    running.injector.wait_for_appends(50).await;
    disk.fill().await;
    running.injector.state.tally.increment("full disks");
    // Waits until PostgreSQL has probably used up its preallocated files. No event says when.
    let _ = timeout(Duration::from_secs(5), std::future::pending::<()>()).await;
    disk.free_space();
    let noticed = running
        .injector
        .cluster
        .log_contains("No space left on device");
    running.injector.state.findings.demand(noticed, "disk", || {
        "PostgreSQL has not noticed that its disk was full".into()
    });
    // PostgreSQL may have shut down on the full disk.
    running.injector.restart_database().await;
    running.injector.wait_for_appends(50).await;
    let report = running.finish().await;
    drop(cluster);
    Some(report)
}
