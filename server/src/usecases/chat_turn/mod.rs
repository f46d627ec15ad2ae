//! Turns that the server runs: store the prompt, build a context, call the model, store the answer.
//! The steps are in this file. Each turn runs in a task of its own. If its caller disconnects, the
//! turn stops. Once the model has answered, the turn still stores the answer.
//!
//! - `options.rs`: the options of the request, the conversation and the agent together
//! - `unserved.rs`: refuses what a request can ask for and turns do not serve yet
//! - `model.rs`: chooses the models, and has their calls admitted
//! - `attempts.rs`: builds one context and calls the model once
//! - `overflow.rs`: decides what is tried next if a context is too long
//! - `answer.rs`: sends the answer's stream to the caller, and collects it as one message
//! - `store_answer.rs`: stores the answer and its usage
//! - `replay.rs`: sends the stored answer of a turn that was answered before
//! - `event_stream.rs`: the channel of events to the caller

mod answer;
mod attempts;
mod event_stream;
mod model;
mod options;
mod overflow;
mod replay;
mod store_answer;
mod unserved;

use std::{panic::AssertUnwindSafe, sync::Arc};

use anneal_core::{
    caller::{Caller, ConversationId},
    chat_options::ChatOptions,
    limits::ID_BYTES,
    message::{Message, MessageId, Role},
};
use anneal_gateway::{AdmittedCall, CallEnd, LeaseLost};
use anneal_llm::provider::{CallFailure, Model};
use anneal_proto::v1 as pb;
use anneal_store::{Append, Appended, StopMode, StoreError};
use futures::FutureExt as _;
use pb::chat_response::{Done, Event, Started};
use tonic::{Code, Status};
use tracing::{Instrument as _, debug, info};

pub(crate) use event_stream::Events;

use self::{
    answer::Draft,
    attempts::{AttemptOutcome, ModelAnswer},
    event_stream::{CallerGone, EventSender},
    replay::Replay,
    store_answer::CompletedTurn,
};
use crate::{
    failure::Failure,
    poll_watchdog::{PollWatchdog, WatchedFuture},
    rpc_call::RpcCall,
    settings::ReloadableSettings,
    state::ServerState,
    turn_stops::StopWatch,
    usecases::{
        append::{self, AppendRequest},
        build_context::BuiltContext,
    },
};

/// The parsed request of a turn.
pub(crate) struct TurnRequest {
    pub(crate) id: ConversationId,
    /// The caller's request id, or a random one.
    pub(crate) request_id: String,
    /// Whether the caller gave the request id, so that it can repeat the turn.
    pub(crate) is_repeatable: bool,
    pub(crate) prompt: TurnPrompt,
    /// The turn is refused unless this is the newest message. None: not checked.
    pub(crate) expected: Option<MessageId>,
    /// The model that the caller names.
    pub(crate) model: Option<String>,
    /// The models that the caller names to be tried after it, in order.
    pub(crate) fallback_models: Vec<String>,
    pub(crate) system_prompt: Option<String>,
    /// The options that the caller sets.
    pub(crate) options: ChatOptions,
    pub(crate) on_disconnect: OnDisconnect,
    /// Whether the provider's cache is kept warm once after the turn.
    pub(crate) cache_ping: bool,
}

/// What a turn answers.
pub(crate) enum TurnPrompt {
    /// New messages.
    Messages(Arc<[Message]>),
    /// The newest question, anew.
    Regenerate,
    /// An earlier question, after this message has replaced it.
    Edit { id: MessageId, message: Message },
}

/// What becomes of a turn whose caller goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDisconnect {
    /// It stops, and nothing of its answer is kept.
    Stop,
    /// It stops, and what has come of its answer is kept.
    StopAndKeep,
    /// It goes on until its answer is stored.
    Finish,
}

impl TurnPrompt {
    /// The messages that the caller sends.
    fn messages(&self) -> &[Message] {
        match self {
            Self::Messages(messages) => messages,
            Self::Regenerate => &[],
            Self::Edit { message, .. } => std::slice::from_ref(message),
        }
    }

