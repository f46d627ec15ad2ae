//! The gRPC clients of the commands, and how failed calls are retried and reported.

use std::{fmt, time::Duration};

use anneal_core::limits::RESPONSE_BYTES;
use anneal_proto::v1 as pb;
use anyhow::Context as _;
use pb::{
    chat_service_client::ChatServiceClient, context_service_client::ContextServiceClient,
    conversation_service_client::ConversationServiceClient,
    erasure_service_client::ErasureServiceClient, message_service_client::MessageServiceClient,
    operator_service_client::OperatorServiceClient,
};
use tonic::{
    Code, Request, Response, Status,
    metadata::AsciiMetadataValue,
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};
use tonic_types::StatusExt as _;

use crate::{output, server_arguments::ServerArguments};

/// Most attempts of a call that can be retried: the server gives a retry delay, or the connection
/// was lost. Other clients make 4 attempts (`proto/service_config.json`).
const MAX_ATTEMPTS: u32 = 10;
/// Delay before the second attempt after a lost connection. It doubles with each attempt up to the
/// maximum. `proto/service_config.json` gives other clients the same delays.
const INITIAL_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(1);

/// A connection to a server.
#[derive(Clone)]
pub(crate) struct Client {
    channel: AuthenticatedChannel,
}

/// A channel that adds the credential to every call.
pub(crate) type AuthenticatedChannel = InterceptedService<Channel, Credential>;

/// The `authorization` header; None: no header.
#[derive(Clone)]
pub(crate) struct Credential(Option<AsciiMetadataValue>);

impl Credential {
    /// Reads the credential from the file that the arguments name, else from `ANNEAL_TOKEN`.
    fn read(arguments: &ServerArguments) -> anyhow::Result<Self> {
        let text = match &arguments.token_file {
            Some(file) => std::fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?,
            None => std::env::var("ANNEAL_TOKEN").unwrap_or_default(),
        };
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self(None));
        }
        let value = AsciiMetadataValue::try_from(format!("Bearer {text}"));
        let mut value = value
            .ok()
            .context("the credential has characters that a header must not contain")?;
        value.set_sensitive(true);
        Ok(Self(Some(value)))
    }
}

impl Interceptor for Credential {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request
                .metadata_mut()
                .insert("authorization", value.clone());
        }
        Ok(request)
    }
}

impl Client {
    pub(crate) async fn connect(arguments: &ServerArguments) -> anyhow::Result<Self> {
        let endpoint = Endpoint::from_shared(arguments.address.clone())
            .ok()
            .filter(|endpoint| matches!(endpoint.uri().scheme_str(), Some("http" | "https")))
            .with_context(|| {
                format!(
                    "{} is not an address such as http://127.0.0.1:50051",
                    arguments.address
                )
            })?;
        let endpoint = match endpoint.uri().scheme_str() {
            Some("https") => endpoint
                .tls_config(tls(arguments)?)
                .context("TLS cannot be set up")?,
            _ => endpoint,
        };
        let channel = endpoint.connect().await.with_context(|| {
            format!(
                "no server at {}; start one with `anneal dev`, or name it with --address",
                arguments.address
            )
        })?;
        let credential = Credential::read(arguments)?;
        if credential.0.is_some() && arguments.is_remote_and_unencrypted() {
            output::print_note(format_args!(
                "anneal: the credential goes to {} without TLS",
                arguments.address
            ));
        }
        Ok(Self {
            channel: InterceptedService::new(channel, credential),
        })
    }

    pub(crate) fn chats(&self) -> ChatServiceClient<AuthenticatedChannel> {
        ChatServiceClient::new(self.channel.clone()).max_decoding_message_size(RESPONSE_BYTES)
    }

    pub(crate) fn conversations(&self) -> ConversationServiceClient<AuthenticatedChannel> {
        ConversationServiceClient::new(self.channel.clone())
    }

    pub(crate) fn messages(&self) -> MessageServiceClient<AuthenticatedChannel> {
        MessageServiceClient::new(self.channel.clone()).max_decoding_message_size(RESPONSE_BYTES)
    }

    pub(crate) fn contexts(&self) -> ContextServiceClient<AuthenticatedChannel> {
        ContextServiceClient::new(self.channel.clone()).max_decoding_message_size(RESPONSE_BYTES)
    }

    pub(crate) fn erasures(&self) -> ErasureServiceClient<AuthenticatedChannel> {
        ErasureServiceClient::new(self.channel.clone())
    }

    pub(crate) fn operators(&self) -> OperatorServiceClient<AuthenticatedChannel> {
        OperatorServiceClient::new(self.channel.clone())
    }
}

/// The trusted certificate authorities: the ones in `ca_file`, or the system's.
fn tls(arguments: &ServerArguments) -> anyhow::Result<ClientTlsConfig> {
    let Some(file) = &arguments.ca_file else {
        return Ok(ClientTlsConfig::new().with_native_roots());
    };
    let authority =
        std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority)))
}

/// A call that failed: the server refused it, or the connection was lost.
#[derive(Debug)]
pub(crate) struct FailedCall(String);

impl fmt::Display for FailedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FailedCall {}

/// The error of a failed call, on one line: the message, with the server's reason (docs/errors.md)
/// or, if the error is not from the server, with the gRPC code.
pub(crate) fn failed_call(status: &Status) -> anyhow::Error {
    let text = match status.get_error_details().error_info() {
        Some(info) => format!("{} ({})", status.message(), info.reason),
        None => format!("{} ({:?})", status.message(), status.code()),
    };
    FailedCall(text).into()
}

/// Repeats the call until it succeeds or an error is permanent. Makes at most [`MAX_ATTEMPTS`]
/// attempts.
pub(crate) async fn retry<T>(
    call: impl AsyncFn() -> Result<Response<T>, Status>,
) -> Result<T, Status> {
    let mut attempts = 1;
    loop {
        match call().await {
            Ok(answer) => return Ok(answer.into_inner()),
            Err(status) => match retry_delay(&status, attempts) {
                Some(wait) if attempts < MAX_ATTEMPTS => tokio::time::sleep(wait).await,
                _ => return Err(status),
            },
        }
        attempts += 1;
    }
}

/// Gets a conversation. Retries as [`retry`] does.
pub(crate) async fn get_conversation(
    client: &Client,
    id: &str,
) -> anyhow::Result<pb::Conversation> {
    let ask = pb::GetConversationRequest {
        conversation_id: id.to_owned(),
    };
    let found = retry(async || client.conversations().get_conversation(ask.clone()).await).await;
    found.map_err(|status| failed_call(&status))
}

/// The delay before the next attempt. None: the call would fail again.
fn retry_delay(status: &Status, attempts: u32) -> Option<Duration> {
    let details = status.get_error_details();
    let requested = details.retry_info().and_then(|info| info.retry_delay);
    // Every error that the server reports has error info. Without it, these codes mean that the
    // connection was lost.
    let connection_was_lost = details.error_info().is_none()
        && matches!(
            status.code(),
            Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal
        );
    requested.or_else(|| {
        connection_was_lost
            .then(|| MAX_BACKOFF.min(INITIAL_BACKOFF * 2_u32.saturating_pow(attempts - 1)))
    })
}
