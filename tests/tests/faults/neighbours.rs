//! One tenant against another: whatever an attacker with every verb does, the neighbour's calls are answered in time and its
//! promises are kept. Each limit that keeps the attacker from it is removed once, which must be noticed.

use std::time::Duration;

use anneal_tests::chaos::{Attack, AttackPlan, NeighbourCampaign};

use crate::{BINARY, holds, runs_here, seed};

/// How long the attack lasts in the gate: each attack once.
const LASTS: Duration = Duration::from_secs(28);
/// How long it lasts at most where `ANNEAL_FAULTS_MINUTES` says for how long to go on, in minutes.
const MINUTES: u64 = 10;
/// A limit that is removed is noticed by then.
const NOTICED_WITHIN: Duration = Duration::from_mins(1);

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

/// A limit that is removed.
struct Removed {
    /// Its name: what `ANNEAL_FAULTS_SABOTAGE` may name.
    limit: &'static str,
    /// The settings that remove it.
    settings: &'static [&'static str],
    /// The sabotage that removes it, where no setting does (`store/src/sabotage.rs`).
    sabotage: Option<&'static str>,
    /// What is done to the neighbour then.
    attacks: &'static [Attack],
    /// The promises of which one must be found broken first.
    promises: &'static [&'static str],
}

/// The limits, and what notices that one is gone.
const REMOVED: &[Removed] = &[
    Removed {
        limit: "tenant_share",
        settings: &["limits.tenant_share_percent=100", "server.concurrent_watches=100"],
        sabotage: None,
        attacks: &[Attack::Watches, Attack::EventStreams],
        promises: &["calls"],
    },
    Removed {
        limit: "content_bytes",
        settings: &["limits.content_bytes=100000000000", "limits.bytes_per_second=0"],
        sabotage: None,
        attacks: &[Attack::LargeContexts, Attack::LargePages],
        promises: &["memory", "latency"],
    },
    Removed {
        limit: "waiting_bytes",
        settings: &["limits.waiting_bytes=100000000000", "limits.content_bytes=100000000000"],
        sabotage: None,
        attacks: &[Attack::UnreadAnswers],
        // On a slow machine the work that is let in keeps others waiting before it has filled the memory.
        promises: &["memory", "latency"],
    },
    Removed {
        limit: "share_of_model_calls",
        settings: &["budget.tenant_share_percent=100"],
        sabotage: None,
        attacks: &[Attack::SlowTurns],
        promises: &["calls"],
    },
    Removed {
        limit: "media",
        settings: &[r#"providers.scripted.media=["metadata.google.internal"]"#],
        sabotage: None,
        attacks: &[Attack::MediaUrls],
        promises: &["media"],
    },
    Removed {
        limit: "breaker_of_a_tenant",
        settings: &[],
        sabotage: Some("anybodys_breaker"),
        attacks: &[Attack::RefusedTurns],
        promises: &["calls"],
    },
];

/// Runs a campaign, prints what came of it, and asserts that no promise was broken and that each attack was performed.
async fn is_served(seed: u64, lasts: Duration) {
    let plan = AttackPlan::of(seed, lasts, Attack::ALL);
    println!("{plan}");
    let report = Box::pin(NeighbourCampaign::new(BINARY, plan).run()).await;
    println!("{report}");
    // Before what was not done: a neighbour that is kept from its work does less of it.
    assert!(report.report.findings.is_empty(), "{:#?}", report.report.findings);
    let done: Vec<&str> = Attack::ALL.iter().map(|attack| attack.name()).chain(WORKED).collect();
    holds(&[report.report], &done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_neighbour_is_served_whatever_another_tenant_does() {
    if runs_here() {
        is_served(seed(), LASTS).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_of_one_tenant_against_another_for_as_long_as_one_likes() {
    let minutes: Option<u64> = std::env::var("ANNEAL_FAULTS_MINUTES").ok().and_then(|minutes| minutes.parse().ok());
    let Some(minutes) = minutes else {
        println!("skipped: ANNEAL_FAULTS_MINUTES says how long");
        return;
    };
    let fixed: Option<u64> = std::env::var("ANNEAL_FAULTS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = fixed.unwrap_or_else(|| fastrand::u64(..1_000_000_000));
    is_served(seed, Duration::from_secs(60 * minutes.min(MINUTES))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_limit_that_is_removed_is_noticed_within_a_minute() {
    if !runs_here() {
        return;
    }
    let only = std::env::var("ANNEAL_FAULTS_SABOTAGE").ok();
    let mut wrong = Vec::new();
    for removed in REMOVED.iter().filter(|removed| only.as_deref().is_none_or(|only| only == removed.limit)) {
        let Removed { limit, settings, sabotage, attacks, promises } = *removed;
        let plan = AttackPlan::of(seed(), NOTICED_WITHIN, attacks);
        let campaign = NeighbourCampaign { settings, sabotage, ..NeighbourCampaign::new(BINARY, plan) };
        match Box::pin(campaign.first_finding()).await {
            Ok((finding, after)) => {
                println!("{limit}: {finding}, {:.1} s after the attack began", after.as_secs_f64());
                if after > NOTICED_WITHIN {
                    wrong.push(format!("{limit} was missed only after {after:?}"));
                }
                if !promises.contains(&finding.promise) {
                    wrong.push(format!("{limit} was taken for something else: {finding}"));
                }
            }
            Err(report) => wrong.push(format!("{limit} is missed by nobody: {report}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
