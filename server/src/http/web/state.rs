//! What the routes of pages share.

use std::net::SocketAddr;

use super::cookie::CookieSettings;
use crate::settings::WebSettings;

/// State of the routes of pages.
pub(crate) struct WebState {
    /// Whether the page is served.
    pub(in crate::http) is_on: bool,
    /// How the cookie is set.
    pub(in crate::http) cookies: CookieSettings,
}

impl WebState {
    /// The state for a server on `address`. `is_on`: whether it serves the page.
    pub(crate) fn new(
        settings: &WebSettings,
        is_on: bool,
        (address, has_tls): (SocketAddr, bool),
    ) -> Self {
        let is_secure = settings
            .secure_cookies
            .unwrap_or(has_tls || !address.ip().is_loopback());
        Self {
            is_on,
            cookies: CookieSettings { is_secure },
        }
    }
}
