//! `anneal import` and `anneal export` of files of other systems.
//!
//! - `repeated_import.rs`: imports that run again after a kill, a lost connection or new messages.
//! - `import_conflicts.rs`: imports while a worker runs, of several files, of other logs of the
//!   same name; the output and the report of an import.
//! - `growing_log.rs`: a claw0 log that is imported while it grows.
//! - `broken_files.rs`: files that are broken, have oversized messages or hold no conversation.
//! - `odd_bytes.rs`: NUL, surrogates, byte order marks and invalid UTF-8 in every text format.
//! - `claw0.rs`, `ai_panel.rs`: the titles and times in the index of the sessions.
//! - `openclaw.rs`: sessions as OpenClaw writes them.
//! - `pi_oracle.rs`: compares a context after the import with the messages that pi itself sends.
//! - `export.rs`: an exported conversation is the same when it is imported again.
//! - `export_pi.rs`: checkpoints and messages in an exported pi session.
//! - `export_target.rs`: permissions of the output file, links and pipes, what an interrupted
//!   export leaves, and the order of the checkpoints.
//! - `forked_branches.rs`: side branches of a session become forks.
//! - `withdrawn_export.rs`: exported files lack withdrawn messages.
//! - `large.rs`: memory during the import and export of a conversation of 200 MB.

mod ai_panel;
mod broken_files;
mod claw0;
mod export;
mod export_pi;
mod export_target;
mod forked_branches;
mod growing_log;
mod import_conflicts;
mod large;
mod odd_bytes;
mod openclaw;
mod pi_oracle;
mod repeated_import;
mod withdrawn_export;

use anneal_testkit::TestApp;

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

/// Erases the first versions of all edited messages, as retention does.
async fn delete_first_versions(app: &TestApp) {
    let deleted = sqlx::query("delete from ai_message_version where version = 1")
        .execute(&mut app.db().await)
        .await
        .expect("deletes");
    assert!(deleted.rows_affected() > 0, "a message was edited");
}
