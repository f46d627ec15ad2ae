//! Addresses of media: URLs of the web and of storage buckets, and data URLs.

/// The media type and payload of `data:TYPE;base64,PAYLOAD`.
pub(crate) fn split_data_url(url: &str) -> Option<(&str, &str)> {
    url.strip_prefix("data:")?.split_once(";base64,")
}

/// Whether `url` begins with one of `schemes` (such as `https://`), has a host after it, and
/// contains no white space.
pub(crate) fn is_url(url: &str, schemes: &[&str]) -> bool {
    let rest = schemes.iter().find_map(|scheme| url.strip_prefix(scheme));
    rest.is_some_and(|rest| {
        !rest.is_empty() && !rest.starts_with('/') && !rest.contains(char::is_whitespace)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_a_known_scheme_and_a_host_and_no_white_space() {
        assert!(is_url(
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
            assert!(!is_url(bad, &["http://", "https://"]), "{bad}");
        }
    }

    #[test]
    fn a_data_url_gives_its_type_and_payload() {
        assert_eq!(
            split_data_url("data:image/png;base64,QQ=="),
            Some(("image/png", "QQ=="))
        );
        assert_eq!(split_data_url("data:image/png,QQ=="), None);
        assert_eq!(split_data_url("https://example.org"), None);
    }
}