    /// A shared copy of the messages that the caller sends.
    fn shared_messages(&self) -> Arc<[Message]> {
        match self {
            Self::Messages(messages) => Arc::clone(messages),
            Self::Regenerate | Self::Edit { .. } => self.messages().into(),
        }
    }
}

impl TurnRequest {
    /// The append of the prompt. Its digest covers only the messages, so that a turn whose model
    /// failed may be repeated with another model.
    async fn prompt_append(&self, state: &ServerState, caller: Caller) -> Result<Append, Failure> {
        let prompt = AppendRequest {
            id: self.id,
            request_id: Some(self.request_id.clone()),
            expected: self.expected,
            messages: self.prompt.shared_messages(),
            reservation: None,
        };
        Ok(append::prepare(state, caller, prompt)
            .await?
            .for_chat_turn(Role::User))
    }

    /// The request id of the answer's append. A prefix padded to [`ID_BYTES`] makes it longer than
    /// any that a caller can give, so that the two cannot be equal.
    fn answer_request_id(&self) -> String {
        format!("{:-<ID_BYTES$}{}", "answer to ", self.request_id)
    }
}

/// The id of the first message of a turn's stored prompt, if the prompt has this request id and
/// consists of these messages. None: no such prompt is stored, or not all of it. Fails if another
/// prompt is stored with the request id, or if the prompt is withdrawn.
pub(crate) async fn find_prompt(
    state: &ServerState,
    caller: Caller,
    id: ConversationId,
    request_id: &str,
    messages: Vec<Message>,
) -> Result<Option<MessageId>, Failure> {
    let given = messages.len();
    let prompt = AppendRequest {
        id,
        request_id: Some(request_id.to_owned()),
        expected: None,
        messages: messages.into(),
        reservation: None,
    };
    let prompt = append::prepare(state, caller, prompt)
        .await?
        .for_chat_turn(Role::User);
    let stored = state.store.find_append(caller, &prompt).await?;
    stored.as_ref().map_or(Ok(()), check_stands)?;
    Ok(stored
        .filter(|stored| stored.messages.len() == given)
        .and_then(|stored| stored.messages.first().map(|first| first.id)))
}

/// A turn under way.
struct TurnRun {
    state: ServerState,
    /// The settings with which the turn began.
    settings: Arc<ReloadableSettings>,
    caller: Caller,
    turn: TurnRequest,
    events: EventSender,
    call: Arc<RpcCall>,
}

/// Why a turn ended without an answer.
#[derive(Debug)]
enum TurnError {
    Failed(Failure),
    /// The caller has disconnected.
    CallerGone,
    /// The turn was told to stop.
    Stopped(StopMode),
}

impl<E: Into<Failure>> From<E> for TurnError {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl From<CallerGone> for TurnError {
    fn from(_: CallerGone) -> Self {
        Self::CallerGone
    }
}

/// Starts a turn in a task of its own. Returns its events.
pub(crate) fn begin(state: &ServerState, call: RpcCall, turn: TurnRequest) -> Events {
    let (span, call) = (call.span(), Arc::new(call));
    // The stream holds the call's permit until its events are read, because they occupy memory.
    let (sender, final_event_sender, events) = event_stream::channel(Arc::clone(&call));
    let run = TurnRun {
        state: state.clone(),
        settings: state.settings.get(),
        caller: call.caller,
        turn,
        events: sender,
        call: Arc::clone(&call),
    };
    let work = async move {
        let ended = AssertUnwindSafe(Box::pin(run.run_to_end()))
            .catch_unwind()
            .await;
        let ended = ended.unwrap_or(Err(TurnError::Failed(Failure::Panicked)));
        if let Err(TurnError::Failed(failure)) = &ended {
            run.call.record_failure(failure);
            log_failure(run.turn.id, failure);
        }
        if let Err(TurnError::Stopped(mode)) = &ended {
            debug!(conversation = %run.turn.id, "a turn of {} was stopped ({mode:?})", run.turn.id);
        }
        let outcome = match &ended {
            Ok(done) if done.replayed => "replayed",
            Ok(_) => "answered",
            Err(TurnError::CallerGone) => "cancelled",
            Err(TurnError::Stopped(_)) => "stopped",
            Err(TurnError::Failed(failure)) => failure.reason().name(),
        };
        metrics::counter!("anneal_chat_turns_total", "outcome" => outcome).increment(1);
        let final_event = match ended {
            Ok(done) => Ok(pb::ChatResponse {
                event: Some(Event::Done(done)),
            }),
            Err(TurnError::Failed(failure)) => Err(Status::from(failure)),
            Err(TurnError::CallerGone) => Err(Status::cancelled("the caller has gone")),
            Err(TurnError::Stopped(_)) => Err(Status::cancelled("the turn was stopped")),
        };
        call.record_end(final_event.as_ref().map_or_else(Status::code, |_| Code::Ok));
        // Fails if the caller has disconnected.
        let _ = final_event_sender.send(final_event);
    };
    state.turns.spawn(WatchedFuture::new(
        PollWatchdog::for_task("turn"),
        work.instrument(span),
    ));
    events
}

/// How an admitted turn ended, if it did not fail.
enum TurnOutcome {
    /// An earlier call with this request id had been answered.
    Replayed(Box<Replay>),
    /// The model has answered, and the answer is stored.
    Answered(CompletedTurn),
}

/// A call that has failed before anything of its answer was sent. It holds its lease until the call
/// of the next model takes it over.
struct FailedCall<'a> {
    model: &'a Model,
    call: AdmittedCall<'a>,
    outcome: Result<TurnOutcome, TurnError>,
}

