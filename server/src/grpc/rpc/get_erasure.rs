//! GetErasure.

use anneal_core::caller::Caller;
use anneal_proto::{convert::parse, v1 as pb};

use crate::{failure::Failure, reply, state::ServerState};

/// Returns an erasure: its progress, or its receipt.
pub(crate) async fn get_erasure(
    state: &ServerState,
    caller: Caller,
    ask: pb::GetErasureRequest,
) -> Result<pb::Erasure, Failure> {
    let id = parse::uuid("erasure_id", &ask.erasure_id)?;
    Ok(reply::erasure(state.store.get_erasure(caller, id).await?))
}
