//! Every statement that accesses tenants' rows names the tenant. The rule does not check what the
//! tenant column is compared with.

use super::Finding;
use super::rust::strings;
use super::tree::{Tree, finding};

/// Prefix of the tables with rows of tenants.
const TABLE_PREFIX: &str = "ai_";
/// The table with this prefix whose rows belong to no tenant.
const TENANTLESS_TABLE: &str = "ai_model_breaker";

/// Words that precede the name of a table that is read or written.
const BEFORE_TABLES: [&str; 4] = ["from", "join", "into", "update"];

/// A statement must contain one of these: the tenant in a condition or among the columns of a new
/// row, or the lease of a job, which only the worker that has claimed the job knows.
const KEYS: [&str; 4] = [
    "tenant_id = ",
    "(tenant_id, ",
    "( tenant_id, ",
    "and lease = ",
];

/// The beginnings of the texts of those statements of the job queue that serve all tenants: they
/// claim and free jobs, count them, list the workers that hold them, repair their times, delete
/// parts of summaries, count open breakers, find erasures, and show operators dead jobs.
const QUEUE_STATEMENTS: [&str; 9] = [
    "-- Claims up to $2 due jobs of a kind",
    "-- Frees up to $2 jobs of a kind",
    "-- For each kind of job: the number of jobs that wait",
    "-- The workers that hold leases of jobs",
    "-- For each of these models ($1): the seconds until the cooldown of its breaker",
    "-- Repairs times that were stored before the clock was set back",
    "delete from ai_summary_part where (conversation_id, kind, part_digest) in (",
    "-- Up to $1 erasures that have not ended",
    "-- For operators: the $1 jobs of all tenants that were given up last",
];

/// The beginnings of the paths of code that migrates the tables of older systems, for all tenants
/// at once.
const LEGACY_PATHS: [&str; 2] = ["store/sql/legacy_", "store/src/legacy/"];

/// Finds statements of the store that access tenants' tables without one of [`KEYS`].
/// [`QUEUE_STATEMENTS`] and statements in [`LEGACY_PATHS`] are exempt.
pub(super) fn named(tree: &Tree) -> Vec<Finding> {
    let files = tree
        .files("store/sql", "sql")
        .map(|(path, text)| (path, text.to_owned(), 1));
    let inline = tree.files("store/src", "rs").flat_map(|(path, text)| {
        strings(text)
            .into_iter()
            .map(move |(literal, line)| (path, literal.trim_matches('"').to_owned(), line))
    });
    files
        .chain(inline)
        .filter(|(path, ..)| !LEGACY_PATHS.iter().any(|start| path.starts_with(start)))
        .filter(|(_, text, _)| !QUEUE_STATEMENTS.iter().any(|start| text.starts_with(start)))
        .filter(|(_, text, _)| {
            let statement = statement(text);
            accesses_tenant_table(&statement) && !KEYS.iter().any(|key| statement.contains(key))
        })
        .map(|(path, _, line)| {
            finding(
                path,
                line,
                "tenant",
                "the statement reads or writes rows of tenants, but does not name the tenant",
            )
        })
        .collect()
}

/// The statement on one line, without its comments.
fn statement(text: &str) -> String {
    let lines = text.lines().map(|line| {
        line.split_once("--")
            .map_or(line, |(statement, _)| statement)
    });
    lines
        .flat_map(str::split_whitespace)
        .collect::<Vec<_>>()
        .join(" ")
}

fn accesses_tenant_table(statement: &str) -> bool {
    let words: Vec<&str> = statement.split(' ').collect();
    words.windows(2).any(|pair| {
        let table = pair[1].trim_matches(|letter: char| !letter.is_alphanumeric());
        BEFORE_TABLES.contains(&pair[0])
            && table.starts_with(TABLE_PREFIX)
            && table != TENANTLESS_TABLE
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_without_tenant_are_found_except_those_of_the_queue() {
        let tree = Tree::of(&[
            (
                "store/sql/all.sql",
                "-- Of tenant_id = $1.\nselect title\nfrom ai_conversation\nwhere conversation_id = $1\n",
            ),
            (
                "store/sql/one.sql",
                "select title from ai_conversation\nwhere tenant_id = $1\n",
            ),
            (
                "store/sql/own.sql",
                "update ai_job set due_ts = now()\nwhere kind = $1\n  and lease = $2\n",
            ),
            ("store/sql/lost.sql", "update ai_job set lease = null\n"),
            (
                "store/sql/shown.sql",
                "select tenant_id, title from ai_conversation\n",
            ),
            (
                "store/sql/fleet.sql",
                "select failures from ai_model_breaker\n",
            ),
            ("store/sql/legacy_walk.sql", "select 1 from ai_message\n"),
            (
                "store/src/parts.rs",
                "fn f() {\n query!(\"delete from ai_summary_part\n where kind = $1\"); }",
            ),
            (
                "store/src/conversations/list.rs",
                "fn f() { query!(\"delete from ai_summary_part where tenant_id = $1\"); say(\"from ai_x\") }",
            ),
            (
                "store/sql/figures.sql",
                "-- For each kind of job: the number of jobs that wait.\nselect count(*) from ai_job\n",
            ),
        ]);
        let found: Vec<_> = named(&tree)
            .into_iter()
            .map(|found| (found.path, found.line))
            .collect();
        let expected = [
            ("store/sql/all.sql", 1),
            ("store/sql/lost.sql", 1),
            ("store/sql/shown.sql", 1),
            ("store/src/conversations/list.rs", 1),
            ("store/src/parts.rs", 2),
        ];
        assert_eq!(found, expected.map(|(path, line)| (path.to_owned(), line)));
    }
}
