//! GET /conversations/{id}/xray/at/{n}: the context as it was when a message was the newest. It is
//! put together from what was recorded then, and not built again.

use anneal_web::xray::PointInTime;
use axum::{http::StatusCode, response::Response};

use super::{ShowHistory, reads, strip_view, view};
use crate::http::{
    extractors::PathParams,
    web::{
        conversations::paths,
        error::WebError,
        page::{self, WebCaller},
    },
};

/// Runs that are drawn.
const RUNS: i32 = 200;

/// Most messages after the boundary whose tokens are read.
const MOST_MESSAGES: i64 = 200_000;

/// Shows the context as it was.
pub(super) async fn point(
    WebCaller(http_caller, ..): WebCaller<ShowHistory>,
    PathParams((id, message)): PathParams<(String, i64)>,
) -> Result<Response, WebError> {
    let message = message.max(1);
    let era = reads::find_era(&http_caller, &id, message).await?;
    let boundary = era.as_ref().map_or(0, |era| era.boundary_message_id);
    let swapped = era
        .as_ref()
        .map(|era| era.swapped_message_ids.clone())
        .unwrap_or_default();
    let checkpoint = match boundary {
        0 => None,
        boundary => reads::find_checkpoint(&http_caller, &id, boundary).await?,
    };
    let boundary_kind = match (boundary, &checkpoint) {
        (0, _) => "the first message",
        (_, Some(_)) => "a checkpoint",
        (_, None) => "a separator",
    };
    let first = (boundary + 1).max(message - MOST_MESSAGES + 1);
    let token_runs = if first <= message {
        reads::list_token_runs(&http_caller, &id, (first, message), RUNS).await?
    } else {
        Vec::new()
    };
    let base = format!("{}/xray", paths::conversation(&id));
    let mut shown = strip_view::stored_runs(&token_runs, &base);
    for run in &mut shown {
        if swapped.iter().any(|id| (run.first..=run.last).contains(id)) {
            run.state = "summary";
        }
    }
    let summary_tokens = checkpoint.as_ref().map_or(0, |it| it.token_usage);
    let tail_tokens: u64 = shown.iter().map(|run| run.tokens).sum();
    let point = PointInTime {
        at: message,
        boundary,
        boundary_kind: boundary_kind.to_owned(),
        summary: checkpoint.map(view::checkpoint),
        swapped: swapped.into_iter().filter(|id| *id <= message).collect(),
        shown,
        tokens: summary_tokens + tail_tokens,
        complete: era.is_some(),
    };
    page::html(StatusCode::OK, point.render())
}
