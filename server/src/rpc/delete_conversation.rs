//! DeleteConversation.

use anneal_core::caller::Caller;
use anneal_proto::v1 as pb;

use crate::{house::House, parse, status::Failure};

/// Deletes a conversation and everything derived from it.
pub(crate) async fn delete_conversation(
    house: &House,
    caller: Caller,
    ask: pb::DeleteConversationRequest,
) -> Result<(), Failure> {
    parse::request_id(&ask.request_id)?;
    let id = parse::conversation_id(&ask.conversation_id)?;
    Ok(house.store.delete_conversation(caller, id).await?)
}
