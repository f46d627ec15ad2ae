//! The names under which the port answers while callers need no credential.

use std::net::{IpAddr, SocketAddr};

use axum::http::uri::Authority;

/// Names that nobody but the operator, or whoever rules this network, can have pointed here. Cheap to clone.
#[derive(Clone)]
pub(super) struct Names {
    is_loopback: bool,
    /// Those that the operator adds.
    hosts: std::sync::Arc<[String]>,
}

impl Names {
    /// For a port that listens here, and answers to these besides.
    pub(super) fn new(address: SocketAddr, hosts: &[String]) -> Self {
        Self { is_loopback: address.ip().is_loopback(), hosts: hosts.into() }
    }

    /// Whether `host[:port]` is one of them.
    pub(super) fn allow(&self, text: &str) -> bool {
        let Ok(authority) = text.parse::<Authority>() else { return false };
        let host = authority.host();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if self.hosts.iter().any(|named| named.eq_ignore_ascii_case(bare)) {
            return true;
        }
        match bare.parse::<IpAddr>() {
            // A page that was loaded from an address has that address's origin: it was not pointed here.
            Ok(address) => !self.is_loopback || address.is_loopback(),
            // Names without a dot are given by this machine or its network, not by whoever owns a domain.
            Err(_) => is_localhost(bare) || !self.is_loopback && !bare.is_empty() && !bare.contains('.'),
        }
    }

    /// What whoever asks under another name is told.
    pub(super) const fn refusal(&self) -> &'static str {
        if self.is_loopback {
            "the Host is no name of this machine's loopback: localhost, 127.0.0.1 or [::1], or one of server.http_hosts"
        } else {
            "callers need no credential here, and the Host is no address, no name without a dot, and not in server.http_hosts"
        }
    }
}

fn is_localhost(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(address: &str) -> Names {
        Names::new(address.parse().expect("an address"), &["panel.example".to_owned()])
    }

    #[test]
    fn only_names_that_cannot_be_pointed_elsewhere_are_loopback() {
        let names = names("127.0.0.1:8080");
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1:1",
            "127.8.8.8",
            "[::1]:8080",
            "panel.localhost:80",
            "Panel.example:80",
        ] {
            assert!(names.allow(host), "{host}");
        }
        for host in [
            "",
            "server",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "10.0.0.1",
            "[::2]",
            "a b",
            "x.panel.example",
        ] {
            assert!(!names.allow(host), "{host}");
        }
    }

    #[test]
    fn beyond_loopback_a_domain_has_to_be_named_by_the_operator() {
        let names = names("0.0.0.0:8080");
        for host in ["localhost:8080", "127.0.0.1", "10.1.2.3:8080", "[fd00::1]:8080", "server:8080", "panel.example"] {
            assert!(names.allow(host), "{host}");
        }
        for host in [
            "",
            "evil.example:8080",
            "evil.example.",
            "ai.",
            "127.0.0.1.evil.example",
            "10.0.0",
            "x.panel.example",
            "a b",
        ] {
            assert!(!names.allow(host), "{host}");
        }
    }
}
