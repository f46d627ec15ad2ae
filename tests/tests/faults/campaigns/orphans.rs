//! Orphans are jobs whose worker was killed or lost its connections: other workers run them in
//! time. A job that kills every worker is given up.

use std::time::Duration;

use anneal_testkit::chaos::{
    Campaign, Cluster, Plan, run_poison_job, run_with_killed_workers, run_with_silent_connections,
};

use crate::campaigns::{BINARY, assert_kept, runs_here, seed};

/// A campaign with three workers and no clients. The proxy cuts and delays no commit.
fn campaign_without_clients() -> Campaign {
    let plan = Plan::of(seed(), &[]);
    Campaign {
        workers: 3,
        writers: 0,
        chat_clients: 0,
        readers: 0,
        cut_commits_per_thousand: 0,
        slow_commits_per_thousand: 0,
        ..Campaign::new(BINARY, plan)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_killed_workers_run_again_within_twenty_seconds() {
    if !runs_here() {
        return;
    }
    let orphans =
        run_with_killed_workers(&campaign_without_clients(), &mut Cluster::start(&[]).await).await;
    // By the nearest rank: of fewer than 100 delays, the 99th percentile is the longest.
    let percentile =
        |percent: usize| orphans.delays[(orphans.delays.len() * percent).div_ceil(100) - 1];
    println!(
        "{} orphans ran again after {:?} (p50), {:?} (p99), {:?} at most",
        orphans.delays.len(),
        percentile(50),
        percentile(99),
        percentile(100)
    );
    assert_kept(&[orphans.report], &["audits", "checkpoints by the model"]);
    assert!(
        orphans.delays.len() >= 20,
        "the two killed workers left fewer than 20 jobs, which ran again after {:?}",
        orphans.delays
    );
    assert!(
        percentile(99) <= Duration::from_secs(20),
        "{:?}",
        orphans.delays
    );
    // The twenty seconds of the test's name are the 99th percentile. The slowest one percent may
    // take 30 s.
    assert!(
        percentile(100) <= Duration::from_secs(30),
        "{:?}",
        orphans.delays
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_end_when_their_connections_go_silent_without_being_closed() {
    if !runs_here() {
        return;
    }
    let cluster = &mut Cluster::start(&[("max_connections", "300")]).await;
    assert_kept(
        &[run_with_silent_connections(&campaign_without_clients(), cluster).await],
        &["audits", "checkpoints by the model"],
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_kills_every_worker_is_given_up_after_twelve_starts() {
    if !runs_here() {
        return;
    }
    let poison = run_poison_job(&campaign_without_clients(), &mut Cluster::start(&[]).await).await;
    println!("{} workers died of the job", poison.killed);
    assert_kept(&[poison.report], &["audits", "checkpoints by the model"]);
    assert_eq!((poison.killed, poison.starts), (12, Some(12)));
}
