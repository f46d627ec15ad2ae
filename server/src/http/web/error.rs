//! Refusals on the page. A refusal is a problem, as everywhere; the middleware shows it as a page,
//! or as a notice on the page that a script has changed.

use anneal_web::{
    RenderError,
    error::{ErrorPage, Refusal},
    layout::Place,
};
use axum::{
    extract::{FromRequestParts as _, Request},
    http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header},
    middleware::Next,
    response::{Html, IntoResponse, Response},
};
use tracing::error;

use super::{
    headers,
    page::{self, HX_REQUEST, PageContext, PageSlot},
};
use crate::{failure::Failure, http::problem::Problem};

/// Why a page cannot be shown, or a form was refused.
pub(super) struct WebError(Problem);

impl WebError {
    /// A template that does not render: a bug.
    pub(super) fn of_template(error: RenderError) -> Self {
        error!("a page does not render: {error}");
        Self(Failure::Panicked.into())
    }
}

impl<E: Into<Problem>> From<E> for WebError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for WebError {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}
