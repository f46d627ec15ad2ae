//! The TypeScript programs of the tutorial, if they are compiled.

use std::path::{Path, PathBuf};

use crate::missing_tool::skip_outside_gate;

/// The folder with the programs as JavaScript, as scripts/typescript.sh compiled them. Returns
/// None, and prints that the test is skipped, if they are missing; panics in the gate.
pub fn typescript_programs() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/typescript");
    // The script writes this file last.
    if folder.join("made_of").is_file() {
        return Some(folder.join("typescript/dist/typescript"));
    }
    skip_outside_gate(
        "the TypeScript programs are not compiled (scripts/typescript.sh .tools/typescript compiles them)",
    );
    None
}
