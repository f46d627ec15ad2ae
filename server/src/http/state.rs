//! The state that all endpoints share.

use std::sync::Arc;

use axum::extract::FromRef;
use tokio_util::sync::CancellationToken;

use super::{
    resumable_turns::{LogBudget, RunningTurns},
    web_state::WebState,
};
use crate::{auth::Authenticator, grpc::services::GrpcServices, settings::LimitSettings};

/// State of the HTTP router. Cheap to clone.
#[derive(Clone)]
pub(crate) struct HttpState {
    pub(super) services: GrpcServices,
    pub(super) auth: Authenticator,
    /// Turns that were started over HTTP and that readers can join.
    pub(super) running_turns: Arc<RunningTurns>,
    /// The page.
    pub(super) web: Arc<WebState>,
    /// Cancelled at shutdown: no new request is accepted from then on.
    pub(super) closing: CancellationToken,
}

impl HttpState {
    /// Makes the state. The logs of running turns may hold `limits.answer_log_bytes`, of which a
    /// tenant gets its share. Where callers need no credential, all are one tenant, which gets all
    /// of it.
    pub(crate) fn new(
        services: GrpcServices,
        auth: Authenticator,
        limits: &LimitSettings,
        web: WebState,
        closing: CancellationToken,
    ) -> Self {
        let share = if auth.accepts_anyone() {
            limits.answer_log_bytes
        } else {
            limits.share_of(limits.answer_log_bytes)
        };
        let budget = LogBudget::new(limits.answer_log_bytes, share);
        Self {
            services,
            auth,
            running_turns: Arc::new(RunningTurns::new(budget)),
            web: Arc::new(web),
            closing,
        }
    }
}

impl FromRef<HttpState> for GrpcServices {
    fn from_ref(state: &HttpState) -> Self {
        state.services.clone()
    }
}

impl FromRef<HttpState> for Authenticator {
    fn from_ref(state: &HttpState) -> Self {
        state.auth.clone()
    }
}
