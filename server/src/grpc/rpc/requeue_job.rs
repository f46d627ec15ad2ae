//! RequeueJob.

use anneal_core::caller::Caller;
use anneal_proto::{
    convert::{job, parse},
    v1 as pb,
};

use crate::{failure::Failure, reply, state::ServerState};

/// Requeues a dead job, or makes a waiting one due now.
pub(crate) async fn requeue_job(
    state: &ServerState,
    caller: Caller,
    ask: pb::RequeueJobRequest,
) -> Result<pb::Job, Failure> {
    parse::request_id(&ask.request_id)?;
    let kind = job::parse_required_kind(ask.kind)?;
    let id = parse::conversation_id(&ask.conversation_id)?;
    let job = state.store.requeue_job(caller, kind, id).await?;
    state.job_notifier.notify(&[kind]);
    Ok(reply::job(job))
}
