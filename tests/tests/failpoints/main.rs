//! Injects each fault at each failpoint (`failpoint!` in the sources): the call fails there, it
//! waits there for longer than its time limit, or the process dies there. The tests run real
//! processes under a small load. Afterwards every acknowledged append must be stored once, every
//! job must have ended, and VerifyConversation must find nothing wrong.
//!
//! - `points.rs`: the failpoints, read from the source, and what the load must do to reach each.
//! - `stack.rs`: a server and a worker with one fault, and the checks after the load.
//! - `load.rs`: client calls that reach every failpoint except those of migrations.
//! - `migrations.rs`: `anneal migrate` with one fault, and a second run without a fault.
//! - `anew.rs`: turns that answer a question anew, and whose process dies.
//! - `stops.rs`: turns that are stopped, and whose process dies.
//! - `model_calls.rs`: the lease of a model call whose admission or settlement fails.
//!
//! A failpoint that the load does not reach fails the test. `ANNEAL_FAILPOINTS=word` selects the
//! failpoints whose names contain the word.

mod anew;
mod load;
mod migrations;
mod model_calls;
mod points;
mod stack;
mod stops;

use anneal_store::Grouping;
use anneal_testkit::{append_grouping, gate_or_nightly};
use futures::{StreamExt as _, stream};

use crate::points::{Fault, Point};

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

/// Failpoints at which this fault is injected. At night, and if `ANNEAL_FAILPOINTS` selects some,
/// these are all. The gate injects one fault at each failpoint: at one an error, at the next the
/// death of the process.
fn points_for(fault: Fault) -> Vec<Point> {
    let all = points::all();
    if std::env::var_os("ANNEAL_FAILPOINTS").is_some() {
        return all;
    }
    let interval = gate_or_nightly(2, 1);
    let first = usize::from(fault == Fault::Abort) % interval;
    all.into_iter().skip(first).step_by(interval).collect()
}

/// Failpoints that are tested at the same time. Their processes wait most of the time.
const CONCURRENCY: usize = 10;

/// Injects this fault at the failpoints of [`points_for`].
async fn inject_everywhere(fault: Fault) {
    // Without batching, no append reaches the failpoints of the batches.
    if append_grouping() == Grouping::Off {
        println!("skipped: append.grouping is off, so appends are not batched");
        return;
    }
    let points = points_for(fault);
    assert!(!points.is_empty());
    let count = points.len();
    // Each failpoint has its own thread and runtime, so that a panic fails that failpoint only.
    let runs = stream::iter(points)
        .map(|point| tokio::task::spawn_blocking(move || inject_one(&point, fault)));
    let failed: Vec<_> = runs
        .buffer_unordered(CONCURRENCY)
        .filter(|run| std::future::ready(run.is_err()))
        .collect()
        .await;
    assert!(
        failed.is_empty(),
        "{} of {count} failpoints failed with {fault:?}",
        failed.len()
    );
}

fn inject_one(point: &Point, fault: Fault) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        if point.is_in_migrations() {
            migrations::inject(point, fault).await;
        } else {
            stack::inject(point, fault).await;
        }
    });
    println!("{fault:?} at {}: all checks pass", point.name);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_at_any_failpoint_leaves_all_data_correct() {
    inject_everywhere(Fault::Error).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_wait_at_any_failpoint_leaves_all_data_correct() {
    inject_everywhere(Fault::Delay).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_at_any_failpoint_leaves_all_data_correct() {
    inject_everywhere(Fault::Abort).await;
}

#[test]
fn failpoint_names_are_unique_and_at_least_25() {
    let mut names: Vec<String> = points::names_in_source();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count, "two failpoints share a name");
    // There are 97 (docs/reliability.md). With fewer than 25, the search would miss most of them.
    assert!(
        count >= 25,
        "only {count} failpoints were found in the source"
    );
}
