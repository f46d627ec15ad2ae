//! Client certificates: reads their names and their expiry. The TLS handshake has already checked
//! who signed them.

use std::{sync::Arc, time::Duration};

use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::EndEntityCert;
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

use crate::settings::is_uri;

/// The names and the expiry of a client certificate. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    names: Arc<[String]>,
    /// The end of validity, as time since 1970.
    not_after: Duration,
}

impl ClientCertificate {
    /// Reads the subject alternative names (DNS names and URIs) and the expiry of the first
    /// certificate of a chain. None: the chain is empty, or the certificate cannot be parsed.
    pub(crate) fn parse(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let first = chain.first()?;
        let certificate = EndEntityCert::try_from(first).ok()?;
        // A URI entry may hold any text. It must not pass for a DNS name.
        let uris = certificate.valid_uri_names().filter(|name| is_uri(name));
        let names = uris.chain(certificate.valid_dns_names().filter(|name| !is_uri(name)));
        Some(Self {
            names: names.map(str::to_owned).collect(),
            not_after: not_after(first)?,
        })
    }

    /// A certificate with these names that does not expire.
    #[cfg(test)]
    pub(crate) fn with_names(names: &[&str]) -> Self {
        Self {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            not_after: Duration::MAX,
        }
    }

    /// The DNS names and URIs of the certificate.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether the certificate has expired.
    pub(crate) fn has_expired(&self) -> bool {
        UnixTime::now().as_secs() > self.not_after.as_secs()
    }
}

/// The end of validity, as time since 1970. None: the certificate cannot be parsed. The library
/// that checks certificates does not expose the end, and a connection may outlive its certificate.
fn not_after(certificate: &[u8]) -> Option<Duration> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let seconds = certificate.validity().not_after.timestamp();
    Some(Duration::from_secs(seconds.try_into().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_certificate_has_no_expiry() {
        for der in [
            &[][..],
            &[0x30],
            &[0x30, 0x84, 0, 0, 0, 0],
            &[0x30, 0x03, 0x30, 0x01],
            &[0xff; 40],
        ] {
            assert_eq!(not_after(der), None, "{der:?}");
        }
    }
}
