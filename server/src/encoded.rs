//! Long answers, encoded away from the threads that serve all calls: tonic encodes each answer on one of them, in one go.

use anneal_core::{caller::TenantId, limits::RESPONSE_BYTES};
use axum::body::Bytes;
use futures::stream;
use http::{HeaderMap, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use prost::Message;
use tonic::{Code, Status, body::Body};

use crate::{content::Holding, cpu::CpuPool, status::Failure};

/// Bytes from which on an answer is long: copying so much into new memory takes 1 to 2 ms.
const LONG_BYTES: usize = 1024 * 1024;
/// Before each message on the wire: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// An answer as gRPC frames it. It goes with a response whose own message is empty.
#[derive(Clone)]
pub(crate) struct Encoded(Bytes);

/// Encodes an answer if it is long: what is left of it, and what goes out instead.
pub(crate) async fn encode_long<T: Message + Default + 'static>(
    answer: Holding<T>,
    cpu: &CpuPool,
    tenant: TenantId,
) -> Result<Holding<(T, Option<Encoded>)>, Failure> {
    let length = answer.answer.encoded_len();
    if length < LONG_BYTES {
        return Ok(answer.map(|answer| (answer, None)));
    }
    let Some(prefix) = u32::try_from(length).ok().filter(|_| length <= RESPONSE_BYTES) else {
        return Err(Failure::AnswerTooLarge { bytes: length });
    };
    let encode = move |answer: T| {
        let mut encoded = Vec::with_capacity(PREFIX_BYTES + length);
        encoded.push(0);
        encoded.extend_from_slice(&prefix.to_be_bytes());
        answer.encode(&mut encoded).expect("a vector has room for any message");
        (T::default(), Some(Encoded(encoded.into())))
    };
    answer.map_long(cpu, tenant, true, encode).await
}

/// Puts what was encoded before in the place of a response's body; leaves every other one alone.
pub(crate) fn replace_body(mut response: Response<Body>) -> Response<Body> {
    let Some(Encoded(encoded)) = response.extensions_mut().remove() else { return response };
    let mut end = HeaderMap::new();
    Status::new(Code::Ok, "").add_header(&mut end).expect("a status without a message fits any header");
    let frames = [Ok::<_, Status>(Frame::data(encoded)), Ok(Frame::trailers(end))];
    response.map(|_| Body::new(StreamBody::new(stream::iter(frames))))
}
