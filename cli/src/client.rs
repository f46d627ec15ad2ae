//! gRPC clients of the commands that talk to a server.

use std::{fmt, time::Duration};

use anneal_core::limits::RESPONSE_BYTES;
use anneal_proto::v1::{
    chat_service_client::ChatServiceClient, context_service_client::ContextServiceClient,
    conversation_service_client::ConversationServiceClient, message_service_client::MessageServiceClient,
    operator_service_client::OperatorServiceClient,
};
use anyhow::Context as _;
use tonic::{
    Code, Request, Response, Status,
    metadata::AsciiMetadataValue,
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};
use tonic_types::StatusExt as _;

use crate::{command::ServerArguments, output};

/// Tries of a call that may succeed later: because the server says so, or because the connection was lost.
const TRIES: u32 = 10;
/// After a lost connection, before the second try; twice as long before each one after it, up to the longest
/// (`proto/service_config.json` says the same to others).
const BACKOFF: Duration = Duration::from_millis(100);
const BACKOFF_MOST: Duration = Duration::from_secs(1);

/// A connection to a server.
#[derive(Clone)]
pub(crate) struct Client {
    line: Line,
}

/// A channel on which every call shows its credential.
pub(crate) type Line = InterceptedService<Channel, Credential>;

/// What every call shows; None: nothing.
#[derive(Clone)]
pub(crate) struct Credential(Option<AsciiMetadataValue>);

impl Credential {
    fn read(arguments: &ServerArguments) -> anyhow::Result<Self> {
        let text = match &arguments.token_file {
            Some(file) => std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?,
            None => std::env::var("ANNEAL_TOKEN").unwrap_or_default(),
        };
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self(None));
        }
        let value = AsciiMetadataValue::try_from(format!("Bearer {text}"));
        let mut value = value.ok().context("the credential holds what no header may hold")?;
        value.set_sensitive(true);
        Ok(Self(Some(value)))
    }
}

impl Interceptor for Credential {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

impl Client {
    pub(crate) async fn connect(arguments: &ServerArguments) -> anyhow::Result<Self> {
        let endpoint = Endpoint::from_shared(arguments.address.clone())
            .with_context(|| format!("{} is not an address such as http://127.0.0.1:50051", arguments.address))?;
        let endpoint = match endpoint.uri().scheme_str() {
            Some("https") => endpoint.tls_config(tls(arguments)?).context("TLS cannot be set up")?,
            _ => endpoint,
        };
        let channel = endpoint.connect().await.with_context(|| {
            format!("no server at {}; start one with `anneal dev`, or name it with --address", arguments.address)
        })?;
        let credential = Credential::read(arguments)?;
        if credential.0.is_some() && arguments.goes_in_the_clear() {
            output::note(format_args!("anneal: the credential goes to {} without TLS", arguments.address));
        }
        Ok(Self { line: InterceptedService::new(channel, credential) })
    }

    pub(crate) fn chats(&self) -> ChatServiceClient<Line> {
        ChatServiceClient::new(self.line.clone()).max_decoding_message_size(RESPONSE_BYTES)
    }

    pub(crate) fn conversations(&self) -> ConversationServiceClient<Line> {
        ConversationServiceClient::new(self.line.clone())
    }

    pub(crate) fn messages(&self) -> MessageServiceClient<Line> {
        MessageServiceClient::new(self.line.clone()).max_decoding_message_size(RESPONSE_BYTES)
    }

    pub(crate) fn contexts(&self) -> ContextServiceClient<Line> {
        ContextServiceClient::new(self.line.clone()).max_decoding_message_size(RESPONSE_BYTES)
    }

    pub(crate) fn operators(&self) -> OperatorServiceClient<Line> {
        OperatorServiceClient::new(self.line.clone())
    }
}

/// Whom to believe that the server is who it says.
fn tls(arguments: &ServerArguments) -> anyhow::Result<ClientTlsConfig> {
    let Some(file) = &arguments.ca_file else { return Ok(ClientTlsConfig::new().with_native_roots()) };
    let authority = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority)))
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
            Err(status) => match wait(&status, tries) {
                Some(wait) if tries < TRIES => tokio::time::sleep(wait).await,
                _ => return Err(status),
            },
        }
        tries += 1;
    }
}

/// How long until the next try after so many; None: another one is of no use.
fn wait(status: &Status, tries: u32) -> Option<Duration> {
    let details = status.get_error_details();
    let told = details.retry_info().and_then(|info| info.retry_delay);
    // A server gives a reason with every refusal. Where there is none, the answer was lost.
    let was_lost = details.error_info().is_none()
        && matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal);
    told.or_else(|| was_lost.then(|| BACKOFF_MOST.min(BACKOFF * 2_u32.saturating_pow(tries - 1))))
}
