//! Why the server did not start, or failed.

use std::net::SocketAddr;

use crate::{listen::TlsError, settings::AuthSettingsError};

/// Why the server did not start, or failed.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// An address cannot be bound.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
    /// An address would be served without protection.
    #[error("{0}; set server.insecure to serve all the same")]
    Unprotected(MissingProtection),
    /// The settings of authentication are invalid, or a file that they name is.
    #[error(transparent)]
    Auth(#[from] AuthSettingsError),
    /// The settings of TLS are invalid, or a file that they name is.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The HTTP or gRPC server failed.
    #[error("serving failed")]
    Serving(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Protection that a server lacks to serve other hosts than its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MissingProtection {
    /// Callers need no credential.
    #[error("{0} is not a loopback address, and callers need no credential there: see [auth]")]
    NoCredentials(SocketAddr),
    /// Requests and credentials can be read on the network.
    #[error("{0} is not a loopback address, and there is no TLS: see server.tls_certificate_file")]
    NoTls(SocketAddr),
    /// TLS is configured, but anybody may call.
    #[error("there is TLS, but callers need no credential: see [auth]")]
    TlsAlone,
}