/// How far an admitted turn has come before its answer is stored.
enum PromptOutcome {
    /// An earlier call with this request id had been answered.
    AlreadyAnswered(Box<Replay>),
    /// The model has answered the messages with these ids.
    Answered(Vec<i64>, ModelAnswer),
}

impl TurnRun {
    /// Runs the turn. If no model's call is admitted (`model.rs`), it stores nothing. Otherwise it
    /// stores its prompt before a model is called. As long as nothing of an answer was sent, the
    /// next model is tried if one fails (`may_fall_back`); its call takes over the lease of the
    /// failed one.
    async fn run_to_end(&self) -> Result<Done, TurnError> {
        self.refuse_unserved()?;
        let prompt = self
            .unless_interrupted(self.turn.prompt_append(&self.state, self.caller))
            .await?;
        if self.turn.is_repeatable
            && let Some(replay) = self.unless_interrupted(self.find_replay(&prompt)).await?
        {
            return self.unless_interrupted(self.replay(replay)).await;
        }
        // Neither conversations nor agents have options yet.
        let options = options::resolve(self.turn.options.clone(), None, None);
        let models = self.unless_interrupted(self.choose_models()).await?;
        let mut draft = Draft::default();
        let mut failed: Option<FailedCall<'_>> = None;
        for (place, model) in models.iter().enumerate() {
            let model: &Model = model;
            let is_last = place + 1 == models.len();
            self.check_media(model)?;
            Self::check_options(model, &options)?;
            let replaces = failed.as_ref().map(|failed| failed.call.lease());
            let admitted = self
                .unless_interrupted(self.admit(model, &options, replaces))
                .await;
            if let Err(TurnError::Failed(failure)) = &admitted
                && !is_last
                && self.may_fall_back(failure)
            {
                continue;
            }
            if let Some(failed) = failed.take() {
                self.settle(failed.model, failed.call, turn_end(&failed.outcome))
                    .await;
            }
            let mut call = admitted?;
            let stop = self.state.turn_stops.watch(call.lease());
            let steps = self.run_steps(&prompt, &options, &mut call, &stop, &mut draft);
            let outcome = Box::pin(steps).await;
            if let Err(TurnError::Failed(failure)) = &outcome
                && !is_last
                && self.may_fall_back(failure)
            {
                failed = Some(FailedCall {
                    model,
                    call,
                    outcome,
                });
                continue;
            }
            let calls = call.spent().calls;
            self.settle(model, call, turn_end(&outcome)).await;
            return match outcome? {
                TurnOutcome::Replayed(replay) => {
                    self.unless_interrupted(self.replay(*replay)).await
                }
                TurnOutcome::Answered(completed) => {
                    Ok(self.build_done_event(completed, calls).await)
                }
            };
        }
        // There was no model to try.
        Err(Failure::model_not_configured("").into())
    }

