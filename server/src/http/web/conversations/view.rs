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

/// A time to the second, and for people to the minute.
pub(in crate::http::web) fn time(timestamp: Option<Timestamp>) -> Time {
    let seconds = Timestamp {
        nanos: 0,
        ..timestamp.unwrap_or_default()
    };
    let iso = seconds.to_string();
    let (day, clock) = iso.split_once('T').unwrap_or_default();
    Time {
        text: format!("{day} {}", clock.get(..5).unwrap_or_default()),
        iso,
    }
}

/// How much text a page still shows. Messages after that are cut.
pub(in crate::http::web) struct ShownBytes {
    left: usize,
}

impl ShownBytes {
    /// The text of a whole page.
    pub(in crate::http::web) const fn of_page() -> Self {
        Self { left: PAGE_BYTES }
    }

    /// The beginning of a text that is shown, of at most this many bytes.
    fn take<'t>(&mut self, text: &'t str, most: usize) -> &'t str {
        let most = most.min(self.left.max(LEAST_BYTES));
        let shown = &text[..text.floor_char_boundary(most)];
        self.left = self.left.saturating_sub(shown.len());
        shown
    }
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
        media: 0,
        is_markdown: role == Role::Assistant,
        message_bytes: SHOWN_BYTES,
        bytes,
        is_cut: false,
    };
    let views: Vec<Part> = stored
        .parts
        .into_iter()
        .filter_map(|part| part.part.map(|content| parts.view(content)))
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
    /// Number of files that have been shown.
    media: usize,
    is_markdown: bool,
    /// Bytes of the message that may still be shown.
    message_bytes: usize,
    bytes: &'b mut ShownBytes,
    is_cut: bool,
}

impl PartViews<'_> {
    fn view(&mut self, content: Content) -> Part {
        match content {
            Content::Text(part) => {
                let shown = self.cut(&part.text, SHOWN_BYTES);
                if self.is_markdown {
                    Part::Markdown(markdown::to_html(shown, MarkdownLimits::default()))
                } else {
                    Part::Text(shown.to_owned())
                }
            }
            Content::ToolUse(part) => Part::Call {
                input: self.cut(&part.input, SHOWN_TOOL_BYTES).to_owned(),
                id: part.id,
                name: part.name,
            },
            Content::ToolResult(part) => Part::Result {
                text: self.cut(&part.text, SHOWN_TOOL_BYTES).to_owned(),
                call: part.tool_use_id,
                failed: part.is_error,
                media: part.media.iter().map(|media| self.media(media)).collect(),
            },
            Content::Media(part) => Part::Media(self.media(&part)),
            Content::Reasoning(part) => Part::Reasoning {
                text: self.cut(&part.text, SHOWN_TOOL_BYTES).to_owned(),
                hidden: part.text.is_empty(),
            },
        }
    }

    /// The beginning of a text, as far as it is shown.
    fn cut<'t>(&mut self, text: &'t str, most: usize) -> &'t str {
        let shown = self.bytes.take(text, most.min(self.message_bytes));
        self.message_bytes -= shown.len();
        self.is_cut |= shown.len() < text.len();
        shown
    }

    /// A file. Only pictures that are stored in the message are shown: nothing is loaded from
    /// elsewhere.
    fn media(&mut self, part: &pb::MediaPart) -> Media {
        let number = self.media;
        self.media += 1;
        let is_link = ["http://", "https://"]
            .iter()
            .any(|scheme| part.uri.starts_with(scheme));
        Media {
            media_type: part.media_type.clone(),
            bytes: match part.size_bytes {
                0 if part.uri.starts_with("data:") => part.uri.len() as u64 / 4 * 3,
                known => known,
            },
            picture_url: if super::media::is_inline_picture(&part.uri) {
                format!("{}/media/{number}", self.media_base)
            } else {
                String::new()
            },
            link: if is_link {
                part.uri.clone()
            } else {
                String::new()
            },
        }
    }
}
