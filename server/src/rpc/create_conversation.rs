//! CreateConversation.

use anneal_core::caller::Caller;
use anneal_proto::v1 as pb;

use crate::{beginning, house::House, parse, reply, status::Failure};

/// Makes a conversation; with a request id the same one however often.
pub(crate) async fn create_conversation(
    house: &House,
    caller: Caller,
    ask: pb::CreateConversationRequest,
) -> Result<pb::Conversation, Failure> {
    let request_id = parse::request_id(&ask.request_id)?.map(str::to_owned);
    let beginning = beginning::parse(house, ask)?;
    let made = house.store.create_conversation(caller, request_id.as_deref(), beginning.asked, &beginning.new).await?;
    Ok(reply::conversation(made))
}
