//! Random lists of what may happen to a conversation, thousands in a minute, on a real PostgreSQL. After every operation the
//! invariants hold that one statement can judge: rows, jobs that are due. After one operation of each list is looked closely, at
//! what callers are told, a context, verification, and when all is done at everything. A list that breaks an invariant is
//! shortened to the least that still does, with everything looked at after every operation, and printed.
//!
//! `ANNEAL_SIMULATION_SECONDS` says for how long (30), `ANNEAL_SIMULATION_SEED` from which seed (1): the same seed gives the
//! same lists. Where something has never happened by then, the next seeds follow.

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
    let mut all = BTreeMap::new();
    for seed in (seed..).take(ROUNDS) {
        play(seed, Duration::from_secs(seconds), &mut all);
        if never(&all).is_empty() {
            return;
        }
    }
    panic!("never: {:?}", never(&all));
}

/// How often other lists are played where a slow machine has come by too few for everything to have happened.
const ROUNDS: usize = 4;

/// Plays lists of a seed for so long.
fn play(seed: u64, how_long: Duration, all: &mut BTreeMap<&'static str, u64>) {
    let (began, before) = (Instant::now(), all.get("lists").copied().unwrap_or_default());
    let run = &Run { seed, began, until: began + how_long, broken: AtomicBool::new(false) };
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
    println!("seed {seed}: {:.0} lists a minute: {all:#?}", (all["lists"] - before) as f64 / minutes);
}

/// What has to happen, because nothing is proved by what never does.
const HAPPENS: [&str; 13] = [
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
];

fn never(all: &BTreeMap<&'static str, u64>) -> Vec<&'static str> {
    HAPPENS.into_iter().filter(|what| all.get(what).is_none_or(|count| *count == 0)).collect()
}
