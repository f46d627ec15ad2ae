//! The errors with which the server fails to start, or ends.

use std::net::SocketAddr;

use crate::{listen::TlsError, settings::AuthSettingsError};

/// Why the server did not start, or failed.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// An address cannot be bound.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
    /// An address would be served without protection.
    #[error("{0}; set server.insecure to serve nevertheless")]
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

/// Missing protection, because of which the server does not start unless `server.insecure` is set.
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
