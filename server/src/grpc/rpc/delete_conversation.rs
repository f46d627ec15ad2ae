//! DeleteConversation.

use anneal_core::caller::Caller;
use anneal_proto::{convert::parse, v1 as pb};

use crate::{failure::Failure, state::ServerState};

/// Deletes a conversation and everything derived from it.
pub(crate) async fn delete_conversation(
    state: &ServerState,
    caller: Caller,
    ask: pb::DeleteConversationRequest,
) -> Result<(), Failure> {
    parse::request_id(&ask.request_id)?;
    let id = parse::conversation_id(&ask.conversation_id)?;
    Ok(state.store.delete_conversation(caller, id).await?)
}
