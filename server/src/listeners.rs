//! Binds the server's addresses and sets up authentication and TLS. Unless `server.insecure` is
//! set, refuses to serve other hosts without credentials or without TLS, and to serve anybody with
//! TLS but without credentials.

use std::net::SocketAddr;

use anneal_process::http;
use anneal_store::Store;
use tokio::net::TcpListener;
use tracing::warn;

use crate::{
    auth::Authenticator,
    listen::{ConnectionLimit, Listener, Protocol, Tls},
    server_error::{MissingProtection, ServerError},
    settings::{AuthSettings, LimitSettings, ServerSettings, WebSettings},
};

/// The bound addresses, with the actual ports where the settings say 0.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// The address of gRPC.
    pub grpc: SocketAddr,
    /// The address of HTTP.
    pub http: SocketAddr,
}

/// The bound listeners, and what protects them.
pub(crate) struct Listeners {
    pub(crate) grpc: Listener,
    /// The listener of HTTP.
    pub(crate) web: Listener,
    /// The listener of `/healthz`, `/readyz` and `/metrics`. None: `web` serves them.
    pub(crate) probes: Option<TcpListener>,
    pub(crate) auth: Authenticator,
    pub(crate) tls: Option<Tls>,
    pub(crate) addresses: Addresses,
}

/// How callers are authenticated, and the certificates of TLS.
pub(crate) struct Protection {
    auth: Authenticator,
    /// None: connections are not encrypted.
    tls: Option<Tls>,
}

impl Protection {
    /// Checks the settings, and reads the files that they name. Refuses addresses that lack the
    /// protection that they need.
    pub(crate) fn read(
        settings: &ServerSettings,
        (auth, web): (&AuthSettings, &WebSettings),
        store: &Store,
    ) -> Result<Self, ServerError> {
        auth.check(!settings.tls_client_ca_file.is_empty())?;
        let (auth, tls) = (Authenticator::new(auth, web, store)?, Tls::new(settings)?);
        check_protection(settings, tls.is_some(), &auth)?;
        Ok(Self { auth, tls })
    }
}

impl Listeners {
    /// Binds all addresses. Refuses those that lack the protection that they need.
    pub(crate) fn open(
        settings: &ServerSettings,
        (auth, web): (&AuthSettings, &WebSettings),
        limits: &LimitSettings,
        store: &Store,
    ) -> Result<Self, ServerError> {
        let Protection { auth, tls } = Protection::read(settings, (auth, web), store)?;
        // Without credentials all callers are one tenant, which may use all connections.
        let share_percent = if auth.accepts_anyone() {
            100
        } else {
            limits.tenant_share_percent
        };
        let connection_limit = ConnectionLimit::new(settings.connections, share_percent);
        let listener = |protocol: Protocol, socket| Listener {
            socket,
            tls: tls.clone(),
            protocol,
            connection_limit: connection_limit.clone(),
        };
        let grpc = listener(Protocol::Http2, bind(settings.grpc_address)?);
        let web = listener(Protocol::Http1, bind(settings.http_address)?);
        let probes = settings.probe_address.map(bind).transpose()?;
        let address = |listener: &Listener| {
            listener
                .address()
                .map_err(|error| ServerError::Serving(error.into()))
        };
        let addresses = Addresses {
            grpc: address(&grpc)?,
            http: address(&web)?,
        };
        Ok(Self {
            grpc,
            web,
            probes,
            auth,
            tls,
            addresses,
        })
    }
}

fn bind(address: SocketAddr) -> Result<TcpListener, ServerError> {
    http::bind(address).map_err(|error| ServerError::Listen(address, error))
}

/// Refuses an address that is not loopback if credentials or TLS are missing, and TLS without
/// credentials on any address. With `server.insecure` it only logs a warning. The address of the
/// probes is not checked: they need neither.
fn check_protection(
    settings: &ServerSettings,
    has_tls: bool,
    auth: &Authenticator,
) -> Result<(), ServerError> {
    let mut missing = Vec::new();
    for address in [settings.grpc_address, settings.http_address]
        .into_iter()
        .filter(|address| !address.ip().is_loopback())
    {
        missing.extend(
            auth.accepts_anyone()
                .then_some(MissingProtection::NoCredentials(address)),
        );
        missing.extend((!has_tls).then_some(MissingProtection::NoTls(address)));
    }
    if has_tls && auth.accepts_anyone() {
        missing.push(MissingProtection::TlsAlone);
    }
    for protection in missing {
        if !settings.insecure {
            return Err(ServerError::Unprotected(protection));
        }
        warn!("serving without protection, because server.insecure is set: {protection}");
    }
    Ok(())
}
