//! Modules with the same parent must not import each other in a circle, directly or through others.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::imports::{Edges, edges_by_parent, source_folder};
use super::tree::{Tree, finding};

/// Returns every circle of imports between modules with the same parent, in every crate.
pub(super) fn absent(tree: &Tree) -> Vec<Finding> {
    let sources: BTreeSet<&str> = tree.paths().filter_map(source_folder).collect();
    let mut findings = Vec::new();
    for source in sources {
        for (parent, edges) in edges_by_parent(tree, source) {
            for circle in circles(&edges) {
                findings.push(describe(source, &parent, &circle, &edges));
            }
        }
    }
    findings
}

fn describe(source: &str, parent: &[String], circle: &[String], edges: &Edges) -> Finding {
    let inside = |(from, to): &&(String, String)| circle.contains(from) && circle.contains(to);
    let imports: Vec<String> = edges
        .keys()
        .filter(inside)
        .map(|(from, to)| format!("{from} -> {to}"))
        .collect();
    let first = edges.iter().find(|(edge, _)| inside(edge));
    let (file, line) = first.map_or((source, 1), |(_, place)| *place);
    let parent = if parent.is_empty() {
        "the crate's root".to_owned()
    } else {
        format!("`{}`", parent.join("::"))
    };
    let sentence = format!(
        "modules of {parent} import each other: {}",
        imports.join(", ")
    );
    finding(file, line, "circle", sentence)
}

/// Groups of modules in which each module reaches every other one, sorted.
fn circles(edges: &Edges) -> Vec<Vec<String>> {
    let reach = |start: &String| {
        let mut reached = BTreeSet::new();
        let mut to_visit = vec![start];
        while let Some(module) = to_visit.pop() {
            let next = edges.keys().filter(|(from, _)| from == module);
            for (_, to) in next {
                if reached.insert(to) {
                    to_visit.push(to);
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&String, BTreeSet<&String>> = edges
        .keys()
        .flat_map(|(from, to)| [from, to])
        .map(|module| (module, reach(module)))
        .collect();
    let mut circles = BTreeSet::new();
    for (module, all) in &reached {
        let circle: Vec<String> = all
            .iter()
            .filter(|other| reached[**other].contains(*module))
            .map(|other| (*other).clone())
            .collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        absent(&Tree::of(files))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn two_modules_that_import_each_other_are_found() {
        let found = findings(&[
            ("core/src/lib.rs", "mod a;\nmod b;\n"),
            ("core/src/a.rs", "use crate::b::B;\n"),
            ("core/src/b.rs", "fn f() { super::a::g(); }\n"),
        ]);
        assert_eq!(
            found,
            [
                "core/src/a.rs:1: circle: modules of the crate's root import each other: a -> b, b -> a"
            ]
        );
    }

    #[test]
    fn a_circle_through_a_third_module_and_through_folders_is_found() {
        let found = findings(&[
            ("core/src/lib.rs", ""),
            ("core/src/a/mod.rs", "mod deep;"),
            ("core/src/a/deep.rs", "use crate::{b, std::fmt};"),
            ("core/src/b.rs", "use crate::c::{self, D as E};"),
            ("core/src/c.rs", "pub struct D(crate::a::deep::X);"),
        ]);
        assert_eq!(found.len(), 1);
        assert!(found[0].ends_with("a -> b, b -> c, c -> a"), "{found:?}");
    }

    #[test]
    fn an_import_through_a_re_export_counts_as_an_import_of_the_module_that_has_the_name() {
        let files = [
            ("core/src/lib.rs", "pub use b::B;"),
            ("core/src/a.rs", "use crate::B;"),
            ("core/src/b.rs", "use crate::a::A;"),
        ];
        assert_eq!(findings(&files).len(), 1);
    }

    #[test]
    fn imports_of_parents_and_in_tests_and_in_one_direction_are_no_circle() {
        let found = findings(&[
            ("core/src/lib.rs", ""),
            ("core/src/a/mod.rs", "mod deep; use deep::X; use crate::b;"),
            ("core/src/a/deep.rs", "use super::Y;"),
            (
                "core/src/b.rs",
                "#[cfg(test)]\nmod tests { use crate::a::Y; }\n",
            ),
        ]);
        assert_eq!(found, [""; 0]);
    }
}
