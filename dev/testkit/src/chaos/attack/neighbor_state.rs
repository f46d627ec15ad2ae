//! State that the neighbor's clients share, and their calls: every failed call is a finding.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use reqwest::RequestBuilder;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, transport::Channel};

use super::{
    super::findings::{Findings, Tally, lock},
    installation::Addresses,
    latencies::{Kind, Latencies, WINDOW, latency_limit},
    tallies::Tallies,
    watched_conversation::WatchedConversation,
};
use crate::{AuthorizedChannel, authorized_channel, status_details};

/// The deadline of a call.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);
/// A call that has no answer after this time is reported as "no answer". It is longer than the
/// deadline, which the server should report itself.
const HANGS_AFTER: Duration = Duration::from_secs(12);
/// The interval between two rounds of probes.
const PROBE_EVERY: Duration = Duration::from_millis(100);
/// The interval between two checks of messages that are not yet delivered to the watch or counted.
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// The state that the neighbor's clients share.
pub(super) struct NeighborState {
    pub(super) servers: Vec<Addresses>,
    /// The neighbor's `authorization`.
    pub(super) authorization: String,
    pub(super) findings: Arc<Findings>,
    /// Counts of what the neighbor and the probes did.
    pub(super) tally: Tally,
    pub(super) latencies: Latencies,
    /// Counts of the attacker's actions, and of the neighbor's slow calls by the attacks that were
    /// running.
    pub(super) attack_tallies: Arc<Tallies>,
    /// Conversations in use.
    conversations: Mutex<Vec<Arc<WatchedConversation>>>,
    /// Cancelled when the clients must stop.
    pub(super) over: CancellationToken,
}

impl NeighborState {
    pub(super) fn new(
        servers: Vec<Addresses>,
        authorization: String,
        findings: Arc<Findings>,
        attack_tallies: Arc<Tallies>,
    ) -> Self {
        let (tally, latencies, conversations) =
            (Tally::default(), Latencies::default(), Mutex::default());
        Self {
            servers,
            authorization,
            findings,
            tally,
            latencies,
            attack_tallies,
            conversations,
            over: CancellationToken::new(),
        }
    }

    /// A new channel of the neighbor to a server.
    pub(super) fn channel(&self, server: usize) -> AuthorizedChannel {
        let address = format!("http://{}", self.servers[server % self.servers.len()].grpc);
        authorized_channel(
            Channel::from_shared(address)
                .expect("a valid address")
                .connect_lazy(),
            &self.authorization,
        )
    }

    pub(super) fn add(&self, conversation: &Arc<WatchedConversation>) {
        lock(&self.conversations).push(Arc::clone(conversation));
    }

    /// Ends the watch of a conversation and forgets it.
    pub(super) fn remove(&self, conversation: &WatchedConversation) {
        conversation.over.cancel();
        lock(&self.conversations).retain(|other| other.recorded.id != conversation.recorded.id);
    }

    /// The conversations in use.
    pub(super) fn conversations(&self) -> Vec<Arc<WatchedConversation>> {
        lock(&self.conversations).clone()
    }

