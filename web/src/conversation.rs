//! A conversation: its messages, the running turn and the composer.

use askama::Template;

use crate::{
    conversations::Row,
    format::Time,
    layout::Page,
    message::{Message, MessagePiece},
    render::renders,
};

renders!(ConversationPage, Entries, MessagePage);

/// A conversation.
#[derive(Debug, Clone, Template)]
#[template(path = "conversation/page.html")]
pub struct ConversationPage {
    /// The frame.
    pub page: Page,
    /// Its figures.
    pub row: Row,
    /// The state that is shown.
    pub etag: String,
    /// Earlier messages; empty: none.
    pub older_url: String,
    /// The newest messages, oldest first.
    pub entries: Vec<Entry>,
    /// The turn that runs.
    pub turn: Option<RunningTurn>,
    /// The form for the next message, or why there is none.
    pub composer: Composer,
    /// Requests of the forms have this id, with a suffix.
    pub request_id: String,
    /// The newest message, withdrawn ones included.
    pub last: i64,
    /// The stream of changes; empty: none.
    pub watch_url: String,
}

/// Messages alone: the fragment of earlier or new ones.
#[derive(Debug, Clone, Template)]
#[template(path = "conversation/entries.html")]
pub struct Entries {
    /// The conversation.
    pub id: String,
    /// Token that every form sends.
    pub csrf: String,
    /// The state that is shown.
    pub etag: String,
    /// Requests of the forms have this id, with a suffix.
    pub request_id: String,
    /// Earlier messages; empty: none, or not asked for.
    pub older_url: String,
    /// Oldest first.
    pub entries: Vec<Entry>,
    /// The newest message that the forms take for the newest of all.
    pub last: i64,
    /// How far new messages were read. None: these are earlier ones.
    pub progress: Option<Progress>,
}

/// How far new messages were read.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// The last message that was read, or is known to be withdrawn.
    pub through: i64,
    /// There are further messages.
    pub has_more: bool,
}

/// A piece of a long message as a page of its own.
#[derive(Debug, Clone, Template)]
#[template(path = "conversation/message.html")]
pub struct MessagePage {
    /// The frame.
    pub page: Page,
    /// The piece.
    pub piece: MessagePiece,
}

/// A turn whose answer is being generated.
#[derive(Debug, Clone)]
pub struct RunningTurn {
    /// The request that began it.
    pub request_id: String,
    /// Its stream.
    pub events_url: String,
    /// Where the form to stop it goes.
    pub stop_url: String,
}

/// The form for a message, or why there is none.
#[derive(Debug, Clone)]
pub enum Composer {
    /// The form.
    Form {
        /// Models to choose from.
        models: Vec<String>,
        /// The chosen one; empty: the default.
        model: String,
        /// The server has a model for turns that name none.
        has_default: bool,
    },
    /// The credential may not write.
    ReadOnly,
    /// The server calls no model.
    NoModel,
}

/// What stands in the conversation's column.
#[derive(Debug, Clone)]
pub enum Entry {
    /// A message.
    Message(Message),
    /// The user has begun anew after this message.
    Separator {
        /// The last message before it.
        after: i64,
        /// When it was inserted.
        time: Time,
        /// It may be removed.
        can_remove: bool,
    },
    /// A summary replaces the messages up to `last`.
    Checkpoint {
        /// The last message that it covers.
        last: i64,
        /// Tokens of the summary.
        tokens: u64,
        /// Its provenance.
        url: String,
    },
    /// Messages that were withdrawn.
    Withdrawn {
        /// The first of them.
        first: i64,
        /// The last of them.
        last: i64,
        /// They may be restored.
        can_restore: bool,
    },
}
