//! Gates: checks of a model's text, most of which compare it with the source of its call. The time
//! of every gate is linear in text and source.
//!
//! If a gate refuses a good text, the cost is one more call, and perhaps an extractive summary
//! instead. If a gate passes a wrong text, the text stays in every later context. A gate
//! refuses only what is clearly wrong.
//!
//! - `role_markers`: the text continues the conversation, or holds role markers such as `User:`.
//! - `no_content`: the text is a refusal, or too short for a long source.
//! - `repetition`: the text repeats itself.
//! - `scripts`: the text is in another script than its source.
//! - `copied_text`: the text is a passage of its source.
//! - `grounded`: the text describes the format of its source, or is about something else.
//! - `identifiers`: chooses the strings that the text must hold.
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

/// The reason of the first gate that refuses the text; None if the text passes all gates. `quote`
/// is the quoted words after the text: only the last gate reads it, because a string that the quote
/// holds need not be in the text. `boundary` is the random string in the prompt's BEGIN and END
/// lines.
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
