//! StreamContext.

use anneal_core::{caller::Caller, limits::CONTEXT_PIECE_BYTES};
use anneal_proto::v1 as pb;
use futures::stream;
use prost::Message as _;
use tonic::Status;

use crate::{cpu, house::House, rpc::build_context::build_context, status::Failure};

/// A context in pieces.
pub(crate) type Pieces = stream::Iter<std::vec::IntoIter<Result<pb::StreamContextResponse, Status>>>;

/// The same as BuildContext, in pieces that fit any client's message limit.
pub(crate) async fn stream_context(
    house: &House,
    caller: Caller,
    ask: pb::BuildContextRequest,
) -> Result<Pieces, Failure> {
    let context = build_context(house, caller, ask).await?;
    let is_long = cpu::is_long(context.total_tokens as usize, context.manifest.len());
    house.cpu.run_if(is_long, caller.tenant(), move || pieces(&context)).await
}

fn pieces(context: &pb::BuildContextResponse) -> Pieces {
    let context = context.encode_to_vec();
    let pieces =
        context.chunks(CONTEXT_PIECE_BYTES).map(|piece| Ok(pb::StreamContextResponse { piece: piece.to_vec() }));
    stream::iter(pieces.collect::<Vec<_>>())
}
