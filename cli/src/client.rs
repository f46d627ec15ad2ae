//! gRPC clients of the commands that talk to a server.

use std::fmt;

use anneal_core::limits::RESPONSE_BYTES;
use anneal_proto::v1::{
    chat_service_client::ChatServiceClient, context_service_client::ContextServiceClient,
    conversation_service_client::ConversationServiceClient, message_service_client::MessageServiceClient,
    operator_service_client::OperatorServiceClient,
};
use anyhow::Context as _;
use tonic::{
    Response, Status,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt as _;

use crate::command::ServerArguments;

/// Calls that are tried again because the server says that they may succeed later.
const TRIES: u32 = 10;

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

    pub(crate) fn chats(&self) -> ChatServiceClient<Channel> {
        ChatServiceClient::new(self.channel.clone()).max_decoding_message_size(RESPONSE_BYTES)
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

/// What a server has refused, or could not do.
#[derive(Debug)]
pub(crate) struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

/// A server's refusal, in a line: what it says, and its reason (docs/errors.md).
pub(crate) fn refusal(status: &Status) -> anyhow::Error {
    let said = match status.get_error_details().error_info() {
        Some(info) => format!("{} ({})", status.message(), info.reason),
        None => format!("{} ({:?})", status.message(), status.code()),
    };
    Refusal(said).into()
}

/// Calls until the server has answered, or refuses for good.
pub(crate) async fn patiently<T>(call: impl AsyncFn() -> Result<Response<T>, Status>) -> Result<T, Status> {
    let mut tries = 1;
    loop {
        match call().await {
            Ok(answer) => return Ok(answer.into_inner()),
            Err(status) => match status.get_error_details().retry_info().and_then(|info| info.retry_delay) {
                Some(wait) if tries < TRIES => tokio::time::sleep(wait).await,
                _ => return Err(status),
            },
        }
        tries += 1;
    }
}
