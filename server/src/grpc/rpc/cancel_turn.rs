//! CancelTurn.

use anneal_core::{caller::Caller, limits::ID_BYTES};
use anneal_proto::{convert::parse, v1 as pb};

use crate::{failure::Failure, state::ServerState};

/// Refuses the call, after the checks of its conversation: turns cannot be stopped yet.
pub(crate) async fn cancel_turn(
    state: &ServerState,
    caller: Caller,
    ask: pb::CancelTurnRequest,
) -> Result<pb::CancelTurnResponse, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    parse::bounded_text("turn_request_id", &ask.turn_request_id, ID_BYTES)?;
    state.store.get_conversation(caller, id).await?;
    Err(Failure::not_served("request"))
}
