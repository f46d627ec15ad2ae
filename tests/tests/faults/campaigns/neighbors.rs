//! One tenant attacks another, the neighbor. The attacker has every verb and performs every
//! attack; the neighbor's calls are answered in time, and all promises to it are kept. Then each
//! limit of [`REMOVED_LIMITS`] is removed once, and the campaign must notice it.

use std::time::Duration;

use anneal_testkit::chaos::{Attack, AttackPlan, NeighborCampaign, Sabotage};

use crate::campaigns::{BINARY, assert_kept, runs_here, seed};

/// Duration of the campaign in the gate (`cargo xtask ci`), enough for each attack once.
const DURATION: Duration = Duration::from_secs(28);
/// Upper limit of the duration that `ANNEAL_FAULTS_MINUTES` sets, in minutes.
const MAX_MINUTES: u64 = 10;
/// A removed limit must be noticed within this time.
const NOTICED_WITHIN: Duration = Duration::from_mins(1);

/// Events of the neighbor that must happen during the attack.
const NEIGHBOR_EVENTS: [&str; 9] = [
    "calls of the neighbor",
    "checkpoints reported",
    "contexts of the neighbor",
    "counts reported",
    "deletions of the neighbor",
    "messages compared",
    "messages delivered",
    "probes",
    "turns of the neighbor",
];

/// A limit that is removed.
struct RemovedLimit {
    /// `ANNEAL_FAULTS_SABOTAGE` may select the limit by this name.
    name: &'static str,
    /// The settings that remove it.
    settings: &'static [&'static str],
    /// The sabotage that removes it, if no setting does.
    sabotage: Option<&'static Sabotage>,
    /// The attacks that the limit prevents.
    attacks: &'static [Attack],
    /// The first promise that is found broken must be one of these.
    promises: &'static [&'static str],
}

/// Limits that protect the neighbor. Each of them is removed once.
const REMOVED_LIMITS: &[RemovedLimit] = &[
    RemovedLimit {
        name: "tenant_share",
        settings: &[
            "limits.tenant_share_percent=100",
            "server.concurrent_watches=100",
        ],
        sabotage: None,
        attacks: &[Attack::Watches, Attack::EventStreams],
        promises: &["calls"],
    },
    RemovedLimit {
        name: "content_bytes",
        settings: &[
            "limits.content_bytes=100000000000",
            "limits.bytes_per_second=0",
        ],
        sabotage: None,
        attacks: &[Attack::LargeContexts, Attack::LargePages],
        promises: &["memory", "latency"],
    },
    RemovedLimit {
        name: "waiting_bytes",
        settings: &[
            "limits.waiting_bytes=100000000000",
            "limits.content_bytes=100000000000",
        ],
        sabotage: None,
        attacks: &[Attack::UnreadAnswers],
        // On a slow machine, the additional load delays other calls before it has filled the
        // memory.
        promises: &["memory", "latency"],
    },
    RemovedLimit {
        name: "share_of_model_calls",
        settings: &["budget.tenant_share_percent=100"],
        sabotage: None,
        attacks: &[Attack::SlowTurns],
        promises: &["calls"],
    },
    RemovedLimit {
        name: "media",
        settings: &[r#"providers.scripted.media=["metadata.google.internal"]"#],
        sabotage: None,
        attacks: &[Attack::MediaUrls],
        promises: &["media"],
    },
    RemovedLimit {
        name: "breaker_of_a_tenant",
        settings: &[],
        sabotage: Some(Sabotage::ANYBODYS_BREAKER),
        attacks: &[Attack::RefusedTurns],
        promises: Sabotage::ANYBODYS_BREAKER.promises,
    },
];

/// Runs a campaign, prints its report, and asserts that every promise was kept and that each attack
/// was performed.
async fn run_attack(seed: u64, duration: Duration) {
    let plan = AttackPlan::of(seed, duration, Attack::ALL);
    println!("{plan}");
    let report = Box::pin(NeighborCampaign::new(BINARY, plan).run()).await;
    println!("{report}");
    // Findings are asserted before missing events, because a neighbor under attack causes fewer
    // events.
    assert!(
        report.report.findings.is_empty(),
        "{:#?}",
        report.report.findings
    );
    let required: Vec<&str> = Attack::ALL
        .iter()
        .map(|attack| attack.name())
        .chain(NEIGHBOR_EVENTS)
        .collect();
    assert_kept(&[report.report], &required);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_neighbor_is_served_during_every_attack_of_another_tenant() {
    if runs_here() {
        run_attack(seed(), DURATION).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_of_one_tenant_against_another_for_the_given_minutes() {
    let minutes: Option<u64> = std::env::var("ANNEAL_FAULTS_MINUTES")
        .ok()
        .and_then(|minutes| minutes.parse().ok());
    let Some(minutes) = minutes else {
        println!("skipped: set ANNEAL_FAULTS_MINUTES to the number of minutes");
        return;
    };
    let fixed: Option<u64> = std::env::var("ANNEAL_FAULTS_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = fixed.unwrap_or_else(|| fastrand::u64(..1_000_000_000));
    run_attack(seed, Duration::from_secs(60 * minutes.min(MAX_MINUTES))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_limit_that_is_removed_is_noticed_within_a_minute() {
    if !runs_here() {
        return;
    }
    let only = std::env::var("ANNEAL_FAULTS_SABOTAGE").ok();
    let mut wrong = Vec::new();
    for removed in REMOVED_LIMITS
        .iter()
        .filter(|removed| only.as_deref().is_none_or(|only| only == removed.name))
    {
        let RemovedLimit {
            name,
            settings,
            sabotage,
            attacks,
            promises,
        } = *removed;
        let plan = AttackPlan::of(seed(), NOTICED_WITHIN, attacks);
        let campaign = NeighborCampaign {
            settings,
            sabotage,
            ..NeighborCampaign::new(BINARY, plan)
        };
        match Box::pin(campaign.first_finding()).await {
            Ok((finding, after)) => {
                println!(
                    "{name}: {finding}, {:.1} s after the attack began",
                    after.as_secs_f64()
                );
                if after > NOTICED_WITHIN {
                    wrong.push(format!(
                        "the removal of {name} was noticed only after {after:?}"
                    ));
                }
                if !promises.contains(&finding.promise) {
                    wrong.push(format!(
                        "without {name}, another promise was found broken first: {finding}"
                    ));
                }
            }
            Err(report) => wrong.push(format!("the removal of {name} was not noticed: {report}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
