//! The attacker: what it has, and how one attack makes its calls.

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::join_all;
use prost::Message;
use reqwest::RequestBuilder;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout};
use tonic::{Status, transport::Channel};

use super::{
    super::findings::{Findings, Tally, held},
    installation::Addresses,
    kind::Attack,
    plan::{AttackPlan, LANES, PlannedAttack},
    stock::{AGENT, Stock},
};
use crate::{Guest, Web, call_frames, every_rpc, fields, guest_on, refusal};

/// What every attack uses.
pub(super) struct Means {
    pub(super) servers: Vec<Addresses>,
    /// The attacker's `authorization`.
    pub(super) authorization: String,
    pub(super) stock: Stock,
    /// Paths of RPCs by their names.
    paths: HashMap<String, String>,
    pub(super) fields: Vec<fields::Field>,
    findings: Arc<Findings>,
    pub(super) tallies: Arc<Tallies>,
}

/// What the attacker did, and was told.
#[derive(Default)]
pub(super) struct Tallies {
    /// Attacks by their names.
    pub(super) attacks: Tally,
    /// Calls and requests, by the names of their attacks.
    pub(super) calls: Tally,
    /// Refusals by reason.
    pub(super) refusals: Tally,
    /// The neighbour's slow calls, by the attacks that were under way when they ended.
    pub(super) slow: Tally,
    under_way: Mutex<Vec<Attack>>,
}

impl Tallies {
    /// A call of the neighbour's was slow: whatever is under way may be the reason.
    pub(super) fn blame(&self) {
        for attack in held(&self.under_way).iter() {
            self.slow.one(attack.name());
        }
    }
}

/// One attack under way.
pub(super) struct Strike {
    pub(super) means: Arc<Means>,
    attack: Attack,
    pub(super) server: Addresses,
    random: RefCell<fastrand::Rng>,
    pace: tokio::sync::Mutex<Interval>,
}

/// The path of a session.
pub(super) fn session(id: &str) -> String {
    format!("/api/agents/{AGENT}/sessions/{id}")
}

/// Between two calls of one attack: the attacker shares its processors with the servers, and must not take them from them.
const PACE: Duration = Duration::from_millis(1);

impl Means {
    pub(super) fn new(
        servers: Vec<Addresses>,
        authorization: String,
        stock: Stock,
        findings: Arc<Findings>,
        tallies: Arc<Tallies>,
    ) -> Self {
        let paths = every_rpc().into_iter().map(|rpc| (rpc.name, rpc.path)).collect();
        let fields = fields::every_field();
        Self { servers, authorization, stock, paths, fields, findings, tallies }
    }

    /// Performs what is planned, some attacks at a time, until all is done.
    pub(super) async fn perform(self: Arc<Self>, plan: &AttackPlan) {
        let next = RefCell::new(plan.attacks.iter());
        let lanes = (0..LANES).map(|_| async {
            loop {
                let planned = next.borrow_mut().next();
                let Some(planned) = planned else { return };
                self.strike(planned).await;
            }
        });
        join_all(lanes).await;
    }

    async fn strike(self: &Arc<Self>, planned: &PlannedAttack) {
        let mut random = fastrand::Rng::with_seed(planned.seed);
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let strike = Strike {
            means: Arc::clone(self),
            attack: planned.attack,
            server: self.servers[random.usize(..self.servers.len())],
            random: RefCell::new(random),
            pace: tokio::sync::Mutex::new(pace),
        };
        self.tallies.attacks.one(planned.attack.name());
        held(&self.tallies.under_way).push(planned.attack);
        let over = Instant::now() + planned.lasts;
        // Boxed, so that its connections are gone as soon as it is over.
        let again = Box::pin(async {
            while Instant::now() < over {
                planned.attack.perform(&strike).await;
                strike.pace().await;
            }
        });
        let _ = timeout(planned.lasts, again).await;
        let mut under_way = held(&self.tallies.under_way);
        if let Some(place) = under_way.iter().position(|attack| *attack == planned.attack) {
            under_way.swap_remove(place);
        }
    }
}

impl Strike {
    /// Waits until the attack may make its next call.
    pub(super) async fn pace(&self) {
        self.pace.lock().await.tick().await;
    }

    /// A number of a range.
    pub(super) fn number(&self, range: std::ops::Range<usize>) -> usize {
        self.random.borrow_mut().usize(range)
    }

    /// One of these.
    pub(super) fn choose<T: Clone>(&self, of: &[T]) -> T {
        of[self.number(0..of.len())].clone()
    }

