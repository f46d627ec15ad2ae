//! WithdrawMessages.

use anneal_core::caller::Caller;
use anneal_proto::{convert::parse, v1 as pb};
use anneal_store::ChangeAsk;

use crate::{failure::Failure, reply, state::ServerState, usecases::change_messages};

/// Withdraws messages, with the calls and results of tools that belong to them.
pub(crate) async fn withdraw_messages(
    state: &ServerState,
    caller: Caller,
    ask: pb::WithdrawMessagesRequest,
) -> Result<pb::MessageChange, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let ask = ChangeAsk {
        request_id: parse::request_id(&ask.request_id)?.map(str::to_owned),
        conditions: change_messages::parse_conditions(ask.expected_last_message_id, &ask.etag)?,
        selection: change_messages::parse_selection(&ask.message_ids, ask.range)?,
        pairs: change_messages::tool_pairs(ask.keep_tool_pairs_apart),
    };
    let change = change_messages::withdraw(state, caller, id, &ask).await?;
    Ok(reply::message_change(id, change))
}
