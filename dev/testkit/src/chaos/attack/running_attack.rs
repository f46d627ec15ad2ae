//! The environment of an attack: the attacker's credentials and data, and functions that make calls
//! and count them.

use std::{cell::RefCell, collections::HashMap, sync::Arc, time::Duration};

use futures::future::join_all;
use prost::Message;
use reqwest::RequestBuilder;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tonic::{Status, transport::Channel};

use super::{
    super::findings::Findings,
    installation::Addresses,
    stored_conversations::{AGENT, StoredConversations},
    tallies::Tallies,
};
use crate::{
    AuthorizedChannel, HttpClient, authorized_channel, call_frames, every_rpc, request_fields,
    status_details,
};

/// The pause between two actions of an attack, most of which are one call. The attacker shares the
/// CPU with the servers and must not starve them.
const PACE: Duration = Duration::from_millis(1);

/// The data that all attacks share.
pub(super) struct AttackContext {
    pub(super) servers: Vec<Addresses>,
    /// The attacker's `authorization`.
    pub(super) authorization: String,
    pub(super) stored: StoredConversations,
    /// The RPCs' paths, by the RPCs' names.
    paths: HashMap<String, String>,
    /// Every field of every request.
    pub(super) fields: Vec<request_fields::Field>,
    findings: Arc<Findings>,
    pub(super) tallies: Arc<Tallies>,
}

/// A running attack.
pub(super) struct RunningAttack {
    pub(super) context: Arc<AttackContext>,
    /// The name of the attack in reports.
    name: &'static str,
    pub(super) server: Addresses,
    random: RefCell<fastrand::Rng>,
    pace: tokio::sync::Mutex<Interval>,
}

/// The path of a session.
pub(super) fn session_path(id: &str) -> String {
    format!("/api/agents/{AGENT}/sessions/{id}")
}

impl AttackContext {
    pub(super) fn new(
        servers: Vec<Addresses>,
        authorization: String,
        stored: StoredConversations,
        findings: Arc<Findings>,
        tallies: Arc<Tallies>,
    ) -> Self {
        let paths = every_rpc()
            .into_iter()
            .map(|rpc| (rpc.name, rpc.path))
            .collect();
        let fields = request_fields::every_field();
        Self {
            servers,
            authorization,
            stored,
            paths,
            fields,
            findings,
            tallies,
        }
    }
}

