//! Turns that the server runs: what is said is stored, a model is called within its window, its answer is stored. Each runs
//! in a task of its own, which its caller may leave but not leave half done.

mod answer;
mod attempts;
mod call;
mod guard;
mod keep;
mod model;
mod outlet;
mod replay;

use std::{panic::AssertUnwindSafe, sync::Arc};

use anneal_core::{
    caller::{Caller, ConversationId},
    limits::ID_BYTES,
    message::{Message, MessageId, Role},
    tokens::Tokens,
};
use anneal_llm::provider::{CallFailure, Model, Tool};
use anneal_proto::v1 as pb;
use anneal_store::{Append, Appended, ModelLease, Settled, StoreError, Verdict, within};
use futures::FutureExt as _;
use pb::chat_response::{Done, Event, Started};
use tonic::{Code, Status};
use tracing::{Instrument as _, warn};

pub(crate) use outlet::Events;

use self::{
    attempts::Answered,
    call::Bill,
    keep::Kept,
    outlet::{Gone, Outlet},
    replay::Replay,
};
use crate::{
    call::Call,
    house::House,
    polls::{Polled, Watched},
    rpc::append_messages::{self, Asked},
    status::Failure,
};

/// What a caller asks for.
pub(crate) struct Turn {
    pub(crate) id: ConversationId,
    /// The caller's, or made for this turn.
    pub(crate) request_id: String,
    /// Whether the caller knows the request id.
    pub(crate) is_repeatable: bool,
    /// What is said.
    pub(crate) messages: Arc<[Message]>,
    pub(crate) expected: Option<MessageId>,
    /// The model that the caller names.
    pub(crate) model: Option<String>,
    pub(crate) system_prompt: Option<String>,
    pub(crate) tools: Vec<Tool>,
    /// What their description counts.
    pub(crate) tools_tokens: Tokens,
    pub(crate) temperature: Option<f32>,
    /// Room for the answer.
    pub(crate) output: Option<Tokens>,
}

impl Turn {
    /// The append of what is said. Its digest covers the messages alone: a turn whose model failed may be tried again with
    /// another one.
    async fn asked(&self, house: &House, caller: Caller) -> Result<Append, Failure> {
        let asked = Asked {
            id: self.id,
            request_id: Some(self.request_id.clone()),
            expected: self.expected,
            messages: Arc::clone(&self.messages),
            held: None,
        };
        Ok(append_messages::prepare(house, caller, asked).await?.of_turn())
    }

    /// The request id of the answer: longer than any that a caller can give.
    fn answer_id(&self) -> String {
        format!("{:-<ID_BYTES$}{}", "answer to ", self.request_id)
    }
}

/// The message that was stored as the whole of what a turn says, under its request id and with these words; None: there is
/// no such turn.
pub(crate) async fn find_said(
    house: &House,
    caller: Caller,
    id: ConversationId,
    request_id: &str,
    message: Message,
) -> Result<Option<MessageId>, Failure> {
    let asked =
        Asked { id, request_id: Some(request_id.to_owned()), expected: None, messages: [message].into(), held: None };
    let asked = append_messages::prepare(house, caller, asked).await?.of_turn();
    let stored = house.store.find_append(caller, &asked).await?;
    Ok(stored.and_then(|stored| match stored.messages.as_slice() {
        [one] => Some(one.id),
        _ => None,
    }))
}

/// A turn under way.
struct Run {
    house: House,
    caller: Caller,
    turn: Turn,
    outlet: Outlet,
    call: Arc<Call>,
}

/// Why a turn ended without an answer.
#[derive(Debug)]
enum Ended {
    /// It failed.
    Failed(Failure),
    /// Nobody waits for it any more.
    Gone,
}

impl<E: Into<Failure>> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Gone> for Ended {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

/// Starts a turn; its events come as they happen.
pub(crate) fn begin(house: &House, call: Call, turn: Turn) -> Events {
    let (span, call) = (call.span(), Arc::new(call));
    // The turn has its room until its events are read, too: they are memory.
    let (outlet, last, events) = outlet::open(Arc::clone(&call));
    let run = Run { house: house.clone(), caller: call.caller, turn, outlet, call: Arc::clone(&call) };
    let work = async move {
        let ended = AssertUnwindSafe(Box::pin(run.to_its_end())).catch_unwind().await;
        let ended = ended.unwrap_or(Err(Ended::Failed(Failure::Panicked)));
        let outcome = match &ended {
            Ok(done) if done.replayed => "replayed",
            Ok(_) => "answered",
            Err(Ended::Gone) => "cancelled",
            Err(Ended::Failed(failure)) => failure.reason().name(),
        };
        metrics::counter!("chat_turns_total", "outcome" => outcome).increment(1);
        let said = match ended {
            Ok(done) => Ok(pb::ChatResponse { event: Some(Event::Done(done)) }),
            Err(Ended::Failed(failure)) => Err(Status::from(failure)),
            Err(Ended::Gone) => Err(Status::cancelled("the caller has gone")),
        };
        call.ended(said.as_ref().map_or_else(Status::code, |_| Code::Ok));
        // A caller who has gone is told nothing.
        let _ = last.send(said);
    };
    house.turns.spawn(Watched::new(Polled::task("turn"), work.instrument(span)));
    events
}

/// What a turn has come to while its lease was held.
enum Held {
    /// An earlier call had answered meanwhile.
    Replayed(Replay),
    /// The model has answered, and the answer is stored.
    Answered(Kept),
}

/// What a turn has come to before its answer is stored.
enum Said {
    /// An earlier call had answered meanwhile.
    Before(Replay),
    /// The model has answered what these messages say.
    Now(Vec<i64>, Answered),
}

impl Run {
    /// The whole turn. A refusal to call the model stores nothing; once the model may be called, what was said is stored.
    async fn to_its_end(&self) -> Result<Done, Ended> {
        let asked = self.in_time(self.turn.asked(&self.house, self.caller)).await?;
        if self.turn.is_repeatable
            && let Some(replay) = self.in_time(self.find_replay(&asked)).await?
        {
            return self.in_time(self.told(replay)).await;
        }
        let model = self.in_time(self.model()).await?;
        self.check_media(&model)?;
        let lease = self.in_time(self.admitted(&model)).await?;
        let mut bill = Bill::default();
        let held = AssertUnwindSafe(Box::pin(self.under_lease(&asked, &model, &lease, &mut bill))).catch_unwind().await;
        let held = held.unwrap_or(Err(Ended::Failed(Failure::Panicked)));
        self.settle(&lease, &bill, verdict(&held)).await;
        match held? {
            Held::Replayed(replay) => self.in_time(self.told(replay)).await,
            Held::Answered(kept) => Ok(self.finished(kept, &bill).await),
        }
    }

