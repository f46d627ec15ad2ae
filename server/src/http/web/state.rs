//! What the routes of pages share.

use std::net::SocketAddr;

use anneal_process::metric_history::MetricHistory;

use super::cookie::CookieSettings;
use crate::settings::WebSettings;

/// State of the routes of pages.
pub(crate) struct WebState {
    /// Whether the page is served.
    pub(in crate::http) is_on: bool,
    /// How the cookie is set.
    pub(in crate::http) cookies: CookieSettings,
    /// The metrics of the last hour. None: nobody records them.
    pub(in crate::http) history: Option<MetricHistory>,
}

impl WebState {
    /// The state for a server on `address`. `is_on`: whether it serves the page. `history`: the
    /// metrics that it draws.
    pub(crate) fn new(
        settings: &WebSettings,
        is_on: bool,
        (address, has_tls): (SocketAddr, bool),
        history: Option<MetricHistory>,
    ) -> Self {
        let is_secure = settings
            .secure_cookies
            .unwrap_or(has_tls || !address.ip().is_loopback());
        Self {
            is_on,
            cookies: CookieSettings { is_secure },
            history,
        }
    }
}
