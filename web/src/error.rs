//! The page of a refusal.

use askama::Template;

use crate::{layout::Page, render::renders};

renders!(ErrorPage, ErrorFragment);

/// A request that was refused or has failed.
#[derive(Debug, Clone, Template)]
#[template(path = "error/page.html")]
pub struct ErrorPage {
    /// The frame.
    pub page: Page,
    /// The HTTP status.
    pub status: u16,
    /// The reason, as docs/errors.md names it.
    pub reason: String,
    /// A sentence for people.
    pub detail: String,
    /// The page from which the request came; empty: unknown.
    pub back: String,
    /// Where the logs say more; empty: none.
    pub trace_id: String,
}

/// The same for htmx: it stands among the notices.
#[derive(Debug, Clone, Template)]
#[template(path = "error/fragment.html")]
pub struct ErrorFragment {
    /// The reason, as docs/errors.md names it.
    pub reason: String,
    /// A sentence for people.
    pub detail: String,
}
