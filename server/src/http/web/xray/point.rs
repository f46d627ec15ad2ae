//! GET /conversations/{id}/xray/at/{n}: the context as it was when a message was the newest. It is
//! put together from what was recorded then, and not built again.

use anneal_web::xray::PointInTime;
use axum::response::Response;

use super::{
    ShowHistory,
    controls::ControlFields,
    reads,
    strip_view::{self, StripPaths},
    view,
};
use crate::http::{
    change,
    extractors::PathParams,
    web::{error::WebError, page::WebCaller},
};

/// Runs that are drawn.
const RUNS: i32 = 200;

/// Most messages after the boundary whose tokens are read.
const MOST_MESSAGES: i64 = 200_000;

/// Shows the context as it was.
pub(super) async fn point(
    WebCaller(http_caller, context, _): WebCaller<ShowHistory>,
    PathParams((id, message)): PathParams<(String, String)>,
) -> Result<Response, WebError> {
    let message = change::parse_message_id(&message)?;
    let recorded = reads::find_context_at(&http_caller, &id, message).await?;
    let boundary = recorded.as_ref().map_or(0, |it| it.boundary.0);
    let (checkpoint, _reservation) = match boundary {
        0 => (None, None),
        boundary => {
            let (found, reservation) = reads::find_checkpoint(&http_caller, &id, boundary).await?;
            (found, Some(reservation))
        }
    };
    let boundary_kind = match (boundary, &checkpoint) {
        (0, _) => "the beginning",
        (_, Some(_)) => "a checkpoint",
        (_, None) => "a separator",
    };
    let first = boundary.max(message.saturating_sub(MOST_MESSAGES)) + 1;
    // Without messages after the boundary this asks for the boundary: it finds that there is a
    // conversation.
    let range = (first.min(message), message);
    let mut token_runs = reads::list_token_runs(&http_caller, &id, range, RUNS).await?;
    token_runs.retain(|run| run.first_message_id > boundary);
    let summarized: Vec<_> = recorded
        .iter()
        .flat_map(|it| &it.summarized)
        .map(|it| (it.id.0, it.original.get(), it.summary.get()))
        .collect();
    let paths = StripPaths::of(&id, &ControlFields::default());
    let shown = strip_view::stored_runs(&token_runs, &summarized, &paths);
    let summary_tokens = checkpoint.as_ref().map_or(0, |it| it.token_usage);
    let tail_tokens: u64 = shown.iter().map(|run| run.tokens).sum();
    let swapped = recorded.as_ref().map_or(0, |it| it.swapped);
    let point = PointInTime {
        at: message,
        boundary,
        boundary_kind: boundary_kind.to_owned(),
        summary: checkpoint.map(view::checkpoint),
        swapped,
        unknown_summaries: swapped.saturating_sub(summarized.len() as u64),
        withdrawn: token_runs.iter().map(|run| run.withdrawn_messages).sum(),
        cut: recorded.as_ref().is_some_and(|it| it.cut),
        shown,
        tokens: summary_tokens + tail_tokens,
        complete: recorded.is_some() && first == boundary + 1,
    };
    let heading = format!("The context at message {message}");
    super::fragment(&context, &id, &heading, point.render())
}
