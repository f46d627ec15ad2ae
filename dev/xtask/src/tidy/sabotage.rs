//! Code that ships must not help to break the promises of docs/reliability.md on purpose. Tests
//! break them from outside, to show that a broken promise is noticed
//! (`dev/testkit/src/chaos/sabotage.rs`).

use super::Finding;
use super::tree::{Tree, finding};

/// Folders of what ships.
const SHIPPED: [&str; 13] = [
    "cli",
    "core",
    "formats",
    "gateway",
    "llm",
    "local-postgres",
    "migrations",
    "process",
    "proto",
    "server",
    "store",
    "trace",
    "worker",
];

/// Extensions of files with code, or with features of Cargo.
const EXTENSIONS: [&str; 4] = ["rs", "toml", "proto", "sql"];

const WORD: &str = "sabotage";

/// Finds lines of files that ship with [`WORD`] in them, in upper or lower case, even in a comment.
pub(super) fn absent(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for folder in SHIPPED {
        for extension in EXTENSIONS {
            for (path, text) in tree.files(folder, extension) {
                let lines = (1..).zip(text.lines());
                for (line, _) in lines.filter(|(_, text)| text.to_lowercase().contains(WORD)) {
                    let sentence = "what breaks promises on purpose belongs to dev/testkit/";
                    findings.push(finding(path, line, "sabotage", sentence));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_found_in_manifests_and_code_that_ship() {
        let tree = Tree::of(&[
            ("store/Cargo.toml", "[features]\nsabotage = []\n"),
            (
                "cli/src/config.rs",
                "//! Settings.\nconst NAME: &str = \"ANNEAL_SABOTAGE\";\n",
            ),
            ("store/sql/append.sql", "-- Appends.\nselect 1\n"),
            ("dev/testkit/src/chaos/sabotage.rs", "//! Sabotage.\n"),
        ]);
        let found: Vec<String> = absent(&tree).iter().map(ToString::to_string).collect();
        let sentence = "sabotage: what breaks promises on purpose belongs to dev/testkit/";
        assert_eq!(
            found,
            [
                format!("cli/src/config.rs:2: {sentence}"),
                format!("store/Cargo.toml:2: {sentence}"),
            ]
        );
    }
}
