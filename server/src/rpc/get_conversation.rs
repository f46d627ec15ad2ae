//! GetConversation.

use anneal_core::caller::Caller;
use anneal_proto::v1 as pb;

use crate::{house::House, parse, reply, status::Failure};

/// One conversation.
pub(crate) async fn get_conversation(
    house: &House,
    caller: Caller,
    ask: pb::GetConversationRequest,
) -> Result<pb::Conversation, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    Ok(reply::conversation(house.store.conversation(caller, id).await?))
}
