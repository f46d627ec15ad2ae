//! CreateConversation.

use anneal_core::caller::Caller;
use anneal_proto::v1 as pb;

use crate::{
    beginning,
    house::House,
    parse,
    reply::{self, Own},
    status::Failure,
};

/// Makes a conversation; with a request id the same one however often.
pub(crate) async fn create_conversation(
    house: &House,
    caller: Caller,
    ask: pb::CreateConversationRequest,
) -> Result<pb::Conversation, Failure> {
    let request_id = parse::request_id(&ask.request_id)?.map(str::to_owned);
    let (title, system_prompt, metadata) = (ask.title.clone(), ask.system_prompt.clone(), ask.metadata.clone());
    let beginning = beginning::parse(house, caller, ask).await?;
    let made = house.store.create_conversation(caller, request_id.as_deref(), beginning.asked, &beginning.new).await?;
    let own = Own { title: Some(&title), system_prompt: Some(&system_prompt), metadata: Some(&metadata) };
    Ok(reply::conversation_for(caller, made, &own))
}
