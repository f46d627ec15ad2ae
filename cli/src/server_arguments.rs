//! The arguments that say which server to talk to.

use std::{net::IpAddr, path::PathBuf};

use clap::Args;
use tonic::transport::Uri;

/// Which server to talk to.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServerArguments {
    /// The server's gRPC address; https:// for TLS
    #[arg(
        long,
        env = "ANNEAL_ADDRESS",
        value_name = "URL",
        default_value = "http://127.0.0.1:50051"
    )]
    pub(crate) address: String,
    /// File with an API key or a token [default: the variable ANNEAL_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// File with the authority that has signed the server's certificate [default: the system's
    /// authorities]
    #[arg(long, env = "ANNEAL_CA_FILE", value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
}

impl ServerArguments {
    /// Whether calls are sent unencrypted to another machine.
    pub(crate) fn is_remote_and_unencrypted(&self) -> bool {
        let Ok(address) = self.address.parse::<Uri>() else {
            return false;
        };
        let host = address.host().unwrap_or_default();
        let ip = host.trim_start_matches('[').trim_end_matches(']');
        let is_own_machine =
            host == "localhost" || ip.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        address.scheme_str() == Some("http") && !is_own_machine
    }

    /// The server at this address, without credentials.
    pub(crate) fn at(address: String) -> Self {
        Self {
            address,
            token_file: None,
            ca_file: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_to_another_machine_is_remote_and_unencrypted() {
        let is_remote_and_unencrypted =
            |address: &str| ServerArguments::at(address.to_owned()).is_remote_and_unencrypted();
        for address in [
            "http://localhost:50051",
            "http://127.0.0.1:50051",
            "http://127.1.2.3",
            "http://[::1]:50051",
            "https://anneal.example:50051",
            "https://[2001:db8::1]:50051",
        ] {
            assert!(!is_remote_and_unencrypted(address), "{address}");
        }
        for address in [
            "http://anneal.example:50051",
            "http://10.0.0.1",
            "http://127.example",
            "http://[2001:db8::1]:50051",
        ] {
            assert!(is_remote_and_unencrypted(address), "{address}");
        }
    }
}
