//! GetQueueStats.

use anneal_core::caller::Caller;
use anneal_proto::v1 as pb;

use crate::{house::House, reply, status::Failure};

/// How long the queues are and how old their oldest jobs.
pub(crate) async fn get_queue_stats(
    house: &House,
    _: Caller,
    _: pb::GetQueueStatsRequest,
) -> Result<pb::GetQueueStatsResponse, Failure> {
    let queues = house.store.queue_figures().await?.into_iter().map(|figures| pb::QueueStats {
        kind: reply::job_kind(figures.kind).into(),
        waiting: figures.waiting,
        ready: figures.ready,
        running: figures.running,
        dead: figures.dead,
        oldest_ready: Some(prost_types::Duration {
            seconds: figures.oldest_ready_us / 1_000_000,
            nanos: (figures.oldest_ready_us % 1_000_000 * 1_000) as i32,
        }),
    });
    Ok(pb::GetQueueStatsResponse { queues: queues.collect() })
}
