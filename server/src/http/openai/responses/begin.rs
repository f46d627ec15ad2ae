//! Begins a response, stored or not.

use serde_json::Value;

use super::{
    create_body::CreateBody,
    run::{RunningResponse, UnstoredHistory},
    stored, unstored,
};
use crate::http::{HttpState, caller::HttpCaller, openai::errors::ApiError};

/// How a create arrives.
pub(in crate::http) enum Medium<'a> {
    /// As a request.
    Http {
        /// Makes the create repeatable.
        idempotency_key: Option<String>,
    },
    /// Over a connection that remembers its last response of which nothing is stored.
    Socket {
        earlier: Option<&'a UnstoredHistory>,
    },
}

/// Begins a response, or joins the one that an earlier create with the same key has begun.
pub(in crate::http) async fn begin(
    state: &HttpState,
    caller: &HttpCaller,
    body: Value,
    medium: Medium<'_>,
) -> Result<RunningResponse, ApiError> {
    let digest = anneal_core::digest::of_content(&body.to_string());
    let body = CreateBody::parse(body)?;
    let ignored = body.ignored.clone();
    let (key, earlier) = match medium {
        Medium::Http { idempotency_key } => (idempotency_key, None),
        Medium::Socket { earlier } => (None, earlier),
    };
    let mut running = if body.store {
        if unstored::continues(&body, earlier) {
            return Err(ApiError::invalid(
                "store",
                Some("invalid_value"),
                "The previous response is not stored: only a response with 'store' false can \
                 continue it.",
            ));
        }
        Box::pin(stored::begin(
            state,
            caller,
            &body,
            (key.as_deref(), digest),
        ))
        .await?
    } else {
        Box::pin(unstored::begin(state, caller, &body, earlier)).await?
    };
    running.ignored = ignored;
    Ok(running)
}
