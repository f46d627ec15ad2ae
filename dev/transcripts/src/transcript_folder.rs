//! Finds the folder with real conversations: the one in `ANNEAL_TEST_DATA`, or `shared/data` next
//! to the project. The conversations are not part of the project. If they are missing, tests that
//! need them print that they are skipped.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// The folder with real conversations.
pub struct TranscriptFolder(PathBuf);

impl TranscriptFolder {
    /// Finds the folder. If it does not exist, prints a line that says why the test is skipped, and
    /// returns `None`.
    pub fn find() -> Option<Self> {
        let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
        let folder = std::env::var_os("ANNEAL_TEST_DATA").map_or(default, PathBuf::from);
        if folder.is_dir() {
            return Some(Self(folder));
        }
        println!("skipped: the folder with real conversations is missing (set ANNEAL_TEST_DATA)");
        None
    }

    /// The path of a file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The text of a file.
    pub fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("the file is there")
    }

    /// The contents of a JSON file.
    pub fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.text(name)).expect("the file is JSON")
    }

    /// The names of the files in a folder with this ending, sorted. They include the folder, so
    /// that they can be passed to the other functions.
    pub(crate) fn files(&self, folder: &str, ending: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(folder)).expect("the folder is there");
        let names = entries.map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        });
        let mut names: Vec<String> = names
            .filter(|name| name.ends_with(ending))
            .map(|name| format!("{folder}/{name}"))
            .collect();
        names.sort();
        names
    }
}

/// A file's name without folder and extensions.
pub(crate) fn stem(name: &str) -> &str {
    let name = name.rsplit('/').next().unwrap_or(name);
    name.split_once('.').map_or(name, |(stem, _)| stem)
}
