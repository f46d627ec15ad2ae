//! Everything else that is done to a service: what stops working without dying, and what operators do.

use anneal_tests::chaos::{Campaign, Cluster, Fault, Plan, full_disk, pooled, takeover};

use crate::{BINARY, LIVELY, holds, runs_here, seed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_done_twice_when_things_stall_fall_silent_or_run_out() {
    if !runs_here() {
        return;
    }
    let faults = [
        (Fault::KillPostmaster, 2),
        (Fault::KillBackend, 3),
        (Fault::TerminateSessions, 4),
        (Fault::StallWorker, 1),
        (Fault::FallSilent, 2),
        (Fault::Storm, 4),
        (Fault::TakeConnections, 1),
        (Fault::HoldRows, 2),
        (Fault::HoldSnapshot, 1),
        (Fault::RestartServers, 1),
        (Fault::MigrateTwice, 2),
    ];
    let campaign = Campaign::new(BINARY, Plan::of(seed(), &faults));
    println!("{}", campaign.plan);
    let storms = ["storms of refusals", "storms of errors", "storms of silence", "storms of nonsense"];
    let done: Vec<&str> = faults.iter().map(|(fault, _)| fault.name()).chain(storms).chain(LIVELY).collect();
    holds(&[campaign.run(&mut Cluster::start(&[("max_connections", "80")]).await).await], &done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_takes_over_has_everything_that_was_acknowledged_while_the_old_primary_lives_on() {
    if !runs_here() {
        return;
    }
    // Readers would find the old primary, which knows no better.
    let campaign = Campaign { chatting: 0, readers: 0, cut: 0, ..Campaign::new(BINARY, Plan::of(seed(), &[])) };
    let report = takeover(&campaign, &mut Cluster::start(&[("max_connections", "200")]).await).await;
    holds(&[report], &["takeovers", "audits", "messages compared", "checkpoints by the model"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_done_twice_behind_a_pooler_that_is_killed_as_well() {
    if !runs_here() {
        return;
    }
    let faults = [
        (Fault::StopDatabase, 4),
        (Fault::KillBackend, 1),
        (Fault::TerminateSessions, 2),
        (Fault::KillServer, 3),
        (Fault::KillWorker, 3),
        (Fault::FallSilent, 1),
        (Fault::HoldRows, 1),
    ];
    let campaign = Campaign::new(BINARY, Plan::of(seed(), &faults));
    println!("{}", campaign.plan);
    let done: Vec<&str> =
        faults.iter().map(|(fault, _)| fault.name()).chain(["poolers killed"]).chain(LIVELY).collect();
    match pooled(&campaign, &mut Cluster::start(&[]).await).await {
        Some(report) => holds(&[report], &done),
        None => println!("skipped: there is no pgbouncer"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_stops_writes_and_loses_nothing() {
    if !runs_here() {
        return;
    }
    let campaign = Campaign::new(BINARY, Plan::of(seed(), &[]));
    match full_disk(&campaign).await {
        Some(report) => holds(&[report], &["full disks", "audits", "messages compared", "messages counted"]),
        None => println!("skipped: no file system can be mounted here"),
    }
}
