//! GetConversation.

use anneal_core::caller::Caller;
use anneal_proto::{convert::parse, v1 as pb};

use crate::{failure::Failure, reply, state::ServerState};

/// Returns one conversation.
pub(crate) async fn get_conversation(
    state: &ServerState,
    caller: Caller,
    ask: pb::GetConversationRequest,
) -> Result<pb::Conversation, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    Ok(reply::conversation(
        state.store.get_conversation(caller, id).await?,
    ))
}
