//! Forbids code that ships with the product to reduce the database's durability.

use super::Finding;
use super::rust::strings;
use super::tree::{Tree, finding};

/// The file that may mention the settings: it only queries them.
const MAY_NAME: &str = "store/src/durability.rs";

/// Settings that must not be changed, and table options that lose data in a crash.
const WORDS: [&str; 4] = [
    "fsync",
    "full_page_writes",
    "synchronous_commit",
    "unlogged",
];

/// No statement of the store or of a migration contains one of [`WORDS`].
pub(super) fn kept(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree
        .files("store", "rs")
        .filter(|(path, _)| *path != MAY_NAME)
    {
        for (literal, line) in strings(text) {
            findings.extend(named(&literal).map(|word| said(path, line, word)));
        }
    }
    for (path, text) in tree
        .files("store", "sql")
        .chain(tree.files("migrations", "sql"))
    {
        for (index, line) in text.lines().enumerate() {
            let statement = line
                .split_once("--")
                .map_or(line, |(statement, _)| statement);
            findings.extend(named(statement).map(|word| said(path, index + 1, word)));
        }
    }
    findings
}

fn named(text: &str) -> impl Iterator<Item = &'static str> {
    let text = text.to_lowercase();
    WORDS.into_iter().filter(move |word| text.contains(word))
}

fn said(path: &str, line: usize, word: &str) -> Finding {
    finding(
        path,
        line,
        "durability",
        format!("`{word}` weakens what an acknowledgement means"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_weaken_commits_are_found_but_queries_of_settings_are_not() {
        let tree = Tree::of(&[
            (
                "store/src/append.rs",
                "// fsync\nfn f() { sqlx::query(\"set local synchronous_commit = off\"); }",
            ),
            (
                MAY_NAME,
                "fn f() { sqlx::query(\"select name from pg_settings where name = 'fsync'\"); }",
            ),
            (
                "store/sql/append.sql",
                "-- Never fsync.\nselect set_config('synchronous_commit', 'off', true)\n",
            ),
            (
                "migrations/0009_fast.sql",
                "-- Fast.\ncreate UNLOGGED table a ();\n",
            ),
        ]);
        let found: Vec<_> = kept(&tree)
            .into_iter()
            .map(|found| (found.path, found.line))
            .collect();
        let expected = [
            ("store/src/append.rs", 2),
            ("store/sql/append.sql", 2),
            ("migrations/0009_fast.sql", 2),
        ];
        assert_eq!(found, expected.map(|(path, line)| (path.to_owned(), line)));
    }
}
