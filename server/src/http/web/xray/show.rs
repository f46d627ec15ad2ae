//! GET /conversations/{id}/xray: the window, the strip, the checkpoints, the costs and the jobs.

use anneal_core::caller::Verb;
use anneal_proto::v1::{self as pb, operator_service_server::OperatorService as _};
use anneal_web::{
    layout::Place,
    what_if::label,
    xray::{Jobs, XrayPage},
};
use axum::{http::StatusCode, response::Response};

use super::{
    ShowContext,
    controls::ControlFields,
    reads, settings,
    strip_view::{self, StripPaths},
    timeline, view,
};
use crate::http::{
    caller::HttpCaller,
    extractors::PathParams,
    problem::Problem,
    web::{
        conversations::{paths, view as conversation_view},
        error::WebError,
        page::{self, WebCaller},
    },
};

/// Shows the X-ray of the context that the next call would get.
pub(super) async fn show(
    WebCaller(http_caller, context, _): WebCaller<ShowContext>,
    PathParams(id): PathParams<String>,
) -> Result<Response, WebError> {
    let conversation = reads::get_conversation(&http_caller, &id).await?;
    let ask = pb::BuildContextRequest {
        conversation_id: id.clone(),
        ..pb::BuildContextRequest::default()
    };
    let built = reads::build_context(&http_caller, ask).await?;
    let usage = reads::get_context_usage(&http_caller, &id, None).await?;
    let listed = reads::list_checkpoints(&http_caller, &id, String::new()).await?;
    let base = paths::xray(&id);
    let unread = reads::unread_tokens(&http_caller, &conversation, &built).await?;
    let title = match conversation.title.as_str() {
        "" => "X-ray".to_owned(),
        title => format!("X-ray: {title}"),
    };
    let strip_paths = StripPaths::of(&id, &ControlFields::default());
    let has_detail = !unread.is_empty();
    let own = conversation.policy.clone().unwrap_or_default();
    let policy = settings::set_by(&own).into_iter();
    let page = XrayPage {
        page: context.page(&title, Place::Xray),
        row: conversation_view::row(&conversation),
        window: view::window(&usage, None, None),
        strip: strip_view::strip(&built.manifest, &strip_paths, &unread, has_detail),
        repairs: built.repairs.iter().map(view::repair).collect(),
        eras_url: format!("{base}/eras"),
        timeline: timeline::page(&listed, &base),
        usage: view::usage_table(&usage),
        jobs: list_jobs(&http_caller, &id).await?,
        policy: policy.map(|(name, value)| (label(name), value)).collect(),
    };
    page::html(StatusCode::OK, page.render())
}

/// The jobs of a conversation. None: the caller may not see them.
async fn list_jobs(http_caller: &HttpCaller, id: &str) -> Result<Option<Jobs>, Problem> {
    if !http_caller.caller.may(Verb::Admin) {
        return Ok(None);
    }
    let ask = pb::ListJobsRequest {
        conversation_id: id.to_owned(),
        ..pb::ListJobsRequest::default()
    };
    let services = &http_caller.services;
    let listed = services.list_jobs(http_caller.request(ask)).await?;
    let jobs = listed.into_inner().jobs;
    Ok(Some(Jobs {
        jobs: jobs.into_iter().map(view::job).collect(),
        can_requeue: true,
    }))
}
