//! A hundred crashes of PostgreSQL and a hundred kills of servers and workers under load.

use anneal_tests::chaos::{Campaign, Cluster, Fault, Plan};

use crate::campaigns::{BINARY, CLIENT_EVENTS, assert_kept, runs_here, seed};

/// Clusters that are tested at the same time.
const CLUSTERS: u64 = 2;
/// Immediate stops of each cluster, and kills of its servers and workers.
const CRASHES: usize = 50;
/// Factor for the time between two crashes. With less time, twelve starts of a long job could all
/// be interrupted, and the job would be given up.
const SLOWER: u64 = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_or_done_twice_under_a_hundred_crashes() {
    if !runs_here() {
        return;
    }
    let campaigns = (0..CLUSTERS).map(|number| async move {
        let faults = [
            (Fault::StopDatabase, CRASHES),
            (Fault::KillServer, CRASHES / 2),
            (Fault::KillWorker, CRASHES / 2),
        ];
        let campaign = Campaign::new(BINARY, Plan::of(seed() + number, &faults).slower(SLOWER));
        println!("{}", campaign.plan);
        campaign.run(&mut Cluster::start(&[]).await).await
    });
    assert_kept(&futures::future::join_all(campaigns).await, &CLIENT_EVENTS);
}
