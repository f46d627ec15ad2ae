//! Tests wait for a condition, never for time to pass.

use super::Finding;
use super::rust::lines_with;
use super::tree::{Tree, finding};

/// Finds calls of a function named `sleep` in tests and their harness.
pub(super) fn in_tests(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let files = ["tests", "dev/testkit"]
        .into_iter()
        .flat_map(|folder| tree.files(folder, "rs"));
    for (path, text) in files {
        for line in lines_with(text, &["sleep", "("]) {
            findings.push(finding(
                path,
                line,
                "sleep",
                "a test that sleeps is slow or flaky; wait for the event itself",
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_tests_are_found_by_any_path() {
        let source = "fn f() {\nstd::thread::sleep(x);\ntokio::time::sleep(x).await;\nsleep(x);\n// thread::sleep(x)\n}";
        for path in ["tests/tests/jobs/a.rs", "dev/testkit/src/a.rs"] {
            let found: Vec<_> = in_tests(&Tree::of(&[(path, source)]))
                .iter()
                .map(|f| f.line)
                .collect();
            assert_eq!(found, [2, 3, 4]);
        }
    }

    #[test]
    fn code_outside_tests_may_sleep() {
        assert_eq!(
            in_tests(&Tree::of(&[(
                "worker/src/run.rs",
                "fn f() { time::sleep(x); }"
            )])),
            []
        );
    }
}
