//! Tests that stand where they are compiled, and not each in a binary of its own.

use super::Finding;
use super::rust::items;
use super::tree::{Tree, finding};

const TESTS: &str = "tests/tests";

/// Every file of `tests/tests/<subject>/` is a module that the `main.rs` beside it names; none stands outside a folder.
pub(super) fn complete(tree: &Tree) -> Vec<Finding> {
    tree.files(TESTS, "rs").filter_map(|(path, _)| astray(tree, path)).collect()
}

fn astray(tree: &Tree, path: &str) -> Option<Finding> {
    let place = path.strip_prefix(TESTS)?.strip_prefix('/')?;
    let Some((folder, file)) = place.split_once('/') else {
        let sentence = format!("a file alone is linked into a binary of its own; move it into a folder of {TESTS}/");
        return Some(finding(path, 1, "test-folder", sentence));
    };
    let main = format!("{TESTS}/{folder}/main.rs");
    let name = file.strip_suffix(".rs")?;
    let is_named = tree.text(&main).is_some_and(|text| items(text, "mod").iter().any(|module| module.name == name));
    let sentence = || format!("never runs: {main} has no `mod {name};`");
    (file != "main.rs" && !is_named).then(|| finding(path, 1, "test-folder", sentence()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(files: &[(&str, &str)]) -> Vec<String> {
        complete(&Tree::of(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_that_no_main_names_is_found() {
        let main = ("tests/tests/http/main.rs", "//! HTTP.\n\nmod chat;\n// mod events;\n");
        assert_eq!(
            said(&[main, ("tests/tests/http/chat.rs", ""), ("tests/tests/http/events.rs", "")]),
            ["tests/tests/http/events.rs:1: test-folder: never runs: tests/tests/http/main.rs has no `mod events;`"]
        );
        assert_eq!(
            said(&[("tests/tests/jobs/leases.rs", "")]),
            ["tests/tests/jobs/leases.rs:1: test-folder: never runs: tests/tests/jobs/main.rs has no `mod leases;`"]
        );
    }

    #[test]
    fn a_file_outside_a_folder_is_found() {
        assert_eq!(said(&[("tests/tests/health.rs", ""), ("tests/src/house.rs", "")]).len(), 1);
    }
}
