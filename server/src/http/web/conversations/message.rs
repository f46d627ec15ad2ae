//! GET /conversations/{id}/messages/{mid}: the text of a long message, piece by piece.

use anneal_proto::v1::{self as pb, message_service_server::MessageService as _};
use anneal_web::{
    layout::Place,
    message::{MessagePage, Piece},
};
use axum::{http::StatusCode, response::Response};
use serde::Deserialize;

use super::{ShowMessage, paths};
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
    let next_url = if range.length > 0 && end < stored.text_bytes {
        let version = match query.version {
            0 => String::new(),
            version => format!("&version={version}"),
        };
        format!("{}?offset={end}{version}", paths::message(&id, number))
    } else {
        String::new()
    };
    let piece = Piece {
        text: found.text,
        offset: range.offset,
        text_bytes: stored.text_bytes,
        next_url,
    };
    if context.is_htmx() {
        return page::html(StatusCode::OK, piece.render());
    }
    let title = format!("Message {number}");
    let page = MessagePage {
        page: context.page(&title, Place::Conversations),
        conversation: id,
        id: number,
        piece,
    };
    page::html(StatusCode::OK, page.render())
}
