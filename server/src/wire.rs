//! Requests that tonic refuses before any of our code sees them: what cannot be decoded, breaks off or is too large gets its own
//! reason instead of INTERNAL.

use anneal_core::limits::REQUEST_BYTES;
use anneal_proto::codec::Excess;
use http::{HeaderMap, Response};
use tonic::{Code, Status};

use crate::status::Failure;

/// Rewrites the answer of a request that could not be read; leaves every other answer alone.
pub(crate) fn explain<B: Default>(response: Response<B>) -> Response<B> {
    match refused(response.headers()) {
        Some(failure) => Status::from(failure).into_http(),
        None => response,
    }
}

/// What tonic (0.14) says with INTERNAL of a request that is none, or of none at all.
const NOT_A_REQUEST: [&str; 3] =
    ["Missing request message", "Unexpected EOF decoding stream", "protocol error: received message with"];

/// tonic answers so (0.14): INTERNAL "failed to decode Protobuf message: …", OUT_OF_RANGE "… decoded message length too large …".
fn refused(headers: &HeaderMap) -> Option<Failure> {
    let status = Status::from_header_map(headers)?;
    let text = status.message();
    if let Some(excess) =
        Excess::ALL.into_iter().find(|excess| status.code() == Code::OutOfRange && text == excess.to_string())
    {
        let (most, what) = excess.limit();
        return Some(Failure::limit("request", most, what));
    }
    match status.code() {
        Code::Internal if text.starts_with("failed to decode Protobuf message") => {
            Some(Failure::malformed(text.trim_start_matches("failed to decode Protobuf message: ")))
        }
        Code::Internal if NOT_A_REQUEST.iter().any(|begins| text.starts_with(begins)) => {
            Some(Failure::malformed(text.trim_end_matches('.')))
        }
        Code::OutOfRange if text.contains("decoded message length too large") => {
            Some(Failure::limit("request", REQUEST_BYTES, "bytes; AppendLargeMessage takes more"))
        }
        _ => None,
    }
}
