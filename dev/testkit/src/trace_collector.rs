//! A collector of traces: receives spans over OTLP/gRPC and keeps them.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::any_value::Value,
    trace::v1::Span,
};
use tokio::{net::TcpListener, task::AbortHandle};
use tonic::{
    Request, Response, Status,
    transport::{Server, server::TcpIncoming},
};

/// A span that was received. Ids are hexadecimal.
#[derive(Debug, Clone)]
pub struct ExportedSpan {
    /// Its name.
    pub name: String,
    /// The trace that it belongs to.
    pub trace_id: String,
    /// Its own id.
    pub span_id: String,
    /// The id of its parent. Empty: it is the root of its trace.
    pub parent_span_id: String,
    /// Its kind, as OTLP numbers them: 2 server, 3 client, 5 consumer.
    pub kind: i32,
    /// Its attributes that are texts or whole numbers.
    pub attributes: HashMap<String, String>,
}

impl From<Span> for ExportedSpan {
    fn from(span: Span) -> Self {
        let attributes = span.attributes.into_iter().filter_map(|attribute| {
            let text = match attribute.value?.value? {
                Value::StringValue(text) => text,
                Value::IntValue(number) => number.to_string(),
                _ => return None,
            };
            Some((attribute.key, text))
        });
        Self {
            attributes: attributes.collect(),
            name: span.name,
            trace_id: hex::encode(span.trace_id),
            span_id: hex::encode(span.span_id),
            parent_span_id: hex::encode(span.parent_span_id),
            kind: span.kind,
        }
    }
}

/// The spans and headers that the collector has received.
#[derive(Debug, Default)]
struct Received {
    spans: Vec<ExportedSpan>,
    /// The values of the header `authorization`.
    authorizations: Vec<String>,
}

/// The collector. Dropping it stops it.
pub struct TraceCollector {
    address: SocketAddr,
    received: Arc<Mutex<Received>>,
    server: AbortHandle,
}

impl TraceCollector {
    /// A collector on a free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("some port is free");
        let address = listener.local_addr().expect("it has an address");
        let received = Arc::<Mutex<Received>>::default();
        let service = TraceServiceServer::new(Receiver(Arc::clone(&received)));
        let serving = Server::builder()
            .add_service(service)
            .serve_with_incoming(TcpIncoming::from(listener));
        Self {
            address,
            received,
            server: tokio::spawn(serving).abort_handle(),
        }
    }

    /// The URL for `tracing.endpoint`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every span so far.
    pub fn spans(&self) -> Vec<ExportedSpan> {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.spans.clone()
    }

    /// The only span of this name. Panics if there is none or more than one.
    pub fn only_span(&self, name: &str) -> ExportedSpan {
        let spans = self.spans();
        let mut named = spans.iter().filter(|span| span.name == name);
        match (named.next(), named.next()) {
            (Some(span), None) => span.clone(),
            _ => panic!("not exactly one span is called {name}: {spans:#?}"),
        }
    }

    /// The values of the header `authorization` in the exports so far.
    pub fn authorizations(&self) -> Vec<String> {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.authorizations.clone()
    }
}

impl Drop for TraceCollector {
    fn drop(&mut self) {
        self.server.abort();
    }
}

struct Receiver(Arc<Mutex<Received>>);

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut received = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let authorization = request.metadata().get("authorization");
        let authorization = authorization.and_then(|value| value.to_str().ok());
        received
            .authorizations
            .extend(authorization.map(str::to_owned));
        let resources = request.into_inner().resource_spans.into_iter();
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        let spans = scopes.flat_map(|scope| scope.spans);
        received.spans.extend(spans.map(ExportedSpan::from));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}
