//! gRPC clients of the commands that talk to a server.

use anneal_core::limits::RESPONSE_BYTES;
use anneal_proto::v1::{
    context_service_client::ContextServiceClient, conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient, operator_service_client::OperatorServiceClient,
};
use anyhow::Context as _;
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt as _;

use crate::command::ServerArguments;

/// A connection to a server.
#[derive(Clone)]
pub(crate) struct Client {
    channel: Channel,
}

impl Client {
    pub(crate) async fn connect(arguments: &ServerArguments) -> anyhow::Result<Self> {
        let endpoint = Endpoint::from_shared(arguments.address.clone())
            .with_context(|| format!("{} is not an address such as http://127.0.0.1:50051", arguments.address))?;
        let channel = endpoint.connect().await.with_context(|| {
            format!("no server at {}; start one with `anneal dev`, or name it with --address", arguments.address)
        })?;
        Ok(Self { channel })
    }

    pub(crate) fn conversations(&self) -> ConversationServiceClient<Channel> {
        ConversationServiceClient::new(self.channel.clone())
    }

    pub(crate) fn messages(&self) -> MessageServiceClient<Channel> {
        MessageServiceClient::new(self.channel.clone()).max_decoding_message_size(RESPONSE_BYTES)
    }

    pub(crate) fn contexts(&self) -> ContextServiceClient<Channel> {
        ContextServiceClient::new(self.channel.clone()).max_decoding_message_size(RESPONSE_BYTES)
    }

    pub(crate) fn operators(&self) -> OperatorServiceClient<Channel> {
        OperatorServiceClient::new(self.channel.clone())
    }
}

/// A server's refusal, in a line: what it says, and its reason (docs/errors.md).
pub(crate) fn refusal(status: &Status) -> anyhow::Error {
    match status.get_error_details().error_info() {
        Some(info) => anyhow::anyhow!("{} ({})", status.message(), info.reason),
        None => anyhow::anyhow!("{} ({:?})", status.message(), status.code()),
    }
}
