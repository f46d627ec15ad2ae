//! ListCheckpoints.

use anneal_core::{
    caller::Caller,
    limits::{PAGE_CONTENT_BYTES, SUMMARY_BYTES},
    message::MessageId,
};
use anneal_proto::v1 as pb;
use anneal_store::ROW_BYTES;

use crate::{content::Holding, house::House, page, page::Scope, parse, reply, status::Failure};

/// Most that a page of checkpoints has of summaries.
const PAGE_BYTES: u64 = PAGE_CONTENT_BYTES as u64 + SUMMARY_BYTES as u64;

/// Checkpoints, newest boundary first.
pub(crate) async fn list_checkpoints(
    house: &House,
    caller: Caller,
    ask: pb::ListCheckpointsRequest,
) -> Result<Holding<pb::ListCheckpointsResponse>, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let limit = page::size(ask.page_size)?;
    let scope = Scope::of(caller, &["checkpoints", &id.to_string()]);
    let place = scope.place::<(i64, i64)>(&ask.page_token)?;
    let before = place.map(|(last, first)| (MessageId(last), MessageId(first)));
    let reservation = house.content.reserve(caller.tenant(), PAGE_BYTES).await?;
    let found = house.store.list_checkpoints(caller, id, before, limit).await?;
    let last = found.checkpoints.last().filter(|_| found.more);
    let bytes: usize = found.checkpoints.iter().map(|stored| stored.summary.len()).sum();
    reservation.shrink(bytes as u64 + found.checkpoints.len() as u64 * ROW_BYTES);
    let answer = pb::ListCheckpointsResponse {
        next_page_token: last.map(|last| scope.token(&(last.last.0, last.first.0))).unwrap_or_default(),
        checkpoints: found.checkpoints.into_iter().map(|stored| reply::checkpoint(id, stored)).collect(),
    };
    Ok(Holding { answer, reservation })
}
