//! Clocks that are an hour off, and jump. Nothing is compared with a clock but the database's, and that one may be set back too.

use std::sync::Arc;

use anneal_tests::chaos::{Campaign, Clocks, Cluster, Fault, Plan, set_back};

use crate::{BINARY, LIVELY, holds, runs_here, seed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_and_workers_whose_clocks_are_an_hour_off_and_jump_keep_every_promise() {
    if !runs_here() {
        return;
    }
    let Some(clocks) = Clocks::find() else { return };
    let faults = [(Fault::JumpClocks, 5), (Fault::KillServer, 1), (Fault::KillWorker, 1), (Fault::StopDatabase, 1)];
    let clocks = Some(Arc::new(clocks));
    let campaign = Campaign { clocks, ..Campaign::new(BINARY, Plan::of(seed(), &faults)) };
    println!("{}", campaign.plan);
    holds(&[campaign.run(&mut Cluster::start(&[]).await).await], &LIVELY);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_databases_clock_may_go_an_hour_ahead_and_be_set_back() {
    if !runs_here() {
        return;
    }
    let Some(clocks) = Clocks::find() else { return };
    let campaign = Campaign { cut: 0, slow: 0, ..Campaign::new(BINARY, Plan::of(seed(), &[])) };
    let mut cluster = Cluster::start_with(clocks.postgres("database")).await;
    holds(&[set_back(&campaign, &mut cluster, &clocks, "database", 2).await], &["audits", "messages compared"]);
}
