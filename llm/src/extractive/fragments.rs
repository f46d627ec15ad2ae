//! The texts of a message, each with its kind and its lead, such as `→ name` for a tool call.

use std::{borrow::Cow, fmt::Write as _};

use anneal_core::message::Part;
use rustc_hash::FxHashMap;

use crate::summarizer::{Source, SourceBody};

use super::text::{clean, clip, fold};

/// The kind of a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FragmentKind {
    Text,
    ToolCall,
    ToolResult,
    ToolError,
    Reasoning,
}

/// One text of a message.
pub(crate) struct Fragment<'a> {
    pub(crate) kind: FragmentKind,
    /// The words before the text: `→ name` for a call; `← name` for its result (with `✗` for
    /// an error, and with the result's files); `[type address]` for a file; empty for plain text,
    /// reasoning and cached summaries.
    pub(crate) lead: String,
    pub(crate) text: Cow<'a, str>,
}

/// Tool names by call id, from all sources: a result holds only the id of its call.
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

/// The fragments of one message in order, without control characters. Fragments with neither text
/// nor lead are left out.
pub(crate) fn fragments<'a>(source: &'a Source, names: &CallNames<'_>) -> Vec<Fragment<'a>> {
    let parts = match &source.body {
        SourceBody::CachedSummary(summary) => {
            return vec![Fragment {
                kind: FragmentKind::Text,
                lead: String::new(),
                text: clean(summary),
            }];
        }
        SourceBody::Original(parts) => parts,
    };
    let mut fragments = Vec::new();
    for part in parts {
        let fragment = match part {
            Part::Text { text } => Fragment {
                kind: FragmentKind::Text,
                lead: String::new(),
                text: clean(text),
            },
            Part::Reasoning { text, .. } => Fragment {
                kind: FragmentKind::Reasoning,
                lead: String::new(),
                text: clean(text),
            },
            Part::ToolUse { name, input, .. } => Fragment {
                kind: FragmentKind::ToolCall,
                lead: format!("→ {}", clean_label(name)),
                text: clean(input),
            },
            Part::ToolResult {
                id,
                text,
                is_error,
                media,
            } => {
                let name = names
                    .0
                    .get(id.as_str())
                    .map(|name| clean_label(name))
                    .unwrap_or_default();
                let (kind, error_sign) = if *is_error {
                    (FragmentKind::ToolError, " ✗")
                } else {
                    (FragmentKind::ToolResult, "")
                };
                let mut lead = format!("← {name}").trim_end().to_owned() + error_sign;
                for media in media {
                    let _ = write!(
                        lead,
                        " [{} {}]",
                        clean_label(&media.media_type),
                        clean_label(&media.uri)
                    );
                }
                Fragment {
                    kind,
                    lead,
                    text: clean(text),
                }
            }
            Part::Media(media) => Fragment {
                kind: FragmentKind::Text,
                lead: format!(
                    "[{} {}]",
                    clean_label(&media.media_type),
                    clean_label(&media.uri)
                ),
                text: Cow::Borrowed(""),
            },
        };
        if !fragment.text.trim().is_empty() || !fragment.lead.is_empty() {
            fragments.push(fragment);
        }
    }
    fragments
}

/// A name or an address from a source, cleaned for use in a lead. A long one, such as a data URI,
/// is clipped to its beginning.
fn clean_label(name: &str) -> String {
    clip(&fold(&clean(clip(name, 200).as_ref())), 120).into_owned()
}
