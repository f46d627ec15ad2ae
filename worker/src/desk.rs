//! The desk over which a summary's model calls go: admitted by the store, leased while they run, settled when they end.
//! No connection is held while the model thinks. Finished parts are kept in the store.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anneal_core::{admission::CallPurpose, digest::Digest, tokens::Tokens};
use anneal_llm::{
    BoxFuture, Desk, ModelAccess, SummaryFailure,
    provider::{Answer, Call, CallCost, CallFailure, CallFigures, Closed, Model},
};
use anneal_store::{CallAsk, ClaimedJob, ModelLease, ModelSpend, Settled, Store, StoreError, Verdict};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{
    patience::{self, answered},
    run::jitter,
};

/// How long a call waits for room before its job is put off.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time between two looks for room: the first, and the longest.
const LOOK_FIRST: Duration = Duration::from_millis(100);
const LOOK_LAST: Duration = Duration::from_secs(2);

/// Tries of one call among many: a summary of hundreds of calls must not fail for the one in fifty that a provider limits.
const TRIES: u32 = 3;
/// The wait before the second try; the third waits four times as long.
const WAIT_FIRST: Duration = Duration::from_millis(500);
/// A provider that wants to be left alone for longer is left alone by the whole job.
const WAIT_MOST: Duration = Duration::from_secs(20);

/// One job's calls of one model.
pub(crate) struct JobDesk<'a> {
    store: &'a Store,
    access: &'a ModelAccess,
    model: &'a Model,
    job: &'a ClaimedJob,
    /// Room for this process' calls of the model: only so many ask the database for theirs.
    room: &'a Semaphore,
    /// Cancelled when the job's lease is lost, or the worker stops.
    lost: &'a CancellationToken,
    books: Mutex<Books>,
}

/// What the job's calls have come to so far.
#[derive(Default)]
struct Books {
    /// Everything, with what the recalled parts have cost their own runs.
    spent: ModelSpend,
    /// What was spent before the part that is being made.
    kept: ModelSpend,
    /// Calls of this run that were answered.
    answered: u32,
    /// Parts that this run has made itself.
    made: HashSet<Digest>,
}

impl Desk for JobDesk<'_> {
    fn ask<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, Result<Answer, SummaryFailure>> {
        Box::pin(async move {
            let mut tries = 1;
            loop {
                let failure = match self.once(call).await {
                    Err(SummaryFailure::Call(failure)) if failure.is_retryable() => failure,
                    outcome => return outcome,
                };
                let wait =
                    failure.retry_after().unwrap_or(WAIT_FIRST * 4_u32.pow(tries - 1)).mul_f64(1.0 + 0.5 * jitter());
                // Where nothing was answered yet, the job waits: it costs nothing to begin again.
                if self.books().answered == 0 || tries == TRIES || wait > WAIT_MOST {
                    return Err(failure.into());
                }
                tries += 1;
                debug!("{failure}; asking again in {wait:?}");
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = self.lost.cancelled() => return Err(Self::given_up()),
                }
            }
        })
    }

    fn recall<'a>(&'a self, part: &'a Digest) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            let (text, cost) = match answered(self.store.summary_part(self.job, part)).await {
                Ok(found) => found?,
                Err(error) => {
                    warn!("could not look for a finished part, making it again: {error}");
                    return None;
                }
            };
            let mut books = self.books();
            if books.made.insert(*part) {
                books.spent = plus(books.spent, cost);
                books.kept = plus(books.kept, cost);
            }
            Some(text)
        })
    }

    fn keep<'a>(&'a self, part: &'a Digest, text: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let cost = {
                let mut books = self.books();
                let cost = ModelSpend {
                    calls: books.spent.calls - books.kept.calls,
                    input: books.spent.input.less(books.kept.input),
                    output: books.spent.output.less(books.kept.output),
                };
                books.kept = books.spent;
                books.made.insert(*part);
                cost
            };
            if let Err(error) = answered(self.store.keep_summary_part(self.job, part, text, cost)).await {
                warn!("could not keep a finished part, a retry will make it again: {error}");
            }
        })
    }
}

impl<'a> JobDesk<'a> {
    pub(crate) fn new(
        store: &'a Store,
        access: &'a ModelAccess,
        model: &'a Model,
        room: &'a Semaphore,
        job: &'a ClaimedJob,
        lost: &'a CancellationToken,
    ) -> Self {
        Self { store, access, model, job, room, lost, books: Mutex::default() }
    }

