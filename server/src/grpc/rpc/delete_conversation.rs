//! DeleteConversation.

use anneal_core::caller::Caller;
use anneal_proto::{convert::parse, v1 as pb};

use crate::{failure::Failure, state::ServerState};

/// Deletes a conversation and everything derived from it; with a receipt, if one is asked for.
pub(crate) async fn delete_conversation(
    state: &ServerState,
    (caller, name): (Caller, &str),
    ask: pb::DeleteConversationRequest,
) -> Result<pb::DeleteConversationResponse, Failure> {
    let request_id = parse::request_id(&ask.request_id)?;
    let id = parse::conversation_id(&ask.conversation_id)?;
    let store = &state.store;
    let erasure_id = if ask.with_receipt {
        store
            .delete_conversation_with_receipt(caller, id, (request_id, name))
            .await?
            .to_string()
    } else {
        store.delete_conversation(caller, id).await?;
        String::new()
    };
    Ok(pb::DeleteConversationResponse { erasure_id })
}
