//! GET /conversations/{id}/messages/{mid}/media/{n}: a picture that is stored in a message.

use anneal_proto::{
    convert::parse,
    v1::{self as pb, message_service_server::MessageService as _, part::Part as Content},
};
use anneal_store::{ContentRead, Entity, ReadBudget, StoreError};
use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;

use super::ShowMessage;
use crate::{
    failure::Failure,
    http::{
        caller::HttpCaller,
        change,
        extractors::{PathParams, QueryParams},
        problem::Problem,
        web::{error::WebError, page::WebCaller},
    },
    limits::cpu_pool,
};

/// Most bytes of a message of which pictures are shown: each picture reads it anew.
const MESSAGE_BYTES: usize = 8 * 1024 * 1024;
/// Characters of base64 that tell which picture it is.
const HEAD_CHARACTERS: usize = 16;
/// The policy of a picture that is opened as a page of its own: nothing runs, nothing is loaded.
const PICTURE_POLICY: HeaderValue = HeaderValue::from_static("default-src 'none'; sandbox");
/// A version of a message does not change. The browser forgets its pictures at the sign-out.
const CACHE_CONTROL: HeaderValue = HeaderValue::from_static("private, max-age=3600");

/// Which picture of a message is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MediaQuery {
    /// The version of the message that the page has shown; 0: any.
    v: i32,
}

/// Sends the picture with this number among the files of a message, counted from 0. Not found if
/// it is not stored in this version of the message, or is not of a kind that every browser shows
/// safely, or if the message is large.
pub(super) async fn media(
    WebCaller(http_caller, ..): WebCaller<ShowMessage>,
    PathParams((id, message, number)): PathParams<(String, String, String)>,
    QueryParams(query): QueryParams<MediaQuery>,
) -> Result<Response, WebError> {
    let message = change::parse_message_id(&message)?;
    if measure(&http_caller, &id, message).await? > MESSAGE_BYTES as u64 {
        return Err(not_found().into());
    }
    let ask = pb::GetMessageRequest {
        conversation_id: id,
        message_id: message,
        ..pb::GetMessageRequest::default()
    };
    let found = http_caller
        .services
        .get_message(http_caller.request(ask))
        .await?;
    let (_, found, reservation) = found.into_parts();
    let stored = found.message.unwrap_or_default();
    if query.v != 0 && query.v != stored.version {
        return Err(not_found().into());
    }
    let number: Option<usize> = number.parse().ok();
    let uri = number.and_then(|number| files(stored).nth(number));
    let uri = uri.ok_or_else(not_found)?;
    let is_long = cpu_pool::is_long(uri.len(), 0);
    let (cpu, tenant) = (&http_caller.services.state.cpu, http_caller.caller.tenant());
    let decode = move || {
        let picture = picture(&uri);
        // It is held until the content is gone.
        drop((uri, reservation));
        picture
    };
    let picture = cpu.run_if(is_long, tenant, decode).await?;
    let (kind, bytes) = picture.ok_or_else(not_found)?;
    let mut response = bytes.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_SECURITY_POLICY, PICTURE_POLICY);
    if query.v != 0 {
        headers.insert(header::CACHE_CONTROL, CACHE_CONTROL);
    }
    Ok(response)
}

/// The bytes that a message takes in memory. Its content is not read.
async fn measure(http_caller: &HttpCaller, id: &str, message: i64) -> Result<u64, Problem> {
    let conversation = parse::conversation_id(id)?;
    let message = parse::message_id("message_id", message)?;
    let nothing = ReadBudget::unreserved(0);
    let store = &http_caller.services.state.store;
    let read = store
        .get_message(http_caller.caller, conversation, message, &nothing)
        .await
        .map_err(Failure::from)?;
    let (ContentRead::Read { bytes, .. } | ContentRead::TooLarge { bytes }) = read;
    Ok(bytes)
}

fn not_found() -> Problem {
    Failure::from(StoreError::NotFound(Entity::Message)).into()
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

/// Whether a message is small enough for its pictures to be shown.
pub(super) fn may_be_read(message: &pb::Message) -> bool {
    let files = message.parts.iter().flat_map(|part| match &part.part {
        Some(Content::Media(media)) => std::slice::from_ref(media),
        Some(Content::ToolResult(result)) => &result.media,
        _ => &[],
    });
    let bytes: usize = files.map(|media| media.uri.len()).sum();
    bytes + usize::try_from(message.text_bytes).unwrap_or(usize::MAX) <= MESSAGE_BYTES
}

/// Whether the address holds a picture that the page shows.
pub(super) fn is_shown_picture(uri: &str) -> bool {
    let head = encoded(uri).and_then(|encoded| {
        let head = encoded.get(..HEAD_CHARACTERS).unwrap_or(encoded);
        STANDARD.decode(head).ok()
    });
    head.is_some_and(|head| kind(&head).is_some())
}

/// The base64 of an address that says it holds a picture.
fn encoded(uri: &str) -> Option<&str> {
    let rest = uri.strip_prefix("data:image/")?;
    ["png", "jpeg", "gif", "webp"]
        .iter()
        .find_map(|kind| rest.strip_prefix(kind)?.strip_prefix(";base64,"))
}

/// The content type and the bytes of a picture in a data: URI. The bytes decide which type it is.
fn picture(uri: &str) -> Option<(&'static str, Vec<u8>)> {
    let bytes = STANDARD.decode(encoded(uri)?).ok()?;
    Some((kind(&bytes)?, bytes))
}

/// The content type of a picture that begins with these bytes.
fn kind(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, webp @ ..] if webp.starts_with(b"WEBP") => {
            Some("image/webp")
        }
        _ => None,
    }
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
        assert!(is_shown_picture(&uri("png", b"GIF89a")));
        assert!(is_shown_picture(&uri("webp", b"RIFF....WEBPVP8 and more")));
        for refused in [
            uri("png", b"<svg onload='alert(1)'>"),
            uri("svg+xml", b"\x89PNG"),
            "data:image/png;base64,%%".to_owned(),
            "data:text/html;base64,iVBORw==".to_owned(),
            "https://example.com/a.png".to_owned(),
        ] {
            assert_eq!(picture(&refused), None, "{refused}");
            assert!(!is_shown_picture(&refused), "{refused}");
        }
    }
}
