//! RotateSession.

use anneal_core::{caller::Caller, digest};
use anneal_proto::{
    convert::{parse, session::parse_scope},
    v1 as pb,
};
use anneal_store::{Rotation, RotationAttributes};

use crate::{failure::Failure, state::ServerState, usecases::session};

/// Starts a new conversation for a scope (a thread, a group or a person in a channel) and archives
/// the previous one. Calls with the same request id return the same conversation.
pub(crate) async fn rotate_session(
    state: &ServerState,
    caller: Caller,
    ask: pb::RotateSessionRequest,
) -> Result<pb::Session, Failure> {
    let request_id = parse::request_id(&ask.request_id)?;
    let scope = parse_scope(ask.scope)?;
    let names_defaults = ask.defaults.is_some();
    let planned = session::plan_conversation(state, caller, &scope, ask.defaults).await?;
    let (request_digest, attributes) = if names_defaults {
        (
            planned.request_digest,
            RotationAttributes::Given(planned.conversation),
        )
    } else {
        // The new conversation gets the attributes of the previous one. The planned attributes
        // apply only if there is no previous conversation. The digest differs from that of empty
        // defaults: a request id that was used without defaults is refused with empty defaults, and
        // the reverse.
        (
            digest::of_fields([b"as before".as_slice()]),
            RotationAttributes::CopyOfOld(planned.conversation),
        )
    };
    let rotation = Rotation {
        key: &scope.resolved.key,
        request_id,
        request_digest,
        attributes,
    };
    let rotated = state.store.rotate_session(caller, &rotation).await?;
    Ok(session::reply(caller, scope, rotated))
}
