//! Watching conversations. Nothing is written for it and nothing pushed: one poll in each server process looks where all
//! watched conversations stand, and each watcher whose conversation has moved reads what is new to it, from its own position.

mod budget;
mod outlet;
mod pieces;
mod position;
mod registry;
mod watcher;

use std::{panic::AssertUnwindSafe, pin::Pin};

use anneal_core::{caller::ConversationId, message::MessageId};
use anneal_proto::v1 as pb;
use futures::{FutureExt as _, Stream};
use tonic::{Code, Response, Status};
use tracing::Instrument as _;

pub(crate) use pieces::in_pieces;
#[cfg(feature = "fuzzing")]
pub(crate) use position::{Position, Scope};
pub(crate) use registry::Watching;

use self::watcher::Watcher;
use crate::{
    call::Call,
    house::House,
    polls::{Polled, Watched},
    status::Failure,
};

/// What a watcher reads.
pub(crate) type Changes = Pin<Box<dyn Stream<Item = Result<pb::ConversationEvent, Status>> + Send>>;

/// What a caller asks for.
pub(crate) struct Ask {
    pub(crate) id: ConversationId,
    pub(crate) start: Start,
    /// With the messages' parts.
    pub(crate) content: bool,
}

/// From where on.
pub(crate) enum Start {
    /// What happens from now on.
    Now,
    /// First what has happened to messages after this one.
    After(MessageId),
    /// After the event that had this position.
    Position(String),
}

/// Starts a watch; its events come as they happen.
pub(crate) fn begin(house: &House, call: Call, ask: Ask) -> Response<Changes> {
    let (outlet, changes) = outlet::open(house.watching.stall());
    let span = call.span();
    let house = house.clone();
    let work = async move {
        let watcher = Watcher::new(&house, call.caller, ask, &outlet);
        let run = AssertUnwindSafe(Box::pin(watcher.run())).catch_unwind();
        let failure = tokio::select! {
            biased;
            () = outlet.gone() => None,
            () = house.watching.stopping().cancelled() => Some(Failure::ServerStopping),
            () = tokio::time::sleep_until(call.deadline()) => Some(Failure::Deadline),
            failure = call.credential_ends() => Some(failure),
            ended = run => Some(ended.unwrap_or(Failure::Panicked)),
        };
        let code = failure.map_or(Code::Cancelled, |failure| outlet.end(failure));
        call.ended(code);
        outlet.leave().await;
    };
    tokio::spawn(Watched::new(Polled::task("watch"), work.instrument(span)));
    changes
}
