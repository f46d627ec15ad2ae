//! The project's rules that a machine can check. Each rule has its own file, with tests that show
//! it failing.
//!
//! Crates and modules:
//! - `dependencies`: which crates may use which. `lints`: each crate inherits the workspace's
//!   lints.
//! - `layers`: where a file belongs, and which modules may import which. `circles`: no modules
//!   import each other. `imports`: reads the imports for both.
//! - `module_lists`: lists of modules are complete. `paths`: paths in the pages for developers
//!   exist.
//! - `lengths`: how long files and functions may be. `names`, `verbs`: how they may be named.
//!
//! Code and its tests or documents:
//! - `rpcs`: each RPC has its file and a test. `job_kinds`: each kind of job has its folder.
//! - `reasons`: error reasons are documented. `rows`: each row of docs/rows.md has a test.
//! - `test_folders`: test files are compiled into the binary of their folder. `sleeps`: tests do
//!   not sleep. `skips`: tests without their data fail where the data is required.
//!
//! SQL:
//! - `sql_style`: where SQL is, and its style. `schema`: columns and indexes have comments.
//! - `tenants`: statements name the tenant. `durability`: none lets a crash lose acknowledged data.
//!   `sabotage`: only tests break the promises of docs/reliability.md on purpose.
//!
//! Shared: `tree` reads the files, `rust` parses them, `allowances` waives rules in the source.

mod allowances;
mod circles;
mod dependencies;
mod durability;
mod imports;
mod job_kinds;
mod layers;
mod lengths;
mod lints;
mod module_lists;
mod names;
mod paths;
mod reasons;
mod rows;
mod rpcs;
mod rust;
mod sabotage;
mod schema;
mod skips;
mod sleeps;
mod sql_style;
mod tenants;
mod test_folders;
mod tree;
mod verbs;

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use tree::Tree;

/// A place where a rule is violated. Ordered by path and line.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    rule: &'static str,
    sentence: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{}:{}: {}: {}",
            self.path, self.line, self.rule, self.sentence
        )
    }
}

/// A rule: returns the violations in a tree, or none if the folder that it is about does not exist.
/// Most rules are named after what must hold (`circles::absent`, `reasons::documented`), although
/// they return the places where it does not.
type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: [Rule; 22] = [
    layers::respected,
    circles::absent,
    module_lists::complete,
    verbs::imperative,
    dependencies::crates,
    lints::inherited,
    lengths::files,
    lengths::functions,
    names::specific,
    sleeps::in_tests,
    skips::required,
    test_folders::complete,
    rpcs::complete,
    job_kinds::complete,
    reasons::documented,
    rows::shown,
    paths::exist,
    sql_style::tidy,
    durability::unreduced,
    sabotage::absent,
    tenants::named,
    schema::commented,
];

/// Prints every violation below `root`, one per line, and fails if there are any.
pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let findings = check(&Tree::load(root)?);
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("tidy: {} findings", findings.len());
    Ok(ExitCode::FAILURE)
}

/// Every violation that is not waived by a comment in the source, sorted.
fn check(tree: &Tree) -> Vec<Finding> {
    let found = RULES.iter().flat_map(|rule| rule(tree)).collect();
    let mut findings = allowances::apply(tree, found);
    findings.sort();
    findings
}

/// Converts `CountTokens` and `countTokens` to `count_tokens`.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for character in name.chars() {
        if character.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(character.to_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_tree_is_tidy() {
        assert_eq!(check(&Tree::of(&[])), []);
    }

    #[test]
    fn a_finding_is_printed_as_path_line_rule_and_sentence() {
        let findings = check(&Tree::of(&[("dev/bench/src/utils.rs", "//! Bad.\n")]));
        let printed: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(
            printed,
            [
                "dev/bench/src/utils.rs:1: name: the name `utils` is too general; name it after its contents"
            ]
        );
    }

    #[test]
    fn names_become_snake_case() {
        assert_eq!(snake_case("BuildContext"), "build_context");
        assert_eq!(snake_case("Cut"), "cut");
    }
}
