//! ListCheckpoints.

use anneal_core::{caller::Caller, message::MessageId};
use anneal_proto::v1 as pb;

use crate::{house::House, page, page::Scope, parse, reply, status::Failure};

/// Checkpoints, newest boundary first.
pub(crate) async fn list_checkpoints(
    house: &House,
    caller: Caller,
    ask: pb::ListCheckpointsRequest,
) -> Result<pb::ListCheckpointsResponse, Failure> {
    let id = parse::conversation_id(&ask.conversation_id)?;
    let limit = page::size(ask.page_size)?;
    let scope = Scope::of(caller, &["checkpoints", &id.to_string()]);
    let place = scope.place::<(i64, i64)>(&ask.page_token)?;
    let before = place.map(|(last, first)| (MessageId(last), MessageId(first)));
    let found = house.store.list_checkpoints(caller, id, before, limit).await?;
    let last = found.checkpoints.last().filter(|_| found.more);
    Ok(pb::ListCheckpointsResponse {
        next_page_token: last.map(|last| scope.token(&(last.last.0, last.first.0))).unwrap_or_default(),
        checkpoints: found.checkpoints.into_iter().map(|stored| reply::checkpoint(id, stored)).collect(),
    })
}
