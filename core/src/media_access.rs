//! Which media addresses a provider may receive. A provider fetches an address from its own
//! network, with its own credentials. So a provider that the operator runs must not fetch addresses
//! that a tenant chooses.

use std::sync::Arc;

/// Which media are sent by their address. Media in a `data:` URI are always sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum MediaAccess {
    /// All addresses: the caller sends the request itself.
    #[default]
    Any,
    /// No address.
    Inline,
    /// `https` addresses whose host is a public name. The provider's own host is excluded, because
    /// the provider reads its files with the operator's credentials.
    PublicNames {
        /// The provider's host, in lower case.
        provider_host: Arc<str>,
    },
    /// `https` addresses of these hosts, in lower case. `*.example.com` matches every host below
    /// `example.com`.
    Hosts(Arc<[String]>),
}

/// Last labels of names that are not public: reserved ones, and common ones of private networks.
const PRIVATE_LAST_LABELS: [&str; 13] = [
    "arpa",
    "corp",
    "home",
    "internal",
    "intranet",
    "invalid",
    "lan",
    "local",
    "localdomain",
    "localhost",
    "onion",
    "private",
    "test",
];

const SCHEME: &str = "https://";
/// Most bytes of a host (RFC 1035).
const HOST_BYTES: usize = 253;
/// Most bytes of one label of a host (RFC 1035).
const LABEL_BYTES: usize = 63;

impl MediaAccess {
    /// Whether a provider may receive this address.
    pub fn allows(&self, address: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Inline => false,
            Self::PublicNames { provider_host } => {
                host(address).is_some_and(|host| is_public(&host) && host != **provider_host)
            }
            Self::Hosts(hosts) => host(address)
                .is_some_and(|host| hosts.iter().any(|entry| matches_entry(entry, &host))),
        }
    }
}

/// Whether a text is a valid entry of [`MediaAccess::Hosts`].
pub fn is_host_entry(text: &str) -> bool {
    let name = text.strip_prefix("*.").unwrap_or(text);
    is_name(name) && !name.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn matches_entry(entry: &str, host: &str) -> bool {
    entry.strip_prefix('*').map_or_else(
        || entry == host,
        |suffix| host.len() > suffix.len() && host.ends_with(suffix),
    )
}

/// The host of an `https` address, in lower case; None if it is no name, or if two parsers could
/// read different hosts from the address. An address with a user, port, escape or bracket before
/// its path is refused, and one with a backslash, blank, control or non-ASCII character anywhere.
fn host(address: &str) -> Option<String> {
    let scheme_bytes = address
        .get(..SCHEME.len())
        .filter(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
        .map(str::len);
    let rest = &address[scheme_bytes?..];
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let is_plain = rest[end..]
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    (is_plain && is_name(&rest[..end])).then(|| rest[..end].to_ascii_lowercase())
}

/// Whether a host is a name of at least two labels, and not a number in any notation.
fn is_name(host: &str) -> bool {
    let is_label = |label: &str| {
        (1..=LABEL_BYTES).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    // Resolvers read a host that ends in a number as an address: 10.0.0.1, 0x7f.1.
    let is_no_number = |label: &str| label.starts_with(|first: char| first.is_ascii_alphabetic());
    host.len() <= HOST_BYTES
        && host.split('.').all(is_label)
        && host
            .rsplit_once('.')
            .is_some_and(|(_, last)| is_no_number(last))
}

fn is_public(host: &str) -> bool {
    host.rsplit('.')
        .next()
        .is_some_and(|last| !PRIVATE_LAST_LABELS.contains(&last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_with_one_public_host_other_than_the_providers_are_allowed() {
        let access = MediaAccess::PublicNames {
            provider_host: "api.example.org".into(),
        };
        for good in [
            "https://example.com",
            "https://example.com/a.png?size=1#x",
            "HTTPS://Img.Example.COM/a@b:c",
            "https://xn--bcher-kva.example/",
            "https://1.example.com?",
        ] {
            assert!(access.allows(good), "{good}");
        }
        for bad in [
            "http://example.com/a",
            "gs://bucket.example.com/a",
            "https:example.com",
            "https:/example.com/",
            "https:\\\\example.com/",
            "https://",
            "https:///a",
            "https://localhost/a",
            "https://metadata.google.internal/a",
            "https://printer.local/a",
            "https://1.0.0.127.in-addr.arpa/",
            "https://169.254.169.254/a",
            "https://2852039166/a",
            "https://0xa9fea9fe/a",
            "https://a.0xa9fea9fe/a",
            "https://10.1/a",
            "https://[::1]/a",
            "https://[::ffff:10.0.0.1]/a",
            "https://example.com:8443/a",
            "https://example.com:443/a",
            "https://user@example.com/a",
            "https://example.com@10.0.0.1/a",
            "https://example.com\\@10.0.0.1/a",
            "https://example.com%2f@10.0.0.1/",
            "https://example.com./a",
            "https://.example.com/a",
            "https://example..com/a",
            "https://ex\tample.com/a",
            "https://example.com/a b",
            "https://example.com/\n",
            "https://example.com/\\a",
            " https://example.com/a",
            "https://bücher.example/a",
            "https://１２７.0.0.1/a",
            "https://api.example.org/v1/files/1",
            "https://API.EXAMPLE.ORG/v1/files/1",
            "",
            "é",
        ] {
            assert!(!access.allows(bad), "{bad}");
        }
    }

    #[test]
    fn a_host_list_allows_its_names_and_those_below_a_star() {
        let hosts = ["*.example.com".to_owned(), "files.example.net".to_owned()];
        let access = MediaAccess::Hosts(hosts.into());
        for good in [
            "https://a.example.com/",
            "https://a.b.EXAMPLE.com/",
            "https://files.example.net/x",
        ] {
            assert!(access.allows(good), "{good}");
        }
        for bad in [
            "https://example.com/",
            "https://notexample.com/",
            "https://a.files.example.net/",
            "http://a.example.com/",
        ] {
            assert!(!access.allows(bad), "{bad}");
        }
        for good in ["*.example.com", "example.com", "minio.internal"] {
            assert!(is_host_entry(good), "{good}");
        }
        for bad in [
            "",
            "*",
            "*.",
            "localhost",
            "10.0.0.1",
            "https://example.com",
            "example.com/",
            "Example.com",
            "a.*.com",
        ] {
            assert!(!is_host_entry(bad), "{bad}");
        }
    }

    #[test]
    fn inline_access_allows_no_address_and_any_access_every_address() {
        assert!(!MediaAccess::Inline.allows("https://example.com/a.png"));
        assert!(MediaAccess::Any.allows("http://10.0.0.1/"));
    }
}
