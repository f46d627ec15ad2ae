//! Markdown as HTML without what could harm a reader. Raw HTML becomes text, links have schemes of
//! a list, and pictures become links, because nothing is loaded from other servers.

use std::{collections::VecDeque, fmt};

use pulldown_cmark::{
    Alignment, CodeBlockKind, CowStr, Event, LinkType, Options, Parser, Tag, TagEnd, html,
};

/// How much is rendered. A text beyond it is shown as it was written.
#[derive(Debug, Clone, Copy)]
pub struct MarkdownLimits {
    /// Most blocks and spans inside each other.
    pub nesting: usize,
    /// Most bytes of HTML. A page has them once for all its texts.
    pub output_bytes: usize,
    /// Most cells of tables. A text that may have more has no tables: the parser makes a cell for
    /// each column of each row, also if the row has none.
    pub table_cells: usize,
}

impl Default for MarkdownLimits {
    fn default() -> Self {
        Self {
            nesting: 64,
            output_bytes: 512 * 1024,
            table_cells: 16 * 1024,
        }
    }
}

/// HTML that is safe to show. Only this module makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Html(String);

impl Html {
    /// Its length in bytes.
    pub const fn bytes(&self) -> usize {
        self.0.len()
    }

    /// The language that its script tells; tags are ASCII, and tell none.
    pub(crate) fn lang(&self) -> Option<&'static str> {
        crate::format::lang(&self.0)
    }
}

impl fmt::Display for Html {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl askama::filters::HtmlSafe for Html {}

/// Renders Markdown. Stops as soon as a limit is reached.
pub fn to_html(text: &str, limits: MarkdownLimits) -> Html {
    let mut options = Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    if most_table_cells(text) <= limits.table_cells {
        options |= Options::ENABLE_TABLES;
    }
    let mut safe = SafeEvents {
        parser: Parser::new_ext(text, options),
        rewriter: Rewriter::default(),
        nesting: limits.nesting,
        waiting: VecDeque::new(),
    };
    let mut output = BoundedOutput {
        html: String::new(),
        most: limits.output_bytes,
    };
    let is_complete = html::write_html_fmt(&mut output, &mut safe).is_ok();
    if is_complete && safe.rewriter.depth <= limits.nesting {
        Html(output.html)
    } else {
        as_written(text)
    }
}

/// How many cells the tables of a text have at most: its lines, times the columns of the widest
/// line that could be the one below a table's head.
fn most_table_cells(text: &str) -> usize {
    let mut lines = 0;
    let mut columns = 0;
    for line in text.split(['\n', '\r']) {
        lines += 1;
        // Such a line has a bar between two columns, and a dash in each.
        let count = |wanted| line.bytes().filter(|byte| *byte == wanted).count();
        let dashes = count(b'-');
        if dashes > 0 {
            columns = columns.max(count(b'|').min(dashes) + 1);
        }
    }
    columns * lines
}

/// HTML up to a limit.
struct BoundedOutput {
    html: String,
    most: usize,
}

impl fmt::Write for BoundedOutput {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if self.html.len() + more.len() > self.most {
            return Err(fmt::Error);
        }
        self.html.push_str(more);
        Ok(())
    }
}

/// The events of the parser, made safe. They end where the text nests too deep.
struct SafeEvents<'t> {
    parser: Parser<'t>,
    rewriter: Rewriter,
    nesting: usize,
    /// Events that one of the parser has become, and that were not returned yet.
    waiting: VecDeque<Event<'t>>,
}

impl<'t> Iterator for SafeEvents<'t> {
    type Item = Event<'t>;

