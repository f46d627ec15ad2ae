//! One call of a model after a turn, which keeps the provider's cache warm: the turn's context once
//! more, with an output of one token, shortly before the cache would expire. It is lost if the
//! server stops before. A server that stops waits for calls that have begun, and ends them with the
//! turns.

use std::{sync::Arc, time::Duration};

use anneal_core::{
    admission::CallPurpose,
    cache::{CacheKind, CacheTtl},
    caller::{Caller, ConversationId},
    digest,
    message::MessageId,
    tokens::Tokens,
    usage::Usage,
};
use anneal_gateway::{AdmittedCall, CallEnd, ModelGateway};
use anneal_llm::provider::{Call, Model};
use anneal_store::{ReportedCall, StoreError, UsageReport};
use tokio::time::{Instant, sleep_until};
use tracing::{Instrument as _, debug};

use super::{TurnRun, setup::TurnSetup, store_answer::DB_DEADLINE};
use crate::{
    auth::Proof,
    failure::Failure,
    limits::cache_pings::PingPermit,
    poll_watchdog::{PollWatchdog, WatchedFuture},
    settings::ReloadableSettings,
    state::ServerState,
    usecases::usage_report,
};

/// Part of the cache's lifetime after which the call is made, in percent.
const WAIT_PERCENT: u32 = 90;

/// The call that is repeated.
pub(super) struct Ping {
    context: String,
    mark_tools: Option<CacheTtl>,
    input: Tokens,
    /// When the call is due.
    due: Instant,
}

impl Ping {
    /// Repeats this call, which began at `begun`, before a cache with this lifetime expires.
    pub(super) fn new(call: &Call<'_>, begun: Instant, lifetime: Duration) -> Self {
        Self {
            context: call.context.to_owned(),
            mark_tools: call.mark_tools,
            input: call.input,
            due: begun + lifetime * WAIT_PERCENT / 100,
        }
    }
}

/// A call that waits until it is due.
struct WaitingPing {
    state: ServerState,
    settings: Arc<ReloadableSettings>,
    caller: Caller,
    /// Checks the caller's credential again. None: callers need no credential.
    proof: Option<Proof>,
    conversation: ConversationId,
    /// The answer of the turn.
    answer: MessageId,
    model: Arc<Model>,
    setup: TurnSetup,
    ping: Ping,
    _permit: PingPermit,
}

impl TurnRun {
    /// Refuses a turn whose caller wants the cache of a provider to be kept warm that promises no
    /// time for which it keeps anything, or that is not asked to keep anything.
    pub(super) fn check_cache_ping(&self, model: &Model, setup: &TurnSetup) -> Result<(), Failure> {
        match why_not_kept(model, setup) {
            Some(reason) if self.turn.cache_ping => Err(Failure::invalid(
                "cache_ping",
                format!("the provider of the model {} {reason}", model.name()),
            )),
            _ => Ok(()),
        }
    }

    /// Makes the call when it is due, in a task of its own. It is not made if too many wait, or if
    /// another model has answered whose provider keeps nothing, or promises no time for it.
    pub(super) fn spawn_ping(
        &self,
        model: &Arc<Model>,
        setup: &TurnSetup,
        answer: MessageId,
        ping: Ping,
    ) {
        if why_not_kept(model, setup).is_some() {
            return;
        }
        let Some(permit) = self.state.cache_pings.try_acquire(ping.context.len()) else {
            debug!("a provider's cache is not kept warm: too many calls wait");
            return;
        };
        let waiting = WaitingPing {
            state: self.state.clone(),
            settings: Arc::clone(&self.settings),
            caller: self.caller,
            proof: self.call.proof(),
            conversation: self.turn.id,
            answer,
            model: Arc::clone(model),
            setup: setup.clone(),
            ping,
            _permit: permit,
        };
        let work = async move {
            sleep_until(waiting.ping.due).await;
            // From here on a server that stops waits, as for a turn. One that has ended its turns
            // makes no call.
            let turns = waiting.state.turns.clone();
            let _under_way = turns.token();
            if turns.is_closed() {
                return;
            }
            let outcome = waiting.call_if_newest().await;
            metrics::counter!("anneal_chat_cache_pings_total", "outcome" => outcome).increment(1);
        };
        tokio::spawn(WatchedFuture::new(
            PollWatchdog::for_task("cache ping"),
            work.in_current_span(),
        ));
    }
}

