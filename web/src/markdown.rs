//! Markdown as HTML without what could harm a reader. Raw HTML becomes text, links have schemes of
//! a list, and pictures become links, because nothing is loaded from other servers.

use std::fmt;

use pulldown_cmark::{
    Alignment, CodeBlockKind, CowStr, Event, LinkType, Options, Parser, Tag, TagEnd, html,
};

/// How much is rendered. A text beyond it is shown as it was written.
#[derive(Debug, Clone, Copy)]
pub struct MarkdownLimits {
    /// Most blocks and spans inside each other.
    pub nesting: usize,
    /// Most bytes of HTML.
    pub output_bytes: usize,
}

impl Default for MarkdownLimits {
    fn default() -> Self {
        Self {
            nesting: 64,
            output_bytes: 1024 * 1024,
        }
    }
}

/// HTML that is safe to show. Only this module makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Html(String);

impl fmt::Display for Html {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl askama::filters::HtmlSafe for Html {}

/// Renders Markdown.
pub fn to_html(text: &str, limits: MarkdownLimits) -> Html {
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut events = Vec::new();
    let mut rewriter = Rewriter::default();
    let mut source_bytes = 0_usize;
    for event in Parser::new_ext(text, options) {
        match &event {
            Event::Start(_) => rewriter.depth += 1,
            Event::End(_) => rewriter.depth = rewriter.depth.saturating_sub(1),
            Event::Text(text) | Event::Code(text) | Event::Html(text) | Event::InlineHtml(text) => {
                source_bytes += text.len();
            }
            _ => {}
        }
        // References to one long address could make the output much longer than the source.
        if let Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) = &event {
            source_bytes += dest_url.len();
        }
        if rewriter.depth > limits.nesting || source_bytes > limits.output_bytes {
            return as_written(text);
        }
        rewriter.rewrite(event, &mut events);
    }
    let mut rendered = String::new();
    html::push_html(&mut rendered, events.into_iter());
    if rendered.len() > limits.output_bytes {
        return as_written(text);
    }
    Html(rendered)
}

/// The text itself, in a `pre` element.
fn as_written(text: &str) -> Html {
    Html(format!("<pre tabindex=\"0\">{}</pre>\n", escape(text)))
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Turns events of the parser into events that are safe to render.
#[derive(Default)]
struct Rewriter {
    depth: usize,
    /// For each open link or picture: whether it has become an `a` element.
    anchors: Vec<bool>,
}

impl Rewriter {
    fn rewrite<'a>(&mut self, event: Event<'a>, events: &mut Vec<Event<'a>>) {
        match event {
            // Raw HTML is text.
            Event::Html(text) | Event::InlineHtml(text) => events.push(Event::Text(text)),
            Event::Start(Tag::HtmlBlock) => events.push(Event::Start(Tag::Paragraph)),
            Event::End(TagEnd::HtmlBlock) => events.push(Event::End(TagEnd::Paragraph)),
            Event::Start(Tag::Link {
                link_type,
                dest_url,
                ..
            }) => self.open_link(link_type, &dest_url, events),
            Event::Start(Tag::Image { dest_url, .. }) => {
                self.open_link(LinkType::Inline, &dest_url, events);
            }
            Event::End(TagEnd::Link | TagEnd::Image) => {
                if self.anchors.pop().unwrap_or(false) {
                    events.push(Event::InlineHtml(CowStr::Borrowed("</a>")));
                }
            }
            // A heading has no id or class; the page's own headings are of higher rank.
            Event::Start(Tag::Heading { level, .. }) => events.push(Event::Start(Tag::Heading {
                level,
                id: None,
                classes: Vec::new(),
                attrs: Vec::new(),
            })),
            // A cell's alignment would become a style attribute, which the page forbids. Boxes that
            // scroll can have the focus, so that keys scroll them.
            Event::Start(Tag::Table(columns)) => {
                events.push(html_text("<div class=\"scroll\" tabindex=\"0\">"));
                let columns = vec![Alignment::None; columns.len()];
                events.push(Event::Start(Tag::Table(columns)));
            }
            Event::End(TagEnd::Table) => {
                events.push(Event::End(TagEnd::Table));
                events.push(html_text("</div>\n"));
            }
            Event::Start(Tag::CodeBlock(kind)) => events.push(begin_code(&kind)),
            Event::End(TagEnd::CodeBlock) => events.push(html_text("</code></pre>\n")),
            // A check box would need a label.
            Event::TaskListMarker(is_done) => {
                let mark = if is_done { "☑\u{fe0e} " } else { "☐ " };
                events.push(Event::Text(CowStr::Borrowed(mark)));
            }
            other => events.push(other),
        }
    }

    /// Begins an `a` element. A link in a link, or with a scheme that is not listed, stays text.
    fn open_link(&mut self, link_type: LinkType, address: &str, events: &mut Vec<Event<'_>>) {
        let address = match link_type {
            LinkType::Email => format!("mailto:{address}"),
            _ => address.to_owned(),
        };
        let is_anchor = is_allowed(&address) && !self.anchors.contains(&true);
        self.anchors.push(is_anchor);
        if is_anchor {
            let tag = format!(
                "<a href=\"{}\" rel=\"noopener noreferrer nofollow\">",
                escape(&address)
            );
            events.push(Event::InlineHtml(tag.into()));
        }
    }
}

