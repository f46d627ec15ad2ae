//! Statements of the store and of the migrations must not reduce the database's durability.

use super::Finding;
use super::rust::strings;
use super::tree::{Tree, finding};

/// The file that may name the settings, because it only queries them.
const SETTINGS_QUERY_FILE: &str = "store/src/durability.rs";

/// Settings that must not be changed, and a table option that loses data in a crash.
const WORDS: [&str; 4] = [
    "fsync",
    "full_page_writes",
    "synchronous_commit",
    "unlogged",
];

/// Returns where durability may be reduced: string literals of the store's Rust code, and
/// statements in `.sql` files of the store and in migrations, that contain one of [`WORDS`]. No
/// other code is read.
pub(super) fn unreduced(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree
        .files("store", "rs")
        .filter(|(path, _)| *path != SETTINGS_QUERY_FILE)
    {
        for (literal, line) in strings(text) {
            findings.extend(words_in(&literal).map(|word| word_finding(path, line, word)));
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
            findings.extend(words_in(statement).map(|word| word_finding(path, index + 1, word)));
        }
    }
    findings
}

fn words_in(text: &str) -> impl Iterator<Item = &'static str> {
    let text = text.to_lowercase();
    WORDS.into_iter().filter(move |word| text.contains(word))
}

fn word_finding(path: &str, line: usize, word: &str) -> Finding {
    finding(
        path,
        line,
        "durability",
        format!("`{word}` can make a crash lose acknowledged data"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_statements_only_and_not_in_the_file_that_queries_the_settings() {
        let tree = Tree::of(&[
            (
                "store/src/append.rs",
                "// fsync\nfn f() { sqlx::query(\"set local synchronous_commit = off\"); }",
            ),
            (
                SETTINGS_QUERY_FILE,
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
        let found: Vec<_> = unreduced(&tree)
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
