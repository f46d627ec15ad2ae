//! Clients that are known by their certificate. The handshake has checked who signed it; here it is read whom it names.

use std::{collections::BTreeMap, sync::Arc};

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use super::settings::ClientSettings;

/// The names in a certificate that a connection was opened with. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Certificate(Arc<[String]>);

impl Certificate {
    /// The DNS names and URIs in it (subject alternative names); None where it cannot be read.
    pub(crate) fn read(der: &CertificateDer<'_>) -> Option<Self> {
        let certificate = EndEntityCert::try_from(der).ok()?;
        let names = certificate.valid_uri_names().chain(certificate.valid_dns_names());
        Some(Self(names.map(str::to_owned).collect()))
    }
}

/// Who may come with a certificate.
pub(super) struct Clients(BTreeMap<String, ClientSettings>);

impl Clients {
    pub(super) fn new(settings: &BTreeMap<String, ClientSettings>) -> Self {
        Self(settings.clone())
    }

    /// The client that a certificate names. One that names two who speak for different tenants names nobody.
    pub(super) fn find(&self, certificate: &Certificate) -> Option<&ClientSettings> {
        let mut named = certificate.0.iter().filter_map(|name| self.0.get(name));
        let first = named.next()?;
        named.all(|other| other == first).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(names: &[&str]) -> Certificate {
        Certificate(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn a_certificate_speaks_for_one_client_or_for_nobody() {
        let client = |tenant: &str| ClientSettings { tenant: tenant.into(), verbs: vec!["read".into()] };
        let clients = Clients(BTreeMap::from([
            ("spiffe://a/bot".to_owned(), client("a")),
            ("bot.a.example".to_owned(), client("a")),
            ("spiffe://b/bot".to_owned(), client("b")),
        ]));
        let tenant = |names: &[&str]| clients.find(&certificate(names)).map(|client| client.tenant.clone());
        assert_eq!(tenant(&["spiffe://a/bot"]), Some("a".into()));
        assert_eq!(tenant(&["other", "bot.a.example", "spiffe://a/bot"]), Some("a".into()));
        assert_eq!(tenant(&["spiffe://a/bot", "spiffe://b/bot"]), None);
        assert_eq!(tenant(&["spiffe://a/"]), None);
        assert_eq!(tenant(&[]), None);
    }
}
