//! A server process that is attacked, and an honest client of another tenant that it answers meanwhile.

use std::{
    future::Future,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anneal_core::caller::Verb;
use anneal_tests::{Anneal, Answered, Folder, Guest, House, Process, Web, eventually, pb, user};
use pb::{conversation_service_client::ConversationServiceClient, message_service_client::MessageServiceClient};
use tonic::{Request, transport::Channel};

use crate::BINARY;

/// Most memory that the process may ever have taken, in MiB.
const MEMORY: u64 = 512;
/// An honest call's deadline.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long an attack that the server does not end goes on, in seconds; `ANNEAL_FLOOD_SECONDS` makes it longer.
const FLOOD_SECONDS: u64 = 1;

/// How long a flood lasts that the server does not end.
pub(crate) fn flood_lasts() -> Duration {
    let said = std::env::var("ANNEAL_FLOOD_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(said.unwrap_or(FLOOD_SECONDS))
}

/// The server, its database, and who talks to it.
pub(crate) struct Besieged {
    house: House,
    server: Process,
    web: Web,
    /// Where gRPC listens.
    pub(crate) grpc: SocketAddr,
    /// Where HTTP listens.
    pub(crate) http: SocketAddr,
    /// The attacker's `authorization`.
    pub(crate) eve: String,
    anna: String,
    operator: String,
    _folder: Folder,
}

impl Besieged {
    /// Starts a server that takes API keys, with these settings beside.
    pub(crate) async fn start(settings: &[&str]) -> Self {
        let (house, folder) = (House::start().await, Folder::new());
        let mut shown = Vec::new();
        for (tenant, verbs) in [("eve", &Verb::ALL[..]), ("anna", &Verb::ALL[..]), ("operator", &Verb::ALL[..])] {
            shown.push(format!("Bearer {}", house.key(tenant, verbs).await.text));
        }
        let [eve, anna, operator] = shown.try_into().expect("three of them");
        // Attackers stand in line for connections to the database as everybody does: how long that is depends on the machine.
        let settings = [&["auth.api_keys=true", "database.pool_wait_ms=8000"][..], settings].concat();
        let anneal = Anneal::new(BINARY, &folder, &house.url);
        let (server, port) = anneal.try_server(&settings).await.unwrap_or_else(|ended| panic!("{:#?}", ended.lines()));
        let (web, grpc) = (server.door().await, SocketAddr::from(([127, 0, 0, 1], port)));
        let http = web.address();
        Self { house, server, web, grpc, http, eve, anna, operator, _folder: folder }
    }

    /// A channel of somebody's own to this server.
    pub(crate) fn guest(&self, authorization: &str) -> Guest {
        let channel = Channel::from_shared(format!("http://{}", self.grpc)).expect("an address").connect_lazy();
        self.house.showing_on(channel, authorization)
    }

    /// Lets an attack go on until it ends, or so long; meanwhile another tenant works, call by call, on connections old and
    /// new, through both doors. Then asserts that nothing of the attack is left.
    pub(crate) async fn endures(&self, what: &str, lasts: Duration, attack: impl Future<Output = ()>) {
        let (begun, kept) = (Instant::now(), self.guest(&self.anna));
        // Boxed, so that its connections are gone as soon as it is over.
        let mut attack = Some(Box::pin(tokio::time::timeout(lasts, attack)));
        let (mut calls, mut slowest) = (0, Duration::ZERO);
        // As often as an honest client would ask.
        let mut pace = tokio::time::interval(Duration::from_millis(200));
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while attack.is_some() || calls < 2 {
            let asked = Instant::now();
            let honest = async {
                pace.tick().await;
                self.works(&kept).await;
                self.works(&self.guest(&self.anna)).await;
            };
            let mut honest = std::pin::pin!(honest);
            loop {
                let over = async {
                    match &mut attack {
                        Some(attack) => attack.await.is_ok(),
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = &mut honest => break,
                    _ = over => attack = None,
                }
            }
            slowest = slowest.max(asked.elapsed());
            calls += 1;
        }
        eventually(&format!("{what}: nothing of it is left"), async || {
            // The honest client's connections: one for each channel, and this question's.
            self.figure("connections_open").await < 8.0 && self.figure("waiting_bytes").await < 1.0
        })
        .await;
        let (memory, took) = (self.server.most_memory(), begun.elapsed());
        println!("{what}: {calls} times six honest calls in at most {slowest:?}, {memory} MiB, over in {took:?}");
        assert!(memory <= MEMORY, "{what}: {memory} MiB");
    }

    /// What an honest client does, each call within its deadline.
    async fn works(&self, guest: &Guest) {
        let mut conversations = ConversationServiceClient::new(guest.clone());
        let made = conversations.create_conversation(timed(pb::CreateConversationRequest::default())).await;
        let conversation_id = made.expect("is answered").into_inner().conversation_id;
        let message =
            pb::AppendMessagesRequest { conversation_id, messages: vec![user("hello")], ..Default::default() };
        MessageServiceClient::new(guest.clone()).append_messages(timed(message)).await.expect("is answered");
        let asked = self.web.request("GET", "/api/agents/a/sessions").header("authorization", &self.anna);
        assert_eq!(Answered::to(asked.timeout(DEADLINE)).await.status, 200);
    }

    /// A figure of the process's.
    pub(crate) async fn figure(&self, name: &str) -> f64 {
        let asked = self.web.request("GET", "/metrics").header("authorization", &self.operator);
        let answer = Answered::to(asked).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let lines = answer.text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(DEADLINE);
    request
}
