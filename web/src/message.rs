//! A message and its parts.

use askama::Template;

use crate::{
    format::{self, Time, Tokens},
    markdown::Html,
    render::renders,
};

renders!(MessagePiece);

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The operator or agent.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// A tool.
    Tool,
}

/// A message.
#[derive(Debug, Clone)]
pub struct Message {
    /// Its id in the conversation.
    pub id: i64,
    /// Its author.
    pub role: Role,
    /// Its parts, in order.
    pub parts: Vec<Part>,
    /// When it was stored.
    pub time: Time,
    /// Its turn.
    pub turn: i32,
    /// Its tokens.
    pub tokens: Tokens,
    /// The version of its content: 1 until it is edited.
    pub version: i32,
    /// The answer was stopped before its end.
    pub stopped: bool,
    /// Bytes of its whole text.
    pub text_bytes: i64,
    /// More text is stored than is shown.
    pub cut: bool,
    /// Other answers to the same question.
    pub alternatives: Option<Alternatives>,
    /// What may be done with it.
    pub actions: Actions,
}

/// A part of a message.
#[derive(Debug, Clone)]
pub enum Part {
    /// Text that was rendered.
    Markdown(Html),
    /// Text as it was written.
    Text(String),
    /// A call of a tool.
    Call {
        /// Its id.
        id: String,
        /// The name of the tool.
        name: String,
        /// Its input, as JSON.
        input: String,
    },
    /// The result of a tool.
    Result {
        /// The call that it answers.
        call: String,
        /// Its text.
        text: String,
        /// The tool has failed.
        failed: bool,
        /// Its pictures and files.
        media: Vec<Media>,
    },
    /// Reasoning of the model; hidden: only the provider can read it.
    Reasoning {
        /// Its readable text.
        text: String,
        /// Only the provider can read it.
        hidden: bool,
    },
    /// A picture or file.
    Media(Media),
}

/// A picture or file. Nothing is loaded from other servers.
#[derive(Debug, Clone)]
pub struct Media {
    /// Its media type.
    pub media_type: String,
    /// Its size; 0: unknown.
    pub bytes: u64,
    /// Our own route to the picture; empty: it is no picture that is stored here.
    pub picture_url: String,
    /// Its address elsewhere (http, https); empty: none.
    pub link: String,
    /// It is a picture that is stored here, but not shown: too large, or of another kind.
    pub not_shown: bool,
}

/// Answers to one question.
#[derive(Debug, Clone)]
pub struct Alternatives {
    /// The question's message.
    pub question: i64,
    /// The answer that is shown, from 1.
    pub current: i32,
    /// How many there are.
    pub count: i32,
}

/// What may be done with a message.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each action is allowed by itself"
)]
pub struct Actions {
    /// Its text may be changed.
    pub edit: bool,
    /// Its question may be answered anew.
    pub regenerate: bool,
    /// The conversation may be copied up to it.
    pub fork: bool,
    /// It and what follows may be withdrawn.
    pub withdraw: bool,
}

/// A piece of the text of a long message: the fragment of "show more".
#[derive(Debug, Clone, Template)]
#[template(path = "message/piece.html")]
pub struct MessagePiece {
    /// The conversation.
    pub conversation: String,
    /// The message.
    pub id: i64,
    /// The version of its content.
    pub version: i32,
    /// The first byte of the piece.
    pub offset: i64,
    /// The piece.
    pub text: String,
    /// The next piece. None: this is the last one.
    pub next_offset: Option<i64>,
    /// Bytes of the whole text.
    pub total: i64,
}

impl Role {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "System",
            Self::User => "User",
            Self::Assistant => "Assistant",
            Self::Tool => "Tool",
        }
    }

    /// The style class.
    pub fn class(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

impl Message {
    /// The texts as they were written, for the form that edits them.
    pub fn text(&self) -> String {
        let texts: Vec<&str> = self
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        texts.join("\n")
    }

    /// The size of its text.
    pub(crate) fn size(&self) -> String {
        format::bytes(self.text_bytes)
    }

    pub(crate) fn has_actions(&self) -> bool {
        let actions = &self.actions;
        self.alternatives.is_some()
            || actions.edit
            || actions.regenerate
            || actions.fork
            || actions.withdraw
    }
}