impl RunningAttack {
    /// An attack of this name on one of the servers. All its choices follow from the seed.
    pub(super) fn new(context: Arc<AttackContext>, name: &'static str, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            server: context.servers[random.usize(..context.servers.len())],
            context,
            name,
            random: RefCell::new(random),
            pace: tokio::sync::Mutex::new(pace),
        }
    }

    /// Waits until the attack may make its next call.
    pub(super) async fn pace(&self) {
        self.pace.lock().await.tick().await;
    }

    /// A random number of a range.
    pub(super) fn number(&self, range: std::ops::Range<usize>) -> usize {
        self.random.borrow_mut().usize(range)
    }

    /// A random element.
    pub(super) fn choose<T: Clone>(&self, of: &[T]) -> T {
        of[self.number(0..of.len())].clone()
    }

    /// A random word.
    pub(super) fn word(&self) -> String {
        format!("{:016x}", self.random.borrow_mut().u64(..))
    }

    /// A channel with the attacker's credential.
    pub(super) fn channel(&self) -> AuthorizedChannel {
        self.channel_with(&self.context.authorization)
    }

    /// A channel whose calls send this `authorization`. Empty: no header.
    pub(super) fn channel_with(&self, authorization: &str) -> AuthorizedChannel {
        let address = format!("http://{}", self.server.grpc);
        authorized_channel(
            Channel::from_shared(address)
                .expect("a valid address")
                .connect_lazy(),
            authorization,
        )
    }

    /// A client of the HTTP port.
    pub(super) fn http_client(&self) -> HttpClient {
        HttpClient::at(self.server.http)
    }

    /// A request over HTTP with the attacker's credential.
    pub(super) fn request(&self, web: &HttpClient, method: &str, path: &str) -> RequestBuilder {
        web.request(method, path)
            .header("authorization", &self.context.authorization)
    }

    /// Repeats an action in `loops` concurrent endless loops; never returns. The action is given
    /// the number of its loop, from 0.
    pub(super) async fn loop_concurrently<F: Future<Output = ()>>(
        &self,
        loops: usize,
        action: impl Fn(usize) -> F,
    ) {
        let action = &action;
        join_all((0..loops).map(|place| async move {
            loop {
                self.pace().await;
                action(place).await;
            }
        }))
        .await;
    }

    /// Calls an RPC. Returns the first message of its answer; None if the call was refused.
    pub(super) async fn call(
        &self,
        channel: &AuthorizedChannel,
        rpc: &str,
        ask: &impl Message,
    ) -> Option<Vec<u8>> {
        self.call_raw(channel, rpc, ask.encode_to_vec()).await
    }

    /// Calls an RPC with a request as bytes. Returns the first message of its answer; None if the
    /// call was refused.
    pub(super) async fn call_raw(
        &self,
        channel: &AuthorizedChannel,
        rpc: &str,
        ask: Vec<u8>,
    ) -> Option<Vec<u8>> {
        let path = &self.context.paths[rpc];
        self.count_call();
        match call_frames(channel.clone(), path, vec![ask]).await {
            Ok(answer) => Some(answer.unwrap_or_default()),
            Err(status) => {
                self.count_refusal(&status);
                None
            }
        }
    }

    /// Calls an RPC with several request messages.
    pub(super) async fn call_frames(
        &self,
        channel: &AuthorizedChannel,
        rpc: &str,
        frames: Vec<Vec<u8>>,
    ) {
        self.count_call();
        if let Err(status) = call_frames(channel.clone(), &self.context.paths[rpc], frames).await {
            self.count_refusal(&status);
        }
    }

    /// Sends a request over HTTP and reads its answer. None if it was refused or the connection
    /// broke. HTTP 500 is a finding.
    pub(super) async fn send(&self, request: RequestBuilder) -> Option<Vec<u8>> {
        self.count_call();
        let Ok(response) = request.send().await else {
            self.context.tallies.refusals.increment("connection closed");
            return None;
        };
        let status = response.status().as_u16();
        let body = response.bytes().await.ok()?;
        if status < 400 {
            return Some(body.to_vec());
        }
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let reason = problem["reason"].as_str().unwrap_or("no reason").to_owned();
        self.context
            .findings
            .demand(status != 500, "right codes", || {
                format!("{}: HTTP 500 {reason}: {}", self.name, problem["detail"])
            });
        self.context.tallies.refusals.increment(reason);
        None
    }

    /// Counts a call.
    pub(super) fn count_call(&self) {
        self.context.tallies.calls.increment(self.name);
    }

    /// Counts a refusal. INTERNAL is a finding.
    pub(super) fn count_refusal(&self, status: &Status) {
        let details = status_details(status);
        self.context
            .findings
            .demand(details.reason != "INTERNAL", "right codes", || {
                format!(
                    "{}: INTERNAL: {}",
                    self.name,
                    status.message().chars().take(200).collect::<String>()
                )
            });
        let reason = if details.reason.is_empty() {
            format!("no reason, {:?}", details.code)
        } else {
            details.reason
        };
        self.context.tallies.refusals.increment(reason);
    }

    /// Creates a conversation. None if the call was refused.
    pub(super) async fn create_conversation(&self, channel: &AuthorizedChannel) -> Option<String> {
        let ask = crate::pb::CreateConversationRequest {
            agent_id: AGENT.into(),
            ..Default::default()
        };
        let made = self.call(channel, "CreateConversation", &ask).await?;
        Some(
            crate::pb::Conversation::decode(made.as_slice())
                .ok()?
                .conversation_id,
        )
    }

    /// Appends messages. Returns whether the append was accepted.
    pub(super) async fn append(
        &self,
        channel: &AuthorizedChannel,
        id: &str,
        messages: Vec<crate::pb::NewMessage>,
    ) -> bool {
        let ask = crate::pb::AppendMessagesRequest {
            conversation_id: id.into(),
            messages,
            ..Default::default()
        };
        self.call(channel, "AppendMessages", &ask).await.is_some()
    }
}
