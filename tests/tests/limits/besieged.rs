//! A server process that is attacked, and an honest client of another tenant that it answers meanwhile.

use std::{
    future::Future,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anneal_core::caller::Verb;
use anneal_tests::{
    Anneal, Answered, Folder, Guest, House, Process, ScriptedModel, Web, assert_no_thread_was_held, eventually, pb,
};
use futures::future::join_all;
use pb::conversation_service_client::ConversationServiceClient;
use tokio_util::sync::CancellationToken;

use crate::{
    BINARY,
    cost::Meter,
    neighbour::{Neighbour, connect},
};

/// Most memory that the process may ever have taken, in MiB.
const MEMORY: u64 = 512;
/// How long an attack that the server does not end goes on, in seconds; `ANNEAL_FLOOD_SECONDS` makes it longer.
const FLOOD_SECONDS: u64 = 1;

/// How long a flood lasts that the server does not end.
pub(crate) fn flood_lasts() -> Duration {
    let said = std::env::var("ANNEAL_FLOOD_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(said.unwrap_or(FLOOD_SECONDS))
}

/// Settings under which nothing but the cost of calls limits them.
pub(crate) const UNLIMITED: [&str; 2] = ["limits.calls_per_second=0", "limits.bytes_per_second=0"];

/// The server, its database, and who talks to it.
pub(crate) struct Besieged {
    /// Its database; nobody asks the server in it.
    pub(crate) house: House,
    server: Process,
    web: Web,
    /// Where gRPC listens.
    pub(crate) grpc: SocketAddr,
    /// Where HTTP listens.
    pub(crate) http: SocketAddr,
    /// The attacker's `authorization`.
    pub(crate) eve: String,
    /// The neighbour's `authorization`.
    pub(crate) anna: String,
    operator: String,
    _folder: Folder,
}

impl Besieged {
    /// Starts a server that takes API keys, with the default settings but for these.
    pub(crate) async fn start(settings: &[&str]) -> Self {
        Self::start_with_file(settings, "").await
    }

    /// The same, and turns call this model.
    pub(crate) async fn start_calling(model: &ScriptedModel, settings: &[&str]) -> Self {
        Self::start_with_file(settings, &model.server_settings()).await
    }

    /// The same with this settings file: providers and models stand in one.
    pub(crate) async fn start_with_file(settings: &[&str], file: &str) -> Self {
        let (house, folder) = (House::start().await, Folder::new());
        folder.file("anneal.toml", file);
        let mut shown = Vec::new();
        for (tenant, verbs) in [("eve", &Verb::ALL[..]), ("anna", &Verb::ALL[..]), ("operator", &Verb::ALL[..])] {
            shown.push(format!("Bearer {}", house.key(tenant, verbs).await.text));
        }
        let [eve, anna, operator] = shown.try_into().expect("three of them");
        let settings = [&["auth.api_keys=true"][..], settings].concat();
        let anneal = Anneal::new(BINARY, &folder, &house.url);
        let (server, port) = anneal.try_server(&settings).await.unwrap_or_else(|ended| panic!("{:#?}", ended.lines()));
        let (web, grpc) = (server.door().await, SocketAddr::from(([127, 0, 0, 1], port)));
        let http = web.address();
        // It listens a moment before its first look at the database.
        eventually("the server is ready", async || web.get("/readyz").await.status == 200).await;
        // All keys come from one address here: those that work have let somebody in before an attack begins.
        for key in [&eve, &anna, &operator] {
            let listed = web.request("GET", "/api/agents/a/sessions").header("authorization", key);
            assert_eq!(Answered::to(listed).await.status, 200);
        }
        let started = Self { house, server, web, grpc, http, eve, anna, operator, _folder: folder };
        // The server is at work before an attack begins, for both tenants, so that its connections to the database are open:
        // opening one takes twenty round trips, and beside an attack each waits for what this unoptimised build decodes meanwhile.
        join_all([&started.eve, &started.anna].into_iter().flat_map(|key| std::iter::repeat_n(key, 8)).map(
            async |key| {
                let mut conversations = ConversationServiceClient::new(started.guest(key));
                conversations.create_conversation(pb::CreateConversationRequest::default()).await.expect("is made");
            },
        ))
        .await;
        let over = CancellationToken::new();
        over.cancel();
        started.neighbour().work_until(over).await;
        started
    }

    /// What calls of this server cost.
    pub(crate) async fn meter(&self) -> Meter {
        Meter::start(self.server.id().expect("it runs"), &self.house.url).await
    }

    /// A new conversation of the attacker's.
    pub(crate) async fn conversation(&self) -> String {
        let mut conversations = ConversationServiceClient::new(self.guest(&self.eve));
        let ask = pb::CreateConversationRequest { agent_id: "a".into(), ..Default::default() };
        conversations.create_conversation(ask).await.expect("is made").into_inner().conversation_id
    }

    /// What the process has written to its standard output and error so far, line by line.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.server.lines()
    }

    /// A channel of somebody's own to this server.
    pub(crate) fn guest(&self, authorization: &str) -> Guest {
        connect(self.grpc, authorization)
    }

    /// A client of its HTTP door, over connections of its own.
    pub(crate) fn web(&self) -> Web {
        Web::at(self.http)
    }

    /// Lets an attack go on until it ends, or so long; meanwhile another tenant works, call by call, on connections old and
    /// new, through both doors, and probes ask after the server. Then asserts that all of them were answered in time, that the
    /// process kept within its memory, and that nothing of the attack is left.
    pub(crate) async fn endures(&self, what: &str, lasts: Duration, attack: impl Future<Output = ()>) {
        let (begun, over) = (Instant::now(), CancellationToken::new());
        // An attack that panics ends the neighbour's work too.
        let _over = over.clone().drop_guard();
        let working = tokio::spawn(self.neighbour().work_until(over.clone()));
        // Boxed, so that its connections are gone as soon as it is over.
        let _ = Box::pin(tokio::time::timeout(lasts, attack)).await;
        over.cancel();
        let latencies = working.await.expect("the neighbour is answered");
        eventually(&format!("{what}: nothing of it is left"), async || {
            // The neighbour's and the probes' connections, and this question's.
            self.figure("connections_open").await < 10.0 && self.figure("waiting_bytes").await < 1.0
        })
        .await;
        let (memory, took) = (self.server.most_memory(), begun.elapsed());
        println!("{what}: {}; {memory} MiB, over in {took:?}", latencies.to_words());
        latencies.assert_undisturbed(what);
        assert!(memory <= MEMORY, "{what}: {memory} MiB");
        assert_no_thread_was_held(&self.metrics().await);
    }

    /// The tenant beside the attacker's.
    fn neighbour(&self) -> Neighbour {
        Neighbour { grpc: self.grpc, http: self.http, authorization: self.anna.clone() }
    }

    /// The process's figures, as Prometheus reads them.
    async fn metrics(&self) -> String {
        let asked = self.web.request("GET", "/metrics").header("authorization", &self.operator);
        let answer = Answered::to(asked).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.text
    }

    /// A figure of the process's: of the series that is named with its labels, or the sum over those of a name.
    pub(crate) async fn figure(&self, name: &str) -> f64 {
        let metrics = self.metrics().await;
        let all = metrics.lines().filter_map(|line| line.rsplit_once(' '));
        let of_name = all.filter(|(series, _)| *series == name || series.split('{').next() == Some(name));
        of_name.filter_map(|(_, value)| value.parse::<f64>().ok()).sum()
    }
}
