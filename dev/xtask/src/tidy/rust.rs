//! Parses Rust source into tokens, which is sufficient for the rules. Comments are ignored and
//! strings are not confused with code, also inside macros.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// Calls `visit` with every sequence of sibling tokens, from the outside in. Does not call it if
/// the source is not valid Rust.
pub(super) fn walk(source: &str, visit: &mut dyn FnMut(&[TokenTree])) {
    if let Ok(tokens) = source.parse::<TokenStream>() {
        walk_tokens(tokens, visit);
    }
}

fn walk_tokens(tokens: TokenStream, visit: &mut dyn FnMut(&[TokenTree])) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    visit(&tokens);
    for token in tokens {
        if let TokenTree::Group(group) = token {
            walk_tokens(group.stream(), visit);
        }
    }
}

/// A named item: `fn`, `mod`, `enum`, …
pub(super) struct Item {
    pub(super) name: String,
    /// Line of the keyword, from 1.
    pub(super) line: usize,
    /// Line of the closing brace, or of the keyword if the item has no body.
    pub(super) end: usize,
    body: Option<Group>,
}

/// Items introduced by a keyword, at any nesting level.
pub(super) fn items(source: &str, keyword: &str) -> Vec<Item> {
    let mut items = Vec::new();
    walk(source, &mut |tokens| {
        for (index, pair) in tokens.windows(2).enumerate() {
            let [TokenTree::Ident(first), TokenTree::Ident(name)] = pair else {
                continue;
            };
            if first == keyword {
                let body = body(&tokens[index + 2..]);
                let line = first.span().start().line;
                let end = body
                    .as_ref()
                    .map_or(line, |body| body.span_close().end().line);
                items.push(Item {
                    name: name.to_string(),
                    line,
                    end,
                    body,
                });
            }
        }
    });
    items
}

/// The first braces before the semicolon that ends the item.
fn body(rest: &[TokenTree]) -> Option<Group> {
    for token in rest {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                return Some(group.clone());
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => return None,
            _ => {}
        }
    }
    None
}

/// Names and line numbers of the variants of the enum `name`; `None` if the source has no such
/// enum.
pub(super) fn variants(source: &str, name: &str) -> Option<Vec<(String, usize)>> {
    let body = items(source, "enum")
        .into_iter()
        .find(|item| item.name == name)?
        .body?;
    let mut variants = Vec::new();
    let mut is_start = true;
    for token in body.stream() {
        match &token {
            TokenTree::Ident(variant) if is_start => {
                variants.push((variant.to_string(), variant.span().start().line));
                is_start = false;
            }
            TokenTree::Punct(punct) if punct.as_char() == ',' => is_start = true,
            _ => {}
        }
    }
    Some(variants)
}

/// Lines that contain the given identifiers and punctuation consecutively, as in `["sqlx", ":",
/// ":", "query"]`. An entry ending in `*` matches any identifier with that prefix, `(` matches a
/// group in parentheses.
pub(super) fn lines_with(source: &str, pattern: &[&str]) -> Vec<usize> {
    let mut lines = Vec::new();
    walk(source, &mut |tokens| {
        for window in tokens.windows(pattern.len()) {
            if window
                .iter()
                .zip(pattern)
                .all(|(token, expected)| matches(token, expected))
            {
                lines.push(window[0].span().start().line);
            }
        }
    });
    lines
}

fn matches(token: &TokenTree, expected: &str) -> bool {
    match (token, expected.strip_suffix('*')) {
        (TokenTree::Ident(ident), Some(start)) => ident.to_string().starts_with(start),
        (TokenTree::Ident(ident), None) => ident == expected,
        (TokenTree::Punct(punct), _) => {
            expected.len() == 1 && expected.starts_with(punct.as_char())
        }
        (TokenTree::Group(group), _) => {
            expected == "(" && group.delimiter() == Delimiter::Parenthesis
        }
        (TokenTree::Literal(_), _) => false,
    }
}

/// String literals as written, with the line on which each starts. Doc comments are not included.
pub(super) fn strings(source: &str) -> Vec<(String, usize)> {
    let mut strings = Vec::new();
    walk(source, &mut |tokens| {
        for (index, token) in tokens.iter().enumerate() {
            let TokenTree::Literal(literal) = token else {
                continue;
            };
            let text = literal.to_string();
            let is_doc = index >= 2 && matches(&tokens[index - 2], "doc");
            if text.contains('"') && !is_doc {
                strings.push((text, literal.span().start().line));
            }
        }
    });
    strings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_found_in_impls_and_macros_but_not_in_strings_or_comments() {
        let source = "// fn no() {}\nimpl A { fn one(&self) -> u8 {\n1\n} }\nproptest! { fn two() { } }\nconst S: &str = \"fn no() {}\";\ntrait T { fn three(); }";
        let found: Vec<_> = items(source, "fn")
            .into_iter()
            .map(|item| (item.name, item.line, item.end))
            .collect();
        assert_eq!(found.len(), 3);
        assert!(found.contains(&("one".to_owned(), 2, 4)));
        assert!(found.contains(&("two".to_owned(), 5, 5)));
        assert!(found.contains(&("three".to_owned(), 7, 7)));
    }

    #[test]
    fn variants_skip_attributes_fields_and_discriminants() {
        let source = "pub enum Kind {\n/// One, or Two.\n#[serde(rename = \"x\")]\nOne = 1,\nTwo { a: u8, b: u8 },\nThree(u8) }";
        let names: Vec<_> = variants(source, "Kind")
            .unwrap()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["One", "Two", "Three"]);
        assert!(variants(source, "Other").is_none());
    }

    #[test]
    fn patterns_match_consecutive_tokens() {
        assert_eq!(
            lines_with("\nsqlx::query_as!(X)", &["sqlx", ":", ":", "query*"]),
            [2]
        );
        assert_eq!(lines_with("sleep(x); let sleep = 1;", &["sleep", "("]), [1]);
    }

    #[test]
    fn doc_comments_are_not_among_the_strings() {
        assert_eq!(
            strings("/// \"doc\"\nfn f() { g(\"text\", 1, 'c'); }"),
            [("\"text\"".to_owned(), 2)]
        );
    }
}