    /// Makes a call. None if it failed, which is a finding.
    pub(super) fn call<'a, T: Send + 'a>(
        &'a self,
        what: &'static str,
        call: impl Future<Output = Result<Response<T>, Status>> + Send + 'a,
    ) -> BoxFuture<'a, Option<T>> {
        let answer = async {
            call.await
                .map(Response::into_inner)
                .map_err(|status| status_text(&status))
        };
        self.measure(what, answer)
    }

    /// Sends a request over HTTP and reads its answer. None if it failed, which is a finding.
    pub(super) async fn request(
        &self,
        what: &'static str,
        request: RequestBuilder,
    ) -> Option<String> {
        let request = request
            .header("authorization", &self.authorization)
            .timeout(DEADLINE);
        let answer = async {
            let response = request.send().await.map_err(|error| kind_of(&error))?;
            let status = response.status();
            let text = response.text().await.map_err(|error| kind_of(&error))?;
            if status.is_success() {
                Ok(text)
            } else {
                Err(format!("HTTP {status} {}", reason_in(&text)))
            }
        };
        self.measure(what, answer).await
    }

    /// Measures the latency of a call. A failure is a finding.
    pub(super) fn measure<'a, T: Send + 'a>(
        &'a self,
        what: &'static str,
        answer: impl Future<Output = Result<T, String>> + Send + 'a,
    ) -> BoxFuture<'a, Option<T>> {
        // Boxed, because a call's future is large and a round makes many calls.
        let answer = Box::pin(answer);
        Box::pin(self.measure_boxed_call(what, answer))
    }

    async fn measure_boxed_call<T>(
        &self,
        what: &'static str,
        answer: BoxFuture<'_, Result<T, String>>,
    ) -> Option<T> {
        let began = Instant::now();
        let answer = timeout(HANGS_AFTER, answer)
            .await
            .unwrap_or_else(|_| Err("no answer".to_owned()));
        self.latencies.add(Kind::Call, what, began);
        if began.elapsed() > latency_limit() {
            self.attack_tallies.count_slow_call();
        }
        self.tally.increment("calls of the neighbor");
        match answer {
            Ok(answer) => Some(answer),
            Err(why) => {
                self.tally.increment("failed calls of the neighbor");
                self.findings.add("calls", format!("{what}: {why}"));
                None
            }
        }
    }

    /// Probes a server, each time on a new connection, until the campaign is over.
    pub(super) async fn probe(&self, server: Addresses) {
        let mut pace = interval(PROBE_EVERY);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.over.is_cancelled() {
            pace.tick().await;
            for path in ["/healthz", "/readyz"] {
                let began = Instant::now();
                let answer = timeout(DEADLINE, status_of(server, path)).await;
                self.latencies.add(Kind::Probe, path, began);
                let answer = answer.unwrap_or_else(|_| "no answer".to_owned());
                self.tally.increment("probes");
                self.findings
                    .demand(answer == "HTTP/1.1 200 OK", "probes", || {
                        format!("{path}: {answer:?}")
                    });
            }
        }
    }

    /// Checks pending messages and the latencies of each window until the campaign is over.
    pub(super) async fn check_periodically(&self) {
        let (mut from, mut window_began) = (Duration::ZERO, Instant::now());
        let mut ticks = interval(CHECK_EVERY);
        while !self.over.is_cancelled() {
            ticks.tick().await;
            for conversation in self.conversations() {
                conversation.check_waits(&self.findings, &self.latencies);
            }
            if window_began.elapsed() >= WINDOW {
                from = self.latencies.check_window(from, &self.findings);
                window_began = Instant::now();
            }
        }
        self.latencies.check_window(from, &self.findings);
    }
}

/// A request with a deadline.
pub(super) fn with_deadline<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(DEADLINE);
    request
}

/// The code of a status and its reason, or else its message. Other details are left out, because
/// they differ from call to call.
pub(super) fn status_text(status: &Status) -> String {
    let details = status_details(status);
    let why = if details.reason.is_empty() {
        status.message().to_owned()
    } else {
        details.reason
    };
    format!(
        "{:?} {}",
        details.code,
        why.chars().take(100).collect::<String>()
    )
}

fn kind_of(error: &reqwest::Error) -> String {
    let kinds = [
        (error.is_timeout(), "no answer in time"),
        (error.is_connect(), "no connection"),
    ];
    kinds
        .into_iter()
        .find(|(is, _)| *is)
        .map_or("a broken connection", |(_, kind)| kind)
        .to_owned()
}

fn reason_in(text: &str) -> String {
    let problem: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    problem["reason"].as_str().unwrap_or_default().to_owned()
}

/// The status line of a server's answer.
async fn status_of(server: Addresses, path: &str) -> String {
    let asked = async {
        let mut stream = TcpStream::connect(server.http).await?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    match asked.await {
        Ok(answer) => answer
            .lines()
            .next()
            .unwrap_or("closed without an answer")
            .to_owned(),
        Err(error) => error.kind().to_string(),
    }
}
