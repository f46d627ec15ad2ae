//! ListJobs.

use anneal_core::{
    caller::{Caller, ConversationId},
    job::JobKind,
};
use anneal_proto::v1 as pb;
use anneal_store::{JobFilter, JobState};

use crate::{house::House, page, page::Scope, parse, reply, status::Failure};

/// Jobs by state, kind and conversation.
pub(crate) async fn list_jobs(
    house: &House,
    caller: Caller,
    ask: pb::ListJobsRequest,
) -> Result<pb::ListJobsResponse, Failure> {
    let limit = page::size(ask.page_size)?;
    let (kind, state) = (ask.kind.to_string(), ask.state.to_string());
    let scope = Scope::of(caller, &["jobs", &kind, &state, &ask.conversation_id]);
    let place = scope.place::<(i16, i16, uuid::Uuid)>(&ask.page_token)?;
    let known = |(state, kind, id)| {
        let known = || Some((JobState::from_code(state)?, JobKind::from_code(kind)?, ConversationId(id)));
        known().ok_or_else(page::broken)
    };
    let after = place.map(known).transpose()?;
    let conversation = match ask.conversation_id.as_str() {
        "" => None,
        id => Some(parse::conversation_id(id)?),
    };
    let filter =
        JobFilter { kind: parse::job_kind(ask.kind)?, state: job_state(ask.state)?, conversation, after, limit };
    let found = house.store.list_jobs(caller, &filter).await?;
    let last = found.jobs.last().filter(|_| found.more);
    Ok(pb::ListJobsResponse {
        next_page_token: last
            .map(|last| scope.token(&(last.state.code(), last.kind.code(), last.conversation.0)))
            .unwrap_or_default(),
        jobs: found.jobs.into_iter().map(reply::job).collect(),
    })
}

fn job_state(number: i32) -> Result<Option<JobState>, Failure> {
    match pb::JobState::try_from(number) {
        Ok(pb::JobState::Unspecified) => Ok(None),
        Ok(pb::JobState::Waiting) => Ok(Some(JobState::Waiting)),
        Ok(pb::JobState::Running) => Ok(Some(JobState::Running)),
        Ok(pb::JobState::Dead) => Ok(Some(JobState::Dead)),
        Err(_) => Err(Failure::invalid("state", format!("{number} is not a state of jobs"))),
    }
}
