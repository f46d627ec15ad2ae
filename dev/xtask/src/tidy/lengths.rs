//! Rust files and functions must not be longer than a limit.

use super::Finding;
use super::rust::items;
use super::tree::{Tree, finding};

/// Maximum lines of a Rust file, including its tests.
const FILE_LINES: usize = 600;
/// Maximum lines of a function, from `fn` to its closing brace.
const FUNCTION_LINES: usize = 120;

/// Finds Rust files longer than [`FILE_LINES`].
pub(super) fn files(tree: &Tree) -> Vec<Finding> {
    let counted = tree
        .files("", "rs")
        .map(|(path, text)| (path, text.lines().count()));
    let long = counted.filter(|(_, lines)| *lines > FILE_LINES);
    long.map(|(path, lines)| {
        finding(
            path,
            1,
            "long-file",
            format!("{lines} lines, at most {FILE_LINES}; split it by subject"),
        )
    })
    .collect()
}

/// Finds functions longer than [`FUNCTION_LINES`].
pub(super) fn functions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files("", "rs") {
        for function in items(text, "fn") {
            let lines = function.end - function.line + 1;
            if lines > FUNCTION_LINES {
                let sentence = format!(
                    "`{}` has {lines} lines, at most {FUNCTION_LINES}",
                    function.name
                );
                findings.push(finding(path, function.line, "long-function", sentence));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_600_lines_passes_and_one_of_601_does_not() {
        let findings_for = |lines| files(&Tree::of(&[("core/src/lib.rs", &"//\n".repeat(lines))]));
        assert_eq!(findings_for(600), []);
        assert_eq!(findings_for(601).len(), 1);
    }

    #[test]
    fn a_function_of_120_lines_passes_and_one_of_121_does_not() {
        let findings_for = |lines: usize| {
            let source = format!(
                "//! Doc.\n\nfn long() {{\n{}}}\n",
                "    \n".repeat(lines - 2)
            );
            functions(&Tree::of(&[("core/src/lib.rs", &source)]))
        };
        assert_eq!(findings_for(120), []);
        let found = findings_for(121);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].line, found[0].sentence.as_str()),
            (3, "`long` has 121 lines, at most 120")
        );
    }

    #[test]
    fn braces_in_strings_do_not_end_a_function() {
        let source = format!(
            "fn long() {{ let a = \"}}\"; let b = r#\"}}\"#; let c = '}}';\n{}}}\n",
            "\n".repeat(130)
        );
        assert_eq!(
            functions(&Tree::of(&[("core/src/lib.rs", &source)])).len(),
            1
        );
    }
}
