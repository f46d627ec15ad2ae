//! Starts and stops the server: binds addresses, serves, and drains.

use std::{net::SocketAddr, time::Duration};

use anneal_core::tokens::Encoding;
use anneal_process::{
    exporter::MetricsExporter,
    http::{self, Readiness},
    metric_history::MetricHistory,
};
use anneal_store::Store;
use axum::Router;
use tokio::{net::TcpListener, sync::oneshot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic_health::server::HealthReporter;
use tracing::{info, warn};

use crate::{
    auth::Authenticator,
    grpc::{self, health, services::GrpcServices},
    http as api,
    listen::{MaxConnectionAge, Tls},
    listeners::{Addresses, Listeners, Protection},
    server_error::ServerError,
    settings::{AuthSettings, CurrentSettings, ServerSettings, WebSettings},
    state::ServerState,
    traffic::TrafficLimits,
    watch_registry::WatchRegistry,
};

/// The settings of a server.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// Addresses and limits.
    pub server: ServerSettings,
    /// How callers are authenticated.
    pub auth: AuthSettings,
    /// The page.
    pub web: WebSettings,
    /// Models, turns, agents and limits, which can be replaced while the server runs.
    pub current: CurrentSettings,
}

/// Checks the settings as [`serve`] does before it binds its addresses. Reads the files that they
/// name, and does not connect to the database.
pub fn check_settings(setup: &Setup, store: &Store) -> Result<(), ServerError> {
    Protection::read(&setup.server, (&setup.auth, &setup.web), store).map(|_| ())
}

/// Serves until `stop` is cancelled, then drains: calls under way finish. After `stop_seconds` the
/// turns among them are cancelled. A second after the last turn has ended, the server no longer
/// waits for other calls. Sends the bound addresses on `addresses_sender`.
pub async fn serve(
    store: Store,
    setup: Setup,
    metrics: MetricsExporter,
    addresses_sender: oneshot::Sender<Addresses>,
    stop: CancellationToken,
) -> Result<(), ServerError> {
    let Setup {
        server: settings,
        auth: auth_settings,
        web: web_settings,
        current,
    } = setup;
    // Those that size semaphores and time limits of connections stay in force.
    let limits = current.get().limits.clone();
    let Listeners {
        grpc,
        web,
        probes,
        auth,
        tls,
        addresses,
    } = Listeners::open(&settings, (&auth_settings, &web_settings), &limits, &store)?;

    let share = auth.tenant_share(limits.tenant_share_percent);
    let traffic = TrafficLimits::new(current.clone(), auth.accepts_anyone());
    let state = ServerState::new(store, &settings, current, traffic.clone(), share);
    let (store, settling_store) = (state.store.clone(), state.store.clone());
    let (turns, cancel_turns, watch_registry) = (
        state.turns.clone(),
        state.cancel_turns.clone(),
        state.watch_registry.clone(),
    );
    let health = create_health_reporter().await;
    let readiness = Readiness::default();
    // Cancelled when the last gRPC call and the last turn have ended. Until then HTTP, the probes
    // and the background tasks go on, also while the server drains.
    let background = CancellationToken::new();
    let watched = (readiness.clone(), health.clone());
    tokio::spawn(watch_database(store.clone(), watched, stop.clone()));
    let web_state = create_web_state(
        (&web_settings, &auth_settings),
        (addresses.http, tls.is_some()),
        &metrics,
        &background,
    );
    spawn_background_tasks(&background, auth.clone(), tls, &state, store);
    // One task for both listeners: they share the limit.
    let stall = Duration::from_secs(u64::from(limits.stall_seconds));
    tokio::spawn(
        background
            .clone()
            .run_until_cancelled_owned(grpc.connection_limit.clone().close_stalled_readers(stall)),
    );
    let max_age = MaxConnectionAge::new(&limits);
    // Builds the vocabulary of the default encoding now, not in the first call that counts tokens.
    tokio::task::spawn_blocking(|| Encoding::default().counter().count("warm"));
    let closing = CancellationToken::new();
    let http_state = api::HttpState::new(
        GrpcServices {
            state: state.clone(),
            encodes_answers: false,
        },
        auth.clone(),
        &limits,
        web_state,
        closing.clone(),
    );
    let probe_routes = http::router(readiness.clone(), metrics);
    let probe_routes_of_api = serve_probes(probes, probe_routes, &background);
    let router = api::router(
        probe_routes_of_api,
        http_state,
        traffic.clone(),
        (addresses.http, &settings),
    );
    let web = tokio::spawn(api::serve(
        web.accept_connections(background.clone()),
        router,
        max_age,
        background.clone(),
    ));
    let services =
        grpc::build_services(state, settings.reflection, health::service(health.clone()))?;

    info!(grpc = %addresses.grpc, http = %addresses.http, "serving gRPC on {}, HTTP on {}", addresses.grpc, addresses.http);
    let _ = addresses_sender.send(addresses);

    let stop_accepting = CancellationToken::new();
    let drain = Drain {
        readiness,
        health,
        watch_registry,
        closing,
        stop_accepting: stop_accepting.clone(),
        cancel_turns: cancel_turns.clone(),
    };
    tokio::spawn(drain.run(stop, settings.drain_delay_ms, settings.stop_seconds));
    let incoming = grpc.accept_connections(stop_accepting.clone());
    tokio::select! {
        () = grpc::serve(incoming, (services, auth, traffic), max_age, stop_accepting) => {}
        () = wait_for_last_reads(&turns, &cancel_turns) => {
            warn!("stopping, although some gRPC calls are under way or their answers unread");
        }
    }
    // A turn whose caller has disconnected may still be storing its answer, and ended model calls
    // may still have to be settled.
    turns.close();
    turns.wait().await;
    settling_store.wait_for_settlements().await;
    background.cancel();
    tokio::select! {
        ended = web => ended.map_err(|error| ServerError::Serving(error.into())),
        () = wait_for_last_reads(&turns, &cancel_turns) => {
            warn!("stopping, although some HTTP calls are under way or their answers unread");
            Ok(())
        }
    }
}

