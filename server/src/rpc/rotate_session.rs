//! RotateSession.

use anneal_core::{caller::Caller, digest};
use anneal_proto::v1 as pb;
use anneal_store::{Rotation, Start};

use crate::{house::House, parse, session, status::Failure};

/// A new conversation for a scope; the one before is archived. With a request id the same one however often.
pub(crate) async fn rotate_session(
    house: &House,
    caller: Caller,
    ask: pb::RotateSessionRequest,
) -> Result<pb::Session, Failure> {
    let request_id = parse::request_id(&ask.request_id)?;
    let spot = session::parse(ask.scope)?;
    let given = ask.defaults.is_some();
    let beginning = session::begin(house, caller, &spot, ask.defaults).await?;
    let (asked, start) = if given {
        (beginning.asked, Start::As(beginning.new))
    } else {
        (digest::of_fields([b"as before".as_slice()]), Start::AsBefore(beginning.new))
    };
    let rotation = Rotation { key: &spot.place.key, request_id, asked, start };
    let rotated = house.store.rotate_session(caller, &rotation).await?;
    Ok(session::reply(caller, spot, rotated))
}
