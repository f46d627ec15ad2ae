//! Connections to a server. Every call has the credential of a tenant.

use tonic::{
    Request, Status,
    metadata::AsciiMetadataValue,
    service::{Interceptor, interceptor::InterceptedService},
    transport::Endpoint,
};

/// A connection that adds a credential to every call.
pub(crate) type Channel = InterceptedService<tonic::transport::Channel, Credential>;

/// The `authorization` header of a tenant's calls.
#[derive(Clone)]
pub(crate) struct Credential(AsciiMetadataValue);

impl Credential {
    /// The credential of a caller that has this API key.
    pub(crate) fn of_key(key: &str) -> anyhow::Result<Self> {
        Ok(Self(format!("Bearer {key}").parse()?))
    }

    /// The header's value.
    pub(crate) fn authorization(&self) -> anyhow::Result<&str> {
        Ok(self.0.to_str()?)
    }
}

impl Interceptor for Credential {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request
            .metadata_mut()
            .insert("authorization", self.0.clone());
        Ok(request)
    }
}

/// Opens a new connection to the server at this address.
pub(crate) async fn connect(address: &str, credential: &Credential) -> anyhow::Result<Channel> {
    let channel = Endpoint::from_shared(format!("http://{address}"))?
        .tcp_nodelay(true)
        .connect()
        .await?;
    Ok(InterceptedService::new(channel, credential.clone()))
}
