//! The database's own clock goes ahead and is set back: it is the only one that anything is compared with.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{
    campaign::{Campaign, Report, Stage},
    clocks::Clocks,
    cluster::Cluster,
    findings::Findings,
};

/// Seconds.
const HOUR: i64 = 3_600;
/// Longer than a process takes to look at its clock again.
const NOTICED: Duration = Duration::from_millis(1_500);

/// Sets the clock of the cluster's PostgreSQL, which is this one of the clocks, an hour ahead and back again, so many times, while
/// appends go on. Everything ends in the usual time afterwards, though all that waited was set an hour ahead.
pub async fn set_back(campaign: &Campaign, cluster: &mut Cluster, clocks: &Clocks, name: &str, times: u32) -> Report {
    let mut stage = Stage::set(campaign, cluster, Arc::<Findings>::default()).await;
    stage.nemesis.scene.clock_jumps.store(true, Ordering::SeqCst);
    for _ in 0..times {
        for ahead in [HOUR, 0] {
            stage.nemesis.goes_on(20).await;
            clocks.set(name, ahead);
            stage.nemesis.lasts(NOTICED).await;
            stage.nemesis.scene.tally.one("times that the database's clock jumped");
        }
    }
    // A worker that dies shortly before the clock is set back holds its leases for an hour, by that clock.
    clocks.set(name, HOUR);
    stage.nemesis.goes_on(20).await;
    stage.nemesis.lasts(NOTICED).await;
    stage.nemesis.crew.kill_worker(0).await;
    clocks.set(name, 0);
    stage.nemesis.scene.tally.one("workers killed");
    stage.end().await
}
