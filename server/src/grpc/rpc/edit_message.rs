//! EditMessage.

use anneal_core::caller::Caller;
use anneal_proto::{
    convert::{message, parse},
    v1 as pb,
};
use anneal_store::Labels;

use crate::{
    failure::Failure,
    reply,
    state::ServerState,
    usecases::{
        change_messages,
        edit_message::{self, EditRequest},
    },
};

/// Replaces the content of a message by a new version.
pub(crate) async fn edit_message(
    state: &ServerState,
    caller: Caller,
    ask: pb::EditMessageRequest,
) -> Result<pb::MessageChange, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let new = ask
        .message
        .ok_or_else(|| Failure::invalid("message", "must be given"))?;
    let labels = match (ask.keep_metadata, new.metadata.is_empty()) {
        (false, _) => Labels::Replace,
        (true, true) => Labels::Keep,
        (true, false) => {
            return Err(Failure::invalid(
                "message.metadata",
                "must be empty with keep_metadata",
            ));
        }
    };
    let request = EditRequest {
        request_id: parse::request_id(&ask.request_id)?.map(str::to_owned),
        conditions: change_messages::parse_conditions(ask.expected_last_message_id, &ask.etag)?,
        message_id: parse::message_id("message_id", ask.message_id)?,
        new: message::parse("message", new)?,
        labels,
        pairs: change_messages::tool_pairs(ask.keep_tool_pairs_apart),
        expected_version: ask
            .expected_version
            .map(|version| parse::version("expected_version", version))
            .transpose()?,
    };
    let change = edit_message::edit(state, caller, id, request).await?;
    Ok(reply::message_change(id, change))
}
