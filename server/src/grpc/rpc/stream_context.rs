//! StreamContext.

use anneal_core::{caller::Caller, limits::CONTEXT_PIECE_BYTES};
use anneal_proto::v1 as pb;
use axum::body::Bytes;
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use prost::Message as _;
use tonic::Status;

use crate::{
    failure::Failure,
    grpc::rpc::build_context::build_context,
    limits::{content_budget::WithReservation, cpu_pool},
    state::ServerState,
};

/// An encoded context in pieces.
pub(crate) type Pieces = BoxStream<'static, Result<pb::StreamContextResponse, Status>>;

/// Like BuildContext, but in pieces that fit every client's message limit.
pub(crate) async fn stream_context(
    state: &ServerState,
    caller: Caller,
    ask: pb::BuildContextRequest,
) -> Result<WithReservation<Pieces>, Failure> {
    let context = build_context(state, caller, ask).await?;
    let is_long = cpu_pool::is_long(context.answer.encoded_len(), context.answer.manifest.len());
    let encode = |context: pb::BuildContextResponse| Bytes::from(context.encode_to_vec());
    Ok(context
        .map_long(&state.cpu, caller.tenant(), is_long, encode)
        .await?
        .map(pieces))
}

/// The pieces of a context. Each piece is copied only when it is sent: to copy all of them at once
/// would double the memory.
fn pieces(context: Bytes) -> Pieces {
    let next = |mut rest: Bytes| async move {
        let piece = rest.split_to(rest.len().min(CONTEXT_PIECE_BYTES)).to_vec();
        (!piece.is_empty()).then_some((Ok(pb::StreamContextResponse { piece }), rest))
    };
    stream::unfold(context, next).boxed()
}
