//! The doc of every `lib.rs`, `main.rs` and `mod.rs` with more than three modules says what each
//! module is for.

use std::collections::BTreeSet;

use super::Finding;
use super::tree::{Tree, finding};

/// A file with at most this many modules needs no list.
const MAX_WITHOUT_LIST: usize = 3;

/// Finds modules that the doc of such a file does not name in backticks: `name`, `name.rs` or
/// `name/`. Modules with `#[cfg(test)]` need not be named.
pub(super) fn complete(tree: &Tree) -> Vec<Finding> {
    let may_need_list = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        ["lib.rs", "main.rs", "mod.rs"].contains(&name)
    };
    tree.files("", "rs")
        .filter(|(path, _)| may_need_list(path))
        .flat_map(|(path, text)| find_unlisted(path, text))
        .collect()
}

fn find_unlisted(path: &str, text: &str) -> Vec<Finding> {
    let modules = modules(text);
    if modules.len() <= MAX_WITHOUT_LIST {
        return Vec::new();
    }
    let listed = listed(text);
    let unlisted = modules.iter().filter(|(name, _)| !listed.contains(*name));
    unlisted
        .map(|(name, line)| {
            let sentence = format!("the doc of this file does not say what `{name}` is for");
            finding(path, *line, "module-list", sentence)
        })
        .collect()
}

/// Names and lines of the modules that have files.
fn modules(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let declared = lines.iter().enumerate().filter_map(|(index, line)| {
        let (visibility, name) = line.strip_suffix(';')?.split_once("mod ")?;
        let is_module = visibility.is_empty() || visibility.starts_with("pub");
        let is_of_tests = index > 0 && lines[index - 1] == "#[cfg(test)]";
        (is_module && !is_of_tests).then_some((name, index + 1))
    });
    declared.collect()
}

/// The words in backticks in the file's doc, without code blocks.
fn listed(text: &str) -> BTreeSet<&str> {
    let mut listed = BTreeSet::new();
    let mut is_code = false;
    for line in text.lines().map_while(|line| line.strip_prefix("//!")) {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            let names = line.split('`').skip(1).step_by(2);
            listed.extend(names.map(|name| name.trim_end_matches('/').trim_end_matches(".rs")));
        }
    }
    listed
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULES: &str =
        "mod a;\npub mod b;\npub(crate) mod c;\n#[cfg(test)]\nmod tests;\nmod d;\n";

    fn findings(path: &str, doc: &str) -> Vec<String> {
        let text = format!("{doc}\n{MODULES}");
        let tree = Tree::of(&[(path, &text)]);
        complete(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_module_that_the_doc_does_not_name_is_found() {
        assert_eq!(
            findings("core/src/lib.rs", "//! `a`, `b.rs`: x. `c/`: y."),
            ["core/src/lib.rs:7: module-list: the doc of this file does not say what `d` is for"]
        );
        let in_code = "//! `a`, `b`\n//! ```\n//! `c`\n//! ```\n//! `d`";
        assert_eq!(findings("core/src/context/mod.rs", in_code).len(), 1);
    }

    #[test]
    fn full_lists_other_files_and_up_to_three_modules_are_accepted() {
        let full = "//! `a`, [`b`], `c`, `d`.";
        assert_eq!(findings("core/src/lib.rs", full), [""; 0]);
        assert_eq!(findings("core/src/cut.rs", "//! Cuts."), [""; 0]);
        let tree = Tree::of(&[("core/src/lib.rs", "mod a;\nmod b;\nmod c;\n")]);
        assert_eq!(complete(&tree), []);
    }
}
