//! What stands before every endpoint: who asks, whether the door is open, and whether a browser was led here by another
//! name.

use std::{marker::PhantomData, sync::Arc};

use anneal_core::caller::{Caller, Verb};
use axum::{
    extract::{FromRequestParts, Request, State},
    http::{Extensions, StatusCode, header, request::Parts, uri::Authority},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataMap;

use super::{
    live::{Live, LogBudget},
    names::Names,
    problem::Problem,
};
use crate::{
    audit,
    auth::{Admitted, Auth, Proof},
    services::Services,
    status::Failure,
    traffic::{LimitSettings, RequestRoom},
    verbs::Rpc,
};

/// What endpoints share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Door {
    pub(super) services: Services,
    /// Who knows callers.
    pub(super) auth: Auth,
    /// Turns that run for readers over HTTP.
    pub(super) live: Arc<Live>,
    /// Cancelled when no new request is taken in.
    pub(super) closing: CancellationToken,
}

impl Door {
    /// A door to these services within these limits, until it closes.
    pub(crate) fn new(services: Services, auth: Auth, limits: &LimitSettings, closing: CancellationToken) -> Self {
        let share = if auth.is_open() { limits.answer_log_bytes } else { limits.share_of(limits.answer_log_bytes) };
        let live = Arc::new(Live::new(LogBudget::new(limits.answer_log_bytes, share)));
        Self { services, auth, live, closing }
    }
}

/// Who asks: every call of one request is made in this name.
#[derive(Clone)]
pub(super) struct Visitor {
    pub(super) services: Services,
    pub(super) caller: Caller,
    metadata: MetadataMap,
    extensions: Extensions,
}

impl Visitor {
    /// A call of an RPC, as gRPC would have brought it.
    pub(super) fn request<T>(&self, message: T) -> tonic::Request<T> {
        tonic::Request::from_parts(self.metadata.clone(), self.extensions.clone(), message)
    }

    /// What it takes to ask again whether the caller is known; None: nothing can change.
    pub(super) fn proof(&self) -> Option<Proof> {
        self.extensions.get::<Proof>().cloned()
    }

    /// Refuses to go on for who is not known any more: for answers that take long. A database that does not say ends nothing
    /// here.
    pub(super) async fn is_still_known(&self) -> Result<(), Failure> {
        let Some(proof) = self.extensions.get::<Proof>() else { return Ok(()) };
        match proof.holds().await {
            Ok(()) | Err(Failure::Store(_)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }
}

/// The RPCs that an endpoint makes: its caller needs the verbs of all of them.
pub(super) trait Calls: Send {
    /// Those RPCs.
    const RPCS: &'static [&'static Rpc];
}

/// A visitor who may make an endpoint's calls. The first of every endpoint's arguments: nobody becomes a [`Visitor`] otherwise,
/// and no body is read for anybody else.
pub(super) struct Allowed<C>(pub(super) Visitor, pub(super) PhantomData<C>);

impl<C: Calls> FromRequestParts<Door> for Allowed<C> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, door: &Door) -> Result<Self, Problem> {
        let Admitted { caller, identity, proof } = door.auth.admit(&parts.headers, &parts.extensions).await?;
        for rpc in C::RPCS {
            rpc.check(caller, &identity)?;
        }
        // What reads the body works for this caller.
        parts.extensions.insert(caller);
        let (metadata, mut extensions) = (MetadataMap::from_headers(parts.headers.clone()), Extensions::new());
        extensions.insert(caller);
        extensions.insert(identity);
        proof.map(|proof| extensions.insert(proof));
        parts.extensions.get::<RequestRoom>().map(|room| extensions.insert(room.clone()));
        Ok(Self(Visitor { services: door.services.clone(), caller, metadata, extensions }, PhantomData))
    }
}

/// Refuses what comes once the server is stopping.
pub(super) async fn only_while_open(State(door): State<Door>, request: Request, next: Next) -> Response {
    if door.closing.is_cancelled() {
        return Problem::from(Failure::ServerStopping).into_response();
    }
    next.run(request).await
}

/// Refuses the process's figures to whoever may not see those of all tenants; whether it lives, everybody may ask.
pub(super) async fn figures_for_operators(State(door): State<Door>, request: Request, next: Next) -> Response {
    if request.uri().path() == "/metrics" {
        let refused = match door.auth.admit(request.headers(), request.extensions()).await {
            Ok(admitted) if admitted.caller.may(Verb::Operator) => None,
            Ok(Admitted { caller, identity, .. }) => {
                audit::verb_missing(caller.tenant(), &identity, "metrics", Verb::Operator);
                Some(Failure::VerbMissing(Verb::Operator))
            }
            Err(failure) => Some(failure),
        };
        if let Some(failure) = refused {
            return Problem::from(failure).into_response();
        }
    }
    next.run(request).await
}

/// Refuses names that a page could have pointed here (DNS rebinding): without authentication it would speak for whoever
/// looks at it.
pub(super) async fn only_own_names(State(names): State<Names>, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let authority = request.uri().authority().map(Authority::as_str);
    if !authority.or(host).is_some_and(|name| names.allow(name)) {
        return Problem::malformed(StatusCode::MISDIRECTED_REQUEST, names.refusal()).into_response();
    }
    next.run(request).await
}
