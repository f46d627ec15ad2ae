//! Whether the database is on this machine. A connection to another machine needs a verified
//! certificate.

use std::net::IpAddr;

use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::settings::StoreSettings;

/// Whether the connection is safe from eavesdroppers and impostors: it stays on this machine, or
/// the server's certificate and its host name are verified (`sslmode=verify-full`).
///
/// Checks the address that sqlx connects to, in this order of precedence:
///
/// - a Unix socket;
/// - the last host of the URL, where the parameters `host` and `hostaddr` override the host before
///   the path. sqlx takes a list of hosts as one name, which is no loopback address;
/// - the environment's `PGHOSTADDR` or `PGHOST`.
///
/// The TLS mode is the URL's `sslmode`, else `PGSSLMODE`.
pub(crate) fn is_protected(options: &PgConnectOptions) -> bool {
    is_local(options) || matches!(options.get_ssl_mode(), PgSslMode::VerifyFull)
}

/// Whether the connection stays on this machine.
fn is_local(options: &PgConnectOptions) -> bool {
    let host = options.get_host();
    let is_socket = options.get_socket().is_some() || host.starts_with('/');
    let is_loopback = host == "localhost"
        || host
            .trim_matches(['[', ']'])
            .parse::<IpAddr>()
            .is_ok_and(|host| host.to_canonical().is_loopback());
    is_socket || is_loopback
}

impl StoreSettings {
    /// Whether the database is on this machine. False if the URL cannot be parsed.
    pub fn is_on_this_machine(&self) -> bool {
        self.url.parse().is_ok_and(|options| is_local(&options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_on_another_machine_needs_a_verified_certificate() {
        let is_refused = |url: &str| !is_protected(&url.parse().expect("the test's URL is valid"));
        for url in [
            "postgres://u@db.example/d",
            "postgres://u@db.example/d?sslmode=verify-ca",
            "postgres://u@127.0.0.1/d?host=db.example",
            "postgres://u@127.0.0.1/d?host=127.0.0.1,db.example",
            "postgres://u@127.0.0.1/d?hostaddr=192.0.2.1",
            "postgres://u@127.0.0.1/d?host=localhost&host=db.example",
            "postgres://u@localhost.example/d",
            "postgres://u@0.0.0.0/d",
            "postgres://u@[::]/d",
            "postgres://u@db.example/d?sslmode=verify-full&sslmode=disable",
        ] {
            assert!(is_refused(url), "{url}");
        }
        for url in [
            "postgres://u@127.8.8.8/d",
            "postgres://u@[::1]:1/d",
            "postgres://u@[::ffff:127.0.0.1]/d",
            "postgres://u@localhost/d?sslmode=disable",
            "postgres://u@%2Frun%2Fpostgresql/d",
            "postgres://u@db.example/d?host=/run/postgresql",
            "postgres://u@db.example/d?sslmode=verify-full",
            "postgres://u@db.example/d?hostaddr=127.0.0.1",
        ] {
            assert!(!is_refused(url), "{url}");
        }
    }
}
