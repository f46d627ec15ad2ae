//! RequeueJob.

use anneal_core::caller::Caller;
use anneal_proto::v1 as pb;

use crate::{
    convert::{parse, reply},
    failure::Failure,
    state::ServerState,
};

/// Requeues a dead job, or makes a waiting one due now.
pub(crate) async fn requeue_job(
    state: &ServerState,
    caller: Caller,
    ask: pb::RequeueJobRequest,
) -> Result<pb::Job, Failure> {
    parse::request_id(&ask.request_id)?;
    let kind = parse::required_job_kind(ask.kind)?;
    let id = parse::conversation_id(&ask.conversation_id)?;
    let job = state.store.requeue_job(caller, kind, id).await?;
    state.job_notifier.notify(&[kind]);
    Ok(reply::job(job))
}
