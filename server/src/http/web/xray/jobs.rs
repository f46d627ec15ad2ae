//! POST /conversations/{id}/xray/requeue and /discard: what happens to a job that was given up.

use anneal_proto::v1::{self as pb, operator_service_server::OperatorService as _};
use axum::response::Response;
use serde::Deserialize;

use super::words;
use crate::{
    http::{
        caller::EndpointRpcs,
        extractors::PathParams,
        web::{
            conversations::paths,
            error::WebError,
            form::Form,
            page::{self, NoticeCode, WebCaller},
        },
    },
    verbs::Rpc,
};

/// The job that a form names.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct JobForm {
    kind: String,
}

/// The RPC that runs a job again.
pub(super) struct RequeueJob;

impl EndpointRpcs for RequeueJob {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("requeue_job")];
}

/// The RPC that removes a dead job.
pub(super) struct DiscardJob;

impl EndpointRpcs for DiscardJob {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("discard_job")];
}

/// Runs a dead job again.
pub(super) async fn requeue(
    WebCaller(http_caller, ..): WebCaller<RequeueJob>,
    PathParams(id): PathParams<String>,
    Form(form): Form<JobForm>,
) -> Result<Response, WebError> {
    let ask = pb::RequeueJobRequest {
        kind: words::parse_job_kind(&form.kind).into(),
        conversation_id: id.clone(),
        request_id: String::new(),
    };
    let services = &http_caller.services;
    services.requeue_job(http_caller.request(ask)).await?;
    Ok(page::see_other(&jobs_of(&id), Some(NoticeCode::Requeued)))
}

/// Removes a dead job.
pub(super) async fn discard(
    WebCaller(http_caller, ..): WebCaller<DiscardJob>,
    PathParams(id): PathParams<String>,
    Form(form): Form<JobForm>,
) -> Result<Response, WebError> {
    let ask = pb::DiscardJobRequest {
        kind: words::parse_job_kind(&form.kind).into(),
        conversation_id: id.clone(),
        request_id: String::new(),
    };
    let services = &http_caller.services;
    services.discard_job(http_caller.request(ask)).await?;
    Ok(page::see_other(&jobs_of(&id), Some(NoticeCode::Discarded)))
}

/// The list of jobs on the X-ray.
fn jobs_of(id: &str) -> String {
    format!("{}#jobs", paths::xray(id))
}
