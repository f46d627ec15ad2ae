//! WatchConversation.

use anneal_proto::{convert::parse, v1 as pb};
use tonic::{Response, Status};

use crate::{
    failure::Failure,
    rpc_call::RpcCall,
    state::ServerState,
    usecases::watch::{self, Ask, EventStream, Start},
};

/// Streams the events of a conversation.
pub(crate) fn watch_conversation(
    state: &ServerState,
    call: RpcCall,
    ask: pb::WatchConversationRequest,
) -> Result<Response<EventStream>, Status> {
    match parse(ask) {
        Ok(ask) => Ok(watch::begin(state, call, ask)),
        Err(failure) => {
            let status = Status::from(failure);
            call.span().in_scope(|| call.record_end(status.code()));
            Err(status)
        }
    }
}

fn parse(ask: pb::WatchConversationRequest) -> Result<Ask, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let after = ask
        .after_message_id
        .map(|after| parse::message_id_or_zero("after_message_id", after))
        .transpose()?;
    // A position takes precedence over `after_message_id`.
    let start = match after {
        _ if !ask.position.is_empty() => Start::Position(ask.position),
        Some(after) => Start::After(after),
        None => Start::Now,
    };
    Ok(Ask {
        id,
        start,
        content: !ask.without_content,
    })
}
