//! Code that ships takes no part in breaking promises: tests break them from outside
//! (`dev/testkit/src/chaos/sabotage.rs`).

use super::Finding;
use super::tree::{Tree, finding};

/// Folders of what ships.
const SHIPPED: [&str; 12] = [
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
    "worker",
];

/// Extensions of files with code or features.
const EXTENSIONS: [&str; 4] = ["rs", "toml", "proto", "sql"];

const WORD: &str = "sabotage";

/// No file that ships contains the word, in any case, not even in a comment.
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
    fn features_variables_and_modules_that_break_promises_are_found_in_what_ships() {
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
