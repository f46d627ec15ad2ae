//! The page's part of the state of HTTP.

use std::net::SocketAddr;

use anneal_process::metric_history::MetricHistory;

use crate::settings::WebSettings;

/// State of the routes of pages.
pub(crate) struct WebState {
    /// Whether the page is served.
    pub(super) is_on: bool,
    /// Whether browsers return the cookie over HTTPS only.
    pub(super) has_secure_cookies: bool,
    /// The metrics of the last hour. None: nobody records them.
    pub(super) history: Option<MetricHistory>,
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
        let has_secure_cookies = settings
            .secure_cookies
            .unwrap_or(has_tls || !address.ip().is_loopback());
        Self {
            is_on,
            has_secure_cookies,
            history,
        }
    }
}
