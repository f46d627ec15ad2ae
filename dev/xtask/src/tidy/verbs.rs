//! An async function does something, so its name is an imperative and not a participle.

use proc_macro2::TokenTree;

use super::Finding;
use super::rust::walk;
use super::tree::{Tree, finding};

/// Imperatives that end in -ed.
const VERBS: [&str; 7] = [
    "embed", "exceed", "feed", "need", "proceed", "seed", "succeed",
];

/// Finds async functions whose names end with a word in -ed that is not one of [`VERBS`]. Tests are
/// left out, because they are named as claims.
pub(super) fn imperative(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files("", "rs") {
        walk(text, &mut |tokens| {
            for (index, window) in tokens.windows(3).enumerate() {
                let [
                    TokenTree::Ident(first),
                    TokenTree::Ident(second),
                    TokenTree::Ident(name),
                ] = window
                else {
                    continue;
                };
                let is_async = first == "async" && second == "fn";
                let name = name.to_string();
                if is_async && is_participle(&name) && !is_test(&tokens[..index]) {
                    let sentence =
                        format!("`{name}` does something; name it with an imperative verb");
                    findings.push(finding(path, first.span().start().line, "verb", sentence));
                }
            }
        });
    }
    findings
}

fn is_participle(name: &str) -> bool {
    let last = name.rsplit('_').next().unwrap_or(name);
    last.ends_with("ed") && !VERBS.contains(&last)
}

/// Whether an attribute before a function makes it a test. Only other attributes and a visibility
/// may stand between them.
fn is_test(before: &[TokenTree]) -> bool {
    let attributes = before.iter().rev().take_while(|token| match token {
        TokenTree::Ident(ident) => ident == "pub",
        TokenTree::Punct(punct) => punct.as_char() == '#',
        TokenTree::Group(_) => true,
        TokenTree::Literal(_) => false,
    });
    let words = attributes.map(|token| token.to_string().replace(' ', ""));
    words
        .filter_map(|text| text.strip_prefix('[').map(str::to_owned))
        .any(|text| text.starts_with("test") || text.starts_with("tokio::test"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(source: &str) -> Vec<String> {
        imperative(&Tree::of(&[("store/src/a.rs", source)]))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_participle_is_found_in_an_impl_and_with_a_visibility() {
        assert_eq!(
            findings("impl A {\n    pub(crate) async fn stored(&self) {}\n}\n"),
            ["store/src/a.rs:2: verb: `stored` does something; name it with an imperative verb"]
        );
    }

    #[test]
    fn imperatives_functions_that_are_not_async_and_tests_are_accepted() {
        let source = "async fn store_all() {}\nasync fn feed() {}\nfn is_allowed() {}\n\
            #[tokio::test(flavor = \"multi_thread\")]\nasync fn a_bad_call_is_refused() {}\n";
        assert_eq!(findings(source), [""; 0]);
    }
}
