//! InsertSeparator.

use anneal_core::caller::Caller;
use anneal_proto::{convert::parse, v1 as pb};
use anneal_store::OpenToolCalls;

use crate::{failure::Failure, reply, state::ServerState};

/// Inserts a separator after the newest message. Refuses one that would part a tool call of the
/// newest turn from its result, unless the caller asks for that.
pub(crate) async fn insert_separator(
    state: &ServerState,
    caller: Caller,
    ask: pb::InsertSeparatorRequest,
) -> Result<pb::Separator, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let request_id = parse::request_id(&ask.request_id)?;
    let expected = parse::expected_last(ask.expected_last_message_id)?;
    let open_calls = if ask.part_tool_pairs {
        OpenToolCalls::Part
    } else {
        OpenToolCalls::Refuse
    };
    let separator = state
        .store
        .insert_separator(caller, id, request_id, expected, open_calls)
        .await?;
    Ok(reply::separator(id, separator))
}
