//! GET /conversations/{id}/xray/strip: the strip with the messages before the boundary in detail, of
//! all messages or of a range, under the settings of now or others.

use axum::response::Response;
use serde::Deserialize;

use super::{
    ShowContext,
    controls::{self, ControlFields},
    reads,
    strip_view::{self, StripPaths},
};
use crate::http::{
    change,
    extractors::{PathParams, QueryParams},
    problem::Problem,
    web::{error::WebError, page::WebCaller},
};

/// Most messages whose tokens are read.
const MOST_MESSAGES: i64 = 200_000;

/// Which messages are drawn.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StripQuery {
    /// The first; empty: the first of the conversation.
    first: String,
    /// The last; empty: the newest.
    last: String,
    /// Settings that are tried.
    #[serde(flatten)]
    fields: ControlFields,
}

/// Shows the strip.
pub(super) async fn strip(
    WebCaller(http_caller, context, _): WebCaller<ShowContext>,
    PathParams(id): PathParams<String>,
    QueryParams(query): QueryParams<StripQuery>,
) -> Result<Response, WebError> {
    let (first, last) = (
        parse(&query.first)?.unwrap_or(1),
        parse(&query.last)?.unwrap_or(i64::MAX),
    );
    let session = http_caller.services.state.store.session();
    let conversation = reads::get_conversation(&http_caller, &id).await?;
    let tried = query.fields.parse(&conversation, &session);
    let tried = tried.map_err(controls::refuse)?;
    let built = reads::build_context(&http_caller, tried.ask(&id)).await?;
    let newest = built.last_message_id;
    let last = last.min(newest);
    let first = first.max(last.saturating_sub(MOST_MESSAGES - 1));
    let mut token_runs = Vec::new();
    // Runs of one entry each: a run must not belong to a separator and a checkpoint.
    for entry in built.manifest.iter().filter(|it| strip_view::is_unread(it)) {
        let range = (
            first.max(entry.first_message_id),
            last.min(entry.last_message_id),
        );
        if range.0 <= range.1 {
            token_runs.extend(reads::list_token_runs(&http_caller, &id, range, 0).await?);
        }
    }
    let paths = StripPaths::of(&id, &query.fields);
    let is_part = first > 1 || last < newest;
    let range = (first, last);
    let mut strip = strip_view::detailed_strip(&built.manifest, &paths, &token_runs, range);
    strip.range = is_part.then_some(range);
    super::fragment(
        &context,
        &id,
        "Messages in the next context",
        strip.render(),
    )
}

/// The number of a message. None: the text is empty.
fn parse(text: &str) -> Result<Option<i64>, Problem> {
    if text.is_empty() {
        return Ok(None);
    }
    change::parse_message_id(text).map(Some)
}
