//! Labels of stored messages that hold what a message of the AI SDK has and a stored one has not.

use std::collections::HashMap;

/// The id that the client gave the message.
pub(super) const ID: &str = "ai_sdk.id";
/// On results of tools: the id of the message of the client that the next answer continues.
pub(super) const CONTINUES: &str = "ai_sdk.continues";
/// On results of tools: how many steps of that message precede the step of their calls.
pub(super) const STEP: &str = "ai_sdk.step";
/// The metadata of the message, as JSON.
pub(super) const METADATA: &str = "ai_sdk.metadata";
/// The names of the message's files, as a JSON list with null for a file without a name.
pub(super) const FILE_NAMES: &str = "ai_sdk.file_names";
/// On the last message of one append of a history of which more is to be appended.
pub(super) const HISTORY: &str = "ai_sdk.history";

/// The value of [`HISTORY`].
pub(super) const UNFINISHED: &str = "unfinished";

/// Makes labels of names and values.
pub(super) fn labels<const N: usize>(given: [(&str, String); N]) -> HashMap<String, String> {
    let given = given.into_iter();
    given
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
