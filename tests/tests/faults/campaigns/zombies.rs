//! Workers that are suspended for longer than their leases and then resume.

use anneal_testkit::chaos::{Campaign, Cluster, Plan, run_with_suspended_workers};

use crate::campaigns::{BINARY, assert_kept, runs_here, seed};

/// Suspensions in the whole campaign; `ANNEAL_ZOMBIES` sets another number.
const SUSPENSIONS: usize = 30;

/// A campaign with more workers than usual, whose proxy cuts and delays no commit.
fn campaign() -> Campaign {
    Campaign {
        workers: 6,
        writers: 2,
        readers: 1,
        cut_commits_per_thousand: 0,
        slow_commits_per_thousand: 0,
        ..Campaign::new(BINARY, Plan::of(seed(), &[]))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_resume_after_their_leases_ended_change_nothing() {
    if !runs_here() {
        return;
    }
    let suspensions = std::env::var("ANNEAL_ZOMBIES")
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(SUSPENSIONS);
    let report = run_with_suspended_workers(
        &campaign(),
        &mut Cluster::start(&[("max_connections", "300")]).await,
        suspensions,
    )
    .await;
    assert_kept(
        &[report],
        &["audits", "messages compared", "checkpoints by the model"],
    );
}
