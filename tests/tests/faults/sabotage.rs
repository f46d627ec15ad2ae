//! A checker that has never failed proves nothing: each promise is broken on purpose, and each time it must be noticed.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use anneal_tests::chaos::{Campaign, Cluster, Fault, Finding, Plan};

use crate::{BINARY, runs_here, seed};

/// What `ANNEAL_SABOTAGE` can name, and the promises of which one must be what a plan finds broken first: what was noticed for
/// another reason was not noticed.
const BROKEN: [(&str, &[&str]); 16] = [
    ("asynchronous_commit", LOST),
    ("early_answer", LOST),
    ("no_request_id", &["one effect"]),
    ("any_body", &["one effect"]),
    ("ids_from_sequence", DENSE),
    ("gaps", DENSE),
    ("late_enqueue", &["jobs"]),
    ("job_gone_at_claim", &["jobs"]),
    ("no_lease_token", &["leases"]),
    ("unread_boundary", &["checkpoints"]),
    ("no_separator", &["checkpoints", "coverage"]),
    ("stale_summary", &["checkpoints"]),
    ("counted_twice", &["counts"]),
    ("no_tenant", &["tenants"]),
    ("leftovers", &["deletion"]),
    ("rewritten_content", &["content"]),
];
/// What was acknowledged is gone: the row is short of it, another message has its id, a repeated append is not known again.
const LOST: &[&str] = &["durability", "prefix", "order", "one effect", "content"];
/// A broken promise is noticed by then.
const NOTICED_WITHIN: Duration = Duration::from_mins(1);
/// Plans that are tried, each with its own seed: whether a promise shows may take a moment that a plan does not come by, and
/// what follows from a broken promise may show before it.
const PLANS: u64 = 3;
/// So many times as many appends lie between two faults where summaries have to be made.
const CALM: u64 = 20;
/// Ids are not dense: the row disagrees with them, a context does, or messages are uncounted that nobody has.
const DENSE: &[&str] = &["order", "coverage", "jobs"];
/// A name, and the promises that it breaks.
type Broken = (&'static str, &'static [&'static str]);
/// Clusters in which promises are broken side by side.
const LANES: usize = 2;

/// A lost lease takes a stalled worker, and twenty seconds. What breaks only while a summary is made takes many summaries, of
/// which a slow machine makes few between two crashes. Everything else shows in crashes.
fn campaign(sabotage: Option<&'static str>, seed: u64) -> Campaign {
    let crashes = [(Fault::StopDatabase, 6), (Fault::KillServer, 3), (Fault::KillWorker, 3)];
    let stall = [(Fault::StallWorker, 1)];
    let plan = match sabotage {
        Some("no_lease_token") => Plan::of(seed, &stall),
        Some("unread_boundary" | "no_separator" | "stale_summary") => {
            Plan::of(seed, &[(Fault::KillWorker, 3)]).slower(CALM)
        }
        Some(_) => Plan::of(seed, &crashes),
        None => Plan::of(seed, &[crashes.as_slice(), &stall].concat()),
    };
    Campaign { sabotage, servers: 1, ..Campaign::new(BINARY, plan) }
}

/// Breaks one promise after the other until none is left; what was not noticed.
async fn lane(left: &Mutex<Vec<Option<Broken>>>) -> Vec<String> {
    // What is not on disk yet stays so for longer: a crash then costs what was not waited for.
    let mut cluster = Cluster::start(&[("wal_writer_delay", "2s")]).await;
    let mut wrong = Vec::new();
    loop {
        let next = left.lock().expect("nobody panics while holding it").pop();
        let Some(broken) = next else { return wrong };
        let sabotage = broken.map(|(name, _)| name);
        let plans = if sabotage.is_some() { PLANS } else { 1 };
        let (mut outcome, mut took) = (Err(String::from("no plan")), Duration::ZERO);
        for seed in (seed()..).take(plans as usize) {
            let began = Instant::now();
            outcome = campaign(sabotage, seed).first_finding(&mut cluster).await.map_err(|report| report.to_string());
            took = began.elapsed();
            let is_known = |finding: &Finding| broken.is_some_and(|(_, promises)| promises.contains(&finding.promise));
            if outcome.as_ref().is_ok_and(is_known) {
                break;
            }
        }
        match (broken, outcome) {
            (Some((broken, promises)), Ok(finding)) => {
                println!("{broken}: {finding}");
                if took > NOTICED_WITHIN {
                    wrong.push(format!("{broken} was noticed only after {took:?}"));
                }
                if !promises.contains(&finding.promise) {
                    wrong.push(format!("{broken} was taken for something else: {finding}"));
                }
            }
            (Some((broken, _)), Err(report)) => wrong.push(format!("{broken} was not noticed: {report}")),
            (None, Ok(finding)) => wrong.push(format!("nothing is broken, and yet: {finding}")),
            (None, Err(report)) => println!("nothing broken: {report}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_promise_that_is_broken_on_purpose_is_noticed_within_a_minute() {
    if !runs_here() {
        return;
    }
    let only = std::env::var("ANNEAL_FAULTS_SABOTAGE").ok();
    let chosen = BROKEN.into_iter().filter(|(broken, _)| only.as_deref().is_none_or(|only| only == *broken));
    let left = Mutex::new(std::iter::once(None).chain(chosen.rev().map(Some)).collect());
    let lanes = futures::future::join_all((0..LANES).map(|_| lane(&left))).await;
    let wrong: Vec<String> = lanes.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
