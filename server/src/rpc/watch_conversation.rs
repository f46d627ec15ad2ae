//! WatchConversation.

use anneal_proto::v1 as pb;
use tonic::{Response, Status};

use crate::{
    call::Call,
    house::House,
    parse,
    status::Failure,
    watch::{self, Ask, Changes, Start},
};

/// What happens to a conversation, as it happens.
pub(crate) fn watch_conversation(
    house: &House,
    call: Call,
    ask: pb::WatchConversationRequest,
) -> Result<Response<Changes>, Status> {
    match parse(ask) {
        Ok(ask) => Ok(watch::begin(house, call, ask)),
        Err(failure) => {
            let status = Status::from(failure);
            call.span().in_scope(|| call.ended(status.code()));
            Err(status)
        }
    }
}

fn parse(ask: pb::WatchConversationRequest) -> Result<Ask, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let after = ask.after_message_id.map(|after| parse::place("after_message_id", after)).transpose()?;
    let start = match after {
        _ if !ask.position.is_empty() => Start::Position(ask.position),
        Some(after) => Start::After(after),
        None => Start::Now,
    };
    Ok(Ask { id, start, content: !ask.without_content })
}
