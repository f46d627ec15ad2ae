//! Changes that make a context acceptable to its provider. The stored messages are untouched. A
//! [`Repair`](super::Repair) reports each change, except removed blank texts and empty reasoning,
//! removed readable reasoning beside a Gemini signature, new orders of parts, and results that are
//! put into one message for Gemini.
//!
//! Before the budget:
//!
//! - `parts`: single parts that the format does not accept: reasoning, media, call input, tool
//!   names, blank texts.
//! - `empty_and_repeated`: messages without content, user messages sent again after a failed turn.
//! - `tool_pairs`: every call gets exactly one result, directly after it.
//! - `tool_identifiers`: which tool names and call ids a provider accepts; every call gets an id of
//!   its own.
//! - `result_overhead`: tokens that a format adds to tool results.
//!
//! After the budget:
//!
//! - `role_sequence`: merges adjacent messages of one role; adds a user message at the beginning
//!   and at the end where the provider requires one; orders reasoning and results.

mod empty_and_repeated;
mod parts;
mod result_overhead;
mod role_sequence;
mod tool_identifiers;
mod tool_pairs;

pub(super) use role_sequence::{enforce_role_sequence, reserved_tokens};

use super::Draft;
use crate::provider_format::Format;

/// Repairs the draft for its format: first parts, then messages, then pairs of calls and results,
/// then ids of calls. Finally adds the tokens that the format needs for results.
pub(super) fn repair(draft: &mut Draft) {
    parts::repair_parts(draft);
    empty_and_repeated::drop_empty(draft);
    empty_and_repeated::fold_repeats(draft);
    tool_pairs::pair_tools(draft);
    if draft.format != Format::Neutral {
        tool_identifiers::assign_distinct_ids(draft);
        result_overhead::add_result_overhead(draft);
    }
}
