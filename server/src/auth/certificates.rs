//! Clients that are known by their certificate. The handshake has checked who signed it; here it is read whom it names.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::EndEntityCert;
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

use super::settings::ClientSettings;

/// Who a certificate that a connection was opened with is of. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Certificate {
    names: Arc<[String]>,
    /// Since 1970; from then on it counts for nothing.
    ends: Duration,
}

impl Certificate {
    /// The DNS names and URIs in the first of a chain (subject alternative names); None where it cannot be read.
    pub(crate) fn read(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let first = chain.first()?;
        let certificate = EndEntityCert::try_from(first).ok()?;
        // Any text may stand among the URIs: none of it must pass for a DNS name.
        let uris = certificate.valid_uri_names().filter(|name| is_uri(name));
        let names = uris.chain(certificate.valid_dns_names().filter(|name| !is_uri(name)));
        Some(Self { names: names.map(str::to_owned).collect(), ends: not_after(first)? })
    }

    /// Whether its time is over.
    pub(super) fn has_expired(&self) -> bool {
        UnixTime::now().as_secs() > self.ends.as_secs()
    }
}

/// Until when it holds, since 1970. The library that checks a certificate does not say, and a connection may outlive it.
fn not_after(certificate: &[u8]) -> Option<Duration> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let seconds = certificate.validity().not_after.timestamp();
    Some(Duration::from_secs(seconds.try_into().unwrap_or(0)))
}

/// Whether a client's name is looked for among a certificate's URIs, and not among its DNS names.
pub(super) fn is_uri(name: &str) -> bool {
    name.contains("://")
}

/// Who may come with a certificate.
pub(super) struct Clients(BTreeMap<String, ClientSettings>);

impl Clients {
    pub(super) fn new(settings: &BTreeMap<String, ClientSettings>) -> Self {
        Self(settings.clone())
    }

    /// The client that a certificate names, and the name under which it is known. One that names two who speak for different tenants names nobody.
    pub(super) fn find(&self, certificate: &Certificate) -> Option<(&str, &ClientSettings)> {
        let mut named = certificate.names.iter().filter_map(|name| self.0.get_key_value(name));
        let (name, first) = named.next()?;
        named.all(|(_, other)| other == first).then_some((name.as_str(), first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(names: &[&str]) -> Certificate {
        Certificate { names: names.iter().map(|name| (*name).to_owned()).collect(), ends: Duration::MAX }
    }

    #[test]
    fn what_is_no_certificate_has_no_end() {
        for der in [&[][..], &[0x30], &[0x30, 0x84, 0, 0, 0, 0], &[0x30, 0x03, 0x30, 0x01], &[0xff; 40]] {
            assert_eq!(not_after(der), None, "{der:?}");
        }
    }

    #[test]
    fn a_certificate_speaks_for_one_client_or_for_nobody() {
        let client = |tenant: &str| ClientSettings { tenant: tenant.into(), verbs: vec!["read".into()] };
        let clients = Clients(BTreeMap::from([
            ("spiffe://a/bot".to_owned(), client("a")),
            ("bot.a.example".to_owned(), client("a")),
            ("spiffe://b/bot".to_owned(), client("b")),
        ]));
        let tenant = |names: &[&str]| clients.find(&certificate(names)).map(|(_, client)| client.tenant.clone());
        assert_eq!(tenant(&["spiffe://a/bot"]), Some("a".into()));
        assert_eq!(tenant(&["other", "bot.a.example", "spiffe://a/bot"]), Some("a".into()));
        assert_eq!(tenant(&["spiffe://a/bot", "spiffe://b/bot"]), None);
        assert_eq!(tenant(&["spiffe://a/"]), None);
        assert_eq!(tenant(&[]), None);
    }
}
