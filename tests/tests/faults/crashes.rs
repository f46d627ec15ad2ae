//! A hundred crashes of PostgreSQL and a hundred kills of servers and workers under load.

use anneal_tests::chaos::{Campaign, Cluster, Fault, Plan};

use crate::{BINARY, LIVELY, holds, runs_here, seed};

/// Clusters that are crashed side by side.
const SITES: u64 = 2;
/// Immediate stops of each, and kills of its servers and workers.
const CRASHES: usize = 50;
/// What takes long has twice the usual time between two crashes: a job whose twelve starts were all cut short would be given up.
const SLOWER: u64 = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_or_done_twice_under_a_hundred_crashes() {
    if !runs_here() {
        return;
    }
    let sites = (0..SITES).map(|site| async move {
        let faults =
            [(Fault::StopDatabase, CRASHES), (Fault::KillServer, CRASHES / 2), (Fault::KillWorker, CRASHES / 2)];
        let campaign = Campaign::new(BINARY, Plan::of(seed() + site, &faults).slower(SLOWER));
        println!("{}", campaign.plan);
        campaign.run(&mut Cluster::start(&[]).await).await
    });
    holds(&futures::future::join_all(sites).await, &LIVELY);
}
