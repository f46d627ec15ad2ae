//! The same for as long as one likes: `make soak`.

use std::time::{Duration, Instant};

use anneal_tests::chaos::{Campaign, Cluster, Fault, Plan, Report, Tally};
use futures::future::join_all;

use crate::{BINARY, LIVELY, holds};

/// Clusters that are disturbed side by side.
const SITES: u64 = 2;

/// Crashes for the most part, and each of the others once.
fn faults() -> Vec<(Fault, usize)> {
    let often = [(Fault::StopDatabase, 40), (Fault::KillServer, 20), (Fault::KillWorker, 20)];
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
            let campaign = Campaign::new(BINARY, Plan::of(seed + site, &faults()));
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
}
