//! Every test file is compiled into the binary of its folder, and none is a binary of its own.

use super::Finding;
use super::rust::items;
use super::tree::{Tree, finding};

const TESTS: &str = "tests/tests";

/// Finds files and folders below `tests/tests/<binary>/` that the `main.rs` or `mod.rs` beside them
/// does not name as modules, and files directly in `tests/tests/`.
pub(super) fn complete(tree: &Tree) -> Vec<Finding> {
    tree.files(TESTS, "rs")
        .filter_map(|(path, _)| find_unnamed(tree, path))
        .collect()
}

fn find_unnamed(tree: &Tree, path: &str) -> Option<Finding> {
    let (folder, file) = path.rsplit_once('/')?;
    if folder == TESTS {
        let sentence = format!(
            "this file would be linked into a binary of its own; move it into a folder of {TESTS}/"
        );
        return Some(finding(path, 1, "test-folder", sentence));
    }
    let (parent, name) = match file {
        "main.rs" => return None,
        "mod.rs" => folder.rsplit_once('/')?,
        _ => (folder, file.strip_suffix(".rs")?),
    };
    let declares = |root: &str| {
        tree.text(root)
            .is_some_and(|text| items(text, "mod").iter().any(|module| module.name == name))
    };
    let roots = ["main.rs", "mod.rs"].map(|root| format!("{parent}/{root}"));
    if roots.iter().any(|root| declares(root)) {
        return None;
    }
    let present = roots.iter().find(|root| tree.text(root).is_some());
    let root = present.unwrap_or(&roots[0]);
    let sentence = format!("the tests of this file never run: {root} has no `mod {name};`");
    Some(finding(path, 1, "test-folder", sentence))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        complete(&Tree::of(files))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_file_that_no_main_or_mod_file_names_is_found() {
        let main = ("tests/tests/api/main.rs", "//! API.\n\nmod http;\n");
        let folder = (
            "tests/tests/api/http/mod.rs",
            "//! HTTP.\n\nmod chat;\n// mod events;\n",
        );
        assert_eq!(
            findings(&[
                main,
                folder,
                ("tests/tests/api/http/chat.rs", ""),
                ("tests/tests/api/http/events.rs", ""),
            ]),
            [
                "tests/tests/api/http/events.rs:1: test-folder: the tests of this file never run: tests/tests/api/http/mod.rs has no `mod events;`"
            ]
        );
        assert_eq!(
            findings(&[main, ("tests/tests/api/jobs/mod.rs", "")]),
            [
                "tests/tests/api/jobs/mod.rs:1: test-folder: the tests of this file never run: tests/tests/api/main.rs has no `mod jobs;`"
            ]
        );
    }

    #[test]
    fn a_file_outside_a_folder_is_found() {
        assert_eq!(
            findings(&[
                ("tests/tests/health.rs", ""),
                ("tests/src/bin/anneal.rs", "")
            ])
            .len(),
            1
        );
    }
}
