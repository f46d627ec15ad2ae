//! The form to sign in.

use askama::Template;

use crate::{layout::Page, render::renders};

renders!(SignInPage);

/// The page to sign in.
#[derive(Debug, Clone, Template)]
#[template(path = "sign_in/page.html")]
pub struct SignInPage {
    /// The frame.
    pub page: Page,
    /// The path to go to.
    pub next: String,
    /// API keys are accepted.
    pub accepts_keys: bool,
    /// Tokens (JWT) are accepted.
    pub accepts_tokens: bool,
}
