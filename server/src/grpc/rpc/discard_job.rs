//! DiscardJob.

use anneal_core::caller::Caller;
use anneal_proto::{
    convert::{job, parse},
    v1 as pb,
};

use crate::{failure::Failure, state::ServerState};

/// Deletes a dead job.
pub(crate) async fn discard_job(
    state: &ServerState,
    caller: Caller,
    ask: pb::DiscardJobRequest,
) -> Result<(), Failure> {
    parse::request_id(&ask.request_id)?;
    let kind = job::parse_required_kind(ask.kind)?;
    let id = parse::conversation_id(&ask.conversation_id)?;
    Ok(state.store.discard_job(caller, kind, id).await?)
}
