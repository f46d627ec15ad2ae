//! Passes each call to the service of its path. A call for which no permit is free is refused here,
//! before its request is decoded, so that refusals cost little when there are many.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use anneal_core::caller::Caller;
use anneal_proto::v1::{
    chat_service_server::{self, ChatServiceServer},
    context_service_server::{self, ContextServiceServer},
    conversation_service_server::{self, ConversationServiceServer},
    erasure_service_server::{self, ErasureServiceServer},
    message_service_server::{self, MessageServiceServer},
    operator_service_server::{self, OperatorServiceServer},
};
use axum::{BoxError, body::Bytes};
use futures::{FutureExt as _, future::BoxFuture};
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tonic::service::Routes;
use tower::Service;

use crate::{
    call_metrics,
    grpc::{services::GrpcServices, status},
    limits::concurrency::ConcurrencyLimit,
    verbs::Rpc,
};

/// RPCs that `RpcCall` alone refuses. Turns and watches have limits of their own. The request of
/// AppendLargeMessage is a stream, of which nothing is read before it is admitted.
const ADMITTED_LATER: [&Rpc; 3] = [
    Rpc::named("append_large_message"),
    Rpc::named("chat"),
    Rpc::named("watch_conversation"),
];

/// All services. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Dispatcher(Arc<Services>);

/// The services. Those that every call goes to are not in `others`, whose router allocates and
/// copies more than such a call itself.
pub(super) struct Services {
    pub(super) conversations: ConversationServiceServer<GrpcServices>,
    pub(super) messages: MessageServiceServer<GrpcServices>,
    pub(super) contexts: ContextServiceServer<GrpcServices>,
    pub(super) chats: ChatServiceServer<GrpcServices>,
    pub(super) erasures: ErasureServiceServer<GrpcServices>,
    pub(super) operators: OperatorServiceServer<GrpcServices>,
    /// Health and reflection. Refuses paths of other services.
    pub(super) others: Routes,
    /// The limit of all RPCs but [`ADMITTED_LATER`].
    pub(super) call_limit: ConcurrencyLimit,
}

type Answer = BoxFuture<'static, Result<Response<tonic::body::Body>, Infallible>>;

impl Dispatcher {
    pub(super) fn new(services: Services) -> Self {
        Self(Arc::new(services))
    }
}

impl<B> Service<Request<B>> for Dispatcher
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError> + Send + 'static,
{
    type Response = Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Answer {
        let Some(rpc) = self.0.rpc_without_permit(&request) else {
            return self.0.dispatch(request.map(PartlyReceived::untouched));
        };
        if let Some(incomplete) = receive_available(request) {
            // A permit may be free by the time the rest of the request arrives.
            return self.0.dispatch(incomplete);
        }
        call_metrics::count_shed(rpc);
        std::future::ready(Ok(status::overloaded_answer())).boxed()
    }
}

impl Services {
    /// The RPC that is called, if no permit is free for it. None: a permit is free, or what is
    /// called takes none of this limit.
    fn rpc_without_permit<B>(&self, request: &Request<B>) -> Option<&'static Rpc> {
        let caller = request.extensions().get::<Caller>()?;
        if self.call_limit.has_free(caller.tenant()) {
            return None;
        }
        let rpc = Rpc::by_path(request.uri().path())?;
        let is_admitted_later = ADMITTED_LATER.iter().any(|later| later.name == rpc.name);
        (!is_admitted_later).then_some(rpc)
    }

    fn dispatch<B>(&self, request: Request<PartlyReceived<B>>) -> Answer
    where
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Into<BoxError> + Send + 'static,
    {
        let path = request.uri().path().strip_prefix('/').unwrap_or_default();
        match path.split_once('/').map(|(service, _)| service) {
            Some(message_service_server::SERVICE_NAME) => self.messages.clone().call(request),
            Some(context_service_server::SERVICE_NAME) => self.contexts.clone().call(request),
            Some(conversation_service_server::SERVICE_NAME) => {
                self.conversations.clone().call(request)
            }
            Some(chat_service_server::SERVICE_NAME) => self.chats.clone().call(request),
            Some(erasure_service_server::SERVICE_NAME) => self.erasures.clone().call(request),
            Some(operator_service_server::SERVICE_NAME) => self.operators.clone().call(request),
            _ => self.others.clone().call(request).boxed(),
        }
    }
}

/// Takes what has arrived of a request. Returns the request with it if more is to come. None: the
/// request is complete, or can no longer be received.
fn receive_available<B>(request: Request<B>) -> Option<Request<PartlyReceived<B>>>
where
    B: Body<Data = Bytes> + Unpin,
{
    let (parts, mut rest) = request.into_parts();
    let mut received = VecDeque::new();
    loop {
        match rest.frame().now_or_never() {
            Some(Some(Ok(frame))) => received.push_back(frame),
            Some(Some(Err(_)) | None) => return None,
            None => {
                return Some(Request::from_parts(
                    parts,
                    PartlyReceived { received, rest },
                ));
            }
        }
    }
}

/// The body of a request, of which some frames may have been taken already.
struct PartlyReceived<B> {
    received: VecDeque<Frame<Bytes>>,
    rest: B,
}

impl<B> PartlyReceived<B> {
    /// A body of which no frame was taken.
    const fn untouched(rest: B) -> Self {
        Self {
            received: VecDeque::new(),
            rest,
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for PartlyReceived<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.received.pop_front() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None => Pin::new(&mut self.rest).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.received.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.received.is_empty() {
            self.rest.size_hint()
        } else {
            SizeHint::default()
        }
    }
}
