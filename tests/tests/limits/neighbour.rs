//! The neighbour of an attacker: another tenant that works, and probes that ask after the server, while an attack lasts.

use std::{
    future::Future,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anneal_tests::{Answered, Guest, Web, guest_on, pb, user};
use pb::{conversation_service_client::ConversationServiceClient, message_service_client::MessageServiceClient};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tonic::{Request, transport::Channel};

/// A call's deadline.
const DEADLINE: Duration = Duration::from_secs(10);
/// From one round of calls to the next: as often as an application would ask.
const PACE: Duration = Duration::from_millis(200);
/// From one probe to the next.
const PROBE_EVERY: Duration = Duration::from_millis(100);
/// The slowest call, and the slowest probe, of a hundred.
const P99: Duration = Duration::from_secs(1);

/// What the neighbour and the probes have seen. Every call and probe in it was answered.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    calls: Vec<Latency>,
    probes: Vec<Latency>,
}

/// How long an answer took, and what was asked when.
#[derive(Debug, Clone, Copy)]
struct Latency {
    took: Duration,
    asked: &'static str,
    /// From the start of its caller's work to this call.
    after: Duration,
}

/// Latencies of one caller.
struct Timed {
    begun: Instant,
    latencies: Vec<Latency>,
}

/// How another tenant reaches the server.
pub(crate) struct Neighbour {
    /// Where gRPC listens.
    pub(crate) grpc: SocketAddr,
    /// Where HTTP listens.
    pub(crate) http: SocketAddr,
    pub(crate) authorization: String,
}

impl Neighbour {
    /// Works, and probes, until `over` is cancelled and two rounds are done, on a thread of its own: the attacker's work in this
    /// process does not delay it. Panics where a call or a probe is not answered.
    pub(crate) async fn work_until(self, over: CancellationToken) -> Latencies {
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let (calls, probes) = tokio::join!(self.call_until(&over), probe_until(self.http, &over));
                Latencies { calls, probes }
            })
        };
        tokio::task::spawn_blocking(work).await.expect("the neighbour and the probes are answered")
    }

    /// Works, round by round.
    async fn call_until(&self, over: &CancellationToken) -> Vec<Latency> {
        let (kept, web, mut calls) = (connect(self.grpc, &self.authorization), Web::at(self.http), Timed::start());
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut rounds = 0;
        while rounds < 2 || !over.is_cancelled() {
            pace.tick().await;
            self.make_calls(&kept, &web, &mut calls).await;
            self.make_calls(&connect(self.grpc, &self.authorization), &web, &mut calls).await;
            rounds += 1;
        }
        calls.latencies
    }

    /// What an application does, each call within its deadline.
    async fn make_calls(&self, guest: &Guest, web: &Web, calls: &mut Timed) {
        let mut conversations = ConversationServiceClient::new(guest.clone());
        let create = conversations.create_conversation(with_deadline(pb::CreateConversationRequest::default()));
        let made = calls.time("CreateConversation", create).await.expect("CreateConversation is answered");
        let conversation_id = made.into_inner().conversation_id;
        let messages = vec![user("hello")];
        let ask = pb::AppendMessagesRequest { conversation_id, messages, ..Default::default() };
        let mut client = MessageServiceClient::new(guest.clone());
        let append = client.append_messages(with_deadline(ask));
        calls.time("AppendMessages", append).await.expect("AppendMessages is answered");
        let list = web.request("GET", "/api/agents/a/sessions").header("authorization", &self.authorization);
        let answered = calls.time("GET sessions", Answered::to(list.timeout(DEADLINE))).await;
        assert_eq!(answered.status, 200, "{answered:?}");
    }
}

impl Timed {
    fn start() -> Self {
        Self { begun: Instant::now(), latencies: Vec::new() }
    }

    async fn time<T>(&mut self, asked: &'static str, call: impl Future<Output = T>) -> T {
        let (after, called) = (self.begun.elapsed(), Instant::now());
        let answer = call.await;
        self.latencies.push(Latency { took: called.elapsed(), asked, after });
        answer
    }
}

impl Latencies {
    /// The 99th percentiles of calls and probes, in words.
    pub(crate) fn to_words(&self) -> String {
        let (calls, probes) = (self.calls.len(), self.probes.len());
        let slowest = self.calls.iter().max_by_key(|latency| latency.took);
        let slowest = slowest.map(|latency| format!("slowest {} {:?} after the start", latency.asked, latency.after));
        format!(
            "{calls} calls of the neighbour, p99 {:?}, {}; {probes} probes, p99 {:?}",
            p99(&self.calls),
            slowest.unwrap_or_default(),
            p99(&self.probes)
        )
    }

    /// Asserts that the neighbour and the probes were answered as if nobody else were there.
    pub(crate) fn assert_undisturbed(&self, what: &str) {
        assert!(p99(&self.calls) <= P99 && p99(&self.probes) <= P99, "{what}: {}", self.to_words());
    }
}

/// A connection of somebody's own to the server that listens there.
pub(crate) fn connect(grpc: SocketAddr, authorization: &str) -> Guest {
    let channel = Channel::from_shared(format!("http://{grpc}")).expect("an address").connect_lazy();
    guest_on(channel, authorization)
}

/// The value that 99 of 100 are at most.
fn p99(latencies: &[Latency]) -> Duration {
    let mut sorted: Vec<Duration> = latencies.iter().map(|latency| latency.took).collect();
    sorted.sort_unstable();
    let index = (sorted.len() * 99).div_ceil(100).saturating_sub(1);
    sorted.get(index).copied().unwrap_or_default()
}

/// Asks `/healthz` and `/readyz` until `over` is cancelled; both must say 200 each time.
async fn probe_until(http: SocketAddr, over: &CancellationToken) -> Vec<Latency> {
    let (web, mut probes) = (Web::at(http), Timed::start());
    let mut pace = interval(PROBE_EVERY);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !over.is_cancelled() {
        pace.tick().await;
        for path in ["/healthz", "/readyz"] {
            let answered = probes.time(path, Answered::to(web.request("GET", path).timeout(DEADLINE))).await;
            assert_eq!(answered.status, 200, "{path}: {answered:?}");
        }
    }
    probes.latencies
}

fn with_deadline<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(DEADLINE);
    request
}
