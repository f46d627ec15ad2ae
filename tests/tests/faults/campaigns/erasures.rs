//! A user is erased while workers, servers and PostgreSQL are killed.

use anneal_testkit::{
    chaos::{Campaign, Cluster, Fault, Plan, run_with_erased_user},
    gate_or_nightly,
};

use crate::campaigns::{BINARY, assert_kept, runs_here, seed};

/// Conversations of the erased user in the gate (`cargo xtask ci`): more than three steps delete.
const CONVERSATIONS: usize = 180;
/// [`CONVERSATIONS`] at night.
const NIGHTLY_CONVERSATIONS: usize = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_erasure_of_a_user_ends_once_whatever_is_killed_meanwhile() {
    if !runs_here() {
        return;
    }
    let campaign = Campaign {
        writers: 3,
        ..Campaign::new(BINARY, Plan::of(seed(), &[]))
    };
    let conversations = gate_or_nightly(CONVERSATIONS, NIGHTLY_CONVERSATIONS);
    let cluster = &mut Cluster::start(&[("max_connections", "200")]).await;
    let report = run_with_erased_user(&campaign, cluster, conversations).await;
    let required = [
        "audits",
        "erased conversations",
        "messages compared",
        Fault::KillServer.name(),
        Fault::KillWorker.name(),
        Fault::StopDatabase.name(),
    ];
    assert_kept(&[report], &required);
}
