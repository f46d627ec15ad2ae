//! Begins a response, stored or not.

use anneal_core::digest;
use serde_json::Value;

use super::{
    create_body::CreateBody,
    run::{RunningResponse, UnstoredHistory},
    stored::{self, CreateIdentity},
    unstored,
};
use crate::{
    failure::Failure,
    http::{
        HttpState,
        caller::HttpCaller,
        openai::{body_values, errors::ApiError},
    },
    poll_watchdog::{PollWatchdog, WatchedFuture},
};

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
    let parse = |body: Value| {
        let digest = digest::of_content(&body.to_string());
        CreateBody::parse(body).map(|body| (digest, body))
    };
    let (digest, body) = body_values::run_on(caller, body, parse).await??;
    let mut ignored = body.ignored.clone();
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
        // A task of its own: a client that goes away must not leave a half of its input.
        let (tracker, state, caller) = (&state.services.state.turns, state.clone(), caller.clone());
        let begun = tracker.spawn(WatchedFuture::new(
            PollWatchdog::for_task("begin_response"),
            async move {
                let identity = CreateIdentity { key, digest };
                Box::pin(stored::begin(&state, &caller, &body, &identity)).await
            },
        ));
        begun.await.map_err(|_| Failure::Panicked)??
    } else {
        // Nothing is stored that a repetition could find.
        ignored.extend(key.map(|_| "Idempotency-Key".to_owned()));
        Box::pin(unstored::begin(state, caller, &body, earlier)).await?
    };
    running.ignored = ignored;
    Ok(running)
}