/// Why the model's provider keeps nothing that could be kept for longer; None: it does.
fn why_not_kept(model: &Model, setup: &TurnSetup) -> Option<&'static str> {
    match model.cache_rules().kind {
        CacheKind::None | CacheKind::Implicit => Some("promises no time for which it caches"),
        CacheKind::Marked if !setup.asks_for_marks(model) => Some("is not asked to cache anything"),
        CacheKind::Marked | CacheKind::AnyPrefix | CacheKind::Breakpoints => None,
    }
}

impl WaitingPing {
    /// Makes the call, if the conversation has not gone on and its caller may still call. Returns
    /// the outcome for the metrics.
    async fn call_if_newest(&self) -> &'static str {
        match self.try_call().await {
            Ok(outcome) => outcome,
            Err(error) => {
                self.state.store.log_failure(&error, || {
                    debug!("could not keep a provider's cache warm: {error}");
                });
                "failed"
            }
        }
    }

    async fn try_call(&self) -> Result<&'static str, StoreError> {
        let store = &self.state.store;
        let (caller, id) = (self.caller, self.conversation);
        if !store.is_idle_since(caller, id, self.answer).await? {
            return Ok("overtaken");
        }
        match self.check_credential().await {
            Ok(()) => {}
            Err(Failure::Store(error)) => return Err(error),
            Err(_) => return Ok("refused"),
        }
        let gateway =
            ModelGateway::new(store, &self.settings.models, CallPurpose::Ping, DB_DEADLINE);
        let admitted = gateway
            .admit(caller, id, &self.model, self.ping.input, None)
            .await?;
        match admitted {
            Ok(call) => self.make_call(call).await,
            Err(_) => Ok("refused"),
        }
    }

    /// Checks whether the credential with which the turn began is still valid.
    async fn check_credential(&self) -> Result<(), Failure> {
        match &self.proof {
            Some(proof) => proof.recheck().await,
            None => Ok(()),
        }
    }

    /// Makes an admitted call, unless the server ends its turns, and settles it.
    async fn make_call(&self, mut call: AdmittedCall<'_>) -> Result<&'static str, StoreError> {
        let request = Call {
            context: &self.ping.context,
            options: &self.setup.options,
            output: Tokens::new(1),
            mark_tools: self.ping.mark_tools,
            cache_key: self.setup.cache_key(),
            long_retention: self.setup.wants_long_retention(),
            input: self.ping.input,
            least_sent_tokens: None,
        };
        let answer = tokio::select! {
            biased;
            answer = call.answer(&request) => Some(answer),
            () = self.state.cancel_turns.cancelled() => None,
        };
        let (_, calls) = call.split();
        let reported = calls.last_cost().reported();
        // An answer that its limit has left without content has warmed the cache, too.
        let is_answered = matches!(answer, Some(Ok(Ok(_)))) || reported.is_some();
        // No verdict on the model: an answer of one token says little of others.
        call.settle(CallEnd::Abandoned).await;
        if let Some(usage) = reported {
            let report = UsageReport {
                request_id: uuid::Uuid::new_v4().to_string(),
                digest: digest::of_fields([b"ping".as_slice()]),
                model: self.model.name().to_owned(),
                usage: Usage {
                    input: usage.input,
                    cached: usage.cached,
                    written: usage.written,
                    long_written: usage.long_written,
                    output: usage.output,
                    ..Usage::default()
                },
                stop_reason: None,
                call: ReportedCall::Ping,
            };
            let (store, id) = (&self.state.store, self.conversation);
            usage_report::store_and_count(store, self.caller, id, &report).await?;
        }
        Ok(if is_answered { "answered" } else { "failed" })
    }
}
