//! Parses the lines of a session.

use anneal_core::{digest, message::Message};

use super::{SEPARATOR, message::parse_message};
use crate::{
    ImportOutcome,
    json::{Fields, Notes, Unreadable, quoted, short_name},
    message_extra::{ANNEAL_KEY, MessageExtra},
    storage_limits::half_hex,
};

/// The fields of a compaction that one of the two passes over the file reads.
const COMPACTION_FIELDS: [&str; 10] = [
    ANNEAL_KEY,
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

/// The type of message entries.
const MESSAGE_TYPE: &str = "message";
/// The type of a session's first line.
const SESSION_TYPE: &str = "session";

/// A line of a session.
pub(super) enum Entry {
    Message(Box<Message>, Option<MessageExtra>),
    /// pi's summary of the messages before it.
    Compaction(Compaction),
    /// anneal's own separator.
    Separator,
    /// The name of the session.
    SessionName,
    /// A change of the model: the new model, and the entry.
    Model(String, NonMessage),
    /// Any other entry that is not sent to the model.
    Other(NonMessage),
}

/// An entry that is not sent to the model.
pub(super) struct NonMessage {
    pub(super) kind: String,
    /// The line of the entry, unchanged.
    pub(super) text: String,
    /// The type and id of the entry, as JSON.
    pub(super) short: String,
}

/// pi's summary.
pub(super) struct Compaction {
    pub(super) summary: String,
    pub(super) tokens_before: Option<u64>,
    pub(super) tokens_after: Option<u64>,
    /// What is kept of the entry beside the summary. None: anneal has made the summary.
    pub(super) kept: Option<NonMessage>,
}

/// The type of compactions.
const COMPACTION_TYPE: &str = "compaction";

/// What is kept of a compaction beside its summary, so that it can be written again: an entry of
/// the label [`ENTRIES`](super::ENTRIES) with a digest in place of the summary.
pub(super) struct KeptCompaction {
    pub(super) id: Option<String>,
    pub(super) timestamp: Option<String>,
    digest: String,
}

impl KeptCompaction {
    /// Parses an entry of the label. None: it is no compaction.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let fields = Fields::parse(text).ok()?;
        let is_compaction = fields.text("type").ok()?.as_deref() == Some(COMPACTION_TYPE);
        let digest = fields.text("digest").ok()?.filter(|_| is_compaction)?;
        Some(Self {
            id: fields.text("id").ok()?,
            timestamp: fields.text("timestamp").ok()?,
            digest,
        })
    }

    /// Whether it is the compaction with this summary.
    pub(super) fn has_summary(&self, summary: &str) -> bool {
        self.digest == summary_digest(summary)
    }
}

fn summary_digest(summary: &str) -> String {
    half_hex(&digest::of_content(summary))
}

pub(super) fn parse_entry(text: &str, notes: &mut Notes) -> Result<Entry, Unreadable> {
    let fields = Fields::parse(text)?;
    let kind = fields.required_text("type")?;
    Ok(match kind.as_str() {
        COMPACTION_TYPE => Entry::Compaction(parse_compaction(&fields, notes)?),
        "custom" if fields.text("customType")?.as_deref() == Some(SEPARATOR) => Entry::Separator,
        "model_change" => {
            let model = fields.text("modelId")?.unwrap_or_default();
            let provider = fields.text("provider")?.unwrap_or_default();
            Entry::Model(
                format!("{provider}/{model}").trim_matches('/').to_owned(),
                non_message(text, &fields)?,
            )
        }
        // The name of the session is used as the title.
        "session_info" => Entry::SessionName,
        _ => match parse_message(&fields, notes)? {
            Some(message) => Entry::Message(Box::new(message), MessageExtra::of(&fields)?),
            None => Entry::Other(non_message(text, &fields)?),
        },
    })
}

fn parse_compaction(fields: &Fields, notes: &mut Notes) -> Result<Compaction, Unreadable> {
    let others = fields
        .names()
        .filter(|name| !COMPACTION_FIELDS.contains(name));
    notes.remarks.extend(others.map(|name| {
        (
            ImportOutcome::SetAside,
            format!("field {} of a compaction", short_name(name)),
        )
    }));
    let number = |name: &str| fields.raw(name).and_then(|raw| raw.parse().ok());
    let summary = fields.text("summary")?.unwrap_or_default();
    let kept = if fields.has(ANNEAL_KEY) {
        None
    } else {
        Some(kept_compaction(fields, &summary)?)
    };
    Ok(Compaction {
        summary,
        tokens_before: number("tokensBefore"),
        tokens_after: number("tokensAfter"),
        kept,
    })
}

fn kept_compaction(fields: &Fields, summary: &str) -> Result<NonMessage, Unreadable> {
    let mut text = format!("{{\"type\":{}", quoted(COMPACTION_TYPE));
    for name in ["id", "timestamp"] {
        if let Some(value) = fields.text_or_raw(name)? {
            text.extend([",", &quoted(name), ":", &quoted(&value)]);
        }
    }
    text.extend([",\"digest\":", &quoted(&summary_digest(summary)), "}"]);
    Ok(NonMessage {
        kind: COMPACTION_TYPE.to_owned(),
        short: text.clone(),
        text,
    })
}

/// Whether an entry of the label [`ENTRIES`](super::ENTRIES) can be written into a session again:
/// it is whole, and no message is made of it.
pub(super) fn is_whole_entry(text: &str) -> bool {
    let has_content = Fields::parse(text).is_ok_and(|fields| {
        fields
            .names()
            .any(|name| !["type", "id", "parentId", "timestamp"].contains(&name))
    });
    has_content
        && match parse_entry(text, &mut Notes::new()) {
            Ok(Entry::Other(entry) | Entry::Model(_, entry)) => entry.kind != SESSION_TYPE,
            _ => false,
        }
}

fn non_message(text: &str, fields: &Fields) -> Result<NonMessage, Unreadable> {
    let kind = fields.required_text("type")?;
    let id = fields
        .text_or_raw("id")?
        .map(|id| format!(",\"id\":{}", quoted(&id)))
        .unwrap_or_default();
    Ok(NonMessage {
        text: text.trim().to_owned(),
        short: format!("{{\"type\":{}{id}}}", quoted(&kind)),
        kind,
    })
}

/// Whether the type of an entry that cannot be parsed completely is `message`.
pub(super) fn is_message(text: &str) -> bool {
    Fields::parse(text)
        .and_then(|fields| fields.required_text("type"))
        .is_ok_and(|kind| kind == MESSAGE_TYPE)
}

impl Entry {
    /// Whether the type of the entry is `message`.
    pub(super) fn is_message(&self) -> bool {
        match self {
            // A message made of an entry of another type has the label `pi.type`.
            Self::Message(message, _) => !message.metadata.contains_key("pi.type"),
            Self::Other(non_message) => non_message.kind == MESSAGE_TYPE,
            Self::Compaction(_) | Self::Separator | Self::SessionName | Self::Model(..) => false,
        }
    }
}
