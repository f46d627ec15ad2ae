//! Sessions: plans the conversation of a session's scope, and makes the answer.

use anneal_core::caller::{Bound, Caller};
use anneal_proto::{convert::session::ParsedScope, v1 as pb};
use anneal_store::StoredSession;

use crate::{
    failure::Failure,
    reply::{self, GivenFields},
    state::ServerState,
    usecases::conversation_defaults::{self, PlannedConversation},
};

/// The conversation to create for a scope. Its agent is the scope's. In a direct chat its user is
/// the scope's person, unless `defaults` name another user.
pub(crate) async fn plan_conversation(
    state: &ServerState,
    caller: Caller,
    scope: &ParsedScope,
    defaults: Option<pb::CreateConversationRequest>,
) -> Result<PlannedConversation, Failure> {
    refuse_scope_of_others(caller, scope)?;
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

/// Refuses the scope of others to a bound caller: a user has direct chats, an agent its own scopes,
/// and a conversation none. Nothing is read for it, so it discloses nothing.
fn refuse_scope_of_others(caller: Caller, scope: &ParsedScope) -> Result<(), Failure> {
    match caller.bound() {
        None => Ok(()),
        Some(Bound::Conversation(_)) => Err(Failure::CredentialBound),
        Some(Bound::User(user)) => {
            // Chats of groups have no person.
            (scope.resolved.person == user.as_str())
                .then_some(())
                .ok_or_else(|| {
                    Failure::invalid(
                        "scope.sender_id",
                        "must be the user of a direct chat that the credential is bound to",
                    )
                })
        }
        Some(Bound::Agent(agent)) => {
            (scope.agent == agent.as_str())
                .then_some(())
                .ok_or_else(|| {
                    Failure::invalid(
                        "scope.agent_id",
                        "must be the agent that the credential is bound to",
                    )
                })
        }
    }
}

/// The session as protobuf. The conversation may be older than the call, so a caller without the
/// verb read does not see the conversation's content.
pub(crate) fn reply(caller: Caller, scope: ParsedScope, session: StoredSession) -> pb::Session {
    pb::Session {
        session_key: scope.resolved.key.into_string(),
        conversation: Some(reply::conversation_for(
            caller,
            session.conversation,
            &GivenFields::default(),
        )),
        chat_type: pb::ChatType::from(scope.resolved.chat_type).into(),
        created: session.is_new,
        created_time: session.created.map(reply::timestamp),
        rotated_time: session.rotated.map(reply::timestamp),
    }
}
