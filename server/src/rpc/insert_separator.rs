//! InsertSeparator.

use anneal_core::caller::Caller;
use anneal_proto::v1 as pb;

use crate::{house::House, parse, reply, status::Failure};

/// Marks the present end of the conversation.
pub(crate) async fn insert_separator(
    house: &House,
    caller: Caller,
    ask: pb::InsertSeparatorRequest,
) -> Result<pb::Separator, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let request_id = parse::request_id(&ask.request_id)?;
    let expected = parse::expected_last(ask.expected_last_message_id)?;
    let separator = house.store.insert_separator(caller, id, request_id, expected).await?;
    Ok(reply::separator(id, separator))
}
