//! A server process under attack. Meanwhile it must answer another tenant and health probes.

use std::{
    future::Future,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anneal_core::caller::Verb;
use anneal_testkit::{
    AnnealBinary, AuthorizedChannel, Folder, HttpClient, HttpResponse, Process, ScriptedModel,
    TestApp, assert_no_blocked_thread, eventually, gate_or_nightly, pb,
};
use futures::future::join_all;
use pb::conversation_service_client::ConversationServiceClient;
use tokio_util::sync::CancellationToken;

use crate::limits::{
    BINARY,
    cpu_cost::CpuMeter,
    neighbor::{Neighbor, connect},
};

/// Limit on the peak memory of the process, in MiB.
const MAX_MEMORY_MIB: u64 = 512;
/// Duration in seconds of a flood that the server does not end, in the gate (`cargo xtask ci`). It
/// is long enough for a hundred calls of the neighbor, so that one slow call is not the 99th
/// percentile. `ANNEAL_FLOOD_SECONDS` overrides it.
const FLOOD_SECONDS: u64 = 5;
/// [`FLOOD_SECONDS`] at night.
const NIGHTLY_FLOOD_SECONDS: u64 = 20;

/// Duration of a flood that the server does not end.
pub(crate) fn flood_duration() -> Duration {
    let configured = std::env::var("ANNEAL_FLOOD_SECONDS")
        .ok()
        .and_then(|seconds| seconds.parse().ok());
    let seconds = gate_or_nightly(FLOOD_SECONDS, NIGHTLY_FLOOD_SECONDS);
    Duration::from_secs(configured.unwrap_or(seconds))
}

/// Waits for [`flood_duration`], then closes the connections that an attack has opened.
pub(crate) async fn hold<T>(opened: T) {
    let _ = tokio::time::timeout(flood_duration(), std::future::pending::<()>()).await;
    drop(opened);
}

/// Settings without rate limits.
pub(crate) const UNLIMITED: [&str; 2] = ["limits.calls_per_second=0", "limits.bytes_per_second=0"];

/// The server process, its database and its callers' credentials.
pub(crate) struct AttackedServer {
    /// The app whose database the server process uses. The app's own server is not called.
    pub(crate) app: TestApp,
    server: Process,
    web: HttpClient,
    /// Address of the gRPC listener.
    pub(crate) grpc: SocketAddr,
    /// Address of the HTTP listener.
    pub(crate) http: SocketAddr,
    /// `authorization` of the attacker.
    pub(crate) eve: String,
    /// `authorization` of the neighbor.
    pub(crate) anna: String,
    operator: String,
    _folder: Folder,
}

impl AttackedServer {
    /// Starts a server with API keys and the default settings, changed by these.
    pub(crate) async fn start(settings: &[&str]) -> Self {
        Self::start_with_file(settings, "").await
    }

    /// As [`Self::start`], with this model for turns.
    pub(crate) async fn start_with_model(model: &ScriptedModel, settings: &[&str]) -> Self {
        Self::start_with_file(settings, &model.server_settings()).await
    }

    /// As [`Self::start`], with this settings file, which may define providers and models.
    pub(crate) async fn start_with_file(settings: &[&str], file: &str) -> Self {
        let (app, folder) = (TestApp::start().await, Folder::new());
        folder.file("anneal.toml", file);
        let mut authorizations = Vec::new();
        for tenant in ["eve", "anna", "operator"] {
            let key = app.key(tenant, &Verb::ALL).await;
            authorizations.push(format!("Bearer {}", key.text));
        }
        let [eve, anna, operator] = authorizations.try_into().expect("three of them");
        let settings = [&["auth.api_keys=true"][..], settings].concat();
        let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
        let (server, port) = anneal
            .try_server(&settings)
            .await
            .unwrap_or_else(|ended| panic!("{:#?}", ended.lines()));
        let (web, grpc) = (
            server.http_client().await,
            SocketAddr::from(([127, 0, 0, 1], port)),
        );
        let http = web.address();
        // The server listens before it has checked the database.
        eventually("the server is ready", async || {
            web.get("/readyz").await.status == 200
        })
        .await;
        // All keys come from one address, which may cause a limited number of lookups. The valid
        // ones are looked up before an attack begins.
        for key in [&eve, &anna, &operator] {
            let listed = web
                .request("GET", "/api/agents/a/sessions")
                .header("authorization", key);
            assert_eq!(HttpResponse::send(listed).await.status, 200);
        }
        let started = Self {
            app,
            server,
            web,
            grpc,
            http,
            eve,
            anna,
            operator,
            _folder: folder,
        };
        // Both tenants make calls before an attack begins, so that the database connections are
        // open. Opening one takes twenty round trips, and during an attack each of them waits while
        // this unoptimized build decodes requests.
        join_all(
            [&started.eve, &started.anna]
                .into_iter()
                .flat_map(|key| std::iter::repeat_n(key, 8))
                .map(async |key| {
                    let mut conversations = ConversationServiceClient::new(started.channel(key));
                    conversations
                        .create_conversation(pb::CreateConversationRequest::default())
                        .await
                        .expect("is created");
                }),
        )
        .await;
        // The neighbor makes its two rounds of calls and stops.
        let over = CancellationToken::new();
        over.cancel();
        started.neighbor().work_until(over).await;
        started
    }

    /// Starts to measure processor time of this server.
    pub(crate) async fn cpu_meter(&self) -> CpuMeter {
        CpuMeter::start(self.server.id().expect("it runs"), &self.app.url).await
    }

    /// Creates a conversation of the attacker.
    pub(crate) async fn create_conversation(&self) -> String {
        let mut conversations = ConversationServiceClient::new(self.channel(&self.eve));
        let ask = pb::CreateConversationRequest {
            agent_id: "a".into(),
            ..Default::default()
        };
        conversations
            .create_conversation(ask)
            .await
            .expect("is created")
            .into_inner()
            .conversation_id
    }

    /// Lines of the process's standard output and error so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.server.lines()
    }

    /// A new connection to this server with this credential.
    pub(crate) fn channel(&self, authorization: &str) -> AuthorizedChannel {
        connect(self.grpc, authorization)
    }

    /// An HTTP client with connections of its own.
    pub(crate) fn http_client(&self) -> HttpClient {
        HttpClient::at(self.http)
    }

    /// Runs an attack until it ends, for at most `duration`. Meanwhile another tenant makes calls
    /// over gRPC and HTTP, on old and new connections, and probes check the server's health. Then
    /// asserts that no connection or memory of the attack is left, that all calls and probes were
    /// answered and 99 percent of them within a second, that the process stayed within
    /// [`MAX_MEMORY_MIB`], and that no async thread of it was blocked.
    pub(crate) async fn run_attack(
        &self,
        what: &str,
        duration: Duration,
        attack: impl Future<Output = ()>,
    ) {
        let (begun, over) = (Instant::now(), CancellationToken::new());
        // If the attack panics, the neighbor stops too.
        let _over = over.clone().drop_guard();
        let working = tokio::spawn(self.neighbor().work_until(over.clone()));
        // Boxed, so that its connections are dropped as soon as it ends.
        let _ = Box::pin(tokio::time::timeout(duration, attack)).await;
        over.cancel();
        let latencies = working.await.expect("the neighbor is answered");
        eventually(
            &format!("{what}: connections and memory are released"),
            async || {
                // The connections of the neighbor, of the probes and of this query.
                self.metric_value("anneal_connections_open").await < 10.0
                    && self.metric_value("anneal_waiting_bytes").await < 1.0
            },
        )
        .await;
        let (memory, took) = (self.server.peak_memory(), begun.elapsed());
        println!(
            "{what}: {}; {memory} MiB, over in {took:?}",
            latencies.to_words()
        );
        latencies.assert_undisturbed(what);
        assert!(memory <= MAX_MEMORY_MIB, "{what}: {memory} MiB");
        assert_no_blocked_thread(&self.metrics().await);
    }

    /// The other tenant.
    fn neighbor(&self) -> Neighbor {
        Neighbor {
            grpc: self.grpc,
            http: self.http,
            authorization: self.anna.clone(),
        }
    }

    /// The process's metrics in the Prometheus text format.
    async fn metrics(&self) -> String {
        let asked = self
            .web
            .request("GET", "/metrics")
            .header("authorization", &self.operator);
        let answer = HttpResponse::send(asked).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.text
    }

    /// The value of a metric: of one series if `name` has labels, else the sum of the series of
    /// this name.
    pub(crate) async fn metric_value(&self, name: &str) -> f64 {
        let metrics = self.metrics().await;
        let all = metrics.lines().filter_map(|line| line.rsplit_once(' '));
        let of_name =
            all.filter(|(series, _)| *series == name || series.split('{').next() == Some(name));
        of_name
            .filter_map(|(_, value)| value.parse::<f64>().ok())
            .sum()
    }
}
