//! All faults, for `ANNEAL_FAULTS_MINUTES` minutes. `make soak` runs it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anneal_testkit::chaos::{Campaign, Clocks, Cluster, Fault, Plan, Report, Tally};
use futures::future::join_all;

use crate::campaigns::{BINARY, CLIENT_EVENTS, assert_kept};

/// Clusters that are tested at the same time.
const CLUSTERS: u64 = 2;
/// Immediate stops of each cluster's PostgreSQL in a round.
const STOPS: usize = 60;
/// Kills of each cluster's servers in a round, and as many of its workers.
const KILLS: usize = 30;
/// How long a transaction holds one snapshot.
const SNAPSHOT_DURATION: Duration = Duration::from_mins(2);
/// Factor for the number of appends between two faults. With fewer, a long job could be interrupted
/// twelve times and given up.
const SLOWDOWN: u64 = 2;
/// A soak of an hour or more must make at least this many immediate stops, and as many kills.
const MIN_IN_AN_HOUR: u64 = 1_000;

/// The faults of a round, and how often each is injected: mostly crashes, each other fault once.
fn faults() -> Vec<(Fault, usize)> {
    let often = [
        (Fault::StopDatabase, STOPS),
        (Fault::KillServer, KILLS),
        (Fault::KillWorker, KILLS),
    ];
    let others = Fault::ALL
        .into_iter()
        .filter(|fault| often.iter().all(|(other, _)| other != fault));
    often
        .into_iter()
        .chain(others.map(|fault| (fault, 1)))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_promise_holds_under_all_faults_for_the_given_minutes() {
    let minutes: Option<u64> = std::env::var("ANNEAL_FAULTS_MINUTES")
        .ok()
        .and_then(|minutes| minutes.parse().ok());
    let Some(minutes) = minutes else {
        println!("skipped: set ANNEAL_FAULTS_MINUTES to the number of minutes");
        return;
    };
    let fixed: Option<u64> = std::env::var("ANNEAL_FAULTS_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let began = Instant::now();
    let total = Tally::default();
    while began.elapsed() < Duration::from_secs(60 * minutes) {
        let seed = fixed.unwrap_or_else(|| fastrand::u64(..1_000_000_000));
        let campaigns = (0..CLUSTERS).map(|number| async move {
            let clocks = Clocks::find().expect("scripts/debian.sh faketime installs it");
            let plan = Plan::of(seed + number, &faults()).slower(SLOWDOWN);
            let campaign = Campaign {
                clocks: Some(Arc::new(clocks)),
                snapshot_duration: SNAPSHOT_DURATION,
                ..Campaign::new(BINARY, plan)
            };
            println!("{}", campaign.plan);
            campaign.run(&mut Cluster::start(&[]).await).await
        });
        let reports: Vec<Report> = join_all(campaigns).await;
        for report in &reports {
            total.merge(&report.tally);
        }
        assert_kept(&reports, &CLIENT_EVENTS);
        println!("after {} minutes: {total}", began.elapsed().as_secs() / 60);
    }
    for event in Fault::ALL
        .map(Fault::name)
        .into_iter()
        .chain(["sessions rotated"])
    {
        assert!(total.count(event) > 0, "this event never happened: {event}");
    }
    let kills = total.count(Fault::KillServer.name()) + total.count(Fault::KillWorker.name());
    for (kind, count) in [
        ("immediate stops", total.count(Fault::StopDatabase.name())),
        ("kills", kills),
    ] {
        assert!(
            minutes < 60 || count >= MIN_IN_AN_HOUR,
            "only {count} {kind} in {minutes} minutes"
        );
    }
}
