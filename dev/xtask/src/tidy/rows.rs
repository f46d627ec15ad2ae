//! Every row of docs/rows.md, a behavior that anneal adopts from another system, has a test that is
//! named after the row.

use std::collections::BTreeSet;

use super::Finding;
use super::rust::items;
use super::tree::{Tree, finding};

const PAGE: &str = "docs/rows.md";

/// Finds rows of the table in docs/rows.md after which no test in tests/ is named (`row_Z1_…`), and
/// tests named after rows that do not exist.
pub(super) fn shown(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.text(PAGE) else {
        return Vec::new();
    };
    let rows: Vec<(&str, usize)> = rows(page).collect();
    let tests: Vec<(String, &str, usize)> = tree
        .files("tests", "rs")
        .flat_map(|(path, text)| {
            items(text, "fn")
                .into_iter()
                .map(move |test| (test.name, path, test.line))
        })
        .filter_map(|(name, path, line)| {
            let (row, _) = name.strip_prefix("row_")?.split_once('_')?;
            Some((row.to_owned(), path, line))
        })
        .collect();
    let named: BTreeSet<&str> = tests.iter().map(|(row, ..)| row.as_str()).collect();
    let missing = rows
        .iter()
        .filter(|(row, _)| !named.contains(row))
        .map(|(row, line)| {
            finding(
                PAGE,
                *line,
                "row",
                format!("{row} has no test row_{row}_… in tests/"),
            )
        });
    let unknown = tests
        .iter()
        .filter(|(row, ..)| rows.iter().all(|(known, _)| known != row))
        .map(|(row, path, line)| finding(path, *line, "row", format!("{PAGE} has no row {row}")));
    missing.chain(unknown).collect()
}

/// Names and line numbers of the table's rows. A name is a capital letter and a number.
fn rows(page: &str) -> impl Iterator<Item = (&str, usize)> {
    page.lines().enumerate().filter_map(|(index, line)| {
        let (name, _) = line.strip_prefix("| ")?.split_once(" |")?;
        let number = name.strip_prefix(|letter: char| letter.is_ascii_uppercase())?;
        number.parse::<u8>().ok()?;
        Some((name, index + 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: (&str, &str) = (
        PAGE,
        "| row | from |\n| --- | --- |\n| Z1 | a |\n| D2 | b |\n",
    );

    #[test]
    fn a_row_without_a_test_and_a_test_without_a_row_are_found() {
        let tests = (
            "tests/tests/jobs/a.rs",
            "fn row_Z1_is_shown() {}\nfn row_D20_is_made_up() {}\nfn rows() {}\n",
        );
        let printed: Vec<_> = shown(&Tree::of(&[TABLE, tests]))
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            printed,
            [
                "docs/rows.md:4: row: D2 has no test row_D2_… in tests/",
                "tests/tests/jobs/a.rs:2: row: docs/rows.md has no row D20",
            ]
        );
    }

    #[test]
    fn without_the_page_nothing_is_checked() {
        assert_eq!(
            shown(&Tree::of(&[(
                "tests/tests/jobs/a.rs",
                "fn row_Z1_is_shown() {}\n"
            )])),
            []
        );
    }
}
