//! RequeueJob.

use anneal_core::caller::Caller;
use anneal_proto::v1 as pb;

use crate::{house::House, parse, reply, status::Failure};

/// Puts a dead job back to work, or makes a waiting one due now.
pub(crate) async fn requeue_job(house: &House, caller: Caller, ask: pb::RequeueJobRequest) -> Result<pb::Job, Failure> {
    parse::request_id(&ask.request_id)?;
    let kind = parse::job_kind_given(ask.kind)?;
    let id = parse::conversation_id(&ask.conversation_id)?;
    let job = house.store.requeue_job(caller, kind, id).await?;
    house.bell.ring(&[kind]);
    Ok(reply::job(job))
}
