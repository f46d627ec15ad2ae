//! The Host names that are accepted while callers need no credential.

use std::net::{IpAddr, SocketAddr};

use axum::http::uri::Authority;

/// Host names that the owner of a web page cannot have pointed at this server. Cheap to clone.
/// - On loopback: loopback addresses, `localhost` and names that end with `.localhost`.
/// - Else: all addresses, the same names, and names without a dot.
/// - In both cases: names that the operator has configured.
#[derive(Clone)]
pub(super) struct AllowedHosts {
    is_loopback: bool,
    /// Configured names (`server.http_hosts`).
    hosts: std::sync::Arc<[String]>,
}

impl AllowedHosts {
    /// The names for a server on `address`. `hosts` are further names from the configuration.
    pub(super) fn new(address: SocketAddr, hosts: &[String]) -> Self {
        Self {
            is_loopback: address.ip().is_loopback(),
            hosts: hosts.into(),
        }
    }

    /// Whether `host[:port]` is an accepted name.
    pub(super) fn allows(&self, text: &str) -> bool {
        let Ok(authority) = text.parse::<Authority>() else {
            return false;
        };
        // An IPv6 address stands in brackets.
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        if self
            .hosts
            .iter()
            .any(|configured| configured.eq_ignore_ascii_case(host))
        {
            return true;
        }
        match host.parse::<IpAddr>() {
            // A page that was loaded from an address has that address as its origin. Only a name
            // can be pointed at another server (DNS rebinding). On loopback no other address leads
            // here.
            Ok(address) => !self.is_loopback || address.is_loopback(),
            // A name without a dot is resolved by this machine or its network, so no owner of a
            // domain controls it. On loopback only localhost is needed.
            Err(_) => {
                is_localhost(host) || !self.is_loopback && !host.is_empty() && !host.contains('.')
            }
        }
    }

    /// The text of the refusal of other names.
    pub(super) const fn refusal(&self) -> &'static str {
        if self.is_loopback {
            "the Host must be a name of this machine's loopback (localhost, 127.0.0.1 or [::1]) or be listed in server.http_hosts"
        } else {
            "callers need no credential here, so the Host must be an address or a name without a dot, or be listed in server.http_hosts"
        }
    }
}

fn is_localhost(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(address: &str) -> AllowedHosts {
        AllowedHosts::new(
            address.parse().expect("an address"),
            &["panel.example".to_owned()],
        )
    }

    #[test]
    fn on_loopback_only_loopback_and_configured_names_are_allowed() {
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
            assert!(names.allows(host), "{host}");
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
            assert!(!names.allows(host), "{host}");
        }
    }

    #[test]
    fn beyond_loopback_a_domain_must_be_configured() {
        let names = names("0.0.0.0:8080");
        for host in [
            "localhost:8080",
            "127.0.0.1",
            "10.1.2.3:8080",
            "[fd00::1]:8080",
            "server:8080",
            "panel.example",
        ] {
            assert!(names.allows(host), "{host}");
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
            assert!(!names.allows(host), "{host}");
        }
    }
}
