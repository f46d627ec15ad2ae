//! EraseMessages.

use anneal_core::caller::Caller;
use anneal_proto::{convert::parse, v1 as pb};
use anneal_store::{ChangeAsk, ToolPairs};

use crate::{failure::Failure, reply, state::ServerState, usecases::change_messages};

/// Erases exactly the named messages.
pub(crate) async fn erase_messages(
    state: &ServerState,
    (caller, name): (Caller, &str),
    ask: pb::EraseMessagesRequest,
) -> Result<pb::MessageChange, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let ask = ChangeAsk {
        request_id: parse::request_id(&ask.request_id)?.map(str::to_owned),
        conditions: change_messages::parse_conditions(ask.expected_last_message_id, &ask.etag)?,
        selection: change_messages::parse_selection(&ask.message_ids, ask.range)?,
        pairs: ToolPairs::Apart,
    };
    let change = change_messages::erase(state, (caller, name), id, &ask).await?;
    Ok(reply::message_change(id, change))
}
