//! A message as pieces of text, each with the mark that says what it is.

use std::{borrow::Cow, fmt::Write as _};

use anneal_core::message::Part;
use rustc_hash::FxHashMap;

use crate::port::{Source, SourceBody};

use super::text::{clean, clip, fold};

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Voice {
    Said,
    Called,
    Answered,
    Failed,
    Thought,
}

/// One text of a message.
pub(crate) struct Piece<'a> {
    pub(crate) voice: Voice,
    /// `→ name` before a call, `← name` before its result (`✗` when it failed), nothing before what was said.
    pub(crate) lead: String,
    pub(crate) text: Cow<'a, str>,
}

/// Tool names by call id, of all the sources: a result says only its id.
pub(crate) struct CallNames<'a>(FxHashMap<&'a str, &'a str>);

impl<'a> CallNames<'a> {
    pub(crate) fn of(sources: &'a [Source]) -> Self {
        let mut names = FxHashMap::default();
        for source in sources {
            if let SourceBody::Original(parts) = &source.body {
                for part in parts {
                    if let Part::ToolUse { id, name, .. } = part {
                        names.insert(id.as_str(), name.as_str());
                    }
                }
            }
        }
        Self(names)
    }
}

/// The texts of one message, control characters removed, in order.
pub(crate) fn pieces<'a>(source: &'a Source, names: &CallNames<'_>) -> Vec<Piece<'a>> {
    let parts = match &source.body {
        SourceBody::Digest(digest) => {
            return vec![Piece { voice: Voice::Said, lead: String::new(), text: clean(digest) }];
        }
        SourceBody::Original(parts) => parts,
    };
    let mut pieces = Vec::new();
    for part in parts {
        let piece = match part {
            Part::Text { text } => Piece { voice: Voice::Said, lead: String::new(), text: clean(text) },
            Part::Reasoning { text, .. } => Piece { voice: Voice::Thought, lead: String::new(), text: clean(text) },
            Part::ToolUse { name, input, .. } => {
                Piece { voice: Voice::Called, lead: format!("→ {}", label(name)), text: clean(input) }
            }
            Part::ToolResult { id, text, is_error, media } => {
                let name = names.0.get(id.as_str()).map(|name| label(name)).unwrap_or_default();
                let (voice, mark) = if *is_error { (Voice::Failed, " ✗") } else { (Voice::Answered, "") };
                let mut lead = format!("← {name}").trim_end().to_owned() + mark;
                for media in media {
                    let _ = write!(lead, " [{} {}]", label(&media.media_type), label(&media.uri));
                }
                Piece { voice, lead, text: clean(text) }
            }
            Part::Media(media) => Piece {
                voice: Voice::Said,
                lead: format!("[{} {}]", label(&media.media_type), label(&media.uri)),
                text: Cow::Borrowed(""),
            },
        };
        if !piece.text.trim().is_empty() || !piece.lead.is_empty() {
            pieces.push(piece);
        }
    }
    pieces
}

/// A name from outside, safe inside our own marks; a data URI is clipped to its beginning.
fn label(name: &str) -> String {
    clip(&fold(&clean(clip(name, 200).as_ref())), 120).into_owned()
}
