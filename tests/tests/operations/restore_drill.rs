//! Restores a cluster as docs/runbooks.md describes, with the script that people run for practice.

use std::path::Path;

use anneal_testkit::postgres_binaries;
use tokio::process::Command;

use crate::BINARY;

#[tokio::test]
async fn a_lost_cluster_is_restored_from_backup_and_archive_to_the_end_and_to_a_point_in_time() {
    if std::env::var_os("ANNEAL_PG_BIN").is_some() && std::env::var_os("ANNEAL_FAULTS").is_none() {
        println!(
            "skipped: restoring is tested on the installed PostgreSQL only; set ANNEAL_FAULTS=1 to test it on that of ANNEAL_PG_BIN"
        );
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/restore_drill.sh");
    let mut drill = Command::new(script);
    drill
        .arg(BINARY)
        .env("ANNEAL_PG_BIN", postgres_binaries().folder())
        .kill_on_drop(true);
    let ran = drill.output().await.expect("bash runs it");
    let (output, errors) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    println!("{output}");
    assert!(ran.status.success(), "{output}{errors}");
    assert!(
        output
            .trim_end()
            .ends_with("restored twice, nothing missing"),
        "{output}{errors}"
    );
}
