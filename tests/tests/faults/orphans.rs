//! Jobs whose worker was killed: others take them up in time, and one that kills whoever takes it up is given up.

use std::time::Duration;

use anneal_tests::chaos::{Campaign, Cluster, Plan, orphans, poison, silence};

use crate::{BINARY, holds, runs_here, seed};

fn quiet() -> Campaign {
    let plan = Plan::of(seed(), &[]);
    Campaign { workers: 3, writers: 0, chatting: 0, readers: 0, cut: 0, slow: 0, ..Campaign::new(BINARY, plan) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_killed_workers_run_again_within_twenty_seconds() {
    if !runs_here() {
        return;
    }
    let orphans = orphans(&quiet(), &mut Cluster::start(&[]).await).await;
    let at = |percent: usize| orphans.after[(orphans.after.len() - 1) * percent / 100];
    println!(
        "{} orphans ran again after {:?} (p50), {:?} (p99), {:?} at most",
        orphans.after.len(),
        at(50),
        at(99),
        at(100)
    );
    holds(&[orphans.report], &["audits", "checkpoints by the model"]);
    assert!(orphans.after.len() >= 20, "both workers were in the middle of summaries: {:?}", orphans.after);
    assert!(at(99) <= Duration::from_secs(20), "{:?}", orphans.after);
    assert!(at(100) <= Duration::from_secs(30), "{:?}", orphans.after);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_end_although_their_connections_fall_silent_and_are_never_closed() {
    if !runs_here() {
        return;
    }
    let cluster = &mut Cluster::start(&[("max_connections", "300")]).await;
    holds(&[silence(&quiet(), cluster).await], &["audits", "checkpoints by the model"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_kills_every_worker_is_given_up_after_twelve() {
    if !runs_here() {
        return;
    }
    let poison = poison(&quiet(), &mut Cluster::start(&[]).await).await;
    println!("{} workers died of the job", poison.killed);
    holds(&[poison.report], &["audits", "checkpoints by the model"]);
    assert_eq!((poison.killed, poison.starts), (12, Some(12)));
}
