//! Conversations and their messages as the page shows them.

use anneal_proto::v1::{self as pb, part::Part as Content};
use anneal_web::{
    conversations::Row,
    format::{Time, Tokens},
    markdown::{self, MarkdownLimits},
    message::{Actions, Alternatives, Media, Message, Part, Role},
};
use prost_types::Timestamp;

use super::paths;

/// Most bytes of one message's text that a page shows at first.
const SHOWN_BYTES: usize = 16 * 1024;
/// Most bytes of the call or the result of a tool that a page shows at first.
const SHOWN_TOOL_BYTES: usize = 4 * 1024;
/// Bytes of a message that a page shows at least, however much it shows already.
const LEAST_BYTES: usize = 1024;
/// Most bytes of text on one page of messages, but for [`LEAST_BYTES`] of each.
const PAGE_BYTES: usize = 160 * 1024;
/// Most bytes of HTML that the Markdown of one page becomes.
const PAGE_HTML_BYTES: usize = 512 * 1024;
/// Most pictures of one message that a page shows.
const SHOWN_PICTURES: usize = 16;

/// A conversation in a list, or at the head of its own page.
pub(in crate::http::web) fn row(conversation: &pb::Conversation) -> Row {
    let total = conversation.token_total.unwrap_or_default();
    Row {
        id: conversation.conversation_id.clone(),
        title: conversation.title.clone(),
        agent: conversation.agent_id.clone(),
        user: conversation.user_id.clone(),
        last_activity: time(conversation.last_activity_time),
        messages: conversation.message_count - conversation.withdrawn_messages,
        withdrawn: conversation.withdrawn_messages,
        tokens: Tokens {
            value: total.tokens,
            estimated: total.estimated_messages > 0,
        },
        archived: conversation.status() == pb::ConversationStatus::Archived,
        pinned: conversation.pinned,
        fork_of: conversation.forked_from_conversation_id.clone(),
    }
}

/// A time to the second, and for people to the minute. A script shows it in the time of its place.
pub(in crate::http::web) fn time(timestamp: Option<Timestamp>) -> Time {
    let seconds = Timestamp {
        nanos: 0,
        ..timestamp.unwrap_or_default()
    };
    let iso = seconds.to_string();
    let (day, clock) = iso.split_once('T').unwrap_or_default();
    Time {
        text: format!("{day} {} UTC", clock.get(..5).unwrap_or_default()),
        iso,
    }
}

/// How much text a page still shows. Messages after that are cut.
pub(in crate::http::web) struct ShownBytes {
    left: usize,
    /// Bytes that the HTML of Markdown may still have.
    html_left: usize,
}

impl ShownBytes {
    /// The text of a whole page.
    pub(in crate::http::web) const fn of_page() -> Self {
        Self {
            left: PAGE_BYTES,
            html_left: PAGE_HTML_BYTES,
        }
    }

    /// The beginning of a text that is shown, of at most this many bytes, and of at least `least`
    /// if the text has them.
    fn take<'t>(&mut self, text: &'t str, most: usize, least: usize) -> &'t str {
        let most = most.min(self.left.max(least));
        let shown = &text[..text.floor_char_boundary(most)];
        self.left = self.left.saturating_sub(shown.len());
        shown
    }

    /// A text in Markdown. It is shown as it was written if the page has no room for its HTML.
    fn markdown(&mut self, text: &str) -> Part {
        if text.len() > self.html_left {
            return Part::Text(text.to_owned());
        }
        let limits = MarkdownLimits {
            output_bytes: self.html_left,
            ..MarkdownLimits::default()
        };
        let html = markdown::to_html(text, limits);
        self.html_left = self.html_left.saturating_sub(html.bytes());
        Part::Markdown(html)
    }
}

/// Bytes of a message's text that a page shows at most.
pub(super) fn shown_text_bytes(stored: &pb::Message) -> usize {
    let bytes = usize::try_from(stored.text_bytes).unwrap_or(usize::MAX);
    bytes.min(SHOWN_BYTES)
}

/// What can be done with a message, and the other answers beside it.
pub(in crate::http::web) struct MessageFrame {
    pub(in crate::http::web) actions: Actions,
    pub(in crate::http::web) alternatives: Option<Alternatives>,
}

/// A message, cut if it is longer than what the page still shows.
pub(in crate::http::web) fn message(
    stored: pb::Message,
    conversation: &str,
    frame: MessageFrame,
    bytes: &mut ShownBytes,
) -> Message {
    let role = role(stored.role());
    let tokens = stored.tokens.unwrap_or_default();
    let mut parts = PartViews {
        media_base: paths::message(conversation, stored.message_id),
        version: stored.version,
        shows_pictures: super::media::may_be_read(&stored),
        media: 0,
        is_markdown: role == Role::Assistant,
        message_bytes: SHOWN_BYTES,
        bytes,
        is_cut: false,
    };
    let views: Vec<Part> = stored
        .parts
        .into_iter()
        .filter_map(|part| part.part.and_then(|content| parts.view(content)))
        .collect();
    let cut = parts.is_cut;
    let mut actions = frame.actions;
    // The form has the text alone: an edit must not lose what the form does not show.
    actions.edit &= !cut && views.iter().all(|view| matches!(view, Part::Text(_)));
    Message {
        id: stored.message_id,
        role,
        parts: views,
        time: time(stored.created_time),
        turn: stored.turn,
        tokens: Tokens {
            value: tokens.tokens,
            estimated: tokens.estimated,
        },
        version: stored.version,
        stopped: stored.stopped,
        text_bytes: stored.text_bytes,
        cut,
        alternatives: frame.alternatives,
        actions,
    }
}

