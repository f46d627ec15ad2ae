//! The migrations are the documentation of the schema. The comment of each column states its
//! meaning and unit, the comment of each index the query that it serves.

use super::Finding;
use super::sql_style::without_comments_and_strings;
use super::tree::{Tree, finding};

/// The first words of those items of `create table` that are not columns.
const CONSTRAINTS: [&str; 7] = [
    "constraint",
    "primary",
    "unique",
    "check",
    "foreign",
    "exclude",
    "like",
];

/// Finds, in migrations/, the columns of `create table` and `add column` and the indexes of
/// `create index` that have no comment.
pub(super) fn commented(tree: &Tree) -> Vec<Finding> {
    tree.files("migrations", "sql")
        .flat_map(|(path, text)| uncommented(path, text))
        .collect()
}

/// A migration's lines, by their indexes from 0: as written, and without comments and strings.
struct Lines<'a> {
    written: Vec<&'a str>,
    bare: Vec<String>,
}

impl Lines<'_> {
    fn has_comment(&self, line: usize) -> bool {
        self.written
            .get(line)
            .is_some_and(|written| written.contains("--"))
    }

    fn is_comment(&self, line: usize) -> bool {
        self.written
            .get(line)
            .is_some_and(|written| written.trim_start().starts_with("--"))
    }
}

fn uncommented(path: &str, text: &str) -> Vec<Finding> {
    let bare = without_comments_and_strings(text).to_lowercase();
    let lines = Lines {
        written: text.lines().collect(),
        bare: bare.lines().map(str::to_owned).collect(),
    };
    let mut findings = Vec::new();
    let mut index = 0;
    while index < lines.bare.len() {
        let words: Vec<&str> = lines.bare[index].split_whitespace().collect();
        let end = statement_end(&lines, index);
        if words.starts_with(&["create", "table"])
            || words.starts_with(&["create", "unlogged", "table"])
        {
            findings.extend(find_uncommented_columns(path, &lines, index, end));
            index = end;
        } else if words.starts_with(&["create", "index"])
            || words.starts_with(&["create", "unique", "index"])
        {
            let has_comment_inside = (index..=end).any(|line| lines.has_comment(line));
            let has_comment_above = index > 0 && lines.is_comment(index - 1);
            if !has_comment_inside && !has_comment_above {
                findings.push(finding(
                    path,
                    index + 1,
                    "schema",
                    "this index has no comment that names the query that it serves: `-- …`",
                ));
            }
            index = end;
        } else if words.windows(2).any(|pair| pair == ["add", "column"])
            && !lines.has_comment(index)
        {
            findings.push(column_finding(path, index, added_column(&words)));
        }
        index += 1;
    }
    findings
}

/// The index of the line with the semicolon that ends the statement.
fn statement_end(lines: &Lines<'_>, start: usize) -> usize {
    (start..lines.bare.len())
        .find(|line| lines.bare[*line].contains(';'))
        .unwrap_or(lines.bare.len() - 1)
}

/// One item of `create table (…)`: its first word, and the indexes of its first and last line.
struct Item {
    word: String,
    first: usize,
    last: usize,
}

fn find_uncommented_columns(
    path: &str,
    lines: &Lines<'_>,
    start: usize,
    end: usize,
) -> Vec<Finding> {
    let items = items(lines, start, end);
    let columns = items
        .iter()
        .filter(|item| !CONSTRAINTS.contains(&item.word.as_str()));
    let without =
        columns.filter(|column| !(column.first..=column.last).any(|line| lines.has_comment(line)));
    without
        .map(|column| column_finding(path, column.first, &column.word))
        .collect()
}

/// The items between the table's outer parentheses; none for a partition.
fn items(lines: &Lines<'_>, start: usize, end: usize) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    let mut depth = 0;
    let mut at_item_start = true;
    for index in start..=end {
        let line = &lines.bare[index];
        if depth == 0 && line.contains(" partition of ") {
            break;
        }
        for (offset, character) in line.char_indices() {
            match character {
                '(' => depth += 1,
                ')' => depth -= 1,
                ',' if depth == 1 => at_item_start = true,
                _ if depth == 0 || character.is_whitespace() => {}
                _ if at_item_start => {
                    items.push(Item {
                        word: first_word(&line[offset..]),
                        first: index,
                        last: index,
                    });
                    at_item_start = false;
                }
                _ => items
                    .iter_mut()
                    .last()
                    .into_iter()
                    .for_each(|item| item.last = index),
            }
        }
    }
    items
}

fn first_word(text: &str) -> String {
    text.chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_' || *c == '"')
        .collect()
}

fn added_column<'a>(words: &[&'a str]) -> &'a str {
    let skipped = ["add", "column", "if", "not", "exists"];
    let from = words.iter().position(|word| *word == "add").unwrap_or(0);
    words[from..]
        .iter()
        .find(|word| !skipped.contains(word))
        .copied()
        .unwrap_or_default()
}

fn column_finding(path: &str, index: usize, column: &str) -> Finding {
    finding(
        path,
        index + 1,
        "schema",
        format!("column {column} has no comment with its meaning and unit on its line: `-- …`"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str) -> Vec<String> {
        let found = commented(&Tree::of(&[("migrations/0001_a.sql", text)]));
        found
            .into_iter()
            .map(|found| format!("{}: {}", found.line, found.sentence))
            .collect()
    }

    #[test]
    fn a_column_without_a_comment_is_found() {
        let text = "create table job (\n    id uuid not null, -- made by us\n    cost numeric(10, 2) default 0,\n    primary key (id, cost),\n    kind text -- which\n        check (kind in ('a', 'b')),\n    note text\n);\n";
        assert_eq!(
            printed(text),
            [
                "3: column cost has no comment with its meaning and unit on its line: `-- …`",
                "7: column note has no comment with its meaning and unit on its line: `-- …`",
            ]
        );
    }

    #[test]
    fn parentheses_commas_and_semicolons_in_comments_and_strings_do_not_count() {
        let text = "create table job (\n    id uuid, -- ours (v7), unique; never reused\n    mark text default '),;' -- what\n);\n";
        assert_eq!(printed(text), [""; 0]);
    }

    #[test]
    fn a_partition_has_no_columns_of_its_own() {
        assert_eq!(
            printed("create table a_1 partition of a for values from (1) to (2);\n"),
            [""; 0]
        );
    }

    #[test]
    fn an_added_column_is_commented_too() {
        assert_eq!(
            printed(
                "alter table a\n    add column if not exists b int, -- tokens\n    add column c int;\n"
            ),
            ["3: column c has no comment with its meaning and unit on its line: `-- …`"]
        );
    }

    #[test]
    fn an_index_has_a_comment_above_beside_or_inside() {
        assert_eq!(printed("create index a on b (c);\n").len(), 1);
        assert_eq!(
            printed("-- due_jobs\ncreate unique index a on b (c);\n"),
            [""; 0]
        );
        assert_eq!(printed("create index a on b (c); -- due_jobs\n"), [""; 0]);
        assert_eq!(
            printed("create index a\n    on b (c) -- due_jobs\n    where d;\n"),
            [""; 0]
        );
    }
}
