//! Every error reason that a client can receive is documented, and no other.

use std::collections::BTreeMap;

use super::rust::variants;
use super::tree::{Tree, finding};
use super::{Finding, snake_case};

const PAGE: &str = "docs/errors.md";

/// Finds variants of the server's `enum Reason` without a heading ``### `REASON` `` in
/// docs/errors.md, and such headings without a variant.
pub(super) fn documented(tree: &Tree) -> Vec<Finding> {
    let reasons: BTreeMap<String, (&str, usize)> = tree
        .files("server/src", "rs")
        .filter_map(|(path, text)| Some((path, variants(text, "Reason")?)))
        .flat_map(|(path, found)| {
            found
                .into_iter()
                .map(move |(name, line)| (wire_name(&name), (path, line)))
        })
        .collect();
    if reasons.is_empty() {
        return Vec::new();
    }
    let headings: BTreeMap<&str, usize> = headings(tree.text(PAGE).unwrap_or_default()).collect();
    let unexplained = reasons
        .iter()
        .filter(|(reason, _)| !headings.contains_key(reason.as_str()))
        .map(|(reason, (path, line))| {
            finding(
                path,
                *line,
                "reason",
                format!("{reason} has no heading in {PAGE}"),
            )
        });
    let unknown = headings
        .iter()
        .filter(|(heading, _)| !reasons.contains_key(**heading))
        .map(|(heading, line)| {
            finding(
                PAGE,
                *line,
                "reason",
                format!("no answer of the server has the reason {heading}"),
            )
        });
    unexplained.chain(unknown).collect()
}

fn wire_name(variant: &str) -> String {
    snake_case(variant).to_uppercase()
}

fn headings(page: &str) -> impl Iterator<Item = (&str, usize)> {
    page.lines().enumerate().filter_map(|(index, line)| {
        let heading = line.strip_prefix("### `")?.strip_suffix('`')?;
        Some((heading, index + 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: (&str, &str) = (
        "server/src/grpc/status.rs",
        "enum Reason {\n    NotFound,\n    RequestIdReused,\n}\n",
    );

    #[test]
    fn reasons_and_headings_are_compared_both_ways() {
        let page = "# Errors\n\n### `NOT_FOUND`\n\n### `GONE`\n";
        let printed: Vec<_> = documented(&Tree::of(&[STATUS, (PAGE, page)]))
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            printed,
            [
                "server/src/grpc/status.rs:3: reason: REQUEST_ID_REUSED has no heading in docs/errors.md",
                "docs/errors.md:5: reason: no answer of the server has the reason GONE",
            ]
        );
    }

    #[test]
    fn without_the_page_every_reason_is_found_and_without_reasons_nothing() {
        assert_eq!(documented(&Tree::of(&[STATUS])).len(), 2);
        assert_eq!(documented(&Tree::of(&[(PAGE, "### `NOT_FOUND`\n")])), []);
    }
}
