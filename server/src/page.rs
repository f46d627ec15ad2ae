//! Page sizes and page tokens. A token is opaque, and good only for the tenant, list and filters that it came from.

use std::iter::once;

use anneal_core::{
    caller::Caller,
    digest,
    limits::{PAGE_DEFAULT, PAGE_MOST},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Serialize, de::DeserializeOwned};

use crate::status::Failure;

/// How many entries to answer: 0 means the default, more than the most gives the most.
pub(crate) fn size(asked: i32) -> Result<i64, Failure> {
    match i64::from(asked) {
        negative @ i64::MIN..0 => Err(Failure::invalid("page_size", format!("must not be negative, is {negative}"))),
        0 => Ok(PAGE_DEFAULT),
        size => Ok(size.min(PAGE_MOST)),
    }
}

/// What a token is bound to: whose list it is, its name and everything that chose its entries.
pub(crate) struct Scope(String);

impl Scope {
    /// A scope of these fields in what is the caller's tenant's.
    pub(crate) fn of(caller: Caller, fields: &[&str]) -> Self {
        let tenant = caller.tenant().0;
        let digest = digest::of_fields(once(tenant.as_bytes().as_slice()).chain(fields.iter().map(|it| it.as_bytes())));
        Self(URL_SAFE_NO_PAD.encode(&digest[..12]))
    }

    /// The token for the place after which the next page starts.
    pub(crate) fn token<T: Serialize>(&self, place: &T) -> String {
        let text = serde_json::to_vec(&(&self.0, place)).expect("places are numbers and strings");
        URL_SAFE_NO_PAD.encode(text)
    }

    /// The place that a token stands for; None for the first page.
    pub(crate) fn place<T: DeserializeOwned>(&self, token: &str) -> Result<Option<T>, Failure> {
        if token.is_empty() {
            return Ok(None);
        }
        let text = URL_SAFE_NO_PAD.decode(token).map_err(|_| broken())?;
        let (scope, place): (String, T) = serde_json::from_slice(&text).map_err(|_| broken())?;
        if scope == self.0 { Ok(Some(place)) } else { Err(broken()) }
    }
}

/// The refusal of a token that this server did not give.
pub(crate) fn broken() -> Failure {
    Failure::invalid("page_token", "is not a token of this list with these filters")
}

#[cfg(test)]
mod tests {
    use anneal_core::caller::TenantId;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_token_is_good_only_for_its_own_list_and_tenant() {
        let [anna, bert] = [1, 2].map(|tenant| Caller::of(TenantId(Uuid::from_u128(tenant))));
        let scope = Scope::of(anna, &["messages", "a"]);
        let token = scope.token(&7_i64);
        assert_eq!(scope.place::<i64>(&token).expect("good"), Some(7));
        assert!(Scope::of(anna, &["messages", "b"]).place::<i64>(&token).is_err());
        assert!(Scope::of(bert, &["messages", "a"]).place::<i64>(&token).is_err());
        for broken in ["x", "////", &token[1..], &format!("{token}A")] {
            assert!(scope.place::<i64>(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn page_sizes_are_bounded() {
        assert_eq!(size(0).expect("default"), 50);
        assert_eq!(size(i32::MAX).expect("most"), 500);
        assert!(size(-1).is_err());
    }
}
