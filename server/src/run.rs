//! The server process: opens its ports, answers, and leaves in good order.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anneal_core::tokens::Encoding;
use anneal_llm::ModelAccess;
use anneal_process::http::{self, Readiness};
use anneal_store::Store;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::oneshot;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic_health::server::HealthReporter;
use tracing::{info, warn};

use crate::{
    auth::{Auth, AuthError, AuthSettings},
    grpc, health,
    house::House,
    http as api,
    listen::{Lifetime, Tls, TlsError},
    ports::{Ports, Unprotected},
    services::Services,
    settings::{ApplicationSettings, ServerSettings},
    traffic::{LimitSettings, Traffic},
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
    /// What callers may take.
    pub limits: LimitSettings,
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
    let Setup { server: settings, limits, auth, models, applications } = setup;
    let Ports { grpc, web, probes, auth, tls, addresses } = Ports::open(&settings, &auth, &limits, &store)?;

    let sharing = auth.sharing(limits.tenant_share_percent);
    let house = House::new(store, &settings, models, applications, (sharing, &limits));
    let (store, calls) = (house.store.clone(), house.store.clone());
    let (turns, turns_end, watching) = (house.turns.clone(), house.turns_end.clone(), house.watching.clone());
    let health = not_serving_yet().await;
    let readiness = Readiness::default();
    // Ports close after the calls under way have ended; what watches and rings goes on until then.
    let background = CancellationToken::new();
    tokio::spawn(watch(store.clone(), readiness.clone(), health.clone(), stop.clone()));
    keep_up(&background, auth.clone(), tls, &house, store);
    let stall = Duration::from_secs(u64::from(limits.stall_seconds));
    tokio::spawn(background.clone().run_until_cancelled_owned(grpc.seats.clone().watch_readers(stall)));
    let (traffic, lifetime) = (Traffic::new(&limits, auth.is_open()), Lifetime::new(&limits));
    tokio::task::spawn_blocking(|| Encoding::default().counter().count("warm"));
    let closing = CancellationToken::new();
    let door =
        api::Door::new(Services { house: house.clone(), encodes: false }, auth.clone(), &limits, closing.clone());
    let answers = http::router(readiness.clone(), metrics);
    let beside = match probes {
        None => Some(answers),
        Some(listener) => {
            tokio::spawn(http::serve(listener, answers, background.clone()));
            None
        }
    };
    let router = api::router(beside, door, traffic.clone(), (addresses.http, &settings));
    let web = tokio::spawn(api::serve(web.connections(background.clone()), router, lifetime, background.clone()));
    let services = grpc::routes(house, settings.reflection, health::service(health.clone()))?;

    info!(grpc = %addresses.grpc, http = %addresses.http, "serving gRPC on {}, HTTP on {}", addresses.grpc, addresses.http);
    let _ = open.send(addresses);

    let drain = drain(stop, readiness, health, Duration::from_millis(u64::from(settings.drain_delay_ms)));
    let patience = Duration::from_secs(u64::from(settings.stop_seconds));
    let no_more = CancellationToken::new();
    let closed = {
        let (turns_end, no_more) = (turns_end.clone(), no_more.clone());
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
    tokio::spawn(closed);
    let incoming = grpc.connections(no_more.clone());
    tokio::select! {
        () = grpc::serve(incoming, (services, auth, traffic), lifetime, no_more) => {}
        () = left_unread(&turns, &turns_end) => {
            warn!("some callers do not read what is left of their answers, leaving them");
        }
    }
    // A turn whose caller has gone may still be storing its answer.
    turns.close();
    turns.wait().await;
    calls.calls_ended().await;
    background.cancel();
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

/// Nobody is told that it serves, or that there is no such service, before the database has answered.
async fn not_serving_yet() -> HealthReporter {
    let health = HealthReporter::new();
    announce(&health, false).await;
    health
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
