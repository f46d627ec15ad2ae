//! GET /conversations/{id}/xray/strip: the strip with the messages before the boundary in detail, of
//! all messages or of a range.

use anneal_proto::v1 as pb;
use axum::{http::StatusCode, response::Response};
use serde::Deserialize;

use super::{ShowContext, reads, strip_view};
use crate::http::{
    extractors::{PathParams, QueryParams},
    web::{
        conversations::paths,
        error::WebError,
        page::{self, WebCaller},
    },
};

/// Most messages whose tokens are read.
const MOST_MESSAGES: i64 = 200_000;

/// Which messages are drawn.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StripQuery {
    /// The first; 0: the first of the conversation.
    first: i64,
    /// The last; 0: the newest.
    last: i64,
}

/// Shows the strip.
pub(super) async fn strip(
    WebCaller(http_caller, ..): WebCaller<ShowContext>,
    PathParams(id): PathParams<String>,
    QueryParams(query): QueryParams<StripQuery>,
) -> Result<Response, WebError> {
    let ask = pb::BuildContextRequest {
        conversation_id: id.clone(),
        ..pb::BuildContextRequest::default()
    };
    let built = reads::build_context(&http_caller, ask).await?;
    let newest = built.last_message_id;
    let last = match query.last {
        0 => newest,
        last => last.min(newest),
    };
    let first = query.first.max(last - MOST_MESSAGES + 1).max(1);
    // Later messages are in the context, with their own figures.
    let unread = last.min(built.boundary_message_id);
    let token_runs = if first <= unread {
        reads::list_token_runs(&http_caller, &id, (first, unread), 0).await?
    } else {
        Vec::new()
    };
    let base = format!("{}/xray", paths::conversation(&id));
    let range = (first, last);
    let strip = strip_view::detailed_strip(&built.manifest, &base, &token_runs, range);
    page::html(StatusCode::OK, strip.render())
}