    /// A word that nobody has used.
    pub(super) fn word(&self) -> String {
        format!("{:016x}", self.random.borrow_mut().u64(..))
    }

    /// A connection of the attacker's own.
    pub(super) fn guest(&self) -> Guest {
        self.guest_showing(&self.means.authorization)
    }

    /// A connection whose calls show this `authorization`; an empty one: none.
    pub(super) fn guest_showing(&self, authorization: &str) -> Guest {
        let address = format!("http://{}", self.server.grpc);
        guest_on(Channel::from_shared(address).expect("an address").connect_lazy(), authorization)
    }

    /// A client of the HTTP port.
    pub(super) fn web(&self) -> Web {
        Web::at(self.server.http)
    }

    /// A request of the attacker's over HTTP.
    pub(super) fn request(&self, web: &Web, method: &str, path: &str) -> RequestBuilder {
        web.request(method, path).header("authorization", &self.means.authorization)
    }

    /// Does something again and again, so many at a time, until the attack is cut off.
    pub(super) async fn forever<F: Future<Output = ()>>(&self, at_a_time: usize, again: impl Fn(usize) -> F) {
        let again = &again;
        join_all((0..at_a_time).map(|place| async move {
            loop {
                self.pace().await;
                again(place).await;
            }
        }))
        .await;
    }

    /// Calls an RPC; the first message of its answer. None: it was refused.
    pub(super) async fn call(&self, guest: &Guest, rpc: &str, ask: &impl Message) -> Option<Vec<u8>> {
        self.call_raw(guest, rpc, ask.encode_to_vec()).await
    }

    /// The same with a request as bytes.
    pub(super) async fn call_raw(&self, guest: &Guest, rpc: &str, ask: Vec<u8>) -> Option<Vec<u8>> {
        let path = &self.means.paths[rpc];
        self.counted();
        match call_frames(guest.clone(), path, vec![ask]).await {
            Ok(answer) => Some(answer.unwrap_or_default()),
            Err(status) => {
                self.refused(&status);
                None
            }
        }
    }

    /// A call whose request is several messages.
    pub(super) async fn call_frames(&self, guest: &Guest, rpc: &str, frames: Vec<Vec<u8>>) {
        self.counted();
        if let Err(status) = call_frames(guest.clone(), &self.means.paths[rpc], frames).await {
            self.refused(&status);
        }
    }

    /// Sends a request over HTTP and reads its answer; None: it was refused, or the connection broke.
    pub(super) async fn send(&self, request: RequestBuilder) -> Option<Vec<u8>> {
        self.counted();
        let Ok(response) = request.send().await else {
            self.means.tallies.refusals.one("connection closed");
            return None;
        };
        let status = response.status().as_u16();
        let body = response.bytes().await.ok()?;
        if status < 400 {
            return Some(body.to_vec());
        }
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let reason = problem["reason"].as_str().unwrap_or("no reason").to_owned();
        self.means.findings.demand(status != 500, "right codes", || {
            format!("{}: HTTP 500 {reason}: {}", self.attack.name(), problem["detail"])
        });
        self.means.tallies.refusals.one(reason);
        None
    }

    /// Counts a call, or what stands for one.
    pub(super) fn counted(&self) {
        self.means.tallies.calls.one(self.attack.name());
    }

    /// Counts a refusal; INTERNAL is a finding.
    pub(super) fn refused(&self, status: &Status) {
        let said = refusal(status);
        self.means.findings.demand(said.reason != "INTERNAL", "right codes", || {
            format!("{}: INTERNAL: {}", self.attack.name(), status.message().chars().take(200).collect::<String>())
        });
        let reason = if said.reason.is_empty() { format!("no reason, {:?}", said.code) } else { said.reason };
        self.means.tallies.refusals.one(reason);
    }

    /// A new conversation; None: it was refused.
    pub(super) async fn conversation(&self, guest: &Guest) -> Option<String> {
        let ask = crate::pb::CreateConversationRequest { agent_id: AGENT.into(), ..Default::default() };
        let made = self.call(guest, "CreateConversation", &ask).await?;
        Some(crate::pb::Conversation::decode(made.as_slice()).ok()?.conversation_id)
    }

    /// Appends messages.
    pub(super) async fn append(&self, guest: &Guest, id: &str, messages: Vec<crate::pb::NewMessage>) -> bool {
        let ask = crate::pb::AppendMessagesRequest { conversation_id: id.into(), messages, ..Default::default() };
        self.call(guest, "AppendMessages", &ask).await.is_some()
    }
}
