//! DeleteSeparator.

use anneal_core::{caller::Caller, job::JobKind};
use anneal_proto::{convert::parse, v1 as pb};

use crate::{failure::Failure, state::ServerState};

/// Deletes a separator. Contexts then start at the newest boundary that is left.
pub(crate) async fn delete_separator(
    state: &ServerState,
    caller: Caller,
    ask: pb::DeleteSeparatorRequest,
) -> Result<pb::DeleteSeparatorResponse, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let request_id = parse::request_id(&ask.request_id)?;
    let after = parse::message_id_or_zero("after_message_id", ask.after_message_id)?;
    let boundary = state
        .store
        .delete_separator(caller, id, request_id, after)
        .await?;
    state
        .job_notifier
        .notify(&[JobKind::Checkpoint, JobKind::SummarizeMessages]);
    Ok(pb::DeleteSeparatorResponse {
        boundary_message_id: boundary.0,
    })
}
