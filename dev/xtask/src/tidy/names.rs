//! Forbids names that are too general.

use std::collections::BTreeMap;

use super::Finding;
use super::rust::items;
use super::tree::{Tree, finding};

const FORBIDDEN: [&str; 8] = [
    "util", "utils", "helper", "helpers", "common", "misc", "manager", "managers",
];

/// Finds files, folders and modules with one of the [`FORBIDDEN`] names.
pub(super) fn specific(tree: &Tree) -> Vec<Finding> {
    let mut findings = BTreeMap::new();
    for path in tree.paths() {
        for part in path.split('/') {
            let stem = part.split('.').next().unwrap_or(part);
            if FORBIDDEN.contains(&stem) {
                findings.insert((path, 1), too_general(path, 1, stem));
            }
        }
    }
    for (path, text) in tree.files("", "rs") {
        for module in items(text, "mod")
            .into_iter()
            .filter(|module| FORBIDDEN.contains(&module.name.as_str()))
        {
            findings.insert(
                (path, module.line),
                too_general(path, module.line, &module.name),
            );
        }
    }
    findings.into_values().collect()
}

fn too_general(path: &str, line: usize, name: &str) -> Finding {
    finding(
        path,
        line,
        "name",
        format!("the name `{name}` is too general; name it after its contents"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_folders_and_modules_with_general_names_are_found() {
        let tree = Tree::of(&[
            ("core/src/helpers.rs", ""),
            ("store/src/common/mod.rs", ""),
            (
                "tests/tests/jobs/world.rs",
                "//! Doc.\n\nmod misc { fn f() {} }\n",
            ),
            ("server/src/commons.rs", "// mod util;\nlet manager = 1;\n"),
        ]);
        let found: Vec<_> = specific(&tree)
            .into_iter()
            .map(|found| (found.path, found.line))
            .collect();
        let expected = [
            ("core/src/helpers.rs", 1),
            ("store/src/common/mod.rs", 1),
            ("tests/tests/jobs/world.rs", 3),
        ];
        assert_eq!(found, expected.map(|(path, line)| (path.to_owned(), line)));
    }
}
