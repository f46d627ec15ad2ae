//! SQL is only in the store, in the migrations, and in the few other folders that are listed here.
//! It has the same style everywhere.

use super::Finding;
use super::rust::{lines_with, strings};
use super::tree::{Tree, finding};

/// Folders whose Rust code may call sqlx: the store, and the tests and their harness, which inspect
/// the database.
const CALLERS: [&str; 3] = ["store", "tests", "dev/testkit"];

/// Folders that may have .sql files. Those in tests are statements of earlier versions, those in
/// dev/testkit checks and sabotage of a running database, those in dev/bench scripts for pgbench
/// and psql; those in docker create roles.
const FOLDERS: [&str; 6] = [
    "store",
    "migrations",
    "tests",
    "dev/testkit",
    "dev/bench",
    "docker",
];

/// Keywords that must be in lower case. Others are not checked.
const KEYWORDS: [&str; 36] = [
    "ADD",
    "ALTER",
    "AND",
    "AS",
    "BY",
    "CHECK",
    "COLUMN",
    "CONFLICT",
    "CONSTRAINT",
    "CREATE",
    "DEFAULT",
    "DELETE",
    "DROP",
    "FROM",
    "GROUP",
    "INDEX",
    "INSERT",
    "INTO",
    "JOIN",
    "LIMIT",
    "NOT",
    "NULL",
    "ON",
    "OR",
    "ORDER",
    "PRIMARY",
    "REFERENCES",
    "RETURNING",
    "SELECT",
    "SET",
    "TABLE",
    "UNIQUE",
    "UPDATE",
    "VALUES",
    "WHERE",
    "WITH",
];

/// The beginnings by which a Rust string is recognized as a statement.
const STATEMENTS: [&str; 5] = ["select ", "insert ", "update ", "delete ", "with "];

/// Finds SQL outside of [`CALLERS`] and [`FOLDERS`], keywords in upper case, `select *` and
/// `returning *`, and files in store/sql/ that do not begin with a comment.
pub(super) fn tidy(tree: &Tree) -> Vec<Finding> {
    let mut findings = find_misplaced(tree);
    for (path, text) in tree.files("", "sql") {
        if path.starts_with("store/sql/") && !text.starts_with("--") {
            findings.push(finding(
                path,
                1,
                "sql",
                "the first line says what the statement does and why: `-- …`",
            ));
        }
        findings.extend(check_words(path, text, 1));
    }
    for (path, text) in tree.files("store", "rs") {
        for (literal, line) in strings(text) {
            let start = literal
                .trim_start_matches(['r', '#', '"', '\\', '\n', ' '])
                .to_lowercase();
            if STATEMENTS
                .iter()
                .any(|statement| start.starts_with(statement))
            {
                findings.extend(check_words(path, &literal, line));
            }
        }
    }
    findings
}

fn find_misplaced(tree: &Tree) -> Vec<Finding> {
    let is_in = |path: &str, folders: &[&str]| {
        folders.iter().any(|folder| {
            let rest = path.strip_prefix(folder);
            rest.is_some_and(|rest| rest.starts_with('/'))
        })
    };
    let mut findings = Vec::new();
    for (path, text) in tree
        .files("", "rs")
        .filter(|(path, _)| !is_in(path, &CALLERS))
    {
        for line in lines_with(text, &["sqlx", ":", ":", "query*"]) {
            findings.push(finding(path, line, "sql", "statements belong to the store"));
        }
    }
    for (path, _) in tree
        .files("", "sql")
        .filter(|(path, _)| !is_in(path, &FOLDERS))
    {
        findings.push(finding(
            path,
            1,
            "sql",
            "statements belong to store/ and migrations/, roles to docker/",
        ));
    }
    findings
}

/// Checks the keywords and stars of a statement that starts on this line of the file.
fn check_words(path: &str, text: &str, first_line: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in without_comments_and_strings(text).lines().enumerate() {
        let line_number = first_line + index;
        let words: Vec<&str> = line
            .split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .collect();
        for word in words.iter().filter(|word| KEYWORDS.contains(word)) {
            findings.push(finding(
                path,
                line_number,
                "sql",
                format!("{word} is written in lower case"),
            ));
        }
        let single_spaced = line
            .to_lowercase()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        if single_spaced.contains("select *") || single_spaced.contains("returning *") {
            findings.push(finding(
                path,
                line_number,
                "sql",
                "columns are named, never `*`",
            ));
        }
    }
    findings
}

/// The text with comments and quoted strings replaced by spaces; the number of lines stays the
/// same.
pub(super) fn without_comments_and_strings(text: &str) -> String {
    let mut bare = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    // The comment or string around the character: '-' for `--`, '*' for `/*`, or a single quote.
    let mut inside = None;
    while let Some(character) = characters.next() {
        let next = characters.peek().copied();
        let shown = match (inside, character) {
            (Some('-'), '\n') => {
                inside = None;
                '\n'
            }
            (Some('*'), '*') if next == Some('/') => {
                characters.next();
                inside = None;
                ' '
            }
            (Some(quote), _) if quote == character && quote == '\'' => {
                inside = None;
                ' '
            }
            (Some(_), '\n') => '\n',
            (Some(_), _) => ' ',
            (None, '-') if next == Some('-') => {
                inside = Some('-');
                ' '
            }
            (None, '/') if next == Some('*') => {
                inside = Some('*');
                ' '
            }
            (None, '\'') => {
                inside = Some('\'');
                ' '
            }
            (None, _) => character,
        };
        bare.push(shown);
    }
    bare
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(files: &[(&str, &str)]) -> Vec<String> {
        tidy(&Tree::of(files))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn sqlx_is_called_in_the_store_and_in_tests_only() {
        let source = "fn f() {\nsqlx::query_as!(Row, \"select id from t\"); }";
        assert_eq!(
            printed(&[("server/src/a.rs", source)]),
            ["server/src/a.rs:2: sql: statements belong to the store"]
        );
        assert_eq!(
            printed(&[
                ("store/src/a.rs", source),
                ("tests/tests/jobs/a.rs", source)
            ]),
            [""; 0]
        );
    }

    #[test]
    fn sql_files_are_only_allowed_in_their_folders() {
        assert_eq!(printed(&[("server/sql/a.sql", "-- A.\n")]).len(), 1);
    }

    #[test]
    fn keywords_are_lower_case_outside_comments_and_strings() {
        let text = "-- SELECT in a comment\nSELECT id /* FROM */\nfrom t where state = 'NOT NULL' and a_SET = 1\n";
        assert_eq!(
            printed(&[("store/sql/a.sql", text)]),
            ["store/sql/a.sql:2: sql: SELECT is written in lower case"]
        );
    }

    #[test]
    fn stars_are_found_in_files_and_in_the_stores_strings() {
        assert_eq!(
            printed(&[("store/sql/a.sql", "-- A.\nselect  * from t\n")]).len(),
            1
        );
        assert_eq!(
            printed(&[("store/sql/a.sql", "-- A.\nselect count(*) from t\n")]),
            [""; 0]
        );
        let source = "fn f() {\ng(\"select * from t\");\ng(\"a SELECT * in prose\"); }";
        assert_eq!(
            printed(&[("store/src/a.rs", source)]),
            ["store/src/a.rs:2: sql: columns are named, never `*`"]
        );
    }

    #[test]
    fn a_statements_file_starts_with_a_description() {
        assert_eq!(printed(&[("store/sql/a.sql", "select 1\n")]).len(), 1);
        assert_eq!(printed(&[("migrations/1_a.sql", "select 1\n")]), [""; 0]);
    }
}
