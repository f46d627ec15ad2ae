//! The door of the page, over HTTP without a browser.
//!
//! - `arrivals`: links of other sites, and which answers set a cookie
//! - `csrf`: forms of other sites, forms without a token, with an old one, or with somebody else's
//! - `forms`: the size of forms, and who is shown how long a page took
//! - `headers`: what every answer forbids; no answer allows other origins; the page can be off
//! - `sessions`: sign-in and sign-out, planted and stolen cookies, revoked keys, expiry

mod arrivals;
mod csrf;
mod forms;
mod headers;
mod sessions;

use anneal_core::caller::Verb;
use anneal_server::{AuthSettings, WebSettings};
use anneal_testkit::TestApp;

/// Verbs of somebody who talks.
const TALKING: [Verb; 2] = [Verb::Read, Verb::Append];

/// An app with API keys, and so with a page.
async fn app_with_keys() -> TestApp {
    let auth = AuthSettings {
        api_keys: true,
        ..AuthSettings::default()
    };
    TestApp::with_page(auth, WebSettings::default()).await
}

/// An app whose page needs no sign-in, as that of `anneal dev`.
async fn open_app() -> TestApp {
    let web = WebSettings {
        enabled: Some(true),
        ..WebSettings::default()
    };
    TestApp::with_page(AuthSettings::default(), web).await
}
