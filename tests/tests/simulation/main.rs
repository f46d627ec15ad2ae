//! Random lists of what may happen to a conversation, hundreds in a minute, on a real PostgreSQL: after every single operation
//! the stated invariants hold. A list that breaks one is shortened to the least that still does, and printed.
//!
//! `ANNEAL_SIMULATION_SECONDS` says for how long (30), `ANNEAL_SIMULATION_SEED` from which seed (1): the same seed gives the
//! same lists.

mod appends;
mod beside;
mod invariants;
mod materials;
mod operations;
mod world;

use std::{
    cell::RefCell,
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anneal_tests::House;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use sqlx::PgConnection;
use tokio::runtime::Runtime;

use crate::{
    operations::Operation,
    world::{Broken, Tally, World},
};

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");
/// Threads, each with a database and a conversation at a time of its own.
const LANES: u64 = 3;
/// Operations of the longest list.
const LONGEST: usize = 24;
/// Lists from one seed.
const LISTS: u32 = 16;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |said| said.parse().expect("a number"))
}

/// One list on a conversation of its own; afterwards nothing of it is left.
async fn play(
    house: &House,
    db: &mut PgConnection,
    (policy, list): &(u8, Vec<Operation>),
    tally: &mut Tally,
) -> Result<(), Broken> {
    let mut world = World::make(house, db, *policy, tally).await;
    let mut broken = None;
    for (place, operation) in list.iter().enumerate() {
        let happened = match world.happen(*operation).await {
            Ok(()) => invariants::hold(&mut world).await,
            broken => broken,
        };
        *world.tally.entry("operations").or_default() += 1;
        if let Err(why) = happened {
            broken = Some(format!("after operation {}, {operation:?}: {why}", place + 1));
            break;
        }
    }
    if broken.is_none() {
        world.settle().await;
        broken = invariants::are_settled(&mut world).await.err().map(|why| format!("when all was done: {why}"));
    }
    // Also after a failure, so that the next list finds nothing of it.
    let ended = world.end().await;
    let left = invariants::nothing_is_left(db).await;
    match broken {
        Some(why) => {
            clear(db).await;
            Err(why)
        }
        None => ended.and(left),
    }
}

async fn clear(db: &mut PgConnection) {
    for statement in
        ["delete from ai_job", "delete from ai_job_dead", "delete from ai_message", "delete from ai_conversation"]
    {
        sqlx::query(statement).execute(&mut *db).await.expect("clears");
    }
}

/// Plays lists until the time is over; returns what has happened.
fn lane(seed: u64, lane: u64, until: Instant) -> Tally {
    let runtime = Runtime::new().expect("a runtime");
    let (house, db) = runtime.block_on(async {
        let house = House::start().await;
        let db = house.db().await;
        (house, db)
    });
    let state = RefCell::new((db, Tally::new()));
    for batch in 0_u64.. {
        if Instant::now() >= until {
            break;
        }
        let mut bytes = [0; 32];
        for (place, part) in [seed, lane, batch].into_iter().enumerate() {
            bytes[8 * place..8 * place + 8].copy_from_slice(&part.to_le_bytes());
        }
        let config = Config { cases: LISTS, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
        let outcome = runner.run(&operations::lists(LONGEST), |list| {
            let (db, tally) = &mut *state.borrow_mut();
            *tally.entry("lists").or_default() += 1;
            runtime.block_on(play(&house, db, &list, tally)).map_err(TestCaseError::fail)
        });
        assert!(outcome.is_ok(), "seed {seed}, lane {lane}, batch {batch}: {}", outcome.expect_err("it is one"));
    }
    state.into_inner().1
}

#[test]
fn whatever_happens_in_whatever_order_every_promise_holds_after_every_step() {
    let seconds = number("ANNEAL_SIMULATION_SECONDS", 30);
    let seed = number("ANNEAL_SIMULATION_SEED", 1);
    let (began, until) = (Instant::now(), Instant::now() + Duration::from_secs(seconds));
    let lanes: Vec<_> = (0..LANES).map(|number| std::thread::spawn(move || lane(seed, number, until))).collect();
    let mut all = BTreeMap::new();
    for lane in lanes {
        let tally = lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        for (what, count) in tally {
            *all.entry(what).or_insert(0) += count;
        }
    }
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