    /// Ends the lease of a call, and books its cost.
    async fn settle(&self, model: &Model, call: AdmittedCall<'_>, end: CallEnd<'_>) {
        if let Some(failure) = call.hang_failure(end) {
            // The turn itself fails because its caller has gone, or because of its deadline.
            log_failure(self.turn.id, &model_failure(model.name(), failure));
        }
        call.settle(end).await;
    }

    /// The four steps of an admitted turn: stores the prompt, builds a context, calls the model,
    /// stores the answer. An interruption ends the first three. An answer that the model has given
    /// is stored in any case.
    async fn run_steps(
        &self,
        prompt: &Append,
        options: &ChatOptions,
        call: &mut AdmittedCall<'_>,
        stop: &StopWatch,
        draft: &mut Draft,
    ) -> Result<TurnOutcome, TurnError> {
        let (lease, calls) = call.split();
        let model = calls.model();
        let answer_prompt = async {
            let stored = self.store_prompt(prompt).await?;
            if stored.replayed {
                check_stands(&stored)?;
                // Another call with this request id may have been answered since `run_to_end`
                // looked.
                if let Some(answer) = self.find_answer().await? {
                    return Ok(PromptOutcome::AlreadyAnswered(Box::new(Replay {
                        prompt: stored,
                        answer,
                    })));
                }
                self.check_not_overtaken(&stored).await?;
            }
            self.events
                .send(Event::Started(started(&stored, false)))
                .await?;
            let mut guard = Self::overflow_guard(model, options);
            loop {
                let context = self.build_context(calls, &mut guard).await?;
                if guard.attempt() == 0 {
                    self.check_results_have_calls(&stored, &context)?;
                }
                let called = self.call_model(calls, &context, options, &mut guard, draft);
                match called.await? {
                    AttemptOutcome::Answered(answer) => {
                        let ids = stored.messages.iter().map(|message| message.id.0).collect();
                        return Ok::<_, TurnError>(PromptOutcome::Answered(ids, answer));
                    }
                    AttemptOutcome::ContextTooLong(reason) => {
                        self.begin_next_attempt(calls, &context, &mut guard, reason)
                            .await?;
                    }
                }
            }
        };
        let answered = lease
            .unless_lost(self.unless_interrupted(run_until_stop(stop, answer_prompt)))
            .await
            .map_err(|LeaseLost| Failure::TurnLost)??;
        match answered {
            PromptOutcome::AlreadyAnswered(replay) => Ok(TurnOutcome::Replayed(replay)),
            PromptOutcome::Answered(ids, answer) => {
                let completed = self.store_answer(lease, model, ids, answer).await?;
                // Report before the lease ends, because the next turn relies on what this report
                // says about the model.
                self.report(&completed).await;
                Ok(TurnOutcome::Answered(completed))
            }
        }
    }

    /// Awaits the work, unless the deadline ends, the server stops, the caller disconnects or its
    /// credential ends first.
    fn unless_interrupted<T, E: Into<TurnError>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> impl Future<Output = Result<T, TurnError>> {
        let work = Box::pin(work);
        async move {
            tokio::select! {
                biased;
                ended = work => ended.map_err(Into::into),
                () = self.events.wait_for_disconnect() => Err(TurnError::CallerGone),
                () = tokio::time::sleep_until(self.call.deadline()) => Err(Failure::Deadline.into()),
                failure = self.call.wait_for_credential_end() => Err(failure.into()),
                () = self.state.cancel_turns.cancelled() => Err(Failure::Stopping.into()),
            }
        }
    }

    /// Stores the prompt. Fails, and stores nothing, if the conversation keeps no tool messages and
    /// the rest of the prompt does not end with a message of the user: there is nothing to answer.
    async fn store_prompt(&self, prompt: &Append) -> Result<Appended, Failure> {
        self.state
            .storage_quota
            .admit(&self.state.store, self.caller, prompt)
            .await?;
        let stored = append::store_and_notify(&self.state, self.caller, prompt).await?;
        if stored.messages.is_empty() {
            return Err(Failure::ToolsNotKept);
        }
        Ok(stored)
    }