/// HTML of this module.
fn html_text(html: &'static str) -> Event<'static> {
    Event::InlineHtml(CowStr::Borrowed(html))
}

/// Begins a block of code, with its language as the class.
fn begin_code(kind: &CodeBlockKind<'_>) -> Event<'static> {
    let language = match kind {
        CodeBlockKind::Fenced(language) => language.split_whitespace().next().unwrap_or_default(),
        CodeBlockKind::Indented => "",
    };
    let class = if language.is_empty() {
        String::new()
    } else {
        format!(" class=\"language-{}\"", escape(language))
    };
    Event::InlineHtml(format!("<pre tabindex=\"0\"><code{class}>").into())
}

/// Whether a link may lead there: http, https and mailto, and no control characters, which browsers
/// remove before they read the scheme.
fn is_allowed(address: &str) -> bool {
    let scheme = address.split_once(':').map(|(scheme, _)| scheme);
    let is_listed = scheme.is_some_and(|scheme| {
        ["http", "https", "mailto"]
            .iter()
            .any(|listed| scheme.eq_ignore_ascii_case(listed))
    });
    is_listed && !address.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html(text: &str) -> String {
        to_html(text, MarkdownLimits::default()).to_string()
    }

    #[test]
    fn raw_html_becomes_text() {
        let block = html("<script>alert(1)</script>\n\ntext <img src=x onerror=alert(1)> end");
        assert!(!block.contains("<script"), "{block}");
        assert!(!block.contains("<img"), "{block}");
        assert!(
            block.contains("&lt;script&gt;alert(1)&lt;/script&gt;"),
            "{block}"
        );
    }

    #[test]
    fn links_have_schemes_of_the_list() {
        for hostile in [
            "[a](javascript:alert(1))",
            "[a](JaVaScRiPt:alert(1))",
            "[a](java&#10;script:alert(1))",
            "[a](data:text/html,x)",
            "[a](vbscript:x)",
            "[a](//evil.example)",
            "[a](/sign-out)",
            "<javascript:alert(1)>",
        ] {
            assert!(
                !html(hostile).contains("<a "),
                "{hostile}: {}",
                html(hostile)
            );
        }
        assert_eq!(
            html("[a](https://example.org/?a=1&b=\"2)"),
            "<p><a href=\"https://example.org/?a=1&amp;b=&quot;2\" \
             rel=\"noopener noreferrer nofollow\">a</a></p>\n"
        );
        assert!(html("<me@example.org>").contains("href=\"mailto:me@example.org\""));
    }

    #[test]
    fn an_address_cannot_leave_its_attribute() {
        let escaped = html("[a](<https://x/\" onmouseover=\"alert(1)>)");
        assert!(!escaped.contains("\" onmouseover"), "{escaped}");
    }

    #[test]
    fn pictures_become_links() {
        let picture = html("![a *cat*](https://example.org/cat.png \"title\")");
        assert!(!picture.contains("<img"), "{picture}");
        assert!(
            picture.contains("<a href=\"https://example.org/cat.png\""),
            "{picture}"
        );
        assert!(picture.contains("cat"), "{picture}");
        let linked = html("[![x](https://a.example/i.png)](https://b.example)");
        assert_eq!(linked.matches("<a ").count(), 1, "{linked}");
        assert_eq!(linked.matches("</a>").count(), 1, "{linked}");
    }

    #[test]
    fn tables_lists_and_code_are_rendered() {
        assert!(html("| a |\n|--:|\n| b |").contains("<table><thead><tr><th>a"));
        assert!(html("- [x] done").contains("☑\u{fe0e} done"));
        assert!(html("~~gone~~").contains("<del>"));
        let code = html("```rust\nlet a = \"<b>\";\n```");
        assert!(code.contains("<code class=\"language-rust\">"), "{code}");
        assert!(code.contains("&lt;b&gt;"), "{code}");
    }

    #[test]
    fn the_language_of_code_cannot_leave_its_attribute() {
        let code = html("```\"><script>alert(1)</script>\nx\n```");
        assert!(!code.contains("<script"), "{code}");
    }

    #[test]
    fn deep_nesting_is_shown_as_written() {
        let deep = format!("{} x", ">".repeat(100));
        assert!(
            html(&deep).starts_with("<pre tabindex=\"0\">&gt;"),
            "{}",
            html(&deep)
        );
        assert!(html(&format!("{} x", "> ".repeat(20))).contains("<blockquote>"));
    }

    #[test]
    fn long_output_is_shown_as_written() {
        let limits = MarkdownLimits {
            output_bytes: 100,
            ..MarkdownLimits::default()
        };
        let long = "*a* ".repeat(100);
        assert!(
            to_html(&long, limits)
                .to_string()
                .starts_with("<pre tabindex=\"0\">*a*")
        );
        let references = format!("{}\n\n[a]: https://x/{}", "[a] ".repeat(10), "y".repeat(50));
        let limits = MarkdownLimits {
            output_bytes: 500,
            ..MarkdownLimits::default()
        };
        assert!(
            to_html(&references, limits)
                .to_string()
                .starts_with("<pre tabindex=\"0\">")
        );
    }
}
