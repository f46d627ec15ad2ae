//! ResolveSession.

use anneal_core::caller::Caller;
use anneal_proto::v1 as pb;

use crate::{house::House, parse, session, status::Failure};

/// The session of a scope with its active conversation; where there is none, it is made.
pub(crate) async fn resolve_session(
    house: &House,
    caller: Caller,
    ask: pb::ResolveSessionRequest,
) -> Result<pb::Session, Failure> {
    parse::request_id(&ask.request_id)?;
    let spot = session::parse(ask.scope)?;
    let beginning = session::begin(house, caller, &spot, ask.defaults).await?;
    let resolved = house.store.resolve_session(caller, &spot.place.key, &beginning.new).await?;
    Ok(session::reply(caller, spot, resolved))
}
