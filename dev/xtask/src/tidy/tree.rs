//! The files that the rules examine, read only once.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use walkdir::{DirEntry, WalkDir};

use super::Finding;

/// Extensions of files whose text some rule reads. Of other files only the path is stored.
const TEXT_EXTENSIONS: [&str; 5] = ["rs", "toml", "proto", "sql", "md"];

/// The file that lists what git ignores. It is read as well, although it has no extension.
const GITIGNORE: &str = ".gitignore";

/// Folders that are never part of the sources: version control, and the results of builds and
/// tools.
const SKIPPED_FOLDERS: [&str; 6] = [
    ".git",
    "target",
    ".anneal",
    ".tools",
    "__pycache__",
    "node_modules",
];

/// Texts by path relative to the root, with `/` between its parts.
pub(super) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads the tree below `root`, except [`SKIPPED_FOLDERS`] and folders marked as caches.
    pub(super) fn load(root: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        for entry in WalkDir::new(root)
            .into_iter()
            .filter_entry(|entry| !is_skipped(entry))
        {
            let entry = entry?;
            if !entry.file_type().is_file() {
                continue;
            }
            let parts: Vec<_> = entry
                .path()
                .strip_prefix(root)?
                .iter()
                .map(|part| part.to_string_lossy())
                .collect();
            let text = text(entry.path()).with_context(|| entry.path().display().to_string())?;
            files.insert(parts.join("/"), text);
        }
        Ok(Self { files })
    }

    /// A tree with the given paths and texts.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        Self {
            files: files
                .iter()
                .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
                .collect(),
        }
    }

    /// The text of this file; `None` if there is no such file. Empty if no rule reads files with
    /// its extension ([`TEXT_EXTENSIONS`]).
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether a file or folder of this path exists.
    pub(super) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        self.files.contains_key(path) || self.files.keys().any(|file| is_below(file, path))
    }

    /// All paths, sorted.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Paths and texts of the files below a folder (`""` is the whole tree) with this extension.
    pub(super) fn files<'a>(
        &'a self,
        folder: &'a str,
        extension: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.files
            .iter()
            .filter(move |(path, _)| folder.is_empty() || is_below(path, folder))
            .filter(move |(path, _)| {
                path.rsplit_once('.')
                    .is_some_and(|(_, found)| found == extension)
            })
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }
}

/// A finding in a file. Lines are counted from 1.
pub(super) fn finding(
    path: &str,
    line: usize,
    rule: &'static str,
    sentence: impl Into<String>,
) -> Finding {
    Finding {
        path: path.to_owned(),
        line,
        rule,
        sentence: sentence.into(),
    }
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// Whether the folder is skipped: because of its name, or because it marks itself as a cache (a
/// target folder with another name).
fn is_skipped(entry: &DirEntry) -> bool {
    let name = entry.file_name().to_string_lossy();
    let below_root = entry.depth() > 0 && entry.file_type().is_dir();
    below_root && (SKIPPED_FOLDERS.contains(&&*name) || entry.path().join("CACHEDIR.TAG").exists())
}

fn text(path: &Path) -> Result<String> {
    let is_read = path
        .extension()
        .is_some_and(|extension| TEXT_EXTENSIONS.iter().any(|text| extension == *text))
        || path.file_name().is_some_and(|name| name == GITIGNORE);
    if is_read {
        Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
    } else {
        Ok(String::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loading_reads_sources_and_skips_build_results() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["core/src", "target/debug", "other-target"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        fs::write(root.path().join("core/src/lib.rs"), "//! Core.").unwrap();
        fs::write(root.path().join("target/debug/x.rs"), "").unwrap();
        fs::write(root.path().join(".gitignore"), "/target").unwrap();
        fs::write(root.path().join("other-target/CACHEDIR.TAG"), "").unwrap();
        let tree = Tree::load(root.path()).unwrap();
        assert_eq!(
            tree.paths().collect::<Vec<_>>(),
            [".gitignore", "core/src/lib.rs"]
        );
        assert_eq!(tree.text(".gitignore"), Some("/target"));
        assert_eq!(tree.text("core/src/lib.rs"), Some("//! Core."));
    }

    #[test]
    fn a_tree_has_its_files_and_their_folders_and_nothing_else() {
        let tree = Tree::of(&[("core/src/lib.rs", "")]);
        assert!(tree.has("core/src/lib.rs") && tree.has("core/src/") && tree.has("core"));
        assert!(!tree.has("cor") && !tree.has("core/src/lib"));
    }
}
