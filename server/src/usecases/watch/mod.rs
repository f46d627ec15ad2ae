//! Watches of conversations. Nothing is written or pushed for a watch. One poll per server process
//! reads the heads of all watched conversations. A head says how far a conversation has got: its
//! newest message, last counted message, last change and dead jobs. If a head has changed, each
//! watcher of the conversation reads what is new after its own position. `watch_registry/` holds
//! the watched conversations, the poll, and the budget of bytes that all watchers hold.
//!
//! - `watcher.rs`: one watch; reads and sends what is new
//! - `position.rs`: where a watch can resume
//! - `event_channel.rs`: the channel of events to the reader
//! - `split_body.rs`: splits encoded events into pieces for the connection

mod event_channel;
mod position;
mod split_body;
mod watcher;

use std::{panic::AssertUnwindSafe, pin::Pin};

use anneal_core::{caller::ConversationId, message::MessageId};
use anneal_proto::v1 as pb;
use futures::{FutureExt as _, Stream};
use tonic::{Code, Response, Status};
use tracing::Instrument as _;

#[cfg(feature = "fuzzing")]
pub(crate) use position::{Position, PositionScope};
pub(crate) use split_body::split_body;

use self::watcher::Watcher;
use crate::{
    failure::Failure,
    poll_watchdog::{PollWatchdog, WatchedFuture},
    rpc_call::RpcCall,
    state::ServerState,
};

/// The stream of events that the reader reads.
pub(crate) type EventStream =
    Pin<Box<dyn Stream<Item = Result<pb::ConversationEvent, Status>> + Send>>;

/// The parsed request of a watch.
pub(crate) struct Ask {
    pub(crate) id: ConversationId,
    pub(crate) start: Start,
    /// Whether events hold the messages' parts.
    pub(crate) content: bool,
}

/// Where a watch starts.
pub(crate) enum Start {
    /// At the current head: only new events are sent.
    Now,
    /// After this message. Events about later messages that came before the watch are sent first,
    /// and all earlier changes of messages: the caller may have read older messages before them.
    After(MessageId),
    /// After the event with this position.
    Position(String),
}

/// Starts a watch in a task of its own. Returns its events.
pub(crate) fn begin(state: &ServerState, call: RpcCall, ask: Ask) -> Response<EventStream> {
    let (events, stream) = event_channel::channel(state.watch_registry.stall_timeout());
    let span = call.span();
    let state = state.clone();
    let work = async move {
        let watcher = Watcher::new(&state, call.caller, ask, &events);
        let run = AssertUnwindSafe(Box::pin(watcher.run())).catch_unwind();
        let failure = tokio::select! {
            biased;
            () = events.wait_for_disconnect() => None,
            () = state.watch_registry.stopping().cancelled() => Some(Failure::ServerStopping),
            () = tokio::time::sleep_until(call.deadline()) => Some(Failure::Deadline),
            failure = call.wait_for_credential_end() => Some(failure),
            ended = run => Some(ended.unwrap_or(Failure::Panicked)),
        };
        if let Some(failure) = &failure {
            call.record_failure(failure);
        }
        let code = failure.map_or(Code::Cancelled, |failure| events.end(failure));
        call.record_end(code);
        events.drain().await;
    };
    tokio::spawn(WatchedFuture::new(
        PollWatchdog::for_task("watch"),
        work.instrument(span),
    ));
    stream
}
