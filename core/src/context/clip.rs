//! Clips one part of an entry: leaves out the middle of its text. A tool result that is JSON stays
//! valid JSON, or becomes a one-line mark if no valid JSON is short enough. Other JSON is clipped
//! as a text. The manifest records the byte ranges of stored messages that were left out.

use std::ops::Range;

use super::{Draft, Entry, Reason, Representation, entry::Origin};
use crate::{
    message::{MessageId, Part},
    tokens::{Encoding, Tokens, clip_json, clip_middle},
};

impl Entry {
    /// Clips the text of one part from `tokens` to at most `limit`, or as far as possible. Returns
    /// the new count; None if that saves no token. A text that was clipped before is clipped again
    /// from its unclipped form.
    fn clip_part(
        &mut self,
        part: usize,
        tokens: Tokens,
        limit: Tokens,
        encoding: Encoding,
    ) -> Option<Tokens> {
        if tokens <= limit {
            return None;
        }
        self.note_origins();
        let message = self.message_id();
        let origin = &mut self.origins[part];
        let is_result = matches!(self.parts[part], Part::ToolResult { .. });
        let (Part::Text { text } | Part::ToolResult { text, .. }) = &mut self.parts[part] else {
            return None;
        };
        let whole = origin.whole.as_deref().unwrap_or(text);
        let byte_range = origin.byte_range.clone();
        // Additions to a result, such as descriptions of its media, follow the tool's own text.
        let own_bytes = byte_range
            .as_ref()
            .map_or(whole.len(), |byte_range| byte_range.len().min(whole.len()));
        let json_bytes = (is_result && is_json(&whole[..own_bytes])).then_some(own_bytes);
        let clipped = clip_text(whole, json_bytes, limit, encoding, |left_out| {
            mark(left_out, byte_range.as_ref(), message)
        })?;
        if clipped.tokens >= tokens {
            return None;
        }
        let before = std::mem::replace(text, clipped.text);
        origin.whole.get_or_insert(before);
        origin.left_out = clipped.left_out;
        self.tokens = self.tokens.less(tokens) + clipped.tokens;
        Some(clipped.tokens)
    }
}

struct ClippedText {
    text: String,
    tokens: Tokens,
    left_out: Vec<Range<usize>>,
}

/// Clips a text to `limit`. `json_bytes`: number of bytes at its start that are JSON, and that stay
/// valid JSON. If even the shortest JSON does not fit, a one-line mark replaces these bytes.
fn clip_text(
    whole: &str,
    json_bytes: Option<usize>,
    limit: Tokens,
    encoding: Encoding,
    mark: impl Fn(Range<usize>) -> String,
) -> Option<ClippedText> {
    if let Some((json, rest)) = json_bytes.map(|bytes| whole.split_at(bytes)) {
        let counter = encoding.counter();
        let fitting = clip_json(encoding, json, limit.less(counter.count(rest)), &mark);
        let (mut text, left_out) = fitting.map_or_else(
            || {
                (
                    mark(0..json.len()),
                    std::iter::once(0..json.len()).collect(),
                )
            },
            |clipped| (clipped.text, clipped.omitted),
        );
        text.push_str(rest);
        return Some(ClippedText {
            tokens: counter.count(&text),
            text,
            left_out,
        });
    }
    let clipped = clip_middle(encoding, whole, limit, |left_out| {
        format!("\n{}\n", mark(left_out))
    })?;
    Some(ClippedText {
        text: clipped.text,
        tokens: clipped.tokens,
        left_out: vec![clipped.omitted],
    })
}

/// The mark that replaces a left-out range. For a stored message it names the range, so that a
/// model can ask for it.
fn mark(
    left_out: Range<usize>,
    byte_range: Option<&Range<usize>>,
    message: Option<MessageId>,
) -> String {
    match (
        byte_range.map(|byte_range| plain_text_range(&left_out, byte_range)),
        message,
    ) {
        (Some(bytes), Some(id)) => {
            format!(
                "[{} bytes left out: bytes {} to {} of message {id}]",
                left_out.len(),
                bytes.start,
                bytes.end
            )
        }
        _ => format!("[{} bytes left out]", left_out.len()),
    }
}

/// Maps a range of a part's text to bytes of its message's plain text. Additions to the part are
/// cut off.
fn plain_text_range(range: &Range<usize>, byte_range: &Range<usize>) -> Range<usize> {
    (byte_range.start + range.start).min(byte_range.end)
        ..(byte_range.start + range.end).min(byte_range.end)
}

fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
        && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

impl Draft {
    /// Clips one part of one entry from `tokens` to at most `limit`, or as far as possible, and
    /// records it in the manifest. Returns the number of tokens that this saves.
    pub(super) fn clip(
        &mut self,
        index: usize,
        part: usize,
        tokens: Tokens,
        limit: Tokens,
        reason: Reason,
    ) -> Tokens {
        let encoding = self.encoding;
        let entry = &mut self.entries[index];
        let Some(clipped_tokens) = entry.clip_part(part, tokens, limit, encoding) else {
            return Tokens::ZERO;
        };
        if let Some(manifest_entry) = entry
            .message_id()
            .and_then(|id| self.manifest_entry_mut(id))
        {
            // A clipped summary is still reported as a summary: its clip left out no bytes of the
            // original.
            if manifest_entry.representation != Representation::Summary {
                manifest_entry.representation = Representation::Clipped;
            }
            manifest_entry.reason = reason;
            manifest_entry.tokens = manifest_entry.tokens.less(tokens) + clipped_tokens;
        }
        tokens.less(clipped_tokens)
    }
}

/// Writes the byte ranges that clips left out into the manifest. Call it after the last clip and
/// before entries are merged.
pub(super) fn record_clips(draft: &mut Draft) {
    let left_out = |origin: &Origin| {
        let byte_range = origin.byte_range.clone();
        let ranges: Vec<Range<usize>> = origin
            .left_out
            .iter()
            .filter_map(|range| Some(plain_text_range(range, byte_range.as_ref()?)))
            .collect();
        ranges
    };
    let ranges_by_message: Vec<(MessageId, Vec<Range<usize>>)> = draft
        .entries
        .iter()
        .filter_map(|entry| {
            Some((
                entry.message_id()?,
                entry.origins.iter().flat_map(left_out).collect::<Vec<_>>(),
            ))
        })
        .filter(|(_, ranges)| !ranges.is_empty())
        .collect();
    for (id, ranges) in ranges_by_message {
        if let Some(manifest_entry) = draft.manifest_entry_mut(id) {
            manifest_entry
                .clipped
                .extend(ranges.into_iter().filter(|range| !range.is_empty()));
            manifest_entry.clipped.sort_by_key(|range| range.start);
        }
    }
}
