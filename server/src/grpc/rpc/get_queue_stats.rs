//! GetQueueStats.

use anneal_core::caller::Caller;
use anneal_proto::v1 as pb;

use crate::{failure::Failure, state::ServerState};

/// Returns the numbers of jobs by kind and state, and for how long the oldest due job has waited.
pub(crate) async fn get_queue_stats(
    state: &ServerState,
    _: Caller,
    _: pb::GetQueueStatsRequest,
) -> Result<pb::GetQueueStatsResponse, Failure> {
    let queues = state
        .store
        .read_queue_figures()
        .await?
        .into_iter()
        .map(|figures| pb::QueueStats {
            kind: pb::JobKind::from(figures.kind).into(),
            waiting: figures.waiting,
            ready: figures.ready,
            running: figures.running,
            dead: figures.dead,
            oldest_ready: Some(prost_types::Duration {
                seconds: figures.oldest_ready_us / 1_000_000,
                nanos: (figures.oldest_ready_us % 1_000_000 * 1_000) as i32,
            }),
        });
    Ok(pb::GetQueueStatsResponse {
        queues: queues.collect(),
    })
}
