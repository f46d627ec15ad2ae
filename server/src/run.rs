//! The server process: opens its ports, answers, and leaves in good order.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anneal_core::{
    limits::{FRAMING_BYTES, REQUEST_BYTES, RESPONSE_BYTES, STREAMS_PER_CONNECTION},
    tokens::Encoding,
};
use anneal_llm::ModelAccess;
use anneal_process::http::{self, Readiness};
use anneal_proto::v1::{
    chat_service_server::ChatServiceServer, context_service_server::ContextServiceServer,
    conversation_service_server::ConversationServiceServer, message_service_server::MessageServiceServer,
    operator_service_server::OperatorServiceServer,
};
use anneal_store::Store;
use futures::StreamExt as _;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::oneshot;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{service::Routes, transport::Server};
use tonic_health::{
    pb::health_server::{Health, HealthServer},
    server::HealthReporter,
};
use tracing::{info, warn};

use crate::{
    auth::{Auth, AuthError, AuthLayer, AuthSettings},
    house::House,
    http as api,
    listen::{OccupiedLayer, Tls, TlsError},
    ports::{Ports, Unprotected},
    services::Services,
    settings::{ApplicationSettings, ServerSettings},
    wire,
};

/// Why the server did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A port cannot be opened.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
    /// Everybody could come in, or listen in.
    #[error("{0}; set server.insecure to serve all the same")]
    Unprotected(Unprotected),
    /// No caller could be known, or the wrong ones would be.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// TLS cannot work as it is set.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The HTTP or gRPC server failed.
    #[error("serving failed")]
    Serving(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// What a server is made of.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// Addresses and limits.
    pub server: ServerSettings,
    /// How callers are known.
    pub auth: AuthSettings,
    /// The models that may be called.
    pub models: Arc<ModelAccess>,
    /// What applications find.
    pub applications: ApplicationSettings,
}

/// Where a server listens, once its ports are open.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// gRPC.
    pub grpc: SocketAddr,
    /// HTTP.
    pub http: SocketAddr,
}

/// Serves until `stop` is cancelled, then finishes the calls under way; turns within `stop_seconds`. Says where it listens on `open`.
pub async fn serve(
    store: Store,
    setup: Setup,
    metrics: PrometheusHandle,
    open: oneshot::Sender<Addresses>,
    stop: CancellationToken,
) -> Result<(), ServerError> {
    let Setup { server: settings, auth, models, applications } = setup;
    let Ports { grpc, web, probes, auth, tls, addresses } = Ports::open(&settings, &auth, &store).await?;

    let house = House::new(store.clone(), &settings, models, applications, auth.sharing());
    let (turns, turns_end, watching) = (house.turns.clone(), house.turns_end.clone(), house.watching.clone());
    let (health, health_service) = tonic_health::server::health_reporter();
    let readiness = Readiness::default();
    // Ports close after the calls under way have ended; what watches and rings goes on until then.
    let background = CancellationToken::new();
    tokio::spawn(watch(store.clone(), readiness.clone(), health.clone(), stop.clone()));
    keep_up(&background, auth.clone(), tls, &house, store);
    tokio::task::spawn_blocking(|| Encoding::default().counter().count("warm"));
    let closing = CancellationToken::new();
    let door = api::Door::new(Services { house: house.clone() }, auth.clone(), closing.clone());
    let answers = http::router(readiness.clone(), metrics);
    let beside = match probes {
        None => Some(answers),
        Some(listener) => {
            tokio::spawn(http::serve(listener, answers, background.clone()));
            None
        }
    };
    let router = api::router(beside, door, addresses.http, &settings.cors_origins);
    let web = tokio::spawn(api::serve(web.connections(background.clone()), router, background.clone()));

    info!(grpc = %addresses.grpc, http = %addresses.http, "serving gRPC on {}, HTTP on {}", addresses.grpc, addresses.http);
    let _ = open.send(addresses);

    let drain = drain(stop, readiness, health, Duration::from_millis(u64::from(settings.drain_delay_ms)));
    let patience = Duration::from_secs(u64::from(settings.stop_seconds));
    let no_more = CancellationToken::new();
    let incoming = grpc.connections(no_more.clone()).map(Ok::<_, std::io::Error>);
    let closed = {
        let turns_end = turns_end.clone();
        async move {
            drain.await;
            // Load balancers have noticed: who watches finds another server.
            watching.stop();
            closing.cancel();
            no_more.cancel();
            tokio::spawn(async move {
                tokio::time::sleep(patience).await;
                turns_end.cancel();
            });
        }
    };
    let serving = grpc_server(&settings)
        .layer(OccupiedLayer)
        .layer(tower::util::MapResponseLayer::new(wire::explain::<tonic::body::Body>))
        .layer(tower::util::MapResponseLayer::new(crate::watch::in_pieces))
        .layer(AuthLayer(auth))
        .add_routes(routes(house, &settings, health_service)?)
        .serve_with_incoming_shutdown(incoming, closed);
    let served = tokio::select! {
        served = serving => served,
        () = left_unread(&turns, &turns_end) => {
            warn!("some callers do not read what is left of their answers, leaving them");
            Ok(())
        }
    };
    // A turn whose caller has gone may still be storing its answer.
    turns.close();
    turns.wait().await;
    background.cancel();
    served.map_err(|error| ServerError::Serving(error.into()))?;
    tokio::select! {
        ended = web => ended.map_err(|error| ServerError::Serving(error.into())),
        () = left_unread(&turns, &turns_end) => {
            warn!("some readers over HTTP do not read what is left of their answers, leaving them");
            Ok(())
        }
    }
}

