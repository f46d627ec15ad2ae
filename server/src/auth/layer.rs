//! The step before every gRPC call: finds the caller, and refuses whoever is not known or may not make this call.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response};
use tonic::Status;
use tower::{Layer, Service};

use super::Auth;
use crate::verbs::Rpc;

/// What is asked without a credential: whether the server is healthy.
pub(crate) const OPEN: &str = "/grpc.health.v1.Health/";

/// Puts the [`Caller`](anneal_core::caller::Caller) and its [`Proof`](super::Proof) into the extensions of every request.
#[derive(Clone)]
pub(crate) struct AuthLayer(pub(crate) Auth);

impl<S> Layer<S> for AuthLayer {
    type Service = Asking<S>;

    fn layer(&self, inner: S) -> Asking<S> {
        Asking { auth: self.0.clone(), inner }
    }
}

/// A service behind that step.
#[derive(Clone)]
pub(crate) struct Asking<S> {
    auth: Auth,
    inner: S,
}

impl<S, B, A> Service<Request<B>> for Asking<S>
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
        // The one that was ready is the one that is called.
        let mut inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(async move {
            if !request.uri().path().starts_with(OPEN) {
                let admitted = auth.admit(request.headers(), request.extensions()).await;
                // Before the message is read: it is not decoded for who may not make the call.
                let rpc = Rpc::at(request.uri().path());
                let admitted = admitted
                    .and_then(|(caller, proof)| rpc.map_or(Ok(()), |rpc| rpc.check(caller)).map(|()| (caller, proof)));
                match admitted {
                    Ok((caller, proof)) => {
                        request.extensions_mut().insert(caller);
                        proof.map(|proof| request.extensions_mut().insert(proof));
                    }
                    Err(failure) => return Ok(Status::from(failure).into_http()),
                }
            }
            inner.call(request).await
        })
    }
}
