//! AppendMessages.

use anneal_core::caller::Caller;
use anneal_proto::{
    convert::{message, parse},
    v1 as pb,
};

use crate::{
    failure::Failure,
    state::ServerState,
    usecases::append::{self, AppendRequest},
};

/// Stores 1 to 100 messages in one transaction, together with the jobs that they cause.
pub(crate) async fn append_messages(
    state: &ServerState,
    caller: Caller,
    ask: pb::AppendMessagesRequest,
) -> Result<pb::AppendMessagesResponse, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let request_id = parse::request_id(&ask.request_id)?.map(str::to_owned);
    let expected = parse::expected_last(ask.expected_last_message_id)?;
    let messages = message::parse_at_least_one("messages", ask.messages)?.into();
    let prepared = append::prepare(
        state,
        caller,
        AppendRequest {
            id,
            request_id,
            expected,
            messages,
            reservation: None,
        },
    )
    .await?;
    append::append(state, caller, &prepared).await
}
