//! GET /conversations/{id}/xray/checkpoints/{last}: where a checkpoint's summary comes from.

use anneal_store::{Entity, StoreError};
use axum::response::Response;

use super::{ShowHistory, reads, view};
use crate::{
    failure::Failure,
    http::{
        change,
        extractors::PathParams,
        web::{error::WebError, page::WebCaller},
    },
};

/// Shows the newest checkpoint that ends with this message.
pub(super) async fn checkpoint(
    WebCaller(http_caller, context, _): WebCaller<ShowHistory>,
    PathParams((id, last)): PathParams<(String, String)>,
) -> Result<Response, WebError> {
    let last = change::parse_message_id(&last)?;
    let (found, _reservation) = reads::find_checkpoint(&http_caller, &id, last).await?;
    let missing = || Failure::from(StoreError::NotFound(Entity::Message));
    let found = found.ok_or_else(missing)?;
    let heading = format!("Checkpoint up to message {last}");
    super::fragment(&context, &id, &heading, view::checkpoint(found).render())
}
