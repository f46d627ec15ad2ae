//! Addresses of media: URLs, objects in a bucket, and data URLs.

/// The media type and payload of `data:TYPE;base64,PAYLOAD`.
pub(crate) fn data_url(url: &str) -> Option<(&str, &str)> {
    url.strip_prefix("data:")?.split_once(";base64,")
}

/// Whether this is an address with one of the schemes (such as `https://`) that is not empty after
/// the scheme and contains no white space.
pub(crate) fn is_under(url: &str, schemes: &[&str]) -> bool {
    let rest = schemes.iter().find_map(|scheme| url.strip_prefix(scheme));
    rest.is_some_and(|rest| {
        !rest.is_empty() && !rest.starts_with('/') && !rest.contains(char::is_whitespace)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_scheme_a_host_and_no_space() {
        assert!(is_under(
            "https://example.org/a.png",
            &["http://", "https://"]
        ));
        for bad in [
            "",
            "https://",
            "https:///a",
            "https://a b",
            "ftp://a",
            "example.org",
            "HTTPS",
        ] {
            assert!(!is_under(bad, &["http://", "https://"]), "{bad}");
        }
    }

    #[test]
    fn a_data_url_gives_its_type_and_payload() {
        assert_eq!(
            data_url("data:image/png;base64,QQ=="),
            Some(("image/png", "QQ=="))
        );
        assert_eq!(data_url("data:image/png,QQ=="), None);
        assert_eq!(data_url("https://example.org"), None);
    }
}
