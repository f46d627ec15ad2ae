//! Simulation: random lists of operations on a conversation, thousands a minute, on a real
//! PostgreSQL. After every operation the simulation checks what is fast to check: the rows and the
//! due jobs. After one operation of each list it also compares the messages that a caller reads,
//! checks a context and verifies the conversation. After the last operation it checks everything. A
//! list that violates an invariant is shortened as far as a shorter list still violates one, and
//! printed. Shortened lists run with all checks after every operation, if the whole list violates
//! an invariant with these checks too.
//!
//! - `operations.rs`: the operations, and how often each is generated.
//! - `policies_and_messages.rs`: the policies and messages that the operations use.
//! - `messages.rs`: the messages that the conversation must have: their versions and states.
//! - `conversation.rs`: the simulated conversation and its workers, and how each operation is
//!   performed.
//! - `appends.rs`: the append operation and its expected result.
//! - `changes.rs`: the operations that change messages, and their expected results.
//! - `forks.rs`: the operation that forks the conversation.
//! - `turns.rs`: turns, also those that answer a question anew and those that are stopped;
//!   `alternatives.rs`: the answers that they replace, and the choice of one; `turn_script.rs`: the
//!   model of the turns.
//! - `other_conversations.rs`: the operations on a session and on an imported file.
//! - `contexts.rs`: contexts over the API.
//! - `invariants.rs`: what must hold after every operation, after a list, and after the deletion.
//! - `stored_rows.rs`: the conversation's rows, read by one statement, against the expected ones.
//! - `retold.rs`: contexts against those of a conversation that was only told what is left.
//! - `list_runner.rs`: generates, performs and shortens lists in one thread.
//!
//! `ANNEAL_SIMULATION_SECONDS` sets the duration for each seed (10, at night 60) and
//! `ANNEAL_SIMULATION_SEED` the first seed (1). A seed always gives the same lists; how many of
//! them run depends on the machine. If a required event has not happened after that time, the
//! simulation continues with the next seed.

mod alternatives;
mod appends;
mod changes;
mod contexts;
mod conversation;
mod forks;
mod invariants;
mod list_runner;
mod messages;
mod operations;
mod other_conversations;
mod policies_and_messages;
mod retold;
mod stored_rows;
mod turn_script;
mod turns;

use std::{
    collections::BTreeMap,
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use anneal_testkit::{chaos::Sabotage, gate_or_nightly};

use crate::simulation::list_runner::{RunEnd, SharedRun};

/// The binary under test, `anneal-under-test`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");
/// Number of threads. Each has its own database and one simulated conversation at a time.
const THREADS: u64 = 3;

/// Reads a number from an environment variable.
fn number_from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

#[test]
fn every_promise_holds_after_every_operation_in_any_order() {
    let seconds = number_from_env("ANNEAL_SIMULATION_SECONDS", gate_or_nightly(10, 60));
    let first_seed = number_from_env("ANNEAL_SIMULATION_SEED", 1);
    let mut events = BTreeMap::new();
    for seed in (first_seed..).take(SEEDS) {
        run_seed(seed, Duration::from_secs(seconds), &mut events);
        if missing_events(&events).is_empty() {
            return;
        }
    }
    panic!("these events never happened: {:?}", missing_events(&events));
}

/// Most seeds that are run. A slow machine may need several until every required event has
/// happened.
const SEEDS: usize = 4;

/// Runs lists of a seed for this duration, and adds its events to `events`, which has those of
/// earlier seeds.
fn run_seed(seed: u64, duration: Duration, events: &mut BTreeMap<&'static str, u64>) {
    let began = Instant::now();
    let earlier_lists = events.get("lists").copied().unwrap_or_default();
    let run = &SharedRun {
        seed,
        began,
        end: RunEnd::At(began + duration),
        violated: AtomicBool::new(false),
        sabotage: None,
    };
    std::thread::scope(|threads| {
        let runners: Vec<_> = (0..THREADS)
            .map(|number| threads.spawn(move || list_runner::run_lists(run, number)))
            .collect();
        for runner in runners {
            let tally = runner
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                .unwrap_or_else(|violation| panic!("{violation}"));
            for (event, count) in tally {
                *events.entry(event).or_insert(0) += count;
            }
        }
    });
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    println!(
        "seed {seed}: {:.0} lists a minute: {events:#?}",
        (events["lists"] - earlier_lists) as f64 / minutes
    );
}

/// What is broken on purpose about turns, and words of the violation by which it must be noticed.
const SABOTAGES: [(&Sabotage, &str); 2] = [
    (Sabotage::UNCHECKED_ANSWER, "was to be Changed"),
    (Sabotage::UNWITHDRAWN_CHOICE, ", Choose("),
];

/// Batches of lists in which each of [`SABOTAGES`] must be noticed.
const SABOTAGED_BATCHES: u64 = 32;

#[test]
fn answers_without_a_lease_and_choices_that_withdraw_nothing_are_noticed() {
    for (sabotage, words) in SABOTAGES {
        let began = Instant::now();
        let run = SharedRun {
            seed: 1,
            began,
            end: RunEnd::AfterBatches(SABOTAGED_BATCHES),
            violated: AtomicBool::new(false),
            sabotage: Some(sabotage),
        };
        let violation = list_runner::run_lists(&run, 0).expect_err("a broken promise is noticed");
        println!("{}, {:.1?}: {violation}", sabotage.name, began.elapsed());
        let first = violation.split("; shortened: ").next().unwrap_or_default();
        assert!(first.contains(words), "{}: {violation}", sabotage.name);
    }
}

/// Events that must happen at least once. Otherwise the run would prove nothing about them.
const REQUIRED_EVENTS: [&str; 36] = [
    "appends repeated",
    "results of tools",
    "calls with their results in checkpoints",
    "imports",
    "rotations repeated",
    "request ids reused",
    "counts of lost leases",
    "jobs rescued",
    "summaries begun",
    "stalled workers resumed",
    "conversations recreated",
    "checkpoints",
    "summaries of messages",
    "messages withdrawn",
    "rewinds",
    "messages restored",
    "messages edited",
    "messages erased",
    "edits at once",
    "forks",
    "checkpoints void",
    "changes repeated",
    "request ids of changes reused",
    "MESSAGE_ERASED",
    "counts refused after a change",
    "summaries finished after a change",
    "conversations retold",
    "questions answered",
    "questions answered anew",
    "edited questions answered",
    "answers stopped and kept",
    "answers stopped and dropped",
    "turns ended by a change",
    "turns repeated",
    "request ids of turns reused",
    "answers chosen",
];

fn missing_events(events: &BTreeMap<&'static str, u64>) -> Vec<&'static str> {
    REQUIRED_EVENTS
        .into_iter()
        .filter(|event| events.get(event).is_none_or(|count| *count == 0))
        .collect()
}
