//! ListJobs.

use anneal_core::{
    caller::{Caller, ConversationId},
    job::JobKind,
};
use anneal_proto::{
    convert::{job, parse},
    v1 as pb,
};
use anneal_store::{JobFilter, JobState};

use crate::{
    failure::Failure,
    grpc::paging::{self, TokenScope},
    reply,
    state::ServerState,
};

/// Returns a page of jobs, ordered by state, kind and conversation.
pub(crate) async fn list_jobs(
    state: &ServerState,
    caller: Caller,
    ask: pb::ListJobsRequest,
) -> Result<pb::ListJobsResponse, Failure> {
    let limit = paging::page_size(ask.page_size)?;
    let (kind, job_state_number) = (ask.kind.to_string(), ask.state.to_string());
    let scope = TokenScope::of(
        caller,
        &["jobs", &kind, &job_state_number, &ask.conversation_id],
    );
    let position = scope.parse::<(i16, i16, uuid::Uuid)>(&ask.page_token)?;
    let parse_position = |(job_state_code, kind_code, id)| {
        let decode = || {
            Some((
                JobState::from_code(job_state_code)?,
                JobKind::from_code(kind_code)?,
                ConversationId(id),
            ))
        };
        decode().ok_or_else(paging::invalid_token)
    };
    let after = position.map(parse_position).transpose()?;
    let conversation = match ask.conversation_id.as_str() {
        "" => None,
        id => Some(parse::conversation_id(id)?),
    };
    let filter = JobFilter {
        kind: job::parse_kind(ask.kind)?,
        state: job_state(ask.state)?,
        conversation,
        after,
        limit,
    };
    let found = state.store.list_jobs(caller, &filter).await?;
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
        Err(_) => Err(Failure::invalid(
            "state",
            format!("{number} is not a state of jobs"),
        )),
    }
}
