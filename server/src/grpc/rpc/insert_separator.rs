//! InsertSeparator.

use anneal_core::caller::Caller;
use anneal_proto::{convert::parse, v1 as pb};

use crate::{failure::Failure, reply, state::ServerState};

/// Inserts a separator after the newest message.
pub(crate) async fn insert_separator(
    state: &ServerState,
    caller: Caller,
    ask: pb::InsertSeparatorRequest,
) -> Result<pb::Separator, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let request_id = parse::request_id(&ask.request_id)?;
    let expected = parse::expected_last(ask.expected_last_message_id)?;
    if ask.part_tool_pairs {
        return Err(Failure::not_served("part_tool_pairs"));
    }
    let separator = state
        .store
        .insert_separator(caller, id, request_id, expected)
        .await?;
    Ok(reply::separator(id, separator))
}
