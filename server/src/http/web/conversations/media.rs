//! GET /conversations/{id}/messages/{mid}/media/{n}: a picture that is stored in a message.

use anneal_proto::v1::{
    self as pb, message_service_server::MessageService as _, part::Part as Content,
};
use anneal_store::{Entity, StoreError};
use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::ShowMessage;
use crate::{
    failure::Failure,
    http::{
        change,
        extractors::PathParams,
        problem::Problem,
        web::{error::WebError, page::WebCaller},
    },
};

/// Most bytes of a picture that is shown.
const PICTURE_BYTES: usize = 8 * 1024 * 1024;
/// The policy of a picture that is opened as a page of its own: nothing runs, nothing is loaded.
const PICTURE_POLICY: HeaderValue = HeaderValue::from_static("default-src 'none'; sandbox");

/// Sends the picture with this number among the files of a message, counted from 0. Not found if
/// it is not stored in the message, or is not of a kind that every browser shows safely.
pub(super) async fn media(
    WebCaller(http_caller, ..): WebCaller<ShowMessage>,
    PathParams((id, message, number)): PathParams<(String, String, String)>,
) -> Result<Response, WebError> {
    let ask = pb::GetMessageRequest {
        conversation_id: id,
        message_id: change::parse_message_id(&message)?,
        ..pb::GetMessageRequest::default()
    };
    let found = http_caller
        .services
        .get_message(http_caller.request(ask))
        .await?;
    let (_, found, _reservation) = found.into_parts();
    let number: Option<usize> = number.parse().ok();
    let uri = number.and_then(|number| files(found.message.unwrap_or_default()).nth(number));
    let picture = uri.and_then(|uri| picture(&uri));
    let Some((kind, bytes)) = picture else {
        return Err(Problem::from(Failure::from(StoreError::NotFound(Entity::Message))).into());
    };
    let mut response = bytes.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_SECURITY_POLICY, PICTURE_POLICY);
    Ok(response)
}

/// The addresses of a message's files, in the order in which the page numbers them.
fn files(message: pb::Message) -> impl Iterator<Item = String> {
    message.parts.into_iter().flat_map(|part| {
        let media = match part.part {
            Some(Content::Media(media)) => vec![media],
            Some(Content::ToolResult(result)) => result.media,
            _ => Vec::new(),
        };
        media.into_iter().map(|media| media.uri)
    })
}

/// Whether the address holds a picture that the page shows.
pub(super) fn is_inline_picture(uri: &str) -> bool {
    ["png", "jpeg", "gif", "webp"].iter().any(|kind| {
        uri.strip_prefix("data:image/")
            .and_then(|rest| rest.strip_prefix(kind))
            .is_some_and(|rest| rest.starts_with(";base64,"))
    })
}

/// The content type and the bytes of a picture in a data: URI. The bytes decide which type it is.
fn picture(uri: &str) -> Option<(&'static str, Vec<u8>)> {
    if !is_inline_picture(uri) || uri.len() > PICTURE_BYTES / 3 * 4 {
        return None;
    }
    let (_, encoded) = uri.split_once(',')?;
    let bytes = STANDARD.decode(encoded).ok()?;
    let kind = match bytes.as_slice() {
        [0x89, b'P', b'N', b'G', ..] => "image/png",
        [0xff, 0xd8, 0xff, ..] => "image/jpeg",
        [b'G', b'I', b'F', b'8', ..] => "image/gif",
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => "image/webp",
        _ => return None,
    };
    Some((kind, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_decide_which_picture_it_is() {
        let uri = |kind: &str, bytes: &[u8]| {
            format!("data:image/{kind};base64,{}", STANDARD.encode(bytes))
        };
        let found = picture(&uri("png", b"GIF89a"));
        assert_eq!(found, Some(("image/gif", b"GIF89a".to_vec())));
        for refused in [
            uri("png", b"<svg onload='alert(1)'>"),
            uri("svg+xml", b"\x89PNG"),
            "data:image/png;base64,%%".to_owned(),
            "data:text/html;base64,iVBORw==".to_owned(),
            "https://example.com/a.png".to_owned(),
        ] {
            assert_eq!(picture(&refused), None, "{refused}");
        }
    }
}
