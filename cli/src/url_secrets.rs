//! Removes secrets from URLs that are shown.

/// A URL with `***` in place of its password and of its query.
pub(crate) fn without_secrets(url: &str) -> String {
    let shown = without_password(url);
    shown
        .split_once('?')
        .map_or_else(|| shown.clone(), |(address, _)| format!("{address}?***"))
}

/// A URL with `***` in place of its password.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    // The last @ before the query ends the credentials, because a password may contain @ and /. If
    // there is none, a password that contains ? ends with the last @ before the path.
    let query_start = rest.find('?').unwrap_or(rest.len());
    let path_start = rest.find('/').unwrap_or(rest.len());
    let last_at = |end: usize| rest[..end].rfind('@');
    let Some(at) = last_at(query_start).or_else(|| last_at(path_start)) else {
        return url.to_owned();
    };
    match rest[..at].split_once(':') {
        Some((user, _)) => format!("{scheme}://{user}:***{}", &rest[at..]),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        assert_eq!(
            without_password("postgres://a:secret@h:1/d"),
            "postgres://a:***@h:1/d"
        );
        assert_eq!(
            without_password("postgres://a:se@cr/et@h:1/d"),
            "postgres://a:***@h:1/d"
        );
        assert_eq!(
            without_password("postgres://a:secret@h/d?x=b@c"),
            "postgres://a:***@h/d?x=b@c"
        );
        assert_eq!(
            without_password("postgres://a:se?cr@et@h/d"),
            "postgres://a:***@h/d"
        );
        assert_eq!(
            without_password("postgres://h:1/d?x=b@c"),
            "postgres://h:1/d?x=b@c"
        );
        assert_eq!(without_password("postgres://a@h/d"), "postgres://a@h/d");
        assert_eq!(without_password(""), "");
    }
}
