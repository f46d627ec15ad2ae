//! What docs/runbooks.md says about restoring is done, by the script that people run for practice.

use std::path::Path;

use anneal_tests::postgres_binaries;
use tokio::process::Command;

use crate::BINARY;

#[tokio::test]
async fn a_lost_cluster_comes_back_from_its_backup_and_archive_to_the_end_and_to_a_moment() {
    if std::env::var_os("ANNEAL_PG_BIN").is_some() && std::env::var_os("ANNEAL_FAULTS").is_none() {
        println!("skipped: restoring is tested on the installed PostgreSQL; ANNEAL_FAULTS=1 tests it on this one");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/restore_drill.sh");
    let mut drill = Command::new(script);
    drill.arg(BINARY).env("ANNEAL_PG_BIN", postgres_binaries().folder()).kill_on_drop(true);
    let ran = drill.output().await.expect("bash runs it");
    let (said, errors) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    println!("{said}");
    assert!(ran.status.success(), "{said}{errors}");
    assert!(said.trim_end().ends_with("restored twice, nothing missing"), "{said}{errors}");
}
