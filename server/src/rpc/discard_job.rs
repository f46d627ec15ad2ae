//! DiscardJob.

use anneal_core::caller::Caller;
use anneal_proto::v1 as pb;

use crate::{house::House, parse, status::Failure};

/// Takes a dead job off the list for good.
pub(crate) async fn discard_job(house: &House, caller: Caller, ask: pb::DiscardJobRequest) -> Result<(), Failure> {
    parse::request_id(&ask.request_id)?;
    let kind = parse::job_kind_given(ask.kind)?;
    let id = parse::conversation_id(&ask.conversation_id)?;
    Ok(house.store.discard_job(caller, kind, id).await?)
}
