//! A test that needs data which is not part of the project is skipped in one way only, which fails
//! where the data is required (`dev/test-data/`).

use super::Finding;
use super::rust::{lines_with, strings};
use super::tree::{Tree, finding};

const RULE: &str = "skip";

/// The only code that finds the data, and prints that a test without it is skipped.
const FINDER: &str = "dev/test-data/";

/// Code that names the variable or such lines for another reason: the binary knows the variables of
/// its environment, and this crate forbids the lines.
const EXEMPT: [&str; 2] = ["cli/src/environment.rs", "dev/xtask/"];

/// Parts of strings with which code would find the data by itself.
const LOCATIONS: [&str; 2] = ["ANNEAL_TEST_DATA", "shared/data"];

/// The beginning of a line about a skipped test.
const LINE: &str = "skipped:";

/// Words of lines about tests that are skipped without their data.
const ABSENCES: [&str; 3] = ["missing", "not here", "conversations"];

/// Names that a file uses if its tests need the data.
const USES: [&str; 4] = [
    "TranscriptFolder",
    "find_test_data",
    "skip_without_test_data",
    "start_llm",
];

/// Finds code that looks for the data by itself, and lines about skipped tests in files whose tests
/// need the data, or about data that is missing.
pub(super) fn required(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files("", "rs") {
        let may_have = |part: &str| text.contains(part);
        if path.starts_with(FINDER)
            || EXEMPT.iter().any(|exempt| path.starts_with(exempt))
            || !LOCATIONS.into_iter().chain([LINE]).any(may_have)
        {
            continue;
        }
        let needs_data = USES
            .iter()
            .any(|name| !lines_with(text, &[*name]).is_empty());
        for (string, line) in strings(text) {
            if LOCATIONS.iter().any(|location| string.contains(location)) {
                let sentence = "tests find their data with `find_test_data`";
                findings.push(finding(path, line, RULE, sentence));
            }
            let is_about_data = || ABSENCES.iter().any(|absence| string.contains(absence));
            if string.contains(LINE) && (needs_data || is_about_data()) {
                let sentence = "this test would be skipped where its data is required; use `skip_without_test_data`, or `skip_outside_gate` for a tool";
                findings.push(finding(path, line, RULE, sentence));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let found = required(&Tree::of(&[(path, text)]));
        found.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn code_that_finds_the_data_by_itself_is_found() {
        let text = "fn f() {\nenv::var_os(\"ANNEAL_TEST_DATA\");\nPath::new(\"../../shared/data\");\n// shared/data\n}";
        assert_eq!(lines("llm/tests/suite/real.rs", text), [2, 3]);
        assert!(lines("dev/test-data/src/lib.rs", text).is_empty());
    }

    #[test]
    fn a_line_of_its_own_about_missing_data_is_found() {
        let text = "fn f() {\nprintln!(\"skipped: the file of errors is missing\");\n}";
        assert_eq!(lines("tests/tests/models/errors.rs", text), [2]);
        let tool = "fn f() {\nprintln!(\"skipped: there is no pgbouncer\");\n}";
        assert!(lines("tests/tests/operations/pooler.rs", tool).is_empty());
    }

    #[test]
    fn a_file_whose_tests_need_data_prints_no_line_about_a_skipped_test() {
        let text = "fn f() {\nlet Some(llm) = start_llm(512) else {\nprintln!(\"skipped: no model\");\nreturn;\n};\n}";
        assert_eq!(lines("tests/tests/api/chat/real_model.rs", text), [3]);
    }
}
