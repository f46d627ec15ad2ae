//! GET /conversations/{id}/xray/checkpoints/{last}: where a checkpoint's summary comes from.

use anneal_store::{Entity, StoreError};
use axum::{http::StatusCode, response::Response};

use super::{ShowHistory, reads, view};
use crate::{
    failure::Failure,
    http::{
        extractors::PathParams,
        web::{
            error::WebError,
            page::{self, WebCaller},
        },
    },
};

/// Shows the newest checkpoint that ends with this message.
pub(super) async fn checkpoint(
    WebCaller(http_caller, ..): WebCaller<ShowHistory>,
    PathParams((id, last)): PathParams<(String, i64)>,
) -> Result<Response, WebError> {
    let found = reads::find_checkpoint(&http_caller, &id, last).await?;
    let missing = || Failure::from(StoreError::NotFound(Entity::Message));
    let found = found.ok_or_else(missing)?;
    page::html(StatusCode::OK, view::checkpoint(found).render())
}
