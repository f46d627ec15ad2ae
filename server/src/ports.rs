//! What a server needs before it answers: its ports, and what protects them.

use std::net::SocketAddr;

use anneal_process::http;
use anneal_store::Store;
use tokio::net::TcpListener;
use tracing::warn;

use crate::{
    auth::{Auth, AuthSettings},
    listen::{Port, Protocol, Seats, Tls},
    run::{Addresses, ServerError},
    settings::ServerSettings,
    traffic::LimitSettings,
};

/// What a server lacks to be reached by others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unprotected {
    /// Callers need no credential.
    #[error("{0} is not a loopback address, and callers need no credential there: see [auth]")]
    NoCredentials(SocketAddr),
    /// What is said, credentials included, can be read on its way.
    #[error("{0} is not a loopback address, and there is no TLS: see server.tls_certificate_file")]
    NoTls(SocketAddr),
    /// TLS guards what anybody may ask for.
    #[error("there is TLS, but callers need no credential: see [auth]")]
    TlsAlone,
}

/// The ports, open.
pub(crate) struct Ports {
    pub(crate) grpc: Port,
    pub(crate) web: Port,
    /// Where probes have a port of their own.
    pub(crate) probes: Option<TcpListener>,
    pub(crate) auth: Auth,
    pub(crate) tls: Option<Tls>,
    pub(crate) addresses: Addresses,
}

impl Ports {
    /// Opens them, if they are protected as far as it takes.
    pub(crate) fn open(
        settings: &ServerSettings,
        auth: &AuthSettings,
        limits: &LimitSettings,
        store: &Store,
    ) -> Result<Self, ServerError> {
        auth.check(!settings.tls_client_ca_file.is_empty())?;
        let (auth, tls) = (Auth::new(auth, store)?, Tls::new(settings)?);
        check_protection(settings, tls.is_some(), &auth)?;
        // Where callers need no credential they are all one tenant.
        let share_percent = if auth.is_open() { 100 } else { limits.tenant_share_percent };
        let seats = Seats::new(settings.connections, share_percent);
        let port = |protocol: Protocol, listener| Port { listener, tls: tls.clone(), protocol, seats: seats.clone() };
        let grpc = port(Protocol::Http2, bind(settings.grpc_address)?);
        let web = port(Protocol::Http1, bind(settings.http_address)?);
        let probes = settings.probe_address.map(bind).transpose()?;
        let address = |port: &Port| port.address().map_err(|error| ServerError::Serving(error.into()));
        let addresses = Addresses { grpc: address(&grpc)?, http: address(&web)? };
        Ok(Self { grpc, web, probes, auth, tls, addresses })
    }
}

fn bind(address: SocketAddr) -> Result<TcpListener, ServerError> {
    http::bind(address).map_err(|error| ServerError::Listen(address, error))
}

/// Refuses what only loopback is safe for, unless the operator wishes it.
fn check_protection(settings: &ServerSettings, has_tls: bool, auth: &Auth) -> Result<(), ServerError> {
    let mut lacks = Vec::new();
    for address in [settings.grpc_address, settings.http_address].into_iter().filter(|at| !at.ip().is_loopback()) {
        lacks.extend(auth.is_open().then_some(Unprotected::NoCredentials(address)));
        lacks.extend((!has_tls).then_some(Unprotected::NoTls(address)));
    }
    if has_tls && auth.is_open() {
        lacks.push(Unprotected::TlsAlone);
    }
    for lack in lacks {
        if !settings.insecure {
            return Err(ServerError::Unprotected(lack));
        }
        warn!("serving without protection, because server.insecure is set: {lack}");
    }
    Ok(())
}
