//! Crashes of PostgreSQL and kills of servers and workers under load: in the gate (`cargo xtask
//! ci`) six crashes and four kills, at night a hundred of each.

use anneal_testkit::{
    chaos::{Campaign, Cluster, Fault, Plan},
    gate_or_nightly,
};

use crate::campaigns::{BINARY, CLIENT_EVENTS, assert_kept, runs_here, seed};

/// Clusters that are tested at the same time.
const CLUSTERS: u64 = 2;
/// Crashes (immediate stops) of each cluster's PostgreSQL in the gate. Half as many servers and
/// half as many workers are killed.
const CRASHES: usize = 3;
/// [`CRASHES`] at night.
const NIGHTLY_CRASHES: usize = 50;
/// Factor for the number of appends between two crashes. With fewer, twelve starts of a long job
/// could all be interrupted, and the job would be given up.
const SLOWDOWN: u64 = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_or_done_twice_under_crashes() {
    if !runs_here() {
        return;
    }
    let campaigns = (0..CLUSTERS).map(|number| async move {
        let crashes = gate_or_nightly(CRASHES, NIGHTLY_CRASHES);
        let faults = [
            (Fault::StopDatabase, crashes),
            (Fault::KillServer, crashes / 2),
            (Fault::KillWorker, crashes / 2),
        ];
        let campaign = Campaign::new(BINARY, Plan::of(seed() + number, &faults).slower(SLOWDOWN));
        println!("{}", campaign.plan);
        campaign.run(&mut Cluster::start(&[]).await).await
    });
    assert_kept(&futures::future::join_all(campaigns).await, &CLIENT_EVENTS);
}
