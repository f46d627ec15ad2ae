//! Every RPC in the descriptors, and calls of any RPC with requests and answers as bytes.

use anneal_proto::DESCRIPTORS;
use prost::Message as _;
use prost_types::{DescriptorProto, FileDescriptorSet, field_descriptor_proto::Type};
use tonic::{
    Request, Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

use crate::{AuthorizedChannel, request_fields::find_message};

/// An RPC, as the descriptors define it.
#[derive(Debug, Clone)]
pub struct Rpc {
    /// The RPC's name, without the service.
    pub name: String,
    /// The RPC's path: `/anneal.v1.Service/Name`.
    pub path: String,
    /// Whether the request has a field `conversation_id`, up to four levels deep.
    pub names_conversation: bool,
}

/// All RPCs of `anneal.v1`.
pub fn every_rpc() -> Vec<Rpc> {
    let set = FileDescriptorSet::decode(DESCRIPTORS).expect("descriptors");
    let ours = || set.file.iter().filter(|file| file.package() == "anneal.v1");
    let messages: Vec<&DescriptorProto> = ours().flat_map(|file| &file.message_type).collect();
    let services = ours().flat_map(|file| &file.service);
    let rpcs =
        services.flat_map(|service| service.method.iter().map(move |method| (service, method)));
    let rpcs = rpcs.map(|(service, method)| Rpc {
        name: method.name().to_owned(),
        path: format!("/anneal.v1.{}/{}", service.name(), method.name()),
        names_conversation: names_conversation(&messages, method.input_type(), 0),
    });
    rpcs.collect()
}

fn names_conversation(messages: &[&DescriptorProto], name: &str, depth: usize) -> bool {
    let path = name.trim_start_matches(".anneal.v1.");
    let Some(message) = find_message(messages, path) else {
        return false;
    };
    depth < 4
        && message.field.iter().any(|field| {
            field.name() == "conversation_id"
                || field.r#type() == Type::Message
                    && names_conversation(messages, field.type_name(), depth + 1)
        })
}

/// Calls an RPC with a request as bytes. Returns the first message of the answer as bytes; None if
/// the answer has no message.
pub async fn call_raw(
    channel: AuthorizedChannel,
    path: &str,
    request: Vec<u8>,
) -> Result<Option<Vec<u8>>, Status> {
    call_frames(channel, path, vec![request]).await
}

/// Calls an RPC with any number of request messages as bytes. Returns the first message of the
/// answer; None if the answer has no message.
pub async fn call_frames(
    channel: AuthorizedChannel,
    path: &str,
    request: Vec<Vec<u8>>,
) -> Result<Option<Vec<u8>>, Status> {
    let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(usize::MAX);
    grpc.ready()
        .await
        .map_err(|error| Status::unavailable(error.to_string()))?;
    let path = path.parse().expect("a path");
    // On the wire every call is a stream of messages in both directions.
    let asked = Request::new(futures::stream::iter(request));
    grpc.streaming(asked, path, Bytes)
        .await?
        .into_inner()
        .message()
        .await
}

/// Calls an RPC with request messages as bytes, and reads the answer to its end.
pub async fn call_to_the_end(
    channel: AuthorizedChannel,
    path: &str,
    request: Vec<Vec<u8>>,
) -> Result<(), Status> {
    let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(usize::MAX);
    grpc.ready()
        .await
        .map_err(|error| Status::unavailable(error.to_string()))?;
    let asked = Request::new(futures::stream::iter(request));
    let mut answer = grpc
        .streaming(asked, path.parse().expect("a path"), Bytes)
        .await?
        .into_inner();
    while answer.message().await?.is_some() {}
    Ok(())
}

/// A codec that passes messages through as bytes.
struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        prost::bytes::BufMut::put_slice(buffer, &item);
        Ok(())
    }
}

impl Decoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut item = vec![0; prost::bytes::Buf::remaining(buffer)];
        prost::bytes::Buf::copy_to_slice(buffer, &mut item);
        Ok(Some(item))
    }
}