    async fn under_lease(
        &self,
        asked: &Append,
        model: &Model,
        lease: &ModelLease,
        bill: &mut Bill,
    ) -> Result<Held, Ended> {
        let said = tokio::select! {
            biased;
            said = self.in_time(self.said_and_answered(asked, model, bill)) => said?,
            () = self.house.store.keep_call(lease) => return Err(Failure::TurnLost.into()),
        };
        match said {
            Said::Before(replay) => Ok(Held::Replayed(replay)),
            Said::Now(ids, answered) => {
                let kept = self.kept(lease, model, ids, answered).await?;
                // While the conversation is ours: the next turn relies on what this one says of the model.
                self.report(&kept).await;
                Ok(Held::Answered(kept))
            }
        }
    }

    async fn said_and_answered(&self, asked: &Append, model: &Model, bill: &mut Bill) -> Result<Said, Ended> {
        let stored = self.said(asked).await?;
        if stored.replayed {
            if let Some(answer) = self.answer_to_this().await? {
                return Ok(Said::Before(Replay { stored, answer }));
            }
            self.is_still_asked(&stored).await?;
        }
        self.outlet.send(Event::Started(started(&stored, false))).await?;
        let answered = self.answer(model, bill).await?;
        Ok(Said::Now(stored.messages.iter().map(|message| message.id.0).collect(), answered))
    }

    /// What comes of it, unless its time is up, the server stops, the caller leaves or its credential ends before.
    fn in_time<T, E: Into<Ended>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> impl Future<Output = Result<T, Ended>> {
        let work = Box::pin(work);
        async move {
            tokio::select! {
                biased;
                ended = work => ended.map_err(Into::into),
                () = self.outlet.gone() => Err(Ended::Gone),
                () = tokio::time::sleep_until(self.call.deadline()) => Err(Failure::Deadline.into()),
                failure = self.call.credential_ends() => Err(failure.into()),
                () = self.house.turns_end.cancelled() => Err(Failure::Stopping.into()),
            }
        }
    }

    /// Stores what was said. A conversation that keeps no tools cannot go on from their results: what it keeps must end
    /// with the user's words.
    async fn said(&self, asked: &Append) -> Result<Appended, Failure> {
        self.house.storage_quota.admit(&self.house.store, self.caller, asked).await?;
        let stored = append_messages::store(&self.house, self.caller, asked).await;
        let Err(Failure::Store(StoreError::ToolsNotKept)) = stored else { return stored };
        let (kept, rest) = append_messages::remove_tools(&self.house, self.caller, asked).await?;
        if kept.last().is_none_or(|last| self.turn.messages[*last].role != Role::User) {
            return stored;
        }
        append_messages::store(&self.house, self.caller, &rest).await
    }

    /// Refuses to answer what was asked before, where the conversation has gone on since then.
    async fn is_still_asked(&self, stored: &Appended) -> Result<(), Failure> {
        let Some(last) = stored.messages.last() else { return Ok(()) };
        if self.house.store.is_overtaken(self.caller, self.turn.id, last.id).await? {
            return Err(Failure::TurnOvertaken);
        }
        Ok(())
    }

    /// Ends the call. What fails here is tried again by the store, and nobody waits for it.
    async fn settle(&self, lease: &ModelLease, bill: &Bill, verdict: Verdict) {
        let settled = Settled { input: bill.input(), output: bill.output(), calls: bill.calls as i32, verdict };
        if let Err(error) = within(keep::PATIENCE, self.house.store.settle_call(lease, &settled)).await {
            warn!("could not settle a model call, it is tried again in the background: {error}");
        }
    }
}

/// What a turn says of its model.
fn verdict(held: &Result<Held, Ended>) -> Verdict {
    match held {
        Ok(Held::Answered(_)) => Verdict::Answers,
        Err(Ended::Failed(Failure::Model { failure, .. })) if failure.is_the_models_own() => {
            Verdict::Fails(failure.to_string())
        }
        Err(Ended::Failed(Failure::Model { failure: failure @ CallFailure::Broken(_), .. })) => {
            Verdict::FailsConversation(failure.to_string())
        }
        Ok(Held::Replayed(_)) | Err(_) => Verdict::Nothing,
    }
}

/// What was said, and whether its answer is told again.
fn started(stored: &Appended, replayed: bool) -> Started {
    Started {
        replayed,
        message_ids: stored.messages.iter().map(|message| message.id.0).collect(),
        turn: stored.messages.last().map_or(0, |message| message.turn),
    }
}
