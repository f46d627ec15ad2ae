//! Rarer faults than crashes: processes and connections that stop working without ending, missing
//! resources, and operators' actions. One campaign repeats the crashes behind a pooler.

use anneal_testkit::chaos::{
    Campaign, Cluster, Fault, Plan, run_behind_pooler, run_on_full_disk, run_with_promoted_standby,
};

use crate::campaigns::{BINARY, CLIENT_EVENTS, assert_kept, runs_here, seed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_promise_holds_under_stalls_silent_connections_and_missing_resources() {
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
    // The four ways in which the model fails during a `Fault::Storm`.
    let storms = [
        "storms of refusals",
        "storms of errors",
        "storms of silence",
        "storms of nonsense",
    ];
    let required: Vec<&str> = faults
        .iter()
        .map(|(fault, _)| fault.name())
        .chain(storms)
        .chain(CLIENT_EVENTS)
        .collect();
    assert_kept(
        &[campaign
            .run(&mut Cluster::start(&[("max_connections", "80")]).await)
            .await],
        &required,
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_standby_has_every_acknowledged_append_while_the_old_primary_still_runs() {
    if !runs_here() {
        return;
    }
    // No readers, no chat turns and no changes, whose clients would read from the old primary, which
    // lacks newer messages. The proxy cuts no commit.
    let campaign = Campaign {
        chat_clients: 0,
        readers: 0,
        has_changes: false,
        cut_commits_per_thousand: 0,
        ..Campaign::new(BINARY, Plan::of(seed(), &[]))
    };
    let report = run_with_promoted_standby(
        &campaign,
        &mut Cluster::start(&[("max_connections", "200")]).await,
    )
    .await;
    assert_kept(
        &[report],
        &[
            "takeovers",
            "audits",
            "messages compared",
            "checkpoints by the model",
        ],
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_promise_holds_behind_a_pooler_that_is_killed_as_well() {
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
    let required: Vec<&str> = faults
        .iter()
        .map(|(fault, _)| fault.name())
        .chain(["poolers killed"])
        .chain(CLIENT_EVENTS)
        .collect();
    match run_behind_pooler(&campaign, &mut Cluster::start(&[]).await).await {
        Some(report) => assert_kept(&[report], &required),
        None => println!("skipped: there is no pgbouncer"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_stops_writes_and_loses_nothing() {
    if !runs_here() {
        return;
    }
    let campaign = Campaign::new(BINARY, Plan::of(seed(), &[]));
    match run_on_full_disk(&campaign).await {
        Some(report) => assert_kept(
            &[report],
            &[
                "full disks",
                "audits",
                "messages compared",
                "messages counted",
            ],
        ),
        None => println!("skipped: no file system can be mounted here"),
    }
}
