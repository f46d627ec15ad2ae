//! The settings section `web`: the page.

use serde::{Deserialize, Serialize};

use super::AuthSettings;

/// The page, and how long people stay signed in to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebSettings {
    /// Whether the page is served. None: if people can sign in, that is with API keys or tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Minutes after the last opened page until a person is signed out.
    pub session_minutes: u32,
    /// Hours after the sign-in until a person is signed out in any case.
    pub session_hours: u32,
    /// Whether browsers return the cookie over HTTPS only. None: with TLS, or if the address is not
    /// loopback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secure_cookies: Option<bool>,
}

impl Default for WebSettings {
    fn default() -> Self {
        Self {
            enabled: None,
            session_minutes: 60,
            session_hours: 12,
            secure_cookies: None,
        }
    }
}

impl WebSettings {
    /// Whether the page is served by a server that accepts these credentials.
    pub fn is_on(&self, auth: &AuthSettings) -> bool {
        self.enabled
            .unwrap_or(auth.api_keys || !auth.jwks_file.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_served_once_people_can_sign_in_unless_the_setting_says_otherwise() {
        let mut web = WebSettings::default();
        let (nobody, with_keys) = (
            AuthSettings::default(),
            AuthSettings {
                api_keys: true,
                ..AuthSettings::default()
            },
        );
        assert!(!web.is_on(&nobody));
        assert!(web.is_on(&with_keys));
        web.enabled = Some(true);
        assert!(web.is_on(&nobody));
        web.enabled = Some(false);
        assert!(!web.is_on(&with_keys));
    }
}
