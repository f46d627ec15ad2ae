//! EraseUser.

use anneal_core::caller::{Bound, Caller};
use anneal_proto::{convert::parse, v1 as pb};
use anneal_store::{ErasureAsk, ErasureSubject};

use crate::{failure::Failure, reply, state::ServerState};

/// Begins the erasure of a user's conversations, or only counts them. A bound caller may erase the
/// user that it is bound to.
pub(crate) async fn erase_user(
    state: &ServerState,
    (caller, name): (Caller, &str),
    ask: pb::EraseUserRequest,
) -> Result<pb::Erasure, Failure> {
    let user_id = parse::id("user_id", &ask.user_id)?;
    match caller.bound() {
        None => {}
        Some(Bound::User(user)) if user.as_str() == user_id => {}
        Some(_) => return Err(Failure::CredentialBound),
    }
    let erasure_ask = ErasureAsk {
        subject: ErasureSubject::User(user_id.to_owned()),
        request_id: parse::request_id(&ask.request_id)?.map(str::to_owned),
        requested_by: name.to_owned(),
    };
    let erasure = if ask.dry_run {
        state.store.plan_erasure(caller, &erasure_ask).await?
    } else {
        state.store.begin_erasure(caller, &erasure_ask).await?
    };
    Ok(reply::erasure(erasure))
}