/// What goes on beside the calls: files that are read again, watchers, rings.
fn keep_up(background: &CancellationToken, auth: Auth, tls: Option<Tls>, house: &House, store: Store) {
    let (bell, watching, ringing) = (house.bell.clone(), house.watching.clone(), store.clone());
    let until_then = || background.clone();
    tokio::spawn(until_then().run_until_cancelled_owned(auth.run()));
    if let Some(tls) = tls {
        tokio::spawn(until_then().run_until_cancelled_owned(tls.run()));
    }
    tokio::spawn(until_then().run_until_cancelled_owned(async move { watching.run(store).await }));
    tokio::spawn(until_then().run_until_cancelled_owned(async move { bell.run(ringing).await }));
}

/// Streams that a client has reset and nobody has taken up yet; more close the connection (CVE-2023-44487).
const PENDING_RESETS: usize = 20;

fn grpc_server(settings: &ServerSettings) -> Server {
    Server::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(30)))
        .http2_keepalive_timeout(Some(Duration::from_secs(10)))
        .http2_max_header_list_size(16 * 1024)
        .http2_max_pending_accept_reset_streams(Some(PENDING_RESETS))
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .concurrency_limit_per_connection(settings.concurrent_calls as usize)
}

fn routes(house: House, settings: &ServerSettings, health: HealthServer<impl Health>) -> Result<Routes, ServerError> {
    let services = Services { house };
    macro_rules! service {
        ($server:ident) => {
            $server::new(services.clone())
                .max_decoding_message_size(REQUEST_BYTES + FRAMING_BYTES)
                .max_encoding_message_size(RESPONSE_BYTES)
        };
    }
    let mut routes = Routes::new(health)
        .add_service(service!(ConversationServiceServer))
        .add_service(service!(MessageServiceServer))
        .add_service(service!(ContextServiceServer))
        .add_service(service!(ChatServiceServer))
        .add_service(service!(OperatorServiceServer));
    if settings.reflection {
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(anneal_proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()
            .map_err(|error| ServerError::Serving(error.into()))?;
        routes = routes.add_service(reflection);
    }
    Ok(routes)
}

/// Keeps readiness and the gRPC health service in step with the database, and the pools' figures in the metrics.
async fn watch(store: Store, readiness: Readiness, health: HealthReporter, stop: CancellationToken) {
    let check = || async {
        for (pool, figures) in store.pools() {
            metrics::gauge!("db_pool_open", "pool" => pool).set(figures.open as f64);
            metrics::gauge!("db_pool_idle", "pool" => pool).set(figures.idle as f64);
            metrics::gauge!("db_pool_waiting", "pool" => pool).set(figures.waiting as f64);
        }
        store.ping().await.is_ok()
    };
    let changed = |ready: bool| {
        if ready {
            info!("the database answers: serving");
        } else {
            warn!("the database does not answer: not serving");
        }
        let health = health.clone();
        tokio::spawn(async move { announce(&health, ready).await });
    };
    readiness.watch(check, changed, stop).await;
}

async fn announce(health: &HealthReporter, ready: bool) {
    let status = if ready { tonic_health::ServingStatus::Serving } else { tonic_health::ServingStatus::NotServing };
    let names = [
        "",
        "anneal.v1.ConversationService",
        "anneal.v1.MessageService",
        "anneal.v1.ContextService",
        "anneal.v1.ChatService",
        "anneal.v1.OperatorService",
    ];
    for name in names {
        health.set_service_status(name, status).await;
    }
}

/// Waits for `stop`, says NOT_SERVING, and leaves load balancers time to notice.
async fn drain(stop: CancellationToken, readiness: Readiness, health: HealthReporter, delay: Duration) {
    stop.cancelled().await;
    readiness.stop();
    announce(&health, false).await;
    tokio::time::sleep(delay).await;
    info!("closing the door, finishing the calls under way");
}

/// What callers get to read the last of their answers once no turn is under way.
const FAREWELL: Duration = Duration::from_secs(1);

/// Returns when the time of turns is up and whoever reads has had what they came to.
async fn left_unread(turns: &TaskTracker, turns_end: &CancellationToken) {
    turns_end.cancelled().await;
    turns.close();
    turns.wait().await;
    tokio::time::sleep(FAREWELL).await;
}
