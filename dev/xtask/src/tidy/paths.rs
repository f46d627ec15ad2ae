//! The pages for developers mention only paths that exist.

use super::Finding;
use super::tree::{Tree, finding};

const PAGES: [&str; 2] = ["ARCHITECTURE.md", "CONTRIBUTING.md"];

/// Extensions by which a name without a slash is recognized as a file name.
const EXTENSIONS: [&str; 8] = ["rs", "sql", "proto", "toml", "md", "yml", "sh", "jsonl"];

/// First halves of media types, which are not paths.
const MEDIA: [&str; 5] = ["application", "text", "image", "audio", "video"];

/// Finds paths in backticks that do not exist. A path may be relative to the root or to
/// any other folder (`rpc/append_messages.rs`).
pub(super) fn exist(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in PAGES {
        for (span, line) in spans(tree.text(page).unwrap_or_default()) {
            if looks_like_a_path(span) && !exists(tree, span) {
                findings.push(finding(
                    page,
                    line,
                    "path",
                    format!("`{span}` does not exist"),
                ));
            }
        }
    }
    findings
}

/// Texts in single backticks with their line numbers, except in fenced blocks.
fn spans(page: &str) -> Vec<(&str, usize)> {
    let mut spans = Vec::new();
    let mut is_fenced = false;
    for (index, line) in page.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            spans.extend(
                line.split('`')
                    .skip(1)
                    .step_by(2)
                    .map(|span| (span, index + 1)),
            );
        }
    }
    spans
}

fn looks_like_a_path(span: &str) -> bool {
    let is_plain = span
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "_-./*<>".contains(c));
    let has_extension = span
        .rsplit_once('.')
        .is_some_and(|(stem, found)| !stem.is_empty() && EXTENSIONS.contains(&found));
    let first = span.split('/').next().unwrap_or(span);
    is_plain
        && (span.contains('/') || has_extension)
        && !first.is_empty()
        && !MEDIA.contains(&first)
}

/// Whether the path exists, or is one that git ignores. For a path with a placeholder
/// (`worker/src/jobs/<kind>.rs`, `store/sql/*.sql`), the folder before the placeholder must exist.
fn exists(tree: &Tree, span: &str) -> bool {
    let parts = span
        .trim_start_matches("./")
        .trim_end_matches('/')
        .split('/');
    let literal: Vec<&str> = parts
        .take_while(|part| !part.contains(['<', '*']))
        .collect();
    let literal = literal.join("/");
    let inner = format!("/{literal}");
    literal.is_empty()
        || is_ignored(tree, &literal)
        || tree.has(&literal)
        || tree
            .paths()
            .any(|path| path.ends_with(&inner) || path.contains(&format!("{inner}/")))
}

fn is_ignored(tree: &Tree, path: &str) -> bool {
    let first = path.split('/').next().unwrap_or(path);
    tree.text(".gitignore")
        .is_some_and(|ignored| ignored.lines().any(|line| line.trim_matches('/') == first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(page: &str) -> Vec<String> {
        let tree = Tree::of(&[
            ("ARCHITECTURE.md", page),
            (".gitignore", "/target\n/.anneal\n"),
            ("server/src/grpc/rpc/append_messages.rs", ""),
        ]);
        exist(&tree)
            .into_iter()
            .map(|found| format!("{}:{}", found.line, found.sentence))
            .collect()
    }

    #[test]
    fn a_missing_path_is_found() {
        assert_eq!(
            missing("See\n`server/src/gone.rs` and `attic/`."),
            [
                "2:`server/src/gone.rs` does not exist",
                "2:`attic/` does not exist"
            ]
        );
        assert_eq!(missing("`server/src/cpr/<one>.rs`, `gone.md`").len(), 2);
    }

    #[test]
    fn ends_of_paths_and_paths_with_placeholders_are_accepted() {
        assert_eq!(
            missing(
                "`server/`, `rpc/append_messages.rs`, `append_messages.rs`, `server/src/grpc/rpc/<rpc>.rs`"
            ),
            [""; 0]
        );
    }

    #[test]
    fn texts_that_are_not_paths_are_ignored() {
        assert_eq!(
            missing(
                "`text/plain`, `/healthz`, `cargo xtask tidy`, `.anneal/data`, `store::append`, `e.g.`"
            ),
            [""; 0]
        );
        assert_eq!(missing("```\nsrc/gone.rs `src/gone.rs`\n```\n"), [""; 0]);
    }
}
