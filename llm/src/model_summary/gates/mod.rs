//! Gates: checks of a model's text against the source of its call. Every gate is linear in text and
//! source.
//!
//! A wrong refusal costs one more call, and then an extractive summary. A wrong text that passes
//! stays in every later context. So a gate refuses only what is clearly wrong.
//!
//! - `role_markers`: the text continues the conversation, or holds its marks.
//! - `no_content`: it refuses, or is too short for a long source.
//! - `repetition`: it repeats itself.
//! - `scripts`: it is in another script than its source.
//! - `copied_text`: it is a passage of its source.
//! - `grounded`: it describes the format of its source, or is about something else.
//! - `identifiers`: the strings that it must hold.
//! - `word_hashes`: words as numbers, for the other gates.

mod copied_text;
mod grounded;
mod identifiers;
mod no_content;
mod repetition;
mod role_markers;
mod scripts;
mod word_hashes;

use crate::summarizer::RejectedSummary;

use super::{chunks::Chunk, prompt::Task};

pub(super) use identifiers::{DialogueIdentifiers, must_keep};

/// The reason of the first gate that refuses the text; None if it passes all. The quoted words
/// after the text count only for the strings that the summary must hold.
pub(super) fn first_rejection(
    text: &str,
    quote: &str,
    boundary: &str,
    chunk: &Chunk<'_>,
    task: &Task,
) -> Option<RejectedSummary> {
    let misses =
        |string: &String| !text.contains(string.as_str()) && !quote.contains(string.as_str());
    let gates: [(RejectedSummary, &dyn Fn() -> bool); 8] = [
        (RejectedSummary::RoleMarkers, &|| {
            role_markers::has_role_markers(text, boundary)
        }),
        (RejectedSummary::NoContent, &|| {
            no_content::has_no_content(text, chunk, task.target)
        }),
        (RejectedSummary::Repetitive, &|| {
            repetition::is_repetitive(text)
        }),
        (RejectedSummary::WrongScript, &|| {
            scripts::is_wrong_script(text, chunk)
        }),
        (RejectedSummary::CopiesSource, &|| {
            copied_text::is_copied(text, chunk)
        }),
        (RejectedSummary::DescribesFormat, &|| {
            grounded::describes_format(text, chunk)
        }),
        (RejectedSummary::Ungrounded, &|| {
            grounded::is_ungrounded(text, chunk)
        }),
        (RejectedSummary::MissingIdentifiers, &|| {
            task.must_keep.iter().any(misses)
        }),
    ];
    gates
        .into_iter()
        .find_map(|(rejection, finds)| finds().then_some(rejection))
}
