//! ResolveSession.

use anneal_core::caller::Caller;
use anneal_proto::{
    convert::{parse, session::parse_scope},
    v1 as pb,
};

use crate::{failure::Failure, state::ServerState, usecases::session};

/// Returns the session of a scope (a thread, a group or a person in a channel), with its active
/// conversation. Creates both if they do not exist.
pub(crate) async fn resolve_session(
    state: &ServerState,
    caller: Caller,
    ask: pb::ResolveSessionRequest,
) -> Result<pb::Session, Failure> {
    parse::request_id(&ask.request_id)?;
    let scope = parse_scope(ask.scope)?;
    let planned = session::plan_conversation(state, caller, &scope, ask.defaults).await?;
    let resolved = state
        .store
        .resolve_session(caller, &scope.resolved.key, &planned.conversation)
        .await?;
    Ok(session::reply(caller, scope, resolved))
}
