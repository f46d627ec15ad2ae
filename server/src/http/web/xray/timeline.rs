//! GET /conversations/{id}/xray/checkpoints: the checkpoints, a page at a time.

use anneal_proto::v1 as pb;
use anneal_web::xray::Timeline;
use axum::response::Response;
use serde::Deserialize;

use super::{ShowHistory, reads, view};
use crate::http::{
    extractors::{PathParams, QueryParams},
    web::{conversations::paths, error::WebError, page::WebCaller},
};

/// Which page is shown.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TimelineQuery {
    /// Its token; empty: the newest.
    page: String,
}

/// Shows a page of checkpoints.
pub(super) async fn timeline(
    WebCaller(http_caller, context, _): WebCaller<ShowHistory>,
    PathParams(id): PathParams<String>,
    QueryParams(query): QueryParams<TimelineQuery>,
) -> Result<Response, WebError> {
    let listed = reads::list_checkpoints(&http_caller, &id, query.page).await?;
    let rendered = page(&listed, &paths::xray(&id)).render();
    super::fragment(&context, &id, "Checkpoints", rendered)
}

/// A page of checkpoints, oldest first. `base`: the path of the X-ray.
pub(super) fn page(listed: &pb::ListCheckpointsResponse, base: &str) -> Timeline {
    let checkpoints = listed.checkpoints.iter().rev();
    let earlier_url = match listed.next_page_token.as_str() {
        "" => String::new(),
        token => format!("{base}/checkpoints{}", paths::query(&[("page", token)])),
    };
    Timeline {
        marks: checkpoints.map(|it| view::mark(it, base)).collect(),
        earlier_url,
    }
}
