//! Sessions on the wire: the scope of a chat, and how its conversations begin.

use anneal_core::{
    caller::Caller,
    limits::ID_BYTES,
    session_key::{ChatType, Place, Scope, ScopeError},
};
use anneal_proto::v1 as pb;
use anneal_store::StoredSession;

use crate::{
    beginning::{self, Beginning},
    house::House,
    reply::{self, Own},
    status::Failure,
};

/// Where somebody talks to an agent.
pub(crate) struct Spot {
    agent: String,
    /// The place that it comes to.
    pub(crate) place: Place,
}

/// The place of a scope.
pub(crate) fn parse(scope: Option<pb::SessionScope>) -> Result<Spot, Failure> {
    let scope = scope.ok_or_else(|| Failure::invalid("scope", "must be given"))?;
    let scope = Scope {
        agent: scope.agent_id,
        channel: scope.channel,
        account: scope.account_id,
        chat_type: scope.chat_type,
        thread: scope.thread_id,
        group: scope.group_id,
        sender: scope.sender_id,
    };
    let place = scope.place().map_err(|error| match error {
        ScopeError::TooLong(field) => Failure::limit(field, ID_BYTES, "bytes"),
        ScopeError::Nul(field) => Failure::invalid(field, "must not contain NUL"),
        ScopeError::NoAgent => Failure::invalid("agent_id", "must not be empty"),
        ScopeError::NoGroup => Failure::invalid(
            "group_id",
            "must be given where the chat type is a group's or thread's, or else thread_id",
        ),
        ScopeError::Nowhere => Failure::invalid("sender_id", "must be given where no group is, or the chat is direct"),
    });
    Ok(Spot { agent: scope.agent, place: place.map_err(|failure| failure.within("scope"))? })
}

/// How a conversation of the spot begins: with the scope's agent, and unless another user is named that of the direct chat.
pub(crate) async fn begin(
    house: &House,
    caller: Caller,
    spot: &Spot,
    defaults: Option<pb::CreateConversationRequest>,
) -> Result<Beginning, Failure> {
    let mut ask = defaults.unwrap_or_default();
    if !ask.request_id.is_empty() {
        return Err(Failure::invalid("defaults.request_id", "must be empty; the call has its own"));
    }
    if !ask.agent_id.is_empty() && ask.agent_id != spot.agent {
        return Err(Failure::invalid("defaults.agent_id", "must be empty or the scope's"));
    }
    ask.agent_id.clone_from(&spot.agent);
    if ask.user_id.is_empty() {
        ask.user_id.clone_from(&spot.place.person);
    }
    beginning::parse(house, caller, ask).await.map_err(|failure| failure.within("defaults"))
}

/// A session on the wire. Its conversation may be older than the call, and hold what others have said of it.
pub(crate) fn reply(caller: Caller, spot: Spot, session: StoredSession) -> pb::Session {
    let chat_type = match spot.place.chat_type {
        ChatType::Unknown => pb::ChatType::Unknown,
        ChatType::Direct => pb::ChatType::Direct,
        ChatType::Group => pb::ChatType::Group,
        ChatType::Thread => pb::ChatType::Thread,
    };
    pb::Session {
        session_key: spot.place.key.into_string(),
        conversation: Some(reply::conversation_for(caller, session.conversation, &Own::default())),
        chat_type: chat_type.into(),
        created: session.made,
        created_time: session.seen.map(reply::timestamp),
        rotated_time: session.rotated.map(reply::timestamp),
    }
}
