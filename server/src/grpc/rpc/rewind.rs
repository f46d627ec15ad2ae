//! Rewind.

use anneal_core::caller::Caller;
use anneal_proto::{convert::parse, v1 as pb};
use anneal_store::{ChangeAsk, Selection};

use crate::{failure::Failure, reply, state::ServerState, usecases::change_messages};

/// Withdraws every message after one.
pub(crate) async fn rewind(
    state: &ServerState,
    caller: Caller,
    ask: pb::RewindRequest,
) -> Result<pb::MessageChange, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let after = parse::message_id_or_zero("after_message_id", ask.after_message_id)?;
    let ask = ChangeAsk {
        request_id: parse::request_id(&ask.request_id)?.map(str::to_owned),
        conditions: change_messages::parse_conditions(ask.expected_last_message_id, &ask.etag)?,
        selection: Selection::After(after),
        pairs: change_messages::tool_pairs(ask.keep_tool_pairs_apart),
    };
    let change = change_messages::withdraw(state, caller, id, &ask).await?;
    Ok(reply::message_change(id, change))
}
