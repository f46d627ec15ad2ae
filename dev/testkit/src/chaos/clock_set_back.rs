//! The database's own clock jumps ahead and is set back. It is the only clock that times are
//! compared with.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{
    campaign::{Campaign, Report, RunningCampaign},
    clocks::Clocks,
    cluster::Cluster,
    findings::Findings,
};

/// Seconds of an hour.
const HOUR: i64 = 3_600;
/// Longer than a process needs to notice its changed clock.
const NOTICED: Duration = Duration::from_millis(1_500);

/// Sets the clock `name`, which is the cluster's PostgreSQL's, an hour ahead and back, `times`
/// times, while appends continue. Jobs must end in the usual time afterwards, although their due
/// times were set an hour ahead.
pub async fn set_clock_back(
    campaign: &Campaign,
    cluster: &mut Cluster,
    clocks: &Clocks,
    name: &str,
    times: u32,
) -> Report {
    let mut running = RunningCampaign::start(campaign, cluster, Arc::<Findings>::default()).await;
    running
        .injector
        .state
        .clock_jumps
        .store(true, Ordering::SeqCst);
    for _ in 0..times {
        for ahead in [HOUR, 0] {
            running.injector.wait_for_appends(20).await;
            clocks.set(name, ahead);
            running.injector.pause_for(NOTICED).await;
            running
                .injector
                .state
                .tally
                .increment("times that the database's clock jumped");
        }
    }
    // By its clock, a worker that dies shortly before the clock is set back holds its leases for an
    // hour.
    clocks.set(name, HOUR);
    running.injector.wait_for_appends(20).await;
    running.injector.pause_for(NOTICED).await;
    running.injector.processes.kill_worker(0).await;
    clocks.set(name, 0);
    running.injector.state.tally.increment("workers killed");
    running.finish().await
}
