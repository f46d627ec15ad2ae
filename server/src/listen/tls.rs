//! TLS of both ports. Certificate and key are read again when their files change; a connection keeps what it began with.

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
    reload::{Reloaded, Unread},
    settings::ServerSettings,
};

/// What is spoken on a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/2, under gRPC.
    Http2,
    /// HTTP/1.1.
    Http1,
}

/// TLS settings that cannot work.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// One of certificate and key alone.
    #[error("server.tls_certificate_file and server.tls_key_file are set together or not at all")]
    Half,
    /// Clients' certificates are asked for where there is no TLS.
    #[error("server.tls_client_ca_file needs server.tls_certificate_file and server.tls_key_file")]
    NothingToCheck,
    /// A file cannot be read.
    #[error("cannot read {0}")]
    File(PathBuf, #[source] io::Error),
    /// A file does not hold what it should.
    #[error("the files of TLS cannot be used: {0}")]
    Content(String),
}

/// The keys in force. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Tls(Arc<Reloaded<Configs>>);

struct Configs {
    http2: Arc<ServerConfig>,
    http1: Arc<ServerConfig>,
}

impl Tls {
    /// As the settings say; None: no TLS.
    pub(crate) fn new(settings: &ServerSettings) -> Result<Option<Self>, TlsError> {
        let (certificate, key) = (&settings.tls_certificate_file, &settings.tls_key_file);
        match (certificate.is_empty(), key.is_empty()) {
            (true, true) if settings.tls_client_ca_file.is_empty() => return Ok(None),
            (true, true) => return Err(TlsError::NothingToCheck),
            (false, false) => {}
            _ => return Err(TlsError::Half),
        }
        let mut paths = vec![PathBuf::from(certificate), PathBuf::from(key)];
        if !settings.tls_client_ca_file.is_empty() {
            paths.push(PathBuf::from(&settings.tls_client_ca_file));
        }
        let read = Reloaded::read(paths, configs).map_err(|error| match error {
            Unread::File(path, error) => TlsError::File(path, error),
            Unread::Content(why) => TlsError::Content(why),
        })?;
        Ok(Some(Self(Arc::new(read))))
    }

    /// Keeps up with the files, until the future is dropped.
    pub(crate) async fn run(self) {
        self.0.follow().await;
    }

    /// Shakes hands with a client. It takes one of the places for that only while something is computed, never while the
    /// client is waited for.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
        protocol: Protocol,
        handshakes: &Arc<Semaphore>,
    ) -> io::Result<TlsStream<TcpStream>> {
        let greeted = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let configs = self.0.now();
        let config = match protocol {
            Protocol::Http2 => &configs.http2,
            Protocol::Http1 => &configs.http1,
        };
        let shaking = Box::pin(greeted.into_stream(Arc::clone(config)));
        Placed { work: shaking, places: PollSemaphore::new(Arc::clone(handshakes)) }.await
    }
}

/// Work that goes on only where there is a place for it, and holds none while it waits for something else.
struct Placed<F> {
    work: Pin<Box<F>>,
    places: PollSemaphore,
}

impl<T, F: Future<Output = io::Result<T>>> Future for Placed<F> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let place = ready!(self.places.poll_acquire(context));
        let worked = self.work.as_mut().poll(context);
        drop(place);
        worked
    }
}

/// From a certificate chain, its key, and where clients are checked the authority that signs theirs; all PEM.
fn configs(files: &[Vec<u8>]) -> Result<Configs, String> {
    let chain = certificates(&files[0], "certificate")?;
    let key = PrivateKeyDer::from_pem_slice(&files[1]).map_err(|error| format!("the key: {error}"))?;
    let authority = files.get(2).map(|pem| verifier(pem)).transpose()?;
    let config = |protocol: &[u8]| {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| error.to_string())?;
        let builder = match &authority {
            Some(authority) => builder.with_client_cert_verifier(Arc::clone(authority)),
            None => builder.with_no_client_auth(),
        };
        let built = builder.with_single_cert(chain.clone(), key.clone_key());
        let mut config = built.map_err(|error| format!("certificate and key: {error}"))?;
        config.alpn_protocols = vec![protocol.to_vec()];
        if authority.is_some() {
            // A session that is taken up again brings its client's certificate along, and nobody looks at it again.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok::<_, String>(Arc::new(config))
    };
    Ok(Configs { http2: config(b"h2")?, http1: config(b"http/1.1")? })
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| format!("the {what}: {error}"))?;
    if all.is_empty() { Err(format!("the {what}'s file holds none")) } else { Ok(all) }
}

/// A client that shows a certificate must show one of this authority; one that shows none may have another credential.
fn verifier(pem: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem, "clients' authority")? {
        roots.add(certificate).map_err(|error| format!("the clients' authority: {error}"))?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| format!("the clients' authority: {error}"))
}
