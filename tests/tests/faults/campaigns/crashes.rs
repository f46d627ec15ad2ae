//! Crashes of PostgreSQL and kills of servers and workers under load: thirty of each in the gate, a
//! hundred of each at night.

use anneal_testkit::{
    chaos::{Campaign, Cluster, Fault, Plan},
    gate_or_nightly,
};

use crate::campaigns::{BINARY, CLIENT_EVENTS, assert_kept, runs_here, seed};

/// Clusters that are tested at the same time.
const CLUSTERS: u64 = 2;
/// Immediate stops of each cluster, and kills of its servers and workers, in the gate.
const CRASHES: usize = 16;
/// The same at night.
const NIGHTLY_CRASHES: usize = 50;
/// Factor for the time between two crashes. With less time, twelve starts of a long job could all
/// be interrupted, and the job would be given up.
const SLOWER: u64 = 2;

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
        let campaign = Campaign::new(BINARY, Plan::of(seed() + number, &faults).slower(SLOWER));
        println!("{}", campaign.plan);
        campaign.run(&mut Cluster::start(&[]).await).await
    });
    assert_kept(&futures::future::join_all(campaigns).await, &CLIENT_EVENTS);
}
