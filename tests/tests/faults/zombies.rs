//! Workers that stand still for longer than their leases.

use anneal_tests::chaos::{Campaign, Cluster, Plan, zombies};

use crate::{BINARY, holds, runs_here, seed};

/// Workers that are stopped and go on, unless `ANNEAL_ZOMBIES` says otherwise.
const ZOMBIES: usize = 30;

fn campaign() -> Campaign {
    Campaign { workers: 6, writers: 2, readers: 1, cut: 0, slow: 0, ..Campaign::new(BINARY, Plan::of(seed(), &[])) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_stood_still_beyond_their_leases_leave_nothing_behind() {
    if !runs_here() {
        return;
    }
    let times = std::env::var("ANNEAL_ZOMBIES").ok().and_then(|times| times.parse().ok()).unwrap_or(ZOMBIES);
    let report = zombies(&campaign(), &mut Cluster::start(&[("max_connections", "300")]).await, times).await;
    holds(&[report], &["audits", "messages compared", "checkpoints by the model"]);
}
