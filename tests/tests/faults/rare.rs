//! Everything else that is done to a service: what stops working without dying, and what operators do.

use anneal_tests::chaos::{Campaign, Cluster, Fault, Plan};

use crate::{BINARY, holds, seed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_done_twice_when_things_stall_fall_silent_or_run_out() {
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
    holds(&[campaign.run(&mut Cluster::start(&[("max_connections", "80")]).await).await]);
}
