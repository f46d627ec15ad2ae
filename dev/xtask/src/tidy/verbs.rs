//! An async function does something, so its name is an imperative and not a participle.

use proc_macro2::TokenTree;

use super::Finding;
use super::rust::walk;
use super::tree::{Tree, finding};

/// Words that end like participles and are none.
const VERBS: [&str; 7] = [
    "embed", "exceed", "feed", "need", "proceed", "seed", "succeed",
];

/// The last word of an async function's name does not end in -ed. Tests are named as claims and
/// may.
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

/// Whether an attribute right before a function, its visibility left out, makes it a test.
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
    fn a_participle_is_found_wherever_it_stands() {
        assert_eq!(
            findings("impl A {\n    pub(crate) async fn stored(&self) {}\n}\n"),
            ["store/src/a.rs:2: verb: `stored` does something; name it with an imperative verb"]
        );
    }

    #[test]
    fn imperatives_pure_functions_and_tests_may_be_named_so() {
        let source = "async fn store_all() {}\nasync fn feed() {}\nfn is_allowed() {}\n\
            #[tokio::test(flavor = \"multi_thread\")]\nasync fn a_bad_call_is_refused() {}\n";
        assert_eq!(findings(source), [""; 0]);
    }
}
