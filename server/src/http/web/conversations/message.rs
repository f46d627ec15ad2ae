//! GET /conversations/{id}/messages/{mid}: the text of a long message, piece by piece.

use anneal_proto::v1::{self as pb, message_service_server::MessageService as _};
use anneal_web::{conversation::MessagePage, layout::Place, message::MessagePiece};
use axum::{http::StatusCode, response::Response};
use serde::Deserialize;

use super::ShowMessage;
use crate::http::{
    change,
    extractors::{PathParams, QueryParams},
    web::{
        error::WebError,
        page::{self, WebCaller},
    },
};

/// Bytes of one piece.
const PIECE_BYTES: i64 = 64 * 1024;

/// Which piece is shown.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PieceQuery {
    /// The first byte, counted from 0.
    offset: i64,
    /// The version; 0: the message as it stands.
    version: i32,
}

/// Shows a piece of a message's text. The script gets the piece alone.
pub(super) async fn message(
    WebCaller(http_caller, context, _): WebCaller<ShowMessage>,
    PathParams((id, message)): PathParams<(String, String)>,
    QueryParams(query): QueryParams<PieceQuery>,
) -> Result<Response, WebError> {
    let number = change::parse_message_id(&message)?;
    let ask = pb::GetMessageRequest {
        conversation_id: id.clone(),
        message_id: number,
        range: Some(pb::ByteRange {
            offset: query.offset,
            length: PIECE_BYTES,
        }),
        version: query.version,
        ..pb::GetMessageRequest::default()
    };
    let found = http_caller
        .services
        .get_message(http_caller.request(ask))
        .await?;
    let (_, found, _reservation) = found.into_parts();
    let range = found.range.unwrap_or_default();
    let end = range.offset + range.length;
    let stored = found.message.unwrap_or_default();
    let piece = MessagePiece {
        conversation: id,
        id: number,
        version: stored.version,
        offset: range.offset,
        text: found.text,
        next_offset: (range.length > 0 && end < stored.text_bytes).then_some(end),
        total: stored.text_bytes,
    };
    if context.is_htmx() {
        return page::html(StatusCode::OK, piece.render());
    }
    let title = format!("Message {number}");
    let page = MessagePage {
        page: context.page(&title, Place::Conversations),
        piece,
    };
    page::html(StatusCode::OK, page.render())
}
