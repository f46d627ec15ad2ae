//! Callers with credentials of their own, and calls of any RPC as bytes.

use anneal_core::caller::{TenantId, Verb};
use anneal_proto::DESCRIPTORS;
use anneal_server::NewSecret;
use anneal_store::{NewKey, Owner, StoreSettings};
use prost::Message as _;
use prost_types::{DescriptorProto, FileDescriptorSet, field_descriptor_proto::Type};
use tonic::{
    Request, Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    metadata::AsciiMetadataValue,
    service::{Interceptor, interceptor::InterceptedService},
    transport::Channel,
};

use crate::{House, fields::find};

/// A channel whose calls show a credential.
pub type Guest = InterceptedService<Channel, Shown>;

/// Shows a credential, or none.
#[derive(Clone)]
pub struct Shown(Option<AsciiMetadataValue>);

impl Interceptor for Shown {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

impl House {
    /// A channel whose calls show this `authorization`; an empty one: none.
    pub fn showing(&self, authorization: &str) -> Guest {
        self.showing_on(self.channel(), authorization)
    }

    /// The same over a channel of the test's own.
    pub fn showing_on(&self, channel: Channel, authorization: &str) -> Guest {
        guest_on(channel, authorization)
    }

    /// A tenant of this name, which is made if it is not there.
    pub async fn tenant(&self, name: &str) -> TenantId {
        let mut owner = Owner::connect(&StoreSettings::at(&self.url)).await.expect("connects");
        owner.create_tenant(name).await.expect("makes a tenant");
        self.store.find_tenant(name).await.expect("asks").expect("is there")
    }

    /// A new API key of a tenant.
    pub async fn key(&self, tenant: &str, verbs: &[Verb]) -> NewSecret {
        make_key(&self.url, tenant, verbs).await
    }
}

/// A new API key of a tenant, in the database of this URL; the tenant is made if it is not there.
pub async fn make_key(url: &str, tenant: &str, verbs: &[Verb]) -> NewSecret {
    let mut owner = Owner::connect(&StoreSettings::at(url)).await.expect("connects");
    owner.create_tenant(tenant).await.expect("makes a tenant");
    let secret = NewSecret::make().expect("random bytes");
    let verbs = verbs.iter().copied().collect();
    let key = NewKey { id: secret.id, tenant, name: "a test", secret_digest: &secret.digest, verbs, days: None };
    assert!(owner.create_key(&key).await.expect("stores the key"));
    secret
}

/// A channel whose calls show this `authorization`; an empty one: none.
pub fn guest_on(channel: Channel, authorization: &str) -> Guest {
    let value = (!authorization.is_empty()).then(|| authorization.parse().expect("may stand in a header"));
    InterceptedService::new(channel, Shown(value))
}

/// An RPC, as the descriptors say it.
#[derive(Debug, Clone)]
pub struct Rpc {
    /// Its name.
    pub name: String,
    /// `/anneal.v1.Service/Name`.
    pub path: String,
    /// Whether its request, or something in it, names a conversation.
    pub names_conversation: bool,
}

/// Every RPC that there is.
pub fn every_rpc() -> Vec<Rpc> {
    let set = FileDescriptorSet::decode(DESCRIPTORS).expect("descriptors");
    let ours = || set.file.iter().filter(|file| file.package() == "anneal.v1");
    let messages: Vec<&DescriptorProto> = ours().flat_map(|file| &file.message_type).collect();
    let services = ours().flat_map(|file| &file.service);
    let rpcs = services.flat_map(|service| service.method.iter().map(move |method| (service, method)));
    let rpcs = rpcs.map(|(service, method)| Rpc {
        name: method.name().to_owned(),
        path: format!("/anneal.v1.{}/{}", service.name(), method.name()),
        names_conversation: names_conversation(&messages, method.input_type(), 0),
    });
    rpcs.collect()
}

fn names_conversation(messages: &[&DescriptorProto], name: &str, depth: usize) -> bool {
    let path = name.trim_start_matches(".anneal.v1.");
    let Some(message) = find(messages, path) else { return false };
    depth < 4
        && message.field.iter().any(|field| {
            field.name() == "conversation_id"
                || field.r#type() == Type::Message && names_conversation(messages, field.type_name(), depth + 1)
        })
}

/// Calls any RPC with a request as bytes; the first message of its answer as bytes (none: the answer is empty).
pub async fn call_raw(line: Guest, path: &str, request: Vec<u8>) -> Result<Option<Vec<u8>>, Status> {
    call_frames(line, path, vec![request]).await
}

/// The same with as many messages as the caller likes.
pub async fn call_frames(line: Guest, path: &str, request: Vec<Vec<u8>>) -> Result<Option<Vec<u8>>, Status> {
    let mut grpc = tonic::client::Grpc::new(line).max_decoding_message_size(usize::MAX);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = path.parse().expect("a path");
    // To the wire every call is a stream of messages on both sides.
    let asked = Request::new(futures::stream::iter(request));
    grpc.streaming(asked, path, Bytes).await?.into_inner().message().await
}

/// The same, read to its end: a turn whose reader goes away would still be under way.
pub async fn call_to_the_end(line: Guest, path: &str, request: Vec<Vec<u8>>) -> Result<(), Status> {
    let mut grpc = tonic::client::Grpc::new(line).max_decoding_message_size(usize::MAX);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let asked = Request::new(futures::stream::iter(request));
    let mut answer = grpc.streaming(asked, path.parse().expect("a path"), Bytes).await?.into_inner();
    while answer.message().await?.is_some() {}
    Ok(())
}

/// Messages that are not looked into.
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
