//! Random lists of what may happen to a conversation, thousands in a minute, on a real PostgreSQL. After every operation the
//! invariants hold that one statement can judge: rows, jobs that are due. After one operation of each list is looked closely, at
//! what callers are told, a context, verification, and when all is done at everything. A list that breaks an invariant is
//! shortened to the least that still does, with everything looked at after every operation, and printed.
//!
//! `ANNEAL_SIMULATION_SECONDS` says for how long (30), `ANNEAL_SIMULATION_SEED` from which seed (1): the same seed gives the
//! same lists.

mod appends;
mod beside;
mod invariants;
mod lane;
mod materials;
mod operations;
mod rows;
mod world;

use std::{
    collections::BTreeMap,
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use crate::lane::Run;

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");
/// Threads, each with a database and a conversation at a time of its own.
const LANES: u64 = 3;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |said| said.parse().expect("a number"))
}

#[test]
fn whatever_happens_in_whatever_order_every_promise_holds_after_every_step() {
    let seconds = number("ANNEAL_SIMULATION_SECONDS", 30);
    let seed = number("ANNEAL_SIMULATION_SEED", 1);
    let began = Instant::now();
    let run = &Run { seed, began, until: began + Duration::from_secs(seconds), broken: AtomicBool::new(false) };
    let mut all = BTreeMap::new();
    std::thread::scope(|threads| {
        let lanes: Vec<_> = (0..LANES).map(|number| threads.spawn(move || lane::play(run, number))).collect();
        for lane in lanes {
            let tally = lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            for (what, count) in tally {
                *all.entry(what).or_insert(0) += count;
            }
        }
    });
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    println!("seed {seed}: {:.0} lists a minute: {all:#?}", all["lists"] as f64 / minutes);
    // What never happens proves nothing.
    for what in [
        "appends repeated",
        "results of tools",
        "calls with their results in checkpoints",
        "imports",
        "rotations repeated",
        "request ids reused",
        "counts of lost leases",
        "jobs rescued",
        "summaries begun",
        "zombies woken",
        "conversations made again",
        "checkpoints",
        "summaries of messages",
    ] {
        assert!(all.get(what).is_some_and(|count| *count > 0), "{what}: never");
    }
}
