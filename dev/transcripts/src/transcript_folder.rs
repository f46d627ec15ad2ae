//! The folder with real conversations, which are not part of the project.

use std::path::PathBuf;

use anneal_test_data::find_test_data;
use serde_json::Value;

/// The folder with real conversations.
pub struct TranscriptFolder(PathBuf);

impl TranscriptFolder {
    /// Finds the folder. If it does not exist, prints a line that says why the test is skipped, and
    /// returns `None`; panics where test data is required.
    #[track_caller]
    pub fn find() -> Option<Self> {
        find_test_data("").map(Self)
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
