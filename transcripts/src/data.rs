//! Where real conversations lie: in the folder that `ANNEAL_TEST_DATA` names, or in `shared/data` beside the project. They
//! are not part of it; tests that use them say that they skip.

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

    /// A file's text.
    pub fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("the file is there")
    }

    /// A JSON file.
    pub fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.text(name)).expect("the file is JSON")
    }

    /// Names of a folder's files that end so, sorted; with the folder, so that they can be read by these names.
    pub(crate) fn files(&self, folder: &str, ending: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(folder)).expect("the folder is there");
        let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> =
            names.filter(|name| name.ends_with(ending)).map(|name| format!("{folder}/{name}")).collect();
        names.sort();
        names
    }
}

/// A file's name without folder and endings.
pub(crate) fn stem(name: &str) -> &str {
    let name = name.rsplit('/').next().unwrap_or(name);
    name.split_once('.').map_or(name, |(stem, _)| stem)
}
