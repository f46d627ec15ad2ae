//! ListCheckpoints.

use anneal_core::{
    caller::Caller,
    limits::{PAGE_CONTENT_BYTES, SUMMARY_BYTES},
    message::MessageId,
};
use anneal_proto::{convert::parse, v1 as pb};
use anneal_store::{CheckpointPosition, CheckpointSelection, ROW_BYTES};

use crate::{
    failure::Failure,
    grpc::paging::{self, TokenScope},
    limits::content_budget::WithReservation,
    reply,
    state::ServerState,
};

/// Most bytes of summaries in one page, which may exceed [`PAGE_CONTENT_BYTES`] by one summary.
const PAGE_BYTES: u64 = PAGE_CONTENT_BYTES as u64 + SUMMARY_BYTES as u64;

/// Returns a page of checkpoints, newest boundary first.
pub(crate) async fn list_checkpoints(
    state: &ServerState,
    caller: Caller,
    ask: pb::ListCheckpointsRequest,
) -> Result<WithReservation<pb::ListCheckpointsResponse>, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let limit = paging::page_size(ask.page_size)?;
    let (purpose, selection) = if ask.include_void {
        ("checkpoints with void ones", CheckpointSelection::All)
    } else {
        ("checkpoints", CheckpointSelection::Holding)
    };
    let scope = TokenScope::of(caller, &[purpose, &id.to_string()]);
    let position = scope.parse::<(i64, i64, Option<i64>)>(&ask.page_token)?;
    let start = position.map(|(last, first, void_change)| CheckpointPosition {
        last: MessageId(last),
        first: MessageId(first),
        void_change,
    });
    let reservation = state
        .content_budget
        .reserve(caller.tenant(), PAGE_BYTES)
        .await?;
    let found = state
        .store
        .list_checkpoints(caller, id, (selection, start), limit)
        .await?;
    let last = found.checkpoints.last().filter(|_| found.more);
    let bytes: usize = found
        .checkpoints
        .iter()
        .map(|stored| stored.summary.len())
        .sum();
    reservation.shrink(bytes as u64 + found.checkpoints.len() as u64 * ROW_BYTES);
    let answer = pb::ListCheckpointsResponse {
        next_page_token: last
            .map(|last| {
                let void_change = last.void.map(|since| since.change);
                scope.token(&(last.last.0, last.first.0, void_change))
            })
            .unwrap_or_default(),
        checkpoints: found
            .checkpoints
            .into_iter()
            .map(|stored| reply::checkpoint(id, stored))
            .collect(),
    };
    Ok(WithReservation {
        answer,
        reservation,
    })
}
