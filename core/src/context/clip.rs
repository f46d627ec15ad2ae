//! Clipping one part of an entry: its text keeps head and tail, JSON stays JSON, and the manifest learns what is missing.

use std::ops::Range;

use super::{Draft, Entry, Reason, Representation, entry::Origin};
use crate::{
    message::{MessageId, Part},
    tokens::{Encoding, Tokens, clip_json, clip_middle},
};

impl Entry {
    /// Clips the text of one part, which counts `tokens`, to `room`. Returns what it counts then; None when nothing is
    /// gained. A text that was clipped before is clipped anew, from the whole.
    fn clip_part(&mut self, part: usize, tokens: Tokens, room: Tokens, encoding: Encoding) -> Option<Tokens> {
        if tokens <= room {
            return None;
        }
        self.note_origins();
        let message = self.message();
        let origin = &mut self.origins[part];
        let is_result = matches!(self.parts[part], Part::ToolResult { .. });
        let (Part::Text { text } | Part::ToolResult { text, .. }) = &mut self.parts[part] else { return None };
        let whole = origin.whole.as_deref().unwrap_or(text);
        let place = origin.place.clone();
        // What was added to a result, such as descriptions of its media, stands behind what the tool said.
        let own = place.as_ref().map_or(whole.len(), |place| place.len().min(whole.len()));
        let json = (is_result && is_json(&whole[..own])).then_some(own);
        let clipped = clipped(whole, json, room, encoding, |left_out| mark(left_out, place.as_ref(), message))?;
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

struct Outcome {
    text: String,
    tokens: Tokens,
    left_out: Vec<Range<usize>>,
}

/// The text clipped to `room`. The first `json` bytes of a tool result stay JSON, or, where not even that fits, become
/// one line that says what they were: never half of it.
fn clipped(
    whole: &str,
    json: Option<usize>,
    room: Tokens,
    encoding: Encoding,
    mark: impl Fn(Range<usize>) -> String,
) -> Option<Outcome> {
    if let Some((json, rest)) = json.map(|bytes| whole.split_at(bytes)) {
        let counter = encoding.counter();
        let fitting = clip_json(encoding, json, room.less(counter.count(rest)), &mark);
        let (mut text, left_out) = fitting.map_or_else(
            || (mark(0..json.len()), std::iter::once(0..json.len()).collect()),
            |clipped| (clipped.text, clipped.omitted),
        );
        text.push_str(rest);
        return Some(Outcome { tokens: counter.count(&text), text, left_out });
    }
    let clipped = clip_middle(encoding, whole, room, |left_out| format!("\n{}\n", mark(left_out)))?;
    Some(Outcome { text: clipped.text, tokens: clipped.tokens, left_out: vec![clipped.omitted] })
}

/// What stands where a part of a text was left out, so that a model can ask for it.
fn mark(left_out: Range<usize>, place: Option<&Range<usize>>, message: Option<MessageId>) -> String {
    match (place.map(|place| within(&left_out, place)), message) {
        (Some(bytes), Some(id)) => {
            format!("[{} bytes left out: bytes {} to {} of message {id}]", left_out.len(), bytes.start, bytes.end)
        }
        _ => format!("[{} bytes left out]", left_out.len()),
    }
}

/// A range of a part's text as bytes of its message's plain text; what was added to the part is not of it.
fn within(range: &Range<usize>, place: &Range<usize>) -> Range<usize> {
    (place.start + range.start).min(place.end)..(place.start + range.end).min(place.end)
}

fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[']) && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

impl Draft {
    /// Clips one part of one entry, and says so in the manifest. Returns the tokens gained.
    pub(super) fn clip(&mut self, index: usize, part: usize, tokens: Tokens, room: Tokens, reason: Reason) -> Tokens {
        let encoding = self.encoding;
        let entry = &mut self.entries[index];
        let Some(left) = entry.clip_part(part, tokens, room, encoding) else { return Tokens::ZERO };
        if let Some(line) = entry.message().and_then(|id| self.fate(id)) {
            // A summary that was cut is still a summary, and what it left out is the original.
            if line.representation != Representation::Summary {
                line.representation = Representation::Clipped;
            }
            line.reason = reason;
            line.tokens = line.tokens.less(tokens) + left;
        }
        tokens.less(left)
    }
}

/// Writes the clips' ranges into the manifest; to be called after the last clip, before entries are joined.
pub(super) fn note_clips(draft: &mut Draft) {
    let left_out = |origin: &Origin| {
        let place = origin.place.clone();
        let ranges: Vec<Range<usize>> =
            origin.left_out.iter().filter_map(|range| Some(within(range, place.as_ref()?))).collect();
        ranges
    };
    let noted: Vec<(MessageId, Vec<Range<usize>>)> = draft
        .entries
        .iter()
        .filter_map(|entry| Some((entry.message()?, entry.origins.iter().flat_map(left_out).collect::<Vec<_>>())))
        .filter(|(_, ranges)| !ranges.is_empty())
        .collect();
    for (id, ranges) in noted {
        if let Some(line) = draft.fate(id) {
            line.clipped.extend(ranges.into_iter().filter(|range| !range.is_empty()));
            line.clipped.sort_by_key(|range| range.start);
        }
    }
}