    /// Refuses a prompt of tool results that are all missing in its context, because they answer no
    /// call of the conversation. The model would answer the messages before them once more.
    fn check_results_have_calls(
        &self,
        stored: &Appended,
        built: &BuiltContext,
    ) -> Result<(), Failure> {
        let has_only_results = || {
            let mut messages = self.turn.prompt.messages().iter();
            messages.all(|message| message.role == Role::Tool)
        };
        let is_sent = |id: MessageId| {
            let mut sent = built.context.messages.iter().rev();
            sent.any(|message| message.message_ids.contains(&id))
        };
        if has_only_results() && !stored.messages.iter().any(|message| is_sent(message.id)) {
            return Err(Failure::ToolCallMissing);
        }
        Ok(())
    }

    /// Refuses to answer a repeated prompt if the conversation has newer messages.
    async fn check_not_overtaken(&self, stored: &Appended) -> Result<(), Failure> {
        let Some(last) = stored.messages.last() else {
            return Ok(());
        };
        if self
            .state
            .store
            .is_overtaken(self.caller, self.turn.id, last.id)
            .await?
        {
            return Err(Failure::TurnOvertaken);
        }
        Ok(())
    }
}

/// Awaits the work, unless the turn is told to stop first.
async fn run_until_stop<T>(
    stop: &StopWatch,
    work: impl Future<Output = Result<T, TurnError>>,
) -> Result<T, TurnError> {
    tokio::select! {
        biased;
        ended = work => ended,
        mode = stop.wait_for_stop() => Err(TurnError::Stopped(mode)),
    }
}

/// Refuses to answer a repeated prompt of which a message was withdrawn.
fn check_stands(stored: &Appended) -> Result<(), Failure> {
    stored
        .messages
        .iter()
        .find(|message| message.withdrawn)
        .map_or(Ok(()), |message| {
            Err(StoreError::MessageWithdrawn(message.id).into())
        })
}

/// Logs why a turn failed. A failure that concerns all calls of the model is logged at level info:
/// it counts against the breakers, which bound the number of such turns. All other failures are
/// logged at level debug, because callers can cause any number of them: for example, requests that
/// the provider refuses.
fn log_failure(conversation: ConversationId, failure: &Failure) {
    match failure {
        Failure::Model { model, failure } if failure.is_model_wide() => info!(
            conversation = %conversation,
            model = model.as_str(),
            failure = failure.name(),
            status = failure.status(),
            "a turn of {conversation} failed, because of its model {model}: {failure}"
        ),
        failure => debug!(
            conversation = %conversation,
            reason = failure.reason().name(),
            "a turn of {conversation} failed: {failure}"
        ),
    }
}

/// The failure of a call of this model.
fn model_failure(model: &str, failure: CallFailure) -> Failure {
    Failure::Model {
        model: model.to_owned(),
        failure,
    }
}

/// The end of a turn's call. A replay has called no model.
const fn turn_end(outcome: &Result<TurnOutcome, TurnError>) -> CallEnd<'_> {
    match outcome {
        Ok(TurnOutcome::Replayed(_)) => CallEnd::Abandoned,
        outcome => call_end(outcome),
    }
}

/// Decides from the outcome of a call, or of a turn, what its model's breakers record.
const fn call_end<T>(outcome: &Result<T, TurnError>) -> CallEnd<'_> {
    match outcome {
        Ok(_) => CallEnd::Answered,
        Err(TurnError::Failed(Failure::Model { failure, .. })) => CallEnd::Failed(failure),
        Err(TurnError::CallerGone | TurnError::Failed(Failure::Deadline)) => CallEnd::GivenUp,
        Err(TurnError::Stopped(_)) => CallEnd::Stopped,
        Err(_) => CallEnd::Abandoned,
    }
}

/// The event that starts an answer: the prompt's message ids and turn, and whether the answer is
/// replayed.
fn started(stored: &Appended, replayed: bool) -> Started {
    Started {
        replayed,
        message_ids: stored.messages.iter().map(|message| message.id.0).collect(),
        turn: stored.messages.last().map_or(0, |message| message.turn),
        alternatives: 0,
    }
}
