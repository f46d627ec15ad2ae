//! The gRPC client for Python, if it is installed. It is a second implementation besides the Rust
//! client that the other tests use.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// The value of PYTHONPATH that finds `grpc` and the stubs of proto/, as scripts/python_client.sh
/// installed them. Returns None, and prints that the test is skipped, if they are missing.
pub fn python_path() -> Option<OsString> {
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/python");
    // The script writes this file last.
    if client.join("made_of").is_file() {
        let folders: [PathBuf; 2] = [client.join("packages"), client.join("stubs")];
        return Some(std::env::join_paths(folders).expect("no colons in the project's path"));
    }
    println!(
        "skipped: gRPC for Python is not installed (scripts/python_client.sh .tools/python installs it)"
    );
    None
}
