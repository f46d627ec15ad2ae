//! The neighbor of an attacker: another tenant that makes calls during the attack. Health probes
//! run beside it.

use std::{
    future::Future,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anneal_testkit::{AuthorizedChannel, HttpClient, HttpResponse, authorized_channel, pb, user};
use pb::{
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tonic::{Request, transport::Channel};

/// Deadline of a call.
const DEADLINE: Duration = Duration::from_secs(10);
/// Interval between rounds of calls.
const PACE: Duration = Duration::from_millis(200);
/// Interval between probes.
const PROBE_EVERY: Duration = Duration::from_millis(100);
/// Limit on the 99th percentile of calls and of probes.
const MAX_P99: Duration = Duration::from_secs(1);

/// Latencies of the neighbor's calls and of the probes. All of them succeeded.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    calls: Vec<Latency>,
    probes: Vec<Latency>,
}

/// Latency of one call or probe.
#[derive(Debug, Clone, Copy)]
struct Latency {
    duration: Duration,
    /// The RPC, the HTTP route or the path of the probe.
    target: &'static str,
    /// Time from the start of the recorder to this call.
    since_start: Duration,
}

/// Records the latencies of the calls, or of the probes.
struct LatencyRecorder {
    begun: Instant,
    latencies: Vec<Latency>,
}

/// Addresses of the server and the credential of the other tenant.
pub(crate) struct Neighbor {
    /// Address of the gRPC listener.
    pub(crate) grpc: SocketAddr,
    /// Address of the HTTP listener.
    pub(crate) http: SocketAddr,
    pub(crate) authorization: String,
}

impl Neighbor {
    /// Makes calls and probes until `stop` is cancelled, and at least two rounds of calls. They run
    /// in a thread of their own, so that the attacker's tasks in this process do not delay them.
    /// Panics if a call or a probe fails.
    pub(crate) async fn work_until(self, stop: CancellationToken) -> Latencies {
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let (calls, probes) =
                    tokio::join!(self.call_until(&stop), probe_until(self.http, &stop));
                Latencies { calls, probes }
            })
        };
        tokio::task::spawn_blocking(work)
            .await
            .expect("the neighbor and the probes are answered")
    }

    /// Makes rounds of calls until `stop` is cancelled, and at least two. In each round the calls
    /// are made on an old connection, then on a new one.
    async fn call_until(&self, stop: &CancellationToken) -> Vec<Latency> {
        let (old_connection, web, mut calls) = (
            connect(self.grpc, &self.authorization),
            HttpClient::at(self.http),
            LatencyRecorder::start(),
        );
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut rounds = 0;
        while rounds < 2 || !stop.is_cancelled() {
            pace.tick().await;
            self.make_calls(&old_connection, &web, &mut calls).await;
            self.make_calls(&connect(self.grpc, &self.authorization), &web, &mut calls)
                .await;
            rounds += 1;
        }
        calls.latencies
    }

    /// Creates a conversation, appends to it and lists sessions, each within [`DEADLINE`].
    async fn make_calls(
        &self,
        channel: &AuthorizedChannel,
        web: &HttpClient,
        calls: &mut LatencyRecorder,
    ) {
        let mut conversations = ConversationServiceClient::new(channel.clone());
        let create = conversations
            .create_conversation(with_deadline(pb::CreateConversationRequest::default()));
        let made = calls
            .time("CreateConversation", create)
            .await
            .expect("CreateConversation is answered");
        let conversation_id = made.into_inner().conversation_id;
        let messages = vec![user("hello")];
        let ask = pb::AppendMessagesRequest {
            conversation_id,
            messages,
            ..Default::default()
        };
        let mut client = MessageServiceClient::new(channel.clone());
        let append = client.append_messages(with_deadline(ask));
        calls
            .time("AppendMessages", append)
            .await
            .expect("AppendMessages is answered");
        let list = web
            .request("GET", "/api/agents/a/sessions")
            .header("authorization", &self.authorization);
        let answered = calls
            .time("GET sessions", HttpResponse::send(list.timeout(DEADLINE)))
            .await;
        assert_eq!(answered.status, 200, "{answered:?}");
    }
}

impl LatencyRecorder {
    fn start() -> Self {
        Self {
            begun: Instant::now(),
            latencies: Vec::new(),
        }
    }

    async fn time<T>(&mut self, target: &'static str, call: impl Future<Output = T>) -> T {
        let (since_start, called) = (self.begun.elapsed(), Instant::now());
        let answer = call.await;
        self.latencies.push(Latency {
            duration: called.elapsed(),
            target,
            since_start,
        });
        answer
    }
}

impl Latencies {
    /// A sentence with the 99th percentiles of calls and probes, and the slowest call.
    pub(crate) fn to_words(&self) -> String {
        let (calls, probes) = (self.calls.len(), self.probes.len());
        let slowest = self.calls.iter().max_by_key(|latency| latency.duration);
        let slowest = slowest.map(|latency| {
            format!(
                "the slowest was {}, {:?} after the start",
                latency.target, latency.since_start
            )
        });
        format!(
            "{calls} calls of the neighbor, p99 {:?}, {}; {probes} probes, p99 {:?}",
            p99(&self.calls),
            slowest.unwrap_or_default(),
            p99(&self.probes)
        )
    }

    /// Asserts that the 99th percentiles of calls and probes are within [`MAX_P99`].
    pub(crate) fn assert_undisturbed(&self, what: &str) {
        assert!(
            p99(&self.calls) <= MAX_P99 && p99(&self.probes) <= MAX_P99,
            "{what}: {}",
            self.to_words()
        );
    }
}

/// A new connection to this address with this credential.
pub(crate) fn connect(grpc: SocketAddr, authorization: &str) -> AuthorizedChannel {
    let channel = Channel::from_shared(format!("http://{grpc}"))
        .expect("an address")
        .connect_lazy();
    authorized_channel(channel, authorization)
}

/// The 99th percentile.
fn p99(latencies: &[Latency]) -> Duration {
    let mut sorted: Vec<Duration> = latencies.iter().map(|latency| latency.duration).collect();
    sorted.sort_unstable();
    let index = (sorted.len() * 99).div_ceil(100).saturating_sub(1);
    sorted.get(index).copied().unwrap_or_default()
}

/// Gets `/healthz` and `/readyz` until `stop` is cancelled. Each answer must be 200.
async fn probe_until(http: SocketAddr, stop: &CancellationToken) -> Vec<Latency> {
    let (web, mut probes) = (HttpClient::at(http), LatencyRecorder::start());
    let mut pace = interval(PROBE_EVERY);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !stop.is_cancelled() {
        pace.tick().await;
        for path in ["/healthz", "/readyz"] {
            let answered = probes
                .time(
                    path,
                    HttpResponse::send(web.request("GET", path).timeout(DEADLINE)),
                )
                .await;
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
