//! One call of a model after a turn, which keeps the provider's cache warm: the turn's context once
//! more, with an output of one token, shortly before the cache would expire. It is not made if
//! anything of the context has changed meanwhile, and a change of messages ends one that is under
//! way. It is lost if the server stops before. A server that stops waits for calls that have begun,
//! and ends them with the turns.

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
use anneal_gateway::{AdmittedCall, CallEnd, LeaseLost, ModelGateway, TurnLease};
use anneal_llm::provider::{Call, Model};
use anneal_store::{AnsweredState, ReportedCall, StoreError, UsageReport};
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
    usecases::{build_context::BuiltContext, usage_report},
};

/// Part of the cache's lifetime after which the call is made, in percent.
const WAIT_PERCENT: u32 = 90;

/// The call that is repeated.
pub(super) struct Ping {
    context: String,
    mark_tools: Option<CacheTtl>,
    input: Tokens,
    /// The newest change when the context was read.
    change_id: i64,
    /// The message that the context starts after.
    boundary: MessageId,
    /// When the call is due.
    due: Instant,
}

impl Ping {
    /// Repeats this call of this context, which began at `begun`, before a cache with this lifetime
    /// expires.
    pub(super) fn new(
        call: &Call<'_>,
        built: &BuiltContext,
        begun: Instant,
        lifetime: Duration,
    ) -> Self {
        Self {
            context: call.context.to_owned(),
            mark_tools: call.mark_tools,
            input: call.input,
            change_id: built.change_id,
            boundary: built.context.boundary.after(),
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
    /// The request id of the turn.
    turn_request_id: String,
    /// The conversation as the turn has left it.
    answered: AnsweredState,
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
        let bytes = ping.context.len() + setup.options.bytes();
        let tenant = self.caller.tenant();
        let Some(permit) = self.state.cache_pings.try_acquire(tenant, bytes) else {
            debug!("a provider's cache is not kept warm: too many calls wait");
            count_outcome("crowded");
            return;
        };
        let waiting = WaitingPing {
            state: self.state.clone(),
            settings: Arc::clone(&self.settings),
            caller: self.caller,
            proof: self.call.proof(),
            conversation: self.turn.id,
            turn_request_id: self.turn.request_id.clone(),
            answered: AnsweredState {
                answer,
                change_id: ping.change_id,
                boundary: ping.boundary,
                system_prompt: setup.system_prompt,
            },
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
            count_outcome(waiting.send_ping().await);
        };
        tokio::spawn(WatchedFuture::new(
            PollWatchdog::for_task("cache ping"),
            work.in_current_span(),
        ));
    }
}

/// Counts how a call ended that was to keep a cache warm.
fn count_outcome(outcome: &'static str) {
    metrics::counter!("anneal_chat_cache_pings_total", "outcome" => outcome).increment(1);
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
    /// Makes the call, if the conversation has neither gone on nor changed and its caller may still
    /// call. Returns the outcome for the metrics.
    async fn send_ping(&self) -> &'static str {
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
        // Asked again below. Most conversations have gone on, and need no admission.
        if !store.is_idle_since(caller, id, &self.answered).await? {
            return Ok("overtaken");
        }
        match self.check_credential().await {
            Ok(()) => {}
            Err(Failure::Store(error)) => return Err(error),
            Err(_) => return Ok("refused"),
        }
        let gateway =
            ModelGateway::new(store, &self.settings.models, CallPurpose::Ping, DB_DEADLINE);
        let turn = TurnLease {
            request_id: Some(&self.turn_request_id),
            replaces: None,
        };
        let admitted = gateway
            .admit(caller, id, &self.model, self.ping.input, Some(turn))
            .await?;
        let Ok(call) = admitted else {
            return Ok("refused");
        };
        // From now on a change of messages ends the call's lease. One that came before is seen.
        match store.is_still_idle_since(caller, id, &self.answered).await {
            Ok(true) => self.make_call(call).await,
            Ok(false) | Err(StoreError::NotFound(_)) => {
                call.settle(CallEnd::Abandoned).await;
                Ok("overtaken")
            }
            Err(error) => {
                call.settle(CallEnd::Abandoned).await;
                Err(error)
            }
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
            window: None,
        };
        let answer = tokio::select! {
            biased;
            answer = call.answer(&request) => Some(answer),
            () = self.state.cancel_turns.cancelled() => None,
        };
        let is_overtaken = matches!(answer, Some(Err(LeaseLost)));
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
        Ok(match (is_overtaken, is_answered) {
            (true, _) => "overtaken",
            (false, true) => "answered",
            (false, false) => "failed",
        })
    }
}
