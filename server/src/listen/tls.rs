//! TLS for both listeners. The certificate, its key and the CA of client certificates are reloaded
//! when their files change. A connection keeps the certificate that it began with.

use std::{
    future::Future,
    io,
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{Acceptor, NoServerSessionStorage, WebPkiClientVerifier, danger::ClientCertVerifier},
};
use tokio::{net::TcpStream, sync::Semaphore};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};
use tokio_util::sync::PollSemaphore;

use crate::{
    reloaded_files::{ReloadError, ReloadedFiles},
    settings::ServerSettings,
};

/// The protocol of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/2, for gRPC.
    Http2,
    /// HTTP/1.1, for the JSON API.
    Http1,
}

/// TLS settings that do not work.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Only one of certificate and key is set.
    #[error("server.tls_certificate_file and server.tls_key_file are set together or not at all")]
    Incomplete,
    /// Client certificates are to be checked, but there is no TLS.
    #[error("server.tls_client_ca_file needs server.tls_certificate_file and server.tls_key_file")]
    ClientCaWithoutTls,
    /// A file cannot be read.
    #[error("cannot read {0}")]
    File(PathBuf, #[source] io::Error),
    /// The content of a file cannot be used.
    #[error("the files of TLS cannot be used: {0}")]
    Content(String),
}

/// The certificates in force. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Tls(Arc<ReloadedFiles<Configs>>);

/// The TLS configurations of the two protocols.
struct Configs {
    http2: Arc<ServerConfig>,
    http1: Arc<ServerConfig>,
}

impl Tls {
    /// Loads the files that the settings name. None: TLS is not configured.
    pub(crate) fn new(settings: &ServerSettings) -> Result<Option<Self>, TlsError> {
        let (certificate, key) = (&settings.tls_certificate_file, &settings.tls_key_file);
        match (certificate.is_empty(), key.is_empty()) {
            (true, true) if settings.tls_client_ca_file.is_empty() => return Ok(None),
            (true, true) => return Err(TlsError::ClientCaWithoutTls),
            (false, false) => {}
            _ => return Err(TlsError::Incomplete),
        }
        let mut paths = vec![PathBuf::from(certificate), PathBuf::from(key)];
        if !settings.tls_client_ca_file.is_empty() {
            paths.push(PathBuf::from(&settings.tls_client_ca_file));
        }
        let files = ReloadedFiles::read(paths, parse_configs).map_err(|error| match error {
            ReloadError::File(path, error) => TlsError::File(path, error),
            ReloadError::Content(why) => TlsError::Content(why),
        })?;
        Ok(Some(Self(Arc::new(files))))
    }

    /// Reloads the files when they change, until the future is dropped.
    pub(crate) async fn reload_on_change(self) {
        self.0.keep_reloading().await;
    }

    /// Accepts a TLS connection. A permit is held only while the handshake computes, never while it
    /// waits for the client, so that slow clients do not block others.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
        protocol: Protocol,
        permits: &Arc<Semaphore>,
    ) -> io::Result<TlsStream<TcpStream>> {
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let configs = self.0.current();
        let config = match protocol {
            Protocol::Http2 => &configs.http2,
            Protocol::Http1 => &configs.http1,
        };
        let handshake = Box::pin(hello.into_stream(Arc::clone(config)));
        PermitPerPoll {
            work: handshake,
            permits: PollSemaphore::new(Arc::clone(permits)),
        }
        .await
    }
}

/// A future that takes a permit for each poll and holds none in between.
struct PermitPerPoll<F> {
    work: Pin<Box<F>>,
    permits: PollSemaphore,
}

impl<T, F: Future<Output = io::Result<T>>> Future for PermitPerPoll<F> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let permit = ready!(self.permits.poll_acquire(context));
        let polled = self.work.as_mut().poll(context);
        drop(permit);
        polled
    }
}

/// Parses the PEM files: the certificate chain, its key, and, if client certificates are checked,
/// the certificate of the authority that signs them.
fn parse_configs(files: &[Vec<u8>]) -> Result<Configs, String> {
    let chain = parse_certificates(&files[0], "certificate")?;
    let key =
        PrivateKeyDer::from_pem_slice(&files[1]).map_err(|error| format!("the key: {error}"))?;
    let client_verifier = files
        .get(2)
        .map(|pem| client_certificate_verifier(pem))
        .transpose()?;
    let config = |protocol: &[u8]| {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| error.to_string())?;
        let builder = match &client_verifier {
            Some(client_verifier) => builder.with_client_cert_verifier(Arc::clone(client_verifier)),
            None => builder.with_no_client_auth(),
        };
        let built = builder.with_single_cert(chain.clone(), key.clone_key());
        let mut config = built.map_err(|error| format!("certificate and key: {error}"))?;
        config.alpn_protocols = vec![protocol.to_vec()];
        if client_verifier.is_some() {
            // A resumed session would bring its client certificate along without a check, so
            // sessions are not resumed.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok::<_, String>(Arc::new(config))
    };
    Ok(Configs {
        http2: config(b"h2")?,
        http1: config(b"http/1.1")?,
    })
}

fn parse_certificates(pem: &[u8], name: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| format!("the {name}: {error}"))?;
    if all.is_empty() {
        Err(format!("the {name}: its file holds no certificate"))
    } else {
        Ok(all)
    }
}

/// The verifier of client certificates: they must be signed by this authority. A client without a
/// certificate may present another credential.
fn client_certificate_verifier(pem: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in parse_certificates(pem, "clients' authority")? {
        roots
            .add(certificate)
            .map_err(|error| format!("the clients' authority: {error}"))?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| format!("the clients' authority: {error}"))
}
