//! CreateConversation.

use anneal_core::caller::Caller;
use anneal_proto::{convert::parse, v1 as pb};

use crate::{
    failure::Failure,
    reply::{self, GivenFields},
    state::ServerState,
    usecases::conversation_defaults,
};

/// Creates a conversation. Calls with the same request id return the same conversation.
pub(crate) async fn create_conversation(
    state: &ServerState,
    caller: Caller,
    ask: pb::CreateConversationRequest,
) -> Result<pb::Conversation, Failure> {
    let request_id = parse::request_id(&ask.request_id)?.map(str::to_owned);
    let (title, system_prompt, metadata) = (
        ask.title.clone(),
        ask.system_prompt.clone(),
        ask.metadata.clone(),
    );
    let planned = conversation_defaults::plan(state, caller, ask).await?;
    let made = state
        .store
        .create_conversation(
            caller,
            request_id.as_deref(),
            planned.request_digest,
            &planned.conversation,
        )
        .await?;
    let given = GivenFields {
        title: Some(&title),
        system_prompt: Some(&system_prompt),
        metadata: Some(&metadata),
    };
    Ok(reply::conversation_for(caller, made, &given))
}
