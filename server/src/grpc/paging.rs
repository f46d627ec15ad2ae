//! Page sizes and page tokens. A token is opaque and valid only for the tenant, list and filters
//! that it was made for.

use std::iter::once;

use anneal_core::{
    caller::Caller,
    digest,
    limits::{PAGE_DEFAULT, PAGE_MAX},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Serialize, de::DeserializeOwned};

use crate::failure::Failure;

/// Valid times of a page token, in microseconds since 1970: until the year 9999. A forged time must
/// not overflow the database's arithmetic.
pub(crate) const VALID_TIMES: std::ops::Range<i64> = 0..253_402_300_800_000_000;

/// The number of entries of a page. A request for 0 means the default; a request for more than the
/// maximum means the maximum.
pub(crate) fn page_size(requested: i32) -> Result<i64, Failure> {
    match i64::from(requested) {
        negative @ i64::MIN..0 => Err(Failure::invalid(
            "page_size",
            format!("must not be negative, is {negative}"),
        )),
        0 => Ok(PAGE_DEFAULT),
        size => Ok(size.min(PAGE_MAX)),
    }
}

/// The scope in which a page token is valid: the tenant, the list and its filters.
pub(crate) struct TokenScope(String);

impl TokenScope {
    /// The scope of a list of the caller's tenant. `fields` name the list and its filters.
    pub(crate) fn of(caller: Caller, fields: &[&str]) -> Self {
        let tenant = caller.tenant().0;
        let digest = digest::of_fields(
            once(tenant.as_bytes().as_slice()).chain(fields.iter().map(|it| it.as_bytes())),
        );
        // 12 bytes are enough: the digests of two scopes do not begin alike by chance.
        Self(URL_SAFE_NO_PAD.encode(&digest[..12]))
    }

    /// The token of the page after this position.
    pub(crate) fn token<T: Serialize>(&self, position: &T) -> String {
        let text = serde_json::to_vec(&(&self.0, position))
            .expect("positions hold only numbers and strings");
        URL_SAFE_NO_PAD.encode(text)
    }

    /// The position that a token holds; None for the first page (an empty token).
    pub(crate) fn parse<T: DeserializeOwned>(&self, token: &str) -> Result<Option<T>, Failure> {
        if token.is_empty() {
            return Ok(None);
        }
        let text = URL_SAFE_NO_PAD.decode(token).map_err(|_| invalid_token())?;
        let (scope, position): (String, T) =
            serde_json::from_slice(&text).map_err(|_| invalid_token())?;
        if scope == self.0 {
            Ok(Some(position))
        } else {
            Err(invalid_token())
        }
    }
}

/// The failure for a text that is no page token, or one of another list or of other filters.
pub(crate) fn invalid_token() -> Failure {
    Failure::invalid(
        "page_token",
        "is not a token of this list with these filters",
    )
}

#[cfg(test)]
mod tests {
    use anneal_core::caller::TenantId;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_token_is_valid_only_for_its_own_list_and_tenant() {
        let [anna, bert] = [1, 2].map(|tenant| Caller::of(TenantId(Uuid::from_u128(tenant))));
        let scope = TokenScope::of(anna, &["messages", "a"]);
        let token = scope.token(&7_i64);
        assert_eq!(scope.parse::<i64>(&token).expect("good"), Some(7));
        assert!(
            TokenScope::of(anna, &["messages", "b"])
                .parse::<i64>(&token)
                .is_err()
        );
        assert!(
            TokenScope::of(bert, &["messages", "a"])
                .parse::<i64>(&token)
                .is_err()
        );
        for broken in ["x", "////", &token[1..], &format!("{token}A")] {
            assert!(scope.parse::<i64>(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn page_sizes_are_bounded() {
        assert_eq!(page_size(0).expect("default"), 50);
        assert_eq!(page_size(i32::MAX).expect("most"), 500);
        assert!(page_size(-1).is_err());
    }
}
