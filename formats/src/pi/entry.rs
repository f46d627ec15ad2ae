//! What one line of a session is.

use anneal_core::message::Message;

use super::{SEPARATOR, message::message};
use crate::{
    Fate,
    extra::Extra,
    json::{Bad, Fields, Notes, named, quoted},
};

/// Fields of compactions that are read, by one of the two passes.
const COMPACTION: [&str; 9] = [
    "type",
    "id",
    "parentId",
    "timestamp",
    "summary",
    "firstKeptEntryId",
    "firstKeptEntryIndex",
    "tokensBefore",
    "tokensAfter",
];

/// The type of messages.
const MESSAGE: &str = "message";

/// What one line of a session is.
pub(super) enum Entry {
    /// A message.
    Says(Box<Message>, Option<Extra>),
    /// pi's own summary of what came before.
    Compaction(Compaction),
    /// Our own separator.
    Separator,
    /// The session's name.
    Named,
    /// The model that answers from here on.
    Model(String, Aside),
    /// Anything else that says nothing to a model.
    Other(Aside),
}

/// An entry that says nothing to a model.
pub(super) struct Aside {
    pub(super) kind: String,
    /// As it stands.
    pub(super) text: String,
    /// Its type and its id alone.
    pub(super) short: String,
}

/// pi's own summary.
pub(super) struct Compaction {
    pub(super) summary: String,
    pub(super) tokens_before: Option<u64>,
    pub(super) tokens_after: Option<u64>,
}

/// The entry of a line.
pub(super) fn entry(text: &str, notes: &mut Notes) -> Result<Entry, Bad> {
    let fields = Fields::parse(text)?;
    let kind = fields.must("type")?;
    Ok(match kind.as_str() {
        "compaction" => Entry::Compaction(compaction(&fields, notes)?),
        "custom" if fields.text("customType")?.as_deref() == Some(SEPARATOR) => Entry::Separator,
        "model_change" => {
            let model = fields.text("modelId")?.unwrap_or_default();
            let provider = fields.text("provider")?.unwrap_or_default();
            Entry::Model(format!("{provider}/{model}").trim_matches('/').to_owned(), aside(text, &fields)?)
        }
        // the session's name is its title
        "session_info" => Entry::Named,
        _ => match message(&fields, notes)? {
            Some(message) => Entry::Says(Box::new(message), Extra::of(&fields)?),
            None => Entry::Other(aside(text, &fields)?),
        },
    })
}

fn compaction(fields: &Fields, notes: &mut Notes) -> Result<Compaction, Bad> {
    let others = fields.names().filter(|name| !COMPACTION.contains(name));
    notes.said.extend(others.map(|name| (Fate::SetAside, format!("field {} of a compaction", named(name)))));
    let number = |name: &str| fields.raw(name).and_then(|raw| raw.parse().ok());
    Ok(Compaction {
        summary: fields.text("summary")?.unwrap_or_default(),
        tokens_before: number("tokensBefore"),
        tokens_after: number("tokensAfter"),
    })
}

fn aside(text: &str, fields: &Fields) -> Result<Aside, Bad> {
    let kind = fields.must("type")?;
    let id = fields.label("id")?.map(|id| format!(",\"id\":{}", quoted(&id))).unwrap_or_default();
    Ok(Aside { text: text.trim().to_owned(), short: format!("{{\"type\":{}{id}}}", quoted(&kind)), kind })
}

/// Whether a line that cannot be read otherwise is a message by its type.
pub(super) fn is_message(text: &str) -> bool {
    Fields::parse(text).and_then(|fields| fields.must("type")).is_ok_and(|kind| kind == MESSAGE)
}

impl Entry {
    /// Whether it is a message by its type, whatever it says.
    pub(super) fn is_message(&self) -> bool {
        match self {
            Self::Says(message, _) => !message.metadata.contains_key("pi.type"),
            Self::Other(aside) => aside.kind == MESSAGE,
            Self::Compaction(_) | Self::Separator | Self::Named | Self::Model(..) => false,
        }
    }
}
