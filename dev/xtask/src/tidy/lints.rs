//! Every crate inherits the workspace's lints.

use toml::{Table, Value};

use super::Finding;
use super::tree::{Tree, finding};

/// Finds manifests of crates without `[lints] workspace = true`.
pub(super) fn inherited(tree: &Tree) -> Vec<Finding> {
    let manifests = tree
        .files("", "toml")
        .filter(|(path, _)| path.ends_with("/Cargo.toml"));
    let lacking = manifests.filter(|(_, text)| !inherits(text));
    lacking
        .map(|(path, _)| {
            finding(
                path,
                1,
                "lints",
                "the crate does not inherit the workspace's lints: add `[lints] workspace = true`",
            )
        })
        .collect()
}

fn inherits(text: &str) -> bool {
    let manifest: Table = text.parse().unwrap_or_default();
    manifest
        .get("lints")
        .and_then(|lints| lints.get("workspace"))
        .and_then(Value::as_bool)
        == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_without_the_lints_of_the_workspace_is_a_finding() {
        let tree = Tree::of(&[
            ("Cargo.toml", "[workspace]\n"),
            ("core/Cargo.toml", "[lints]\nworkspace = true\n"),
            ("store/Cargo.toml", "[package]\nname = \"anneal-store\"\n"),
        ]);
        let found: Vec<_> = inherited(&tree)
            .into_iter()
            .map(|found| found.path)
            .collect();
        assert_eq!(found, ["store/Cargo.toml"]);
    }
}
