//! Sessions: parses the scope of a chat, plans its conversation, and replies.

use anneal_core::{
    caller::Caller,
    limits::ID_BYTES,
    session_key::{ChatType, ResolvedScope, ScopeError, SessionScope},
};
use anneal_proto::v1 as pb;
use anneal_store::StoredSession;

use crate::{
    convert::reply::{self, GivenFields},
    failure::Failure,
    state::ServerState,
    usecases::conversation_defaults::{self, PlannedConversation},
};

/// The scope of a chat, parsed.
pub(crate) struct ParsedScope {
    agent: String,
    /// The session key and what else the scope resolves to.
    pub(crate) resolved: ResolvedScope,
}

/// Parses and resolves a scope.
pub(crate) fn parse(scope: Option<pb::SessionScope>) -> Result<ParsedScope, Failure> {
    let scope = scope.ok_or_else(|| Failure::invalid("scope", "must be given"))?;
    let scope = SessionScope {
        agent: scope.agent_id,
        channel: scope.channel,
        account: scope.account_id,
        chat_type: scope.chat_type,
        thread: scope.thread_id,
        group: scope.group_id,
        sender: scope.sender_id,
    };
    let resolved = scope.resolve().map_err(|error| match error {
        ScopeError::TooLong(field) => Failure::limit(field, ID_BYTES, "bytes"),
        ScopeError::Nul(field) => Failure::invalid(field, "must not contain NUL"),
        ScopeError::NoAgent => Failure::invalid("agent_id", "must not be empty"),
        ScopeError::NoGroup => Failure::invalid(
            "group_id",
            "must be given where the chat type is a group's or thread's, or else thread_id",
        ),
        ScopeError::NoGroupOrSender => Failure::invalid(
            "sender_id",
            "must be given where no group is, or the chat is direct",
        ),
    });
    Ok(ParsedScope {
        agent: scope.agent,
        resolved: resolved.map_err(|failure| failure.within("scope"))?,
    })
}

/// The conversation to create for a scope: with the scope's agent, and in a direct chat with its
/// sender as the user unless `defaults` name another.
pub(crate) async fn plan_conversation(
    state: &ServerState,
    caller: Caller,
    scope: &ParsedScope,
    defaults: Option<pb::CreateConversationRequest>,
) -> Result<PlannedConversation, Failure> {
    let mut ask = defaults.unwrap_or_default();
    if !ask.request_id.is_empty() {
        return Err(Failure::invalid(
            "defaults.request_id",
            "must be empty; the call has its own",
        ));
    }
    if !ask.agent_id.is_empty() && ask.agent_id != scope.agent {
        return Err(Failure::invalid(
            "defaults.agent_id",
            "must be empty or the scope's",
        ));
    }
    ask.agent_id.clone_from(&scope.agent);
    if ask.user_id.is_empty() {
        ask.user_id.clone_from(&scope.resolved.person);
    }
    conversation_defaults::plan(state, caller, ask)
        .await
        .map_err(|failure| failure.within("defaults"))
}

/// The session as protobuf. Its conversation may be older than the call, so a caller without the
/// verb read does not see its content.
pub(crate) fn reply(caller: Caller, scope: ParsedScope, session: StoredSession) -> pb::Session {
    let chat_type = match scope.resolved.chat_type {
        ChatType::Unknown => pb::ChatType::Unknown,
        ChatType::Direct => pb::ChatType::Direct,
        ChatType::Group => pb::ChatType::Group,
        ChatType::Thread => pb::ChatType::Thread,
    };
    pb::Session {
        session_key: scope.resolved.key.into_string(),
        conversation: Some(reply::conversation_for(
            caller,
            session.conversation,
            &GivenFields::default(),
        )),
        chat_type: chat_type.into(),
        created: session.is_new,
        created_time: session.seen.map(reply::timestamp),
        rotated_time: session.rotated.map(reply::timestamp),
    }
}
