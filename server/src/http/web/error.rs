//! Why a page cannot be shown. `refusals.rs` gives it its form.

use anneal_web::RenderError;
use axum::response::{IntoResponse, Response};
use tracing::error;

use crate::{failure::Failure, http::problem::Problem};

/// Why a page cannot be shown, or a form was refused.
pub(super) struct WebError(Problem);

impl WebError {
    /// A template that does not render: a bug.
    pub(super) fn of_template(error: &RenderError) -> Self {
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
