//! Replaces tonic's own answers to malformed requests by answers with a stable reason. tonic
//! refuses a request that cannot be decoded, breaks off or is too large before our code sees it,
//! and answers only INTERNAL or OUT_OF_RANGE.

use anneal_core::limits::REQUEST_BYTES;
use anneal_proto::codec::Excess;
use http::{HeaderMap, Response};
use tonic::{Code, Status};

use crate::failure::Failure;

/// Replaces tonic's answer to a malformed request. Other answers are returned unchanged.
pub(crate) fn explain_decode_error<B: Default>(response: Response<B>) -> Response<B> {
    match decode_failure(response.headers()) {
        Some(failure) => Status::from(failure).into_http(),
        None => response,
    }
}

/// Beginnings of tonic's (0.14) INTERNAL messages for requests without a message or without valid
/// framing.
const UNDECODABLE_PREFIXES: [&str; 3] = [
    "Missing request message",
    "Unexpected EOF decoding stream",
    "protocol error: received message with",
];

/// The failure that tonic's (0.14) answer stands for. The answers are INTERNAL with "failed to
/// decode Protobuf message: …" or one of [`UNDECODABLE_PREFIXES`], and OUT_OF_RANGE with "… decoded
/// message length too large …" or with the text of an [`Excess`] (too many fields, or too many
/// entries of lists and maps). None for other answers.
fn decode_failure(headers: &HeaderMap) -> Option<Failure> {
    // To parse a status takes longer than to make it, so other refusals are recognized before.
    let code = Code::from_bytes(headers.get("grpc-status")?.as_bytes());
    if !matches!(code, Code::Internal | Code::OutOfRange) {
        return None;
    }
    let status = Status::from_header_map(headers)?;
    let text = status.message();
    if let Some(excess) = Excess::ALL
        .into_iter()
        .find(|excess| status.code() == Code::OutOfRange && text == excess.to_string())
    {
        let (most, unit) = excess.limit();
        return Some(Failure::limit("request", most, unit));
    }
    match status.code() {
        Code::Internal if text.starts_with("failed to decode Protobuf message") => Some(
            Failure::malformed(text.trim_start_matches("failed to decode Protobuf message: ")),
        ),
        Code::Internal
            if UNDECODABLE_PREFIXES
                .iter()
                .any(|prefix| text.starts_with(prefix)) =>
        {
            Some(Failure::malformed(text.trim_end_matches('.')))
        }
        Code::OutOfRange if text.contains("decoded message length too large") => {
            Some(Failure::limit(
                "request",
                REQUEST_BYTES,
                "bytes; AppendLargeMessage takes more",
            ))
        }
        _ => None,
    }
}
