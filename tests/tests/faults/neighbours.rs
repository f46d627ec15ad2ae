//! One tenant against another: whatever an attacker with every verb does, the neighbour's calls are answered in time and its
//! promises are kept.

use std::time::Duration;

use anneal_tests::chaos::{Attack, AttackPlan, NeighbourCampaign};

use crate::{BINARY, holds, runs_here, seed};

/// How long the attack lasts in the gate.
const LASTS: Duration = Duration::from_secs(28);

/// What the neighbour does meanwhile, beside its calls.
const WORKED: [&str; 9] = [
    "calls of the neighbour",
    "checkpoints heard",
    "contexts of the neighbour",
    "counts heard",
    "deletions of the neighbour",
    "messages compared",
    "messages heard",
    "probes",
    "turns of the neighbour",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_neighbour_is_served_whatever_another_tenant_does() {
    if !runs_here() {
        return;
    }
    let plan = AttackPlan::of(seed(), LASTS, Attack::ALL);
    println!("{plan}");
    let report = NeighbourCampaign::new(BINARY, plan).run().await;
    println!("{report}");
    let done: Vec<&str> = Attack::ALL.iter().map(|attack| attack.name()).chain(WORKED).collect();
    holds(&[report.report], &done);
}
