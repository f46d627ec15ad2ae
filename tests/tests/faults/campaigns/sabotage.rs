//! Each promise is broken on purpose, and the checker must notice it: a checker that has never
//! failed proves nothing.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use anneal_testkit::{
    chaos::{Campaign, Cluster, Fault, Finding, Plan, Sabotage},
    gate_or_nightly,
};

use crate::campaigns::{BINARY, runs_here, seed};

/// The campaign that notices the broken promise may take this time.
const NOTICED_WITHIN: Duration = Duration::from_mins(1);
/// Most plans that are tried for a sabotage, each with its own seed. A plan may miss the moment in
/// which the broken promise shows, or may first find another promise broken as a consequence.
const PLANS: u64 = 3;
/// Factor for the number of appends between two faults for a sabotage that shows only in summaries.
const SUMMARY_SLOWDOWN: u64 = 20;
/// Clusters that are tested at the same time.
const CLUSTERS: usize = 2;

/// The campaign for a sabotage, or without one. `no_lease_token` shows only when a worker stalls
/// for longer than its lease. Five sabotages show only in summaries, of which a slow machine makes
/// few between two crashes. All others show under crashes. Clients change messages only if the
/// sabotage needs it: a lost change would be found first, although it is another promise that is
/// broken.
fn campaign(sabotage: Option<&'static Sabotage>, seed: u64) -> Campaign {
    let crashes = [
        (Fault::StopDatabase, 6),
        (Fault::KillServer, 3),
        (Fault::KillWorker, 3),
    ];
    let stall = [(Fault::StallWorker, 1)];
    let plan = match sabotage.map(|sabotage| sabotage.name) {
        Some("no_lease_token") => Plan::of(seed, &stall),
        Some(
            "unread_boundary"
            | "no_separator"
            | "stale_summary"
            | "standing_checkpoint"
            | "unfenced_change",
        ) => Plan::of(seed, &[(Fault::KillWorker, 3)]).slower(SUMMARY_SLOWDOWN),
        Some(_) => Plan::of(seed, &crashes),
        None => Plan::of(
            seed,
            &[
                (Fault::StopDatabase, 2),
                (Fault::KillServer, 1),
                (Fault::KillWorker, 1),
                (Fault::StallWorker, 1),
            ],
        ),
    };
    Campaign {
        sabotage,
        servers: 1,
        has_changes: sabotage.is_none_or(Sabotage::needs_changes),
        ..Campaign::new(BINARY, plan)
    }
}

/// Runs the campaigns of the queue one after the other on one cluster: one for each sabotage, and
/// at night also one without sabotage (`None`). The gate leaves that one out, because `crashes.rs`
/// runs campaigns without sabotage there. Returns a sentence for each wrong outcome.
async fn run_sabotages(queue: &Mutex<Vec<Option<&'static Sabotage>>>) -> Vec<String> {
    // A long delay of the WAL writer, so that a crash loses commits that did not wait for the disk.
    let mut cluster = Cluster::start(&[("wal_writer_delay", "2s")]).await;
    let mut failures = Vec::new();
    loop {
        let next = queue.lock().expect("no holder of the lock panics").pop();
        let Some(sabotage) = next else {
            return failures;
        };
        let plans = if sabotage.is_some() { PLANS } else { 1 };
        let mut outcome = Err(String::from("no plan"));
        let mut took = Duration::ZERO;
        for seed in (seed()..).take(plans as usize) {
            let began = Instant::now();
            outcome = campaign(sabotage, seed)
                .first_finding(&mut cluster)
                .await
                .map_err(|report| report.to_string());
            took = began.elapsed();
            let is_expected = |finding: &Finding| {
                sabotage.is_some_and(|sabotage| sabotage.promises.contains(&finding.promise))
            };
            if outcome.as_ref().is_ok_and(is_expected) {
                break;
            }
        }
        match (sabotage, outcome) {
            (Some(Sabotage { name, promises, .. }), Ok(finding)) => {
                println!("{name}: {finding}");
                if took > NOTICED_WITHIN {
                    failures.push(format!("{name} was noticed only after {took:?}"));
                }
                if !promises.contains(&finding.promise) {
                    failures.push(format!(
                        "with {name}, another promise was found broken first: {finding}"
                    ));
                }
            }
            (Some(Sabotage { name, .. }), Err(report)) => {
                failures.push(format!("{name} was not noticed: {report}"));
            }
            (None, Ok(finding)) => {
                failures.push(format!("a promise is broken without sabotage: {finding}"));
            }
            (None, Err(report)) => println!("without sabotage: {report}"),
        }
    }
}

/// Whether the gate runs this sabotage: one of those that break the same promises. At night all run.
fn is_first_for_its_promises(sabotage: &Sabotage) -> bool {
    let first = Sabotage::ALL
        .iter()
        .find(|other| other.promises == sabotage.promises);
    gate_or_nightly(first.is_some_and(|first| first.name == sabotage.name), true)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_promise_that_is_broken_on_purpose_is_noticed_within_a_minute() {
    if !runs_here() {
        return;
    }
    let only = std::env::var("ANNEAL_FAULTS_SABOTAGE").ok();
    let selected = Sabotage::ALL
        .iter()
        .filter(|sabotage| only.as_deref().is_none_or(|only| only == sabotage.name));
    // At night, every sabotage runs, and one campaign without sabotage (`None`).
    let mut queue: Vec<_> = selected
        .filter(|sabotage| is_first_for_its_promises(sabotage) || only.is_some())
        .map(Some)
        .chain(gate_or_nightly(None, Some(None)))
        .collect();
    // The queue is taken from its end. Campaigns with a stalled worker take longest, so they begin.
    queue.sort_by_key(|sabotage| sabotage.is_none_or(|one| one.name == "no_lease_token"));
    let queue = Mutex::new(queue);
    let results = futures::future::join_all((0..CLUSTERS).map(|_| run_sabotages(&queue))).await;
    let failures: Vec<String> = results.into_iter().flatten().collect();
    assert!(failures.is_empty(), "{failures:#?}");
}
