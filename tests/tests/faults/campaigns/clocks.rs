//! Clocks of servers, workers and PostgreSQL jump by an hour or are set back. Leases end by
//! PostgreSQL's clock alone.

use std::sync::Arc;

use anneal_testkit::chaos::{Campaign, Clocks, Cluster, Fault, Plan, run_with_clock_set_back};

use crate::campaigns::{BINARY, CLIENT_EVENTS, assert_kept, runs_here, seed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_promise_holds_when_clocks_of_servers_and_workers_jump_by_an_hour() {
    if !runs_here() {
        return;
    }
    let Some(clocks) = Clocks::find() else { return };
    let faults = [
        (Fault::JumpClocks, 5),
        (Fault::KillServer, 1),
        (Fault::KillWorker, 1),
        (Fault::StopDatabase, 1),
    ];
    let clocks = Some(Arc::new(clocks));
    let campaign = Campaign {
        clocks,
        ..Campaign::new(BINARY, Plan::of(seed(), &faults))
    };
    println!("{}", campaign.plan);
    assert_kept(
        &[campaign.run(&mut Cluster::start(&[]).await).await],
        &CLIENT_EVENTS,
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_promise_holds_when_the_databases_clock_is_an_hour_ahead_and_set_back() {
    if !runs_here() {
        return;
    }
    let Some(clocks) = Clocks::find() else { return };
    // The proxy cuts and delays no commit.
    let campaign = Campaign {
        cut_commits_per_thousand: 0,
        slow_commits_per_thousand: 0,
        ..Campaign::new(BINARY, Plan::of(seed(), &[]))
    };
    let mut cluster = Cluster::start_with(clocks.postgres("database")).await;
    // The clock is set ahead and back twice.
    assert_kept(
        &[run_with_clock_set_back(&campaign, &mut cluster, &clocks, "database", 2).await],
        &["audits", "messages compared"],
    );
}
