//! Real conversations, where they are at hand: in the folder that `ANNEAL_TEST_DATA` names, or in `shared/data` beside the
//! project. They are not part of it; tests that use them say that they skip.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// The folder with real conversations.
pub struct Data(PathBuf);

impl Data {
    /// The folder, or None and a line that says why the test skips.
    pub fn find() -> Option<Self> {
        let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
        let folder = std::env::var_os("ANNEAL_TEST_DATA").map_or(beside, PathBuf::from);
        if folder.is_dir() {
            return Some(Self(folder));
        }
        println!("skipped: real conversations are not here (set ANNEAL_TEST_DATA)");
        None
    }

    /// A file's path.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A JSON file.
    pub fn json(&self, name: &str) -> Value {
        let text = std::fs::read_to_string(self.path(name)).expect("the file is there");
        serde_json::from_str(&text).expect("the file is JSON")
    }
}
