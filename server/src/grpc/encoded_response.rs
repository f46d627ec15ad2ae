//! Encodes long answers on the CPU pool. tonic would encode such an answer in one poll, on an async
//! thread that also serves other calls.

use anneal_core::{caller::TenantId, limits::RESPONSE_BYTES};
use axum::body::Bytes;
use futures::stream;
use http::{HeaderMap, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use prost::Message;
use tonic::{Code, Status, body::Body};

use crate::{
    failure::Failure,
    limits::{content_budget::WithReservation, cpu_pool::CpuPool},
    rpc_call::RpcCall,
};

/// Answers from this size on are long: copying that much into new memory takes 1 to 2 ms.
const LONG_ANSWER_BYTES: usize = 1024 * 1024;
/// The gRPC prefix of a message: one byte for compression, four for its length.
const PREFIX_BYTES: usize = 5;

/// An encoded answer with its gRPC prefix. The response carries it as an extension, and its own
/// message is empty.
#[derive(Clone)]
pub(crate) struct EncodedResponse(Bytes);

/// Runs a call that reads content, and encodes a long answer on `pool`. `pool` is None if the
/// answer is not sent as protobuf.
pub(crate) async fn run_and_encode<T: Message + Default + 'static>(
    call: RpcCall,
    work: impl Future<Output = Result<WithReservation<T>, Failure>>,
    pool: Option<&CpuPool>,
) -> Result<tonic::Response<T>, Status> {
    let tenant = call.caller.tenant();
    let work = async {
        let answer = work.await?;
        match pool {
            Some(pool) => encode_long(answer, pool, tenant).await,
            None => Ok(answer.map(|answer| (answer, None))),
        }
    };
    let (metadata, (answer, encoded), mut extensions) =
        call.run_with_reservation(work).await?.into_parts();
    if let Some(encoded) = encoded {
        extensions.insert(encoded);
    }
    Ok(tonic::Response::from_parts(metadata, answer, extensions))
}

/// Encodes an answer if it is long. Returns an empty answer and the encoded one, or the answer
/// unchanged.
async fn encode_long<T: Message + Default + 'static>(
    answer: WithReservation<T>,
    pool: &CpuPool,
    tenant: TenantId,
) -> Result<WithReservation<(T, Option<EncodedResponse>)>, Failure> {
    let length = answer.answer.encoded_len();
    if length < LONG_ANSWER_BYTES {
        return Ok(answer.map(|answer| (answer, None)));
    }
    let Some(length_in_prefix) = u32::try_from(length)
        .ok()
        .filter(|_| length <= RESPONSE_BYTES)
    else {
        return Err(Failure::AnswerTooLarge { bytes: length });
    };
    let encode = move |answer: T| {
        let mut encoded = Vec::with_capacity(PREFIX_BYTES + length);
        encoded.push(0); // not compressed
        encoded.extend_from_slice(&length_in_prefix.to_be_bytes());
        answer
            .encode(&mut encoded)
            .expect("a vector has room for any message");
        (T::default(), Some(EncodedResponse(encoded.into())))
    };
    let is_long = true;
    answer.map_long(pool, tenant, is_long, encode).await
}

/// Sends the [`EncodedResponse`] of a response as its body. Responses without one are unchanged.
pub(crate) fn replace_body(mut response: Response<Body>) -> Response<Body> {
    let Some(EncodedResponse(encoded)) = response.extensions_mut().remove() else {
        return response;
    };
    let mut trailers = HeaderMap::new();
    Status::new(Code::Ok, "")
        .add_header(&mut trailers)
        .expect("a status without a message fits any header");
    let frames = [
        Ok::<_, Status>(Frame::data(encoded)),
        Ok(Frame::trailers(trailers)),
    ];
    response.map(|_| Body::new(StreamBody::new(stream::iter(frames))))
}
