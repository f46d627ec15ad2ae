//! GET /operations, GET /operations/figures: the operator's page, and the part of it that changes.
//!
//! - `view`: answers of RPCs as the page shows them
//! - `charts`: the metrics of the last hour as drawings

mod charts;
mod view;

use anneal_proto::v1::{self as pb, operator_service_server::OperatorService as _};
use anneal_web::{
    layout::Place,
    operations::{Figures, OperationsPage},
};
use axum::{extract::State, http::StatusCode, response::Response, routing};

use super::{
    error::WebError,
    page::{self, WebCaller, WebRoute},
};
use crate::{
    http::{
        caller::{EndpointRpcs, HttpCaller},
        state::HttpState,
    },
    verbs::Rpc,
};

/// The routes of this page.
pub(super) const ROUTES: &[WebRoute] = &[
    ("/operations", || routing::get(show_page)),
    ("/operations/figures", || routing::get(show_figures)),
];

/// The RPCs of this page.
pub(super) struct ShowOperations;

impl EndpointRpcs for ShowOperations {
    const RPCS: &'static [&'static Rpc] = &[
        Rpc::named("get_queue_stats"),
        Rpc::named("get_model_stats"),
        Rpc::named("get_installation_stats"),
    ];
}

/// Shows the page.
async fn show_page(
    State(state): State<HttpState>,
    WebCaller(caller, context, _): WebCaller<ShowOperations>,
) -> Result<Response, WebError> {
    let page = context.page("Operations", Place::Operations);
    let shown = OperationsPage {
        figures: read_figures(&state, &caller, &page.tenant).await?,
        page,
    };
    page::html(StatusCode::OK, shown.render())
}

/// Shows the part that changes.
async fn show_figures(
    State(state): State<HttpState>,
    WebCaller(caller, context, _): WebCaller<ShowOperations>,
) -> Result<Response, WebError> {
    let tenant = context.page("", Place::Operations).tenant;
    let figures = read_figures(&state, &caller, &tenant).await?;
    page::html(StatusCode::OK, figures.render())
}

async fn read_figures(
    state: &HttpState,
    caller: &HttpCaller,
    tenant: &str,
) -> Result<Figures, WebError> {
    let services = &caller.services;
    let queues = services.get_queue_stats(caller.request(pb::GetQueueStatsRequest {}));
    let queues = queues.await?.into_inner();
    let models = services.get_model_stats(caller.request(pb::GetModelStatsRequest {}));
    let models = models.await?.into_inner();
    let ask = caller.request(pb::GetInstallationStatsRequest {});
    let installation = services.get_installation_stats(ask).await?.into_inner();
    let charts = state.web.history.as_ref().map(charts::of_last_hour);
    Ok(view::figures(
        &queues,
        models,
        installation,
        charts.unwrap_or_default(),
        tenant,
    ))
}