    /// What the summary has cost, earlier runs that made parts of it included.
    pub(crate) fn spent(&self) -> ModelSpend {
        self.books().spent
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One call: admitted, made, settled.
    async fn once(&self, call: &Call<'_>) -> Result<Answer, SummaryFailure> {
        let (room, lease) = self.admitted(call.input + call.output).await?;
        let (mut figures, mut cost) = (CallFigures::begin(self.model.name()), CallCost::default());
        let answered = tokio::select! {
            answered = self.model.answer(call, &mut cost) => Ok(answered),
            () = self.store.keep_call(&lease) => Err(SummaryFailure::Interrupted("the lease of a call was lost")),
            () = self.lost.cancelled() => Err(Self::given_up()),
        };
        drop(room);
        match &answered {
            Ok(Ok(_)) => figures.ended("answered"),
            Ok(Err(failure)) => figures.ended(failure.name()),
            Err(_) => {}
        }
        drop(figures);
        self.settle(&lease, answered.as_ref().ok(), &cost).await;
        Ok(answered??)
    }

    /// Waits for room in the fleet, not for breakers and budgets: those take longer than a job should hold its place. Where the
    /// tenant's own calls take its share, a job that has no answer yet gives its place to another tenant's.
    async fn admitted(&self, tokens: Tokens) -> Result<(SemaphorePermit<'a>, ModelLease), SummaryFailure> {
        let ask = CallAsk {
            model: self.model.name(),
            conversation: self.job.conversation,
            purpose: CallPurpose::Summary,
            tokens,
            limits: self.access.limits(self.model),
        };
        let (began, mut look) = (Instant::now(), LOOK_FIRST);
        loop {
            if self.lost.is_cancelled() {
                return Err(Self::given_up());
            }
            let room = tokio::select! {
                room = self.room.acquire() => room.map_err(|_| Self::given_up())?,
                () = self.lost.cancelled() => return Err(Self::given_up()),
            };
            let closed = match answered(self.store.admit_call(self.job.caller(), &ask)).await {
                Ok(Ok(lease)) => return Ok((room, lease)),
                Ok(Err(closed)) => closed,
                Err(StoreError::NotFound(_)) => return Err(SummaryFailure::Interrupted("the conversation is gone")),
                Err(error) => {
                    warn!("could not admit a call: {error}");
                    return Err(SummaryFailure::Interrupted("the database did not admit a call"));
                }
            };
            let may_wait = match closed {
                Closed::Busy => true,
                Closed::Share => self.books().answered > 0,
                Closed::Breaker { .. } | Closed::Budget { .. } | Closed::Turn => false,
            };
            if !may_wait || began.elapsed() >= PATIENCE {
                return Err(closed.into());
            }
            // Others ask meanwhile.
            drop(room);
            tokio::time::sleep(look.mul_f64(0.5 + jitter())).await;
            look = (look * 2).min(LOOK_LAST);
        }
    }

    /// Ends a call's lease; None: nobody waited for the answer, which says nothing of the model.
    async fn settle(&self, lease: &ModelLease, answered: Option<&Result<Answer, CallFailure>>, cost: &CallCost) {
        let (input, output) = (cost.input(), cost.output());
        {
            let mut books = self.books();
            books.spent = plus(books.spent, ModelSpend { calls: 1, input, output });
            books.answered += u32::from(matches!(answered, Some(Ok(_))));
        }
        let settled = Settled { input, output, calls: 1, verdict: verdict(answered) };
        if let Err(error) = patience::answered(self.store.settle_call(lease, &settled)).await {
            warn!("could not settle a model call, it is tried again in the background: {error}");
        }
    }

    const fn given_up() -> SummaryFailure {
        SummaryFailure::Interrupted("nobody waits for the summary any more")
    }
}

fn verdict(answered: Option<&Result<Answer, CallFailure>>) -> Verdict {
    match answered {
        Some(Ok(_)) => Verdict::Answers,
        None | Some(Err(CallFailure::Overflow { .. })) => Verdict::Nothing,
        Some(Err(failure)) if failure.is_the_models_own() => Verdict::Fails(failure.to_string()),
        Some(Err(failure)) => Verdict::FailsConversation(failure.to_string()),
    }
}

fn plus(one: ModelSpend, other: ModelSpend) -> ModelSpend {
    ModelSpend { calls: one.calls + other.calls, input: one.input + other.input, output: one.output + other.output }
}
