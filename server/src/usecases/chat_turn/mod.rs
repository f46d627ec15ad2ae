//! Turns that the server runs: store the prompt, build a context, call the model, store the answer.
//! The steps are in this file. Each turn runs in a task of its own. It can be stopped, and its
//! caller says what becomes of it if the caller disconnects. Once the model has answered, the turn
//! still stores the answer.
//!
//! - `request.rs`: the request of a turn
//! - `setup.rs`: how its models are called; `options.rs`: the options of the request, the
//!   conversation and the agent together
//! - `model.rs`: chooses the models, has their calls admitted, and decides after which failures the
//!   next one is tried
//! - `question.rs`: stores the question; `anew.rs`: answers a stored one anew;
//!   `stored_question.rs`: a question that is stored
//! - `attempts.rs`: builds one context and calls the model once
//! - `overflow.rs`: decides what is tried next if a context is too long
//! - `answer.rs`: sends the answer's stream to the caller, and collects it as one message
//! - `store_answer.rs`: stores the answer and its usage
//! - `stop.rs`: keeps or drops what has come of an answer that is stopped
//! - `unstored.rs`: a turn of which nothing is stored
//! - `replay.rs`: sends the stored answer of a turn that has ended before
//! - `ping.rs`: keeps the provider's cache warm after a turn
//! - `event_stream.rs`: the channel of events to the caller

mod anew;
mod answer;
mod attempts;
mod event_stream;
mod model;
mod options;
mod overflow;
mod ping;
mod question;
mod replay;
mod request;
mod setup;
mod stop;
mod store_answer;
mod stored_question;
mod unstored;

use std::{panic::AssertUnwindSafe, sync::Arc};

use anneal_core::{
    caller::{Caller, ConversationId},
    message::MessageId,
};
use anneal_gateway::{AdmittedCall, CallEnd, LeaseLost, ProviderCalls};
use anneal_llm::provider::{CallFailure, Model};
use anneal_proto::v1 as pb;
use anneal_store::Append;
use futures::FutureExt as _;
use pb::chat_response::{Done, Event};
use tonic::{Code, Status};
use tracing::{Instrument as _, debug, info};

pub(crate) use self::{
    anew::check_question,
    event_stream::Events,
    overflow::OnOverflow,
    request::{OnDisconnect, TurnPrompt, TurnRequest, answer_request_id, find_prompt},
    store_answer::DB_DEADLINE,
};

use self::{
    attempts::{AttemptOutcome, ModelAnswer, PartialTurn},
    event_stream::{CallerGone, EventSender},
    ping::Ping,
    question::QuestionOutcome,
    replay::Replay,
    setup::TurnSetup,
    stop::{run_until_stop, stopped_before_question},
    store_answer::CompletedTurn,
    stored_question::Question,
};
use crate::{
    failure::Failure,
    poll_watchdog::{PollWatchdog, WatchedFuture},
    rpc_call::RpcCall,
    settings::ReloadableSettings,
    state::ServerState,
    turn_stops::StopWatch,
    usecases::build_context::UnstoredMessages,
};

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
    let (sender, final_event_sender, events) =
        event_stream::channel(turn.on_disconnect, Arc::clone(&call));
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
        let outcome = match &ended {
            Ok(done) if done.replayed => "replayed",
            Ok(done) if done.stopped => "stopped",
            Ok(_) => "answered",
            Err(TurnError::CallerGone) => "cancelled",
            Err(TurnError::Failed(failure)) => failure.reason().name(),
        };
        metrics::counter!("anneal_chat_turns_total", "outcome" => outcome).increment(1);
        let final_event = match ended {
            Ok(done) => Ok(pb::ChatResponse {
                event: Some(Event::Done(done)),
            }),
            Err(TurnError::Failed(failure)) => Err(Status::from(failure)),
            Err(TurnError::CallerGone) => Err(Status::cancelled("the caller has gone")),
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
    /// An earlier call with this request id had ended.
    Replayed(Box<Replay>),
    /// The answer is stored, or the turn was stopped. The ping is the call that keeps the
    /// provider's cache warm afterwards; None: none is made.
    Completed(Box<CompletedTurn>, Option<Ping>),
}

