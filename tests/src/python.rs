//! gRPC for Python, where it is at hand: another implementation than the one that the rest of the tests call with.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// Where `import grpc` and the stubs of proto/ are found, where scripts/python_client.sh has put them; None and a line that says
/// why the test skips.
pub fn python_path() -> Option<OsString> {
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/python");
    if client.join("made_of").is_file() {
        let folders: [PathBuf; 2] = [client.join("packages"), client.join("stubs")];
        return Some(std::env::join_paths(folders).expect("no colons in the project's path"));
    }
    println!("skipped: gRPC for Python is not here (scripts/python_client.sh .tools/python)");
    None
}
