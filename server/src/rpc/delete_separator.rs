//! DeleteSeparator.

use anneal_core::{caller::Caller, job::JobKind};
use anneal_proto::v1 as pb;

use crate::{house::House, parse, status::Failure};

/// Takes a separator away; the boundary before it holds again.
pub(crate) async fn delete_separator(
    house: &House,
    caller: Caller,
    ask: pb::DeleteSeparatorRequest,
) -> Result<pb::DeleteSeparatorResponse, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let request_id = parse::request_id(&ask.request_id)?;
    let after = parse::place("after_message_id", ask.after_message_id)?;
    let boundary = house.store.delete_separator(caller, id, request_id, after).await?;
    house.bell.ring(&[JobKind::Checkpoint, JobKind::SummarizeMessages]);
    Ok(pb::DeleteSeparatorResponse { boundary_message_id: boundary.0 })
}
