//! A campaign in which PostgreSQL's clock jumps an hour ahead and is set back. Stored times are
//! compared only with this clock.

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

const HOUR_SECONDS: i64 = 3_600;
/// How long to wait until a process has noticed its changed clock.
const NOTICED_WITHIN: Duration = Duration::from_millis(1_500);

/// Runs a campaign in which the clock `name`, that of the cluster's PostgreSQL, is set an hour
/// ahead and back, `times` times, while appends continue. At last the clock is set ahead once more,
/// and a worker is killed before the clock is set back. Jobs must end in the usual time afterwards,
/// although their due times were stored while the clock was ahead.
pub async fn run_with_clock_set_back(
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
        for ahead in [HOUR_SECONDS, 0] {
            running.injector.wait_for_appends(20).await;
            clocks.set(name, ahead);
            running.injector.pause_for(NOTICED_WITHIN).await;
            running
                .injector
                .state
                .tally
                .increment("times that the database's clock jumped");
        }
    }
    // Worker 0 stores leases while the clock is ahead, and is then killed. After the clock is set
    // back, these leases seem to last for an hour.
    clocks.set(name, HOUR_SECONDS);
    running.injector.wait_for_appends(20).await;
    running.injector.pause_for(NOTICED_WITHIN).await;
    running.injector.processes.kill_worker(0).await;
    clocks.set(name, 0);
    running.injector.state.tally.increment("workers killed");
    running.finish().await
}
