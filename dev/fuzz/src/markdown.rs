//! Fuzzes Markdown: for any text, the HTML has only elements and attributes of a list, its elements
//! are nested, links have allowed schemes, and it is not longer than the limit.

use anneal_web::markdown::{MarkdownLimits, to_html};

/// Elements without an end.
const VOID: &[&str] = &["br", "hr"];

const ELEMENTS: &[&str] = &[
    "a",
    "blockquote",
    "br",
    "code",
    "del",
    "div",
    "em",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "li",
    "ol",
    "p",
    "pre",
    "strong",
    "table",
    "tbody",
    "td",
    "th",
    "thead",
    "tr",
    "ul",
];

const ATTRIBUTES: &[&str] = &["class", "dir", "href", "rel", "start", "tabindex"];

/// Checks the HTML of a text.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let limits = MarkdownLimits::default();
    let html = to_html(&text, limits).to_string();
    // A text that is shown as written is escaped: at most six bytes for one.
    assert!(html.len() <= limits.output_bytes.max(text.len() * 6 + 32));
    check_elements(&html);
}

fn check_elements(html: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = html;
    while let Some((_, after)) = rest.split_once('<') {
        let (tag, following) = after.split_once('>').expect("a tag ends");
        rest = following;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{html}");
            continue;
        }
        let tag = tag.trim_end_matches('/').trim_end();
        let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        assert!(ELEMENTS.contains(&name), "{name}: {html}");
        check_attributes(attributes, html);
        if !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}: {html}");
}

fn check_attributes(attributes: &str, html: &str) {
    let mut rest = attributes.trim_start();
    while !rest.is_empty() {
        let end = rest.find(['=', ' ']).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        assert!(ATTRIBUTES.contains(&name), "{name}: {html}");
        let Some(quoted) = after.strip_prefix("=\"") else {
            rest = after.trim_start();
            continue;
        };
        let (value, following) = quoted.split_once('"').expect("a value ends");
        if name == "href" {
            let address = value.to_ascii_lowercase();
            let is_allowed = ["http:", "https:", "mailto:"]
                .iter()
                .any(|scheme| address.starts_with(scheme));
            assert!(is_allowed, "{value}");
        }
        rest = following.trim_start();
    }
}
