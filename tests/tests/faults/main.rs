//! Proof under faults: whole processes are killed, stopped and cut off under load, and a checker that knows every promise finds
//! none broken. docs/reliability.md says what is done and what came of it.

mod clocks;
mod crashes;
mod neighbours;
mod orphans;
mod rare;
#[cfg(feature = "sabotage")]
mod sabotage;
mod soak;
mod zombies;

use anneal_tests::chaos::Report;

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

/// The seed of a run: `ANNEAL_FAULTS_SEED`, or a fixed one, so that the gate does the same every time.
fn seed() -> u64 {
    std::env::var("ANNEAL_FAULTS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_122)
}

/// Whether these tests run here: on the installed PostgreSQL, which the gate tests everything on. On one that `ANNEAL_PG_BIN`
/// names only where `ANNEAL_FAULTS` is set too.
fn runs_here() -> bool {
    let runs = std::env::var_os("ANNEAL_PG_BIN").is_none() || std::env::var_os("ANNEAL_FAULTS").is_some();
    if !runs {
        println!("skipped: faults are tested on the installed PostgreSQL; ANNEAL_FAULTS=1 tests them on this one");
    }
    runs
}

/// What every campaign with clients comes to, beside its faults: where one of these was never done, less was checked than is
/// said.
const LIVELY: [&str; 17] = [
    "acknowledged",
    "appends in pieces",
    "audits",
    "calls with their results",
    "checkpoints by the model",
    "commits cut after",
    "commits cut before",
    "contexts",
    "deleted",
    "messages compared",
    "messages counted",
    "messages read",
    "repeated",
    "separators",
    "sessions found",
    "summaries by the model",
    "turns",
];

/// Prints what was done, and asserts that no promise was broken, and that all of `done` was done.
#[track_caller]
fn holds(reports: &[Report], done: &[&str]) {
    for report in reports {
        println!("{report}");
        let missing: Vec<&&str> = done.iter().filter(|what| report.tally.of(what) == 0).collect();
        assert!(missing.is_empty(), "seed {}: never done: {missing:?}", report.seed);
    }
    let found: Vec<String> = reports.iter().flat_map(|report| &report.findings).map(ToString::to_string).collect();
    assert!(found.is_empty(), "{found:#?}");
}
