//! RestoreMessages.

use anneal_core::caller::Caller;
use anneal_proto::{convert::parse, v1 as pb};
use anneal_store::ChangeAsk;

use crate::{failure::Failure, reply, state::ServerState, usecases::change_messages};

/// Makes withdrawn messages stand again, with the calls and results of tools that belong to them.
pub(crate) async fn restore_messages(
    state: &ServerState,
    caller: Caller,
    ask: pb::RestoreMessagesRequest,
) -> Result<pb::MessageChange, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let ask = ChangeAsk {
        request_id: parse::request_id(&ask.request_id)?.map(str::to_owned),
        conditions: change_messages::parse_conditions(ask.expected_last_message_id, &ask.etag)?,
        selection: change_messages::parse_selection(&ask.message_ids, ask.range)?,
        pairs: change_messages::tool_pairs(ask.keep_tool_pairs_apart),
    };
    let change = change_messages::restore(state, caller, id, &ask).await?;
    Ok(reply::message_change(id, change))
}
