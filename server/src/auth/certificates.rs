//! The configured clients, found by the names in their certificate.

use std::collections::BTreeMap;

use crate::{listen::ClientCertificate, settings::ClientSettings};

pub(super) struct CertificateClients(BTreeMap<String, ClientSettings>);

impl CertificateClients {
    pub(super) fn new(settings: &BTreeMap<String, ClientSettings>) -> Self {
        Self(settings.clone())
    }

    /// The configured client that a certificate names, and the name that matched. None if the
    /// certificate names no configured client, or several with different settings.
    pub(super) fn find(&self, certificate: &ClientCertificate) -> Option<(&str, &ClientSettings)> {
        let mut matches = certificate
            .names()
            .iter()
            .filter_map(|name| self.0.get_key_value(name));
        let (name, first) = matches.next()?;
        matches
            .all(|(_, other)| other == first)
            .then_some((name.as_str(), first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_names_one_client_or_none() {
        let client = |tenant: &str| ClientSettings {
            tenant: tenant.into(),
            verbs: vec!["read".into()],
        };
        let clients = CertificateClients(BTreeMap::from([
            ("spiffe://a/bot".to_owned(), client("a")),
            ("bot.a.example".to_owned(), client("a")),
            ("spiffe://b/bot".to_owned(), client("b")),
        ]));
        let tenant = |names: &[&str]| {
            clients
                .find(&ClientCertificate::with_names(names))
                .map(|(_, client)| client.tenant.clone())
        };
        assert_eq!(tenant(&["spiffe://a/bot"]), Some("a".into()));
        assert_eq!(
            tenant(&["other", "bot.a.example", "spiffe://a/bot"]),
            Some("a".into())
        );
        assert_eq!(tenant(&["spiffe://a/bot", "spiffe://b/bot"]), None);
        assert_eq!(tenant(&["spiffe://a/"]), None);
        assert_eq!(tenant(&[]), None);
    }
}
