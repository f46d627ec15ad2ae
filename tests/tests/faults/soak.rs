//! The same for as long as one likes: `make soak`.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anneal_tests::chaos::{Campaign, Clocks, Cluster, Fault, Plan, Report, Tally};
use futures::future::join_all;

use crate::{BINARY, LIVELY, holds};

/// Clusters that are disturbed side by side.
const SITES: u64 = 2;
/// Crashes in a round at each of them.
const STOPS: usize = 60;
const KILLS: usize = 30;
/// How long somebody reads one snapshot.
const SNAPSHOT: Duration = Duration::from_mins(2);
/// Times as many appends between two faults as in the gate: a job that is interrupted twelve times is given up.
const SLOWER: u64 = 2;
/// What an hour comes to, at least.
const IN_AN_HOUR: u64 = 1_000;

/// Crashes for the most part, and each of the others once.
fn faults() -> Vec<(Fault, usize)> {
    let often = [(Fault::StopDatabase, STOPS), (Fault::KillServer, KILLS), (Fault::KillWorker, KILLS)];
    let others = Fault::ALL.into_iter().filter(|fault| often.iter().all(|(other, _)| other != fault));
    often.into_iter().chain(others.map(|fault| (fault, 1))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_done_twice_for_as_long_as_one_likes() {
    let minutes: Option<u64> = std::env::var("ANNEAL_FAULTS_MINUTES").ok().and_then(|minutes| minutes.parse().ok());
    let Some(minutes) = minutes else {
        println!("skipped: ANNEAL_FAULTS_MINUTES says how long");
        return;
    };
    let fixed: Option<u64> = std::env::var("ANNEAL_FAULTS_SEED").ok().and_then(|seed| seed.parse().ok());
    let (began, all) = (Instant::now(), Tally::default());
    while began.elapsed() < Duration::from_secs(60 * minutes) {
        let seed = fixed.unwrap_or_else(|| fastrand::u64(..1_000_000_000));
        let sites = (0..SITES).map(|site| async move {
            let clocks = Clocks::find().expect("scripts/debian.sh faketime installs it");
            let plan = Plan::of(seed + site, &faults()).slower(SLOWER);
            let campaign =
                Campaign { clocks: Some(Arc::new(clocks)), snapshot: SNAPSHOT, ..Campaign::new(BINARY, plan) };
            println!("{}", campaign.plan);
            campaign.run(&mut Cluster::start(&[]).await).await
        });
        let reports: Vec<Report> = join_all(sites).await;
        for report in &reports {
            all.take_in(&report.tally);
        }
        holds(&reports, &LIVELY);
        println!("after {} minutes: {all}", began.elapsed().as_secs() / 60);
    }
    for done in Fault::ALL.map(Fault::name).into_iter().chain(["sessions rotated"]) {
        assert!(all.of(done) > 0, "never done: {done}");
    }
    let kills = all.of(Fault::KillServer.name()) + all.of(Fault::KillWorker.name());
    for (what, count) in [("immediate stops", all.of(Fault::StopDatabase.name())), ("kills", kills)] {
        assert!(minutes < 60 || count >= IN_AN_HOUR, "{count} {what} in an hour");
    }
}