/// Creates the state of the page. Without the page, no metrics are kept in memory.
fn create_web_state(
    (settings, auth): (&WebSettings, &AuthSettings),
    address: (SocketAddr, bool),
    metrics: &MetricsExporter,
    background: &CancellationToken,
) -> api::WebState {
    let is_on = settings.is_on(auth);
    let history = is_on.then(|| MetricHistory::new(metrics.clone()));
    if let Some(history) = history.clone() {
        tokio::spawn(background.clone().run_until_cancelled_owned(history.run()));
    }
    api::WebState::new(settings, is_on, address, history)
}

/// Serves the probes on their own port. Without one, returns their routes for the HTTP API to
/// serve.
fn serve_probes(
    listener: Option<TcpListener>,
    routes: Router,
    background: &CancellationToken,
) -> Option<Router> {
    let Some(listener) = listener else {
        return Some(routes);
    };
    tokio::spawn(http::serve(listener, routes, background.clone()));
    None
}

/// Spawns tasks that do not belong to a call: reloads of keys and certificates, the record of key
/// uses, the poll of watched conversations, and job notifications.
fn spawn_background_tasks(
    background: &CancellationToken,
    auth: Authenticator,
    tls: Option<Tls>,
    state: &ServerState,
    store: Store,
) {
    let (job_notifier, watch_registry, notifier_store) = (
        state.job_notifier.clone(),
        state.watch_registry.clone(),
        store.clone(),
    );
    let token = || background.clone();
    tokio::spawn(token().run_until_cancelled_owned(auth.run_background()));
    if let Some(tls) = tls {
        tokio::spawn(token().run_until_cancelled_owned(tls.reload_on_change()));
    }
    tokio::spawn(token().run_until_cancelled_owned(async move { watch_registry.run(store).await }));
    tokio::spawn(
        token().run_until_cancelled_owned(async move { job_notifier.run(notifier_store).await }),
    );
}

/// Checks the database until `stop` is cancelled. Sets readiness and the gRPC health status by its
/// answers, and updates the metrics of the connection pools.
async fn watch_database(
    store: Store,
    (readiness, health): (Readiness, HealthReporter),
    stop: CancellationToken,
) {
    let check = || async {
        for (pool, figures) in store.pool_figures() {
            metrics::gauge!("anneal_db_pool_open", "pool" => pool).set(figures.open as f64);
            metrics::gauge!("anneal_db_pool_idle", "pool" => pool).set(figures.idle as f64);
            metrics::gauge!("anneal_db_pool_waiting", "pool" => pool).set(figures.waiting as f64);
        }
        store.ping().await.is_ok()
    };
    let on_change = |ready: bool| {
        if ready {
            info!("the database answers: serving");
        } else {
            warn!("the database does not answer: not serving");
        }
        let health = health.clone();
        tokio::spawn(async move { report_serving_status(&health, ready).await });
    };
    readiness.watch(check, on_change, stop).await;
}

/// Creates the health reporter, and reports NOT_SERVING for every service. Until the database has
/// answered, health checks must neither succeed nor fail with NOT_FOUND.
async fn create_health_reporter() -> HealthReporter {
    let health = HealthReporter::new();
    report_serving_status(&health, false).await;
    health
}

async fn report_serving_status(health: &HealthReporter, ready: bool) {
    let status = if ready {
        tonic_health::ServingStatus::Serving
    } else {
        tonic_health::ServingStatus::NotServing
    };
    let names = [
        "", // the whole server
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

/// The parts of the server that must be told when it stops.
struct Drain {
    readiness: Readiness,
    health: HealthReporter,
    watch_registry: WatchRegistry,
    /// Once cancelled, the HTTP API refuses requests.
    closing: CancellationToken,
    /// Once cancelled, gRPC accepts no connections.
    stop_accepting: CancellationToken,
    /// Once cancelled, turns end early.
    cancel_turns: CancellationToken,
}

impl Drain {
    /// Waits for `stop`, reports NOT_SERVING, and gives load balancers `delay_ms` to notice. Then
    /// ends watches and refuses new requests. After `stop_seconds` cancels the turns that are still
    /// under way.
    async fn run(self, stop: CancellationToken, delay_ms: u32, stop_seconds: u32) {
        stop.cancelled().await;
        self.readiness.stop();
        report_serving_status(&self.health, false).await;
        tokio::time::sleep(Duration::from_millis(delay_ms.into())).await;
        info!("refusing new calls, finishing the calls under way");
        // Load balancers have seen NOT_SERVING by now, so clients that watch reconnect elsewhere.
        self.watch_registry.stop();
        self.closing.cancel();
        self.stop_accepting.cancel();
        tokio::time::sleep(Duration::from_secs(stop_seconds.into())).await;
        self.cancel_turns.cancel();
    }
}

/// Time for other calls to end, and for callers to read the rest of their answers, once no turn is
/// under way.
const LAST_READS_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns when turns have been cancelled and ended, and other calls and the readers of answers have
/// had [`LAST_READS_TIMEOUT`] to finish.
async fn wait_for_last_reads(turns: &TaskTracker, cancel_turns: &CancellationToken) {
    cancel_turns.cancelled().await;
    turns.close();
    turns.wait().await;
    tokio::time::sleep(LAST_READS_TIMEOUT).await;
}
