//! What all of the neighbour's clients share, and how one of its calls is made: every failure is a finding.

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
    super::findings::{Findings, Tally, held},
    attacker::Tallies,
    installation::Addresses,
    latencies::{Kind, Latencies, P99, WINDOW},
    promises::Conversation,
};
use crate::{Guest, guest_on, refusal};

/// A call's deadline.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);
/// Longer than any call may take, its deadline and what it takes to say so.
const HANGS_AFTER: Duration = Duration::from_secs(12);
/// From one round of probes to the next.
const PROBE_EVERY: Duration = Duration::from_millis(100);
/// Between two looks at what waits.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The neighbour's work.
pub(super) struct Work {
    pub(super) servers: Vec<Addresses>,
    /// The neighbour's `authorization`.
    pub(super) authorization: String,
    pub(super) findings: Arc<Findings>,
    pub(super) tally: Tally,
    pub(super) latencies: Latencies,
    /// What the attacker does meanwhile.
    pub(super) tallies: Arc<Tallies>,
    /// Conversations that are in use.
    conversations: Mutex<Vec<Arc<Conversation>>>,
    /// Clients end what they have begun.
    pub(super) over: CancellationToken,
}

impl Work {
    pub(super) fn new(
        servers: Vec<Addresses>,
        authorization: String,
        findings: Arc<Findings>,
        tallies: Arc<Tallies>,
    ) -> Self {
        let (tally, latencies, conversations) = (Tally::default(), Latencies::default(), Mutex::default());
        Self {
            servers,
            authorization,
            findings,
            tally,
            latencies,
            tallies,
            conversations,
            over: CancellationToken::new(),
        }
    }

    /// A connection of the neighbour's own to a server.
    pub(super) fn guest(&self, server: usize) -> Guest {
        let address = format!("http://{}", self.servers[server % self.servers.len()].grpc);
        guest_on(Channel::from_shared(address).expect("an address").connect_lazy(), &self.authorization)
    }

    pub(super) fn begin(&self, conversation: &Arc<Conversation>) {
        held(&self.conversations).push(Arc::clone(conversation));
    }

    /// Nobody has to do with it any more.
    pub(super) fn leave(&self, conversation: &Conversation) {
        conversation.over.cancel();
        held(&self.conversations).retain(|other| other.talk.id != conversation.talk.id);
    }

    /// Those that are in use.
    pub(super) fn conversations(&self) -> Vec<Arc<Conversation>> {
        held(&self.conversations).clone()
    }

    /// Makes a call; None: it failed, which is a finding.
    pub(super) fn call<'a, T: Send + 'a>(
        &'a self,
        what: &'static str,
        call: impl Future<Output = Result<Response<T>, Status>> + Send + 'a,
    ) -> BoxFuture<'a, Option<T>> {
        let answer = async { call.await.map(Response::into_inner).map_err(|status| in_words(&status)) };
        self.measured(what, answer)
    }

    /// Makes a request over HTTP and reads its answer; None: it failed, which is a finding.
    pub(super) async fn request(&self, what: &'static str, request: RequestBuilder) -> Option<String> {
        let request = request.header("authorization", &self.authorization).timeout(DEADLINE);
        let answer = async {
            let response = request.send().await.map_err(|error| kind_of(&error))?;
            let status = response.status();
            let text = response.text().await.map_err(|error| kind_of(&error))?;
            if status.is_success() { Ok(text) } else { Err(format!("HTTP {status} {}", reason_in(&text))) }
        };
        self.measured(what, answer).await
    }

    /// Measures what it takes to be answered; a failure is a finding.
    pub(super) fn measured<'a, T: Send + 'a>(
        &'a self,
        what: &'static str,
        answer: impl Future<Output = Result<T, String>> + Send + 'a,
    ) -> BoxFuture<'a, Option<T>> {
        // Boxed: a call's future is large, and there are many of them in a round.
        let answer = Box::pin(answer);
        Box::pin(self.measure(what, answer))
    }

    async fn measure<T>(&self, what: &'static str, answer: BoxFuture<'_, Result<T, String>>) -> Option<T> {
        let began = Instant::now();
        let answer = timeout(HANGS_AFTER, answer).await.unwrap_or_else(|_| Err("no answer".to_owned()));
        self.latencies.add(Kind::Call, what, began);
        if began.elapsed() > P99 {
            self.tallies.blame();
        }
        self.tally.one("calls of the neighbour");
        match answer {
            Ok(answer) => Some(answer),
            Err(why) => {
                self.tally.one("failed calls of the neighbour");
                self.findings.add("calls", format!("{what}: {why}"));
                None
            }
        }
    }

    /// Probes every server, each time on a new connection, until it is over.
    pub(super) async fn probe(&self, server: Addresses) {
        let mut pace = interval(PROBE_EVERY);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.over.is_cancelled() {
            pace.tick().await;
            for path in ["/healthz", "/readyz"] {
                let began = Instant::now();
                let said = timeout(DEADLINE, status_of(server, path)).await;
                self.latencies.add(Kind::Probe, path, began);
                let said = said.unwrap_or_else(|_| "no answer".to_owned());
                self.tally.one("probes");
                self.findings.demand(said == "HTTP/1.1 200 OK", "probes", || format!("{path}: {said:?}"));
            }
        }
    }

    /// Looks after what waits, and after the latencies of each window, until it is over.
    pub(super) async fn look(&self) {
        let (mut window, mut began) = (Duration::ZERO, Instant::now());
        let mut looks = interval(LOOK_EVERY);
        while !self.over.is_cancelled() {
            looks.tick().await;
            for conversation in self.conversations() {
                conversation.check_waits(&self.findings, &self.latencies);
            }
            if began.elapsed() >= WINDOW {
                window = self.latencies.check_window(window, &self.findings);
                began = Instant::now();
            }
        }
        self.latencies.check_window(window, &self.findings);
    }
}

/// A request with a deadline.
pub(super) fn due<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(DEADLINE);
    request
}

/// A status without what differs from call to call.
pub(super) fn in_words(status: &Status) -> String {
    let said = refusal(status);
    let why = if said.reason.is_empty() { status.message().to_owned() } else { said.reason };
    format!("{:?} {}", said.code, why.chars().take(100).collect::<String>())
}

fn kind_of(error: &reqwest::Error) -> String {
    let kinds = [(error.is_timeout(), "no answer in time"), (error.is_connect(), "no connection")];
    kinds.into_iter().find(|(is, _)| *is).map_or("a broken connection", |(_, kind)| kind).to_owned()
}

fn reason_in(text: &str) -> String {
    let problem: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    problem["reason"].as_str().unwrap_or_default().to_owned()
}

/// The first line of a server's answer.
async fn status_of(server: Addresses, path: &str) -> String {
    let asked = async {
        let mut stream = TcpStream::connect(server.http).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    match asked.await {
        Ok(answer) => answer.lines().next().unwrap_or("closed without an answer").to_owned(),
        Err(error) => error.kind().to_string(),
    }
}
