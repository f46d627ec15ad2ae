//! Authentication and authorization of HTTP requests. Each endpoint lists RPCs whose verbs its
//! caller needs. The verbs are checked before the body is read.

use std::marker::PhantomData;

use anneal_core::caller::Caller;
use axum::{
    extract::{FromRef, FromRequestParts, MatchedPath},
    http::{Extensions, request::Parts},
};
use tonic::metadata::MetadataMap;

use super::problem::Problem;
use crate::{
    auth::{Authenticated, Authenticator, Proof},
    failure::Failure,
    grpc::services::GrpcServices,
    identity::Identity,
    rpc_call::{HttpRoute, NewRequestId},
    traffic::RequestMemory,
    verbs::Rpc,
};

/// The authenticated caller of one HTTP request. The RPCs that the endpoint calls run in its name.
#[derive(Clone)]
pub(super) struct HttpCaller {
    pub(super) services: GrpcServices,
    pub(super) caller: Caller,
    metadata: MetadataMap,
    extensions: Extensions,
}

impl HttpCaller {
    /// Wraps `message` with the metadata and extensions that a gRPC request of this caller would
    /// have.
    pub(super) fn request<T>(&self, message: T) -> tonic::Request<T> {
        tonic::Request::from_parts(self.metadata.clone(), self.extensions.clone(), message)
    }

    /// The caller's name for logs.
    pub(super) fn identity(&self) -> Identity {
        let identity = self.extensions.get::<Identity>().cloned();
        identity.unwrap_or(Identity::Anyone)
    }

    /// The same caller, for a request that holds this memory until its call has ended.
    pub(super) fn with_memory(&self, memory: RequestMemory) -> Self {
        let mut caller = self.clone();
        caller.extensions.insert(memory);
        caller
    }

    /// The same caller, for a turn whose request id was made for it.
    pub(super) fn with_new_request_id(&self) -> Self {
        let mut caller = self.clone();
        caller.extensions.insert(NewRequestId);
        caller
    }

    /// The proof with which a long answer checks the credential again. None: callers need no
    /// credential.
    pub(super) fn proof(&self) -> Option<Proof> {
        self.extensions.get::<Proof>().cloned()
    }

    /// Fails if the credential is no longer valid. Succeeds if the database is unavailable, so that
    /// a long answer goes on.
    pub(super) async fn recheck_credential(&self) -> Result<(), Failure> {
        let Some(proof) = self.extensions.get::<Proof>() else {
            return Ok(());
        };
        match proof.recheck().await {
            Ok(()) | Err(Failure::Store(_)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }
}

/// RPCs that an endpoint calls. The caller needs the verbs of all of them. An RPC that needs no
/// further verb may be left out.
pub(super) trait EndpointRpcs: Send {
    const RPCS: &'static [&'static Rpc];
}

/// Extractor: a caller who may call all RPCs of the endpoint. It is the only way to an
/// [`HttpCaller`]. Every endpoint that needs a caller takes this extractor before the body, so that
/// the body of an unauthorized request is never read.
pub(super) struct Authorized<C>(pub(super) HttpCaller, pub(super) PhantomData<C>);

impl<S, C: EndpointRpcs> FromRequestParts<S> for Authorized<C>
where
    S: Send + Sync,
    Authenticator: FromRef<S>,
    GrpcServices: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Authenticated {
            caller,
            identity,
            proof,
        } = Authenticator::from_ref(state)
            .authenticate(&parts.headers, &parts.extensions)
            .await?;
        for rpc in C::RPCS {
            rpc.check(caller, &identity)?;
        }
        // `JsonBody` parses large bodies on this caller's share of the CPU pool.
        parts.extensions.insert(caller);
        let (metadata, mut extensions) = (
            MetadataMap::from_headers(parts.headers.clone()),
            Extensions::new(),
        );
        extensions.insert(caller);
        extensions.insert(identity);
        proof.map(|proof| extensions.insert(proof));
        if anneal_trace::is_on()
            && let Some(route) = parts.extensions.get::<MatchedPath>()
        {
            extensions.insert(HttpRoute(route.as_str().to_owned()));
        }
        parts
            .extensions
            .get::<RequestMemory>()
            .map(|memory| extensions.insert(memory.clone()));
        Ok(Self(
            HttpCaller {
                services: GrpcServices::from_ref(state),
                caller,
                metadata,
                extensions,
            },
            PhantomData,
        ))
    }
}