    fn next(&mut self) -> Option<Event<'t>> {
        while self.waiting.is_empty() {
            let event = self.parser.next()?;
            match &event {
                Event::Start(_) => self.rewriter.depth += 1,
                Event::End(_) => self.rewriter.depth = self.rewriter.depth.saturating_sub(1),
                _ => {}
            }
            if self.rewriter.depth > self.nesting {
                return None;
            }
            self.rewriter.rewrite(event, &mut self.waiting);
        }
        self.waiting.pop_front()
    }
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
    fn rewrite<'a>(&mut self, event: Event<'a>, events: &mut VecDeque<Event<'a>>) {
        match event {
            // Raw HTML is text.
            Event::Html(text) | Event::InlineHtml(text) => events.push_back(Event::Text(text)),
            // Each paragraph and list item reads from the side of its own script.
            Event::Start(Tag::Paragraph | Tag::HtmlBlock) => {
                events.push_back(html_text("<p dir=\"auto\">"));
            }
            Event::End(TagEnd::HtmlBlock) => events.push_back(Event::End(TagEnd::Paragraph)),
            Event::Start(Tag::Item) => events.push_back(html_text("<li dir=\"auto\">")),
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
                    events.push_back(Event::InlineHtml(CowStr::Borrowed("</a>")));
                }
            }
            // A heading has no id or class; the page's own headings are of higher rank.
            Event::Start(Tag::Heading { level, .. }) => {
                events.push_back(Event::Start(Tag::Heading {
                    level,
                    id: None,
                    classes: Vec::new(),
                    attrs: Vec::new(),
                }));
            }
            // A cell's alignment would become a style attribute, which the page forbids. Boxes that
            // scroll can have the focus, so that keys scroll them.
            Event::Start(Tag::Table(columns)) => {
                events.push_back(html_text("<div class=\"scroll\" tabindex=\"0\">"));
                let columns = vec![Alignment::None; columns.len()];
                events.push_back(Event::Start(Tag::Table(columns)));
            }
            Event::End(TagEnd::Table) => {
                events.push_back(Event::End(TagEnd::Table));
                events.push_back(html_text("</div>\n"));
            }
            Event::Start(Tag::CodeBlock(kind)) => events.push_back(begin_code(&kind)),
            Event::End(TagEnd::CodeBlock) => events.push_back(html_text("</code></pre>\n")),
            // A check box would need a label.
            Event::TaskListMarker(is_done) => {
                let mark = if is_done { "☑\u{fe0e} " } else { "☐ " };
                events.push_back(Event::Text(CowStr::Borrowed(mark)));
            }
            other => events.push_back(other),
        }
    }

    /// Begins an `a` element. A link in a link, or with a scheme that is not listed, stays text.
    fn open_link(&mut self, link_type: LinkType, address: &str, events: &mut VecDeque<Event<'_>>) {
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
            events.push_back(Event::InlineHtml(tag.into()));
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
            "<p dir=\"auto\"><a href=\"https://example.org/?a=1&amp;b=&quot;2\" \
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

    #[test]
    fn a_table_that_the_parser_would_fill_with_cells_is_shown_as_text() {
        let (head, line) = ("|a".repeat(250), "|-".repeat(250));
        let table = format!("{head}|\n{line}|\n{}", "a\n".repeat(130));
        let unlimited = MarkdownLimits {
            output_bytes: usize::MAX,
            table_cells: usize::MAX,
            ..MarkdownLimits::default()
        };
        let filled = to_html(&table, unlimited);
        assert!(
            filled.bytes() > 200 * table.len(),
            "{} bytes",
            filled.bytes()
        );
        let shown = html(&table);
        assert!(!shown.contains("<td>"), "{} bytes", shown.len());
        assert!(shown.len() < 8 * table.len(), "{} bytes", shown.len());
        // A quotation, and tables one after another, are no way around it.
        let quoted = format!("> {}\n", table.trim_end().replace('\n', "\n> "));
        let narrow = format!("|a|b|\n|-|-|\n{}\n\n", "x\n".repeat(100));
        for (hostile, most) in [(quoted, 8), (narrow.repeat(90), 16)] {
            let shown = html(&hostile);
            assert!(
                shown.len() < most * hostile.len(),
                "{} of {} bytes",
                shown.len(),
                hostile.len()
            );
        }
    }

    #[test]
    fn cells_that_a_table_lacks_count_as_output() {
        let limits = MarkdownLimits {
            output_bytes: 2_000,
            ..MarkdownLimits::default()
        };
        let table = format!(
            "|a{}|\n|-{}|\n{}",
            "|b".repeat(20),
            "|-".repeat(20),
            "x\n".repeat(40)
        );
        let shown = to_html(&table, limits).to_string();
        assert!(shown.starts_with("<pre tabindex=\"0\">|a"), "{shown}");
        let whole = html(&table);
        assert!(whole.contains("<td></td>"), "{whole}");
    }

    #[test]
    fn paragraphs_and_list_items_read_from_their_own_side() {
        let shown = html("مرحبا\n\n- one\n- שלום\n");
        assert_eq!(shown.matches("<p dir=\"auto\">").count(), 1, "{shown}");
        assert_eq!(shown.matches("<li dir=\"auto\">").count(), 2, "{shown}");
    }
}
