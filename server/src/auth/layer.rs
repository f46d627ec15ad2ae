//! The tower layer that authenticates every gRPC call, except those of the health service, and
//! checks the verbs that its RPC needs.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response};
use tonic::Status;
use tower::{Layer, Service};

use super::{Authenticated, Authenticator};
use crate::verbs::{Rpc, UNAUTHENTICATED_PATH_PREFIX};

/// Adds the [`Caller`](anneal_core::caller::Caller), its [`Identity`](crate::identity::Identity)
/// and its [`Proof`](super::Proof) to the extensions of each authenticated request.
#[derive(Clone)]
pub(crate) struct AuthLayer(pub(crate) Authenticator);

impl<S> Layer<S> for AuthLayer {
    type Service = AuthService<S>;

    fn layer(&self, inner: S) -> AuthService<S> {
        AuthService {
            auth: self.0.clone(),
            inner,
        }
    }
}

/// The service that [`AuthLayer`] makes.
#[derive(Clone)]
pub(crate) struct AuthService<S> {
    auth: Authenticator,
    inner: S,
}

impl<S, B, A> Service<Request<B>> for AuthService<S>
where
    S: Service<Request<B>, Response = Response<A>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    A: Default,
{
    type Response = Response<A>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<A>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let (auth, clone) = (self.auth.clone(), self.inner.clone());
        // Only the instance that `poll_ready` was called on is ready.
        let mut inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(async move {
            if !request
                .uri()
                .path()
                .starts_with(UNAUTHENTICATED_PATH_PREFIX)
            {
                let authenticated = auth
                    .authenticate(request.headers(), request.extensions())
                    .await;
                // Check the verbs before the message is read, so that the message of an
                // unauthorized caller is not decoded. Reflection and unknown paths have no `Rpc`
                // and need no verb.
                let rpc = Rpc::by_path(request.uri().path());
                let authenticated = authenticated.and_then(|authenticated| {
                    rpc.map_or(Ok(()), |rpc| {
                        rpc.check(authenticated.caller, &authenticated.identity)
                    })
                    .map(|()| authenticated)
                });
                match authenticated {
                    Ok(Authenticated {
                        caller,
                        identity,
                        proof,
                    }) => {
                        request.extensions_mut().insert(caller);
                        request.extensions_mut().insert(identity);
                        proof.map(|proof| request.extensions_mut().insert(proof));
                    }
                    Err(failure) => return Ok(Status::from(failure).into_http()),
                }
            }
            inner.call(request).await
        })
    }
}
