//! Every place where a process can go wrong (`failpoint!` in the store and the worker), each with each fault: a call fails
//! there, waits there beyond what bounds it, or the process dies there. Real processes under a small load; afterwards every
//! acknowledged append is there once, every job has ended, and every promise is kept.
//!
//! The list of places is read from the source: one that the load does not come by fails the matrix. `ANNEAL_FAILPOINTS=word`
//! visits only places whose names hold the word.

mod calls;
mod load;
mod migrations;
mod points;
mod stack;

use anneal_store::Grouping;
use anneal_tests::grouping;
use futures::{StreamExt as _, stream};

use crate::points::{Fault, Point};

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

/// Stacks of processes that are under way at once: most of them wait.
const AT_ONCE: usize = 10;

/// Visits every place with this fault.
async fn visit(fault: Fault) {
    // The places of appends that share a transaction are not come by without them.
    if grouping() == Grouping::Off {
        println!("skipped: appends share nothing here");
        return;
    }
    let points = points::all();
    assert!(!points.is_empty());
    let visited = points.len();
    // Each on a thread and a runtime of its own, so that a panic says where.
    let visits = stream::iter(points).map(|point| tokio::task::spawn_blocking(move || visit_one(&point, fault)));
    let failed: Vec<_> =
        visits.buffer_unordered(AT_ONCE).filter(|visit| std::future::ready(visit.is_err())).collect().await;
    assert!(failed.is_empty(), "{} of {visited} places broke a promise with {fault:?}", failed.len());
}

fn visit_one(point: &Point, fault: Fault) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        if point.is_of_migrations() {
            migrations::visit(point, fault).await;
        } else {
            stack::visit(point, fault).await;
        }
    });
    println!("{fault:?} at {}: every promise is kept", point.name);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_anywhere_breaks_no_promise() {
    visit(Fault::Error).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_wait_anywhere_breaks_no_promise() {
    visit(Fault::Delay).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_anywhere_breaks_no_promise() {
    visit(Fault::Abort).await;
}

#[test]
fn there_are_many_places_and_no_two_have_one_name() {
    let mut names: Vec<String> = points::in_source();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count, "a name that stands twice is two places");
    assert!(count >= 25, "{count} places");
}