/// Where the question of a turn is, and where its answer goes.
#[derive(Clone, Copy)]
enum QuestionSource<'a> {
    /// A stored conversation. With an append the question is new messages; without one a stored
    /// question is answered anew.
    Conversation(Option<&'a Append>),
    /// The request alone. Nothing of the turn is stored.
    Request(&'a Arc<UnstoredMessages>),
}

/// The question that a model answers.
#[derive(Clone, Copy)]
enum AskedQuestion<'a> {
    /// A stored one.
    Stored(&'a Question),
    /// One that is not stored.
    Unstored(&'a Arc<UnstoredMessages>),
}

/// A call that has failed before anything of its answer was sent. It holds its lease until the call
/// of the next model takes it over.
struct FailedCall<'a> {
    model: &'a Model,
    call: AdmittedCall<'a>,
    failure: Failure,
}

/// The part of a turn that outlives its calls.
#[derive(Default)]
struct TurnProgress {
    /// The question, once it is stored.
    question: Option<Question>,
    /// Whether the caller was told that a turn has begun that is not stored.
    has_begun_unstored: bool,
    /// The answer of the present call.
    partial: PartialTurn,
    /// The models that did not answer.
    fallbacks: Vec<pb::Fallback>,
    /// The calls of providers under leases that have ended.
    calls: i32,
    /// The failure of the first model, which the turn answers if no model is left.
    first_failure: Option<Failure>,
}

impl TurnRun {
    /// Runs the turn. If no model's call is admitted (`model.rs`), it stores nothing. Otherwise it
    /// stores its prompt before a model is called.
    async fn run_to_end(&self) -> Result<Done, TurnError> {
        if let TurnPrompt::Unstored(messages) = &self.turn.prompt {
            return self.run_without_storing(messages).await;
        }
        let prompt = self
            .unless_interrupted(self.turn.prompt_append(&self.state, self.caller))
            .await?;
        let prompt = prompt.as_ref();
        if self.turn.is_repeatable
            && let Some(replay) = self.unless_interrupted(self.find_replay(prompt)).await?
        {
            return self.unless_interrupted(self.replay(replay)).await;
        }
        let (store, id) = (&self.state.store, self.turn.id);
        let conversation = self
            .unless_interrupted(store.get_conversation(self.caller, id))
            .await?;
        let policy = store.session().resolved(&conversation.attributes.policy);
        let setup = TurnSetup::of(&self.turn, &conversation, &policy, &self.settings);
        let models = self.choose_models(&conversation.attributes.agent_id, &policy)?;
        self.check_cache_ping(&models[0], &setup)?;
        let source = QuestionSource::Conversation(prompt);
        Box::pin(self.try_models(source, &setup, &models)).await
    }

    /// Tries the models in order. As long as nothing of an answer was sent, the next one is tried
    /// if one fails (`may_fall_back`); its call takes over the lease of the failed one. If none is
    /// left, the turn fails as its first model did.
    async fn try_models(
        &self,
        source: QuestionSource<'_>,
        setup: &TurnSetup,
        models: &[Arc<Model>],
    ) -> Result<Done, TurnError> {
        let mut progress = TurnProgress::default();
        let mut failed: Option<Box<FailedCall<'_>>> = None;
        for (place, model) in models.iter().enumerate() {
            let next = models.get(place + 1);
            if let Err(refusal) = self.check_model(model, setup) {
                if place == 0 {
                    return Err(refusal.into());
                }
                self.note_fallback(&mut progress, model, &refusal, next);
                continue;
            }
            let replaces = failed.as_ref().map(|failed| failed.call.lease());
            let admitted = self
                .unless_interrupted(self.admit(model, setup, source, replaces))
                .await;
            let refusal = match admitted {
                Ok(call) => {
                    self.settle_failed_call(failed.take(), &mut progress).await;
                    match self
                        .run_call((model, call), source, setup, &mut progress)
                        .await
                    {
                        Ok(done) => return done,
                        Err(failed_call) => {
                            self.note_fallback(&mut progress, model, &failed_call.failure, next);
                            failed = Some(failed_call);
                        }
                    }
                    continue;
                }
                Err(refusal) => refusal,
            };
            match refusal {
                TurnError::Failed(failure) if self.may_fall_back(&failure) => {
                    self.note_fallback(&mut progress, model, &failure, next);
                    if failed.is_none() {
                        progress.first_failure.get_or_insert(failure);
                    }
                }
                error => {
                    self.settle_failed_call(failed.take(), &mut progress).await;
                    return Err(error);
                }
            }
        }
        self.settle_failed_call(failed, &mut progress).await;
        let failure = progress.first_failure;
        // Always present: the first model was tried.
        Err(failure
            .unwrap_or_else(|| Failure::model_not_configured(""))
            .into())
    }

    /// Runs a call to its end, and settles it. A call after whose failure the next model may be
    /// tried comes back as an error, not settled.
    async fn run_call<'a>(
        &self,
        (model, mut call): (&'a Arc<Model>, AdmittedCall<'a>),
        source: QuestionSource<'_>,
        setup: &TurnSetup,
        progress: &mut TurnProgress,
    ) -> Result<Result<Done, TurnError>, Box<FailedCall<'a>>> {
        // The watch lives until the call is settled.
        let (outcome, _stop) = match source {
            QuestionSource::Conversation(prompt) => {
                let stop = self.state.turn_stops.watch(call.lease());
                let steps = self.run_steps(prompt, setup, &mut call, &stop, progress);
                (Box::pin(steps).await, Some(stop))
            }
            QuestionSource::Request(messages) => {
                let steps = self.run_unstored_steps(messages, setup, &mut call, progress);
                (Box::pin(steps).await, None)
            }
        };
        progress.calls += call.spent().calls;
        let outcome = match outcome {
            Err(TurnError::Failed(failure)) if self.may_fall_back(&failure) => {
                return Err(Box::new(FailedCall {
                    model,
                    call,
                    failure,
                }));
            }
            outcome => outcome,
        };
        self.settle(model, call, turn_end(&outcome)).await;
        let (completed, ping) = match outcome {
            Err(error) => return Ok(Err(error)),
            Ok(TurnOutcome::Replayed(replay)) => {
                let replayed = self.unless_interrupted(self.replay(*replay));
                return Ok(replayed.await);
            }
            Ok(TurnOutcome::Completed(completed, ping)) => (*completed, ping),
        };
        if let Some(ping) = ping
            && completed.answer_message_id > 0
        {
            let answer = MessageId(completed.answer_message_id);
            self.spawn_ping(model, setup, answer, ping);
        }
        let fallbacks = std::mem::take(&mut progress.fallbacks);
        Ok(Ok(self
            .build_done_event(source, completed, fallbacks, progress.calls)
            .await))
    }

    /// Notes that this model does not answer the turn. `next`: the model that is tried after it.
    fn note_fallback(
        &self,
        progress: &mut TurnProgress,
        model: &Model,
        failure: &Failure,
        next: Option<&Arc<Model>>,
    ) {
        let reason = failure.reason().name();
        if next.is_some() {
            metrics::counter!("anneal_chat_fallbacks_total", "reason" => reason).increment(1);
        }
        debug!(
            conversation = %self.turn.id,
            reason,
            "the model {} does not answer a turn of {}: {failure}",
            model.name(),
            self.turn.id
        );
        progress.fallbacks.push(pb::Fallback {
            model: model.name().to_owned(),
            reason: reason.to_owned(),
        });
    }

    /// Settles a call whose lease the next model's call has taken over, or that no other follows.
    async fn settle_failed_call(
        &self,
        failed: Option<Box<FailedCall<'_>>>,
        progress: &mut TurnProgress,
    ) {
        let Some(failed) = failed else { return };
        let FailedCall {
            model,
            call,
            failure,
        } = *failed;
        let outcome: Result<(), TurnError> = Err(TurnError::Failed(failure));
        self.settle(model, call, call_end(&outcome)).await;
        if let Err(TurnError::Failed(failure)) = outcome {
            progress.first_failure.get_or_insert(failure);
        }
    }

    /// Ends the lease of a call, and books its cost.
    async fn settle(&self, model: &Model, call: AdmittedCall<'_>, end: CallEnd<'_>) {
        if let Some(failure) = call.hang_failure(end) {
            // The turn itself fails because its caller has gone, or because of its deadline.
            log_failure(self.turn.id, &model_failure(model.name(), failure));
        }
        call.settle(end).await;
    }

    /// The four steps of an admitted turn: stores the question, builds a context, calls the model,
    /// stores the answer. An interruption ends the first three; what has come of the answer is then
    /// kept or dropped (`stop.rs`). An answer that the model has given is stored in any case.
    async fn run_steps(
        &self,
        prompt: Option<&Append>,
        setup: &TurnSetup,
        call: &mut AdmittedCall<'_>,
        stop: &StopWatch,
        progress: &mut TurnProgress,
    ) -> Result<TurnOutcome, TurnError> {
        let (lease, calls) = call.split();
        let model = calls.model();
        let TurnProgress {
            question, partial, ..
        } = progress;
        *partial = PartialTurn::default();
        let is_first_call = question.is_none();
        let question: &Question = match question {
            Some(question) => question,
            None if stop.requested().is_some() => {
                let stopped = stopped_before_question(model.name().to_owned());
                return Ok(TurnOutcome::Completed(Box::new(stopped), None));
            }
            None => {
                // Not interrupted by a stop: it would be unknown whether the question is stored.
                let work = self.unless_interrupted(self.store_question(prompt, lease));
                let stored = lease.unless_lost(work).await;
                match stored.map_err(|LeaseLost| Failure::TurnLost)?? {
                    QuestionOutcome::AlreadyEnded(replay) => {
                        return Ok(TurnOutcome::Replayed(replay));
                    }
                    QuestionOutcome::Stored(stored) => question.insert(stored),
                }
            }
        };
        let answer = async {
            if is_first_call {
                let is_replay = false;
                self.events
                    .send(Event::Started(question.started(is_replay)))
                    .await?;
            }
            let asked = AskedQuestion::Stored(question);
            self.answer_question(asked, setup, calls, partial).await
        };
        let work = run_until_stop(stop, self.unless_interrupted(answer));
        let ended = lease.unless_lost(work).await;
        let completed = match ended.map_err(|LeaseLost| Failure::TurnLost)? {
            Ok(Ok(ModelAnswer { answer, sent, ping })) => {
                let stored = self.store_answer(lease, model, question, (answer, sent));
                let completed = stored.await?;
                // Report before the lease ends, because the next turn relies on what this report
                // says about the model.
                self.report(&completed).await;
                return Ok(TurnOutcome::Completed(Box::new(completed), ping));
            }
            Ok(Err(error)) if self.keeps_after(&error) => {
                let kept = self.keep_partial(lease, calls, (question, partial));
                kept.await?.ok_or(error)?
            }
            Ok(Err(error)) => return Err(error),
            Err(mode) => {
                let stopped = self.end_by_stop(lease, calls, (question, partial), mode);
                stopped.await?
            }
        };
        Ok(TurnOutcome::Completed(Box::new(completed), None))
    }

    /// Has the model answer the question. A context that is too long is shortened and sent again.
    async fn answer_question(
        &self,
        asked: AskedQuestion<'_>,
        setup: &TurnSetup,
        calls: &mut ProviderCalls<'_>,
        partial: &mut PartialTurn,
    ) -> Result<ModelAnswer, TurnError> {
        let mut guard = self.overflow_guard(calls.model(), setup);
        loop {
            let context = self.build_context(calls, asked, setup, &mut guard).await?;
            if guard.attempt() == 0 {
                self.check_results_have_calls(asked, &context)?;
            }
            let called = self.call_model(calls, &context, setup, &mut guard, partial);
            match called.await? {
                AttemptOutcome::Answered(answer) => return Ok(answer),
                AttemptOutcome::ContextTooLong(reason) => {
                    self.begin_next_attempt(calls, &context, &mut guard, reason)
                        .await?;
                }
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
fn turn_end(outcome: &Result<TurnOutcome, TurnError>) -> CallEnd<'_> {
    match outcome {
        Ok(TurnOutcome::Replayed(_)) => CallEnd::Abandoned,
        Ok(TurnOutcome::Completed(completed, _)) if completed.is_stopped() => CallEnd::Stopped,
        outcome => call_end(outcome),
    }
}

/// Decides from the outcome of a call, or of a turn, what its model's breakers record.
const fn call_end<T>(outcome: &Result<T, TurnError>) -> CallEnd<'_> {
    match outcome {
        Ok(_) => CallEnd::Answered,
        Err(TurnError::Failed(Failure::Model { failure, .. })) => CallEnd::Failed(failure),
        Err(TurnError::CallerGone | TurnError::Failed(Failure::Deadline)) => CallEnd::GivenUp,
        Err(_) => CallEnd::Abandoned,
    }
}