fn role(role: pb::Role) -> Role {
    match role {
        pb::Role::Assistant => Role::Assistant,
        pb::Role::Tool => Role::Tool,
        pb::Role::System => Role::System,
        pb::Role::User | pb::Role::Unspecified => Role::User,
    }
}

/// Makes the views of one message's parts.
struct PartViews<'b> {
    /// Below this path are the message's pictures.
    media_base: String,
    version: i32,
    shows_pictures: bool,
    /// Number of files that have been shown.
    media: usize,
    is_markdown: bool,
    /// Bytes of the message that may still be shown.
    message_bytes: usize,
    bytes: &'b mut ShownBytes,
    is_cut: bool,
}

impl PartViews<'_> {
    /// None: nothing of the part is shown, because the message has been cut before it.
    fn view(&mut self, content: Content) -> Option<Part> {
        Some(match content {
            Content::Text(part) => {
                let shown = self.cut(&part.text, SHOWN_BYTES)?;
                if self.is_markdown {
                    self.bytes.markdown(shown)
                } else {
                    Part::Text(shown.to_owned())
                }
            }
            Content::ToolUse(part) => Part::Call {
                input: self.cut(&part.input, SHOWN_TOOL_BYTES)?.to_owned(),
                id: part.id,
                name: part.name,
            },
            Content::ToolResult(part) => Part::Result {
                text: self.cut(&part.text, SHOWN_TOOL_BYTES)?.to_owned(),
                call: part.tool_use_id,
                failed: part.is_error,
                media: part.media.iter().map(|media| self.media(media)).collect(),
            },
            Content::Media(part) => Part::Media(self.media(&part)),
            Content::Reasoning(part) => Part::Reasoning {
                text: self.cut(&part.text, SHOWN_TOOL_BYTES)?.to_owned(),
                hidden: part.text.is_empty(),
            },
        })
    }

    /// The beginning of a text, as far as it is shown. None: nothing of it is.
    fn cut<'t>(&mut self, text: &'t str, most: usize) -> Option<&'t str> {
        let shown_before = SHOWN_BYTES - self.message_bytes;
        let least = LEAST_BYTES.saturating_sub(shown_before);
        let shown = self.bytes.take(text, most.min(self.message_bytes), least);
        self.message_bytes -= shown.len();
        self.is_cut |= shown.len() < text.len();
        (text.is_empty() || !shown.is_empty()).then_some(shown)
    }

    /// A file. Only pictures that are stored in the message are shown: nothing is loaded from
    /// elsewhere.
    fn media(&mut self, part: &pb::MediaPart) -> Media {
        let number = self.media;
        self.media += 1;
        let is_stored = part.uri.starts_with("data:image/");
        let is_shown = number < SHOWN_PICTURES
            && self.shows_pictures
            && super::media::is_shown_picture(&part.uri);
        let is_link = ["http://", "https://"]
            .iter()
            .any(|scheme| part.uri.starts_with(scheme));
        Media {
            media_type: part.media_type.clone(),
            bytes: match part.size_bytes {
                0 if part.uri.starts_with("data:") => part.uri.len() as u64 / 4 * 3,
                known => known,
            },
            picture_url: if is_shown {
                format!("{}/media/{number}?v={}", self.media_base, self.version)
            } else {
                String::new()
            },
            not_shown: is_stored && !is_shown,
            link: if is_link {
                part.uri.clone()
            } else {
                String::new()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(texts: usize, text: &str) -> pb::Message {
        let part = pb::Part {
            part: Some(Content::Text(pb::TextPart {
                text: text.to_owned(),
            })),
        };
        pb::Message {
            message_id: 1,
            role: pb::Role::Assistant.into(),
            parts: vec![part; texts],
            ..pb::Message::default()
        }
    }

    fn shown(stored: pb::Message, bytes: &mut ShownBytes) -> Message {
        let actions = Actions {
            edit: false,
            regenerate: false,
            fork: false,
            withdraw: false,
        };
        let frame = MessageFrame {
            actions,
            alternatives: None,
        };
        message(stored, "c", frame, bytes)
    }

    #[test]
    fn a_message_of_many_parts_shows_no_more_of_a_full_page_than_one_of_one_part() {
        let mut bytes = ShownBytes {
            left: 0,
            ..ShownBytes::of_page()
        };
        let message = shown(answer(100, &"x".repeat(700)), &mut bytes);
        assert_eq!(message.parts.len(), 2);
        assert!(message.cut);
        let html = message.parts.iter().map(|part| match part {
            Part::Markdown(html) => html.to_string(),
            other => panic!("{other:?}"),
        });
        assert_eq!(html.collect::<String>().matches('x').count(), LEAST_BYTES);
    }

    #[test]
    fn the_markdown_of_a_page_has_one_limit() {
        let columns = 30;
        let (head, line) = ("|a".repeat(columns), "|-".repeat(columns));
        let table = format!("{head}|\n{line}|\n{}", "b\n".repeat(400));
        let mut bytes = ShownBytes::of_page();
        let mut html = 0;
        let mut as_written = 0;
        for _ in 0..200 {
            for part in shown(answer(1, &table), &mut bytes).parts {
                match part {
                    Part::Markdown(rendered) => html += rendered.bytes(),
                    Part::Text(_) => as_written += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(html > PAGE_HTML_BYTES / 2, "{html} bytes");
        assert!(html < PAGE_HTML_BYTES + PAGE_BYTES, "{html} bytes");
        assert!(bytes.html_left < table.len());
        assert!(as_written > 0);
    }
}
