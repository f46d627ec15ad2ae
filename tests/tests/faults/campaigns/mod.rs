//! Fault campaigns: processes are killed, suspended and cut off under load, and a checker verifies
//! every promise. docs/reliability.md describes the campaigns and their results.
//!
//! - `clocks.rs`: clocks that jump by an hour or are set back.
//! - `crashes.rs`: PostgreSQL is stopped at once, and servers and workers are killed.
//! - `erasures.rs`: everything is killed while a user is erased.
//! - `neighbors.rs`: one tenant attacks another.
//! - `orphans.rs`: jobs whose worker was killed or lost its connections.
//! - `rare.rs`: stalls, lost connections, full disks, operators' actions, and crashes behind a
//!   pooler.
//! - `sabotage.rs`: each promise is broken on purpose, and the checker must notice it.
//! - `soak.rs`: all faults, for `ANNEAL_FAULTS_MINUTES` minutes.
//! - `zombies.rs`: workers that are suspended for longer than their leases.

mod clocks;
mod crashes;
mod erasures;
mod neighbors;
mod orphans;
mod rare;
mod sabotage;
mod soak;
mod zombies;

use anneal_testkit::chaos::Report;

/// The binary under test, `anneal-under-test`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

/// The seed of a run: `ANNEAL_FAULTS_SEED`, or a fixed one, so that every run of the gate (`cargo
/// xtask ci`) is the same.
fn seed() -> u64 {
    std::env::var("ANNEAL_FAULTS_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(20_261_122)
}

/// Whether the campaigns run: always on the installed PostgreSQL, and on one that `ANNEAL_PG_BIN`
/// names only if `ANNEAL_FAULTS` is set as well.
fn runs_here() -> bool {
    let runs =
        std::env::var_os("ANNEAL_PG_BIN").is_none() || std::env::var_os("ANNEAL_FAULTS").is_some();
    if !runs {
        println!(
            "skipped: faults are tested on the installed PostgreSQL only; set ANNEAL_FAULTS=1 to test them on that of ANNEAL_PG_BIN"
        );
    }
    runs
}

/// Events that must happen in a campaign that runs all clients under the faults of a plan. A
/// campaign without one of them has not tested what it claims. "commits cut before" and "commits
/// cut after": the proxy cuts a connection before a commit arrives at PostgreSQL, or after the
/// commit was executed.
const CLIENT_EVENTS: [&str; 24] = [
    "acknowledged",
    "appends in pieces",
    "audits",
    "calls with their results",
    "checkpoints by the model",
    "commits cut after",
    "commits cut before",
    "contexts",
    "counts checked",
    "deleted",
    "edits",
    "erasures",
    "forks",
    "messages compared",
    "messages counted",
    "messages read",
    "repeated",
    "restores",
    "rewinds",
    "separators",
    "sessions found",
    "summaries by the model",
    "turns",
    "withdrawals",
];

/// Prints the reports, and asserts that every event in `required` has happened and that every
/// promise was kept.
#[track_caller]
fn assert_kept(reports: &[Report], required: &[&str]) {
    for report in reports {
        println!("{report}");
        let missing: Vec<&&str> = required
            .iter()
            .filter(|event| report.tally.count(event) == 0)
            .collect();
        assert!(
            missing.is_empty(),
            "seed {}: these events never happened: {missing:?}",
            report.seed
        );
    }
    let findings: Vec<String> = reports
        .iter()
        .flat_map(|report| &report.findings)
        .map(ToString::to_string)
        .collect();
    assert!(findings.is_empty(), "{findings:#?}");
}
