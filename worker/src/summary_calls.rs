//! The model calls of one job's summary. Each call waits for its admission, goes through the
//! gateway, and is repeated if the provider fails for the moment. Finished parts of a long summary
//! are stored, so that a later run of the job reuses them. A summary may have several calls under
//! way at once.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anneal_core::{admission::CallPurpose, digest::Digest, tokens::Tokens};
use anneal_gateway::{AdmittedCall, CallEnd, LeaseLost, ModelGateway};
use anneal_llm::{
    BoxFuture, ModelAccess, SummaryCalls, SummaryFailure,
    provider::{AdmissionRefusal, Answer, Call, Model},
};
use anneal_store::{ClaimedJob, ModelSpend, Store, StoreError};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::deadline::DB_DEADLINE;

/// How long a call waits for admission before its job is deferred. While another call of the job is
/// under way, the time does not run: that call's end makes room for this one.
const ADMISSION_DEADLINE: Duration = Duration::from_secs(20);
/// The wait before the second request for admission. Each further wait is twice as long. Each wait
/// is varied by half, so that jobs do not ask all at once.
const FIRST_ADMISSION_POLL: Duration = Duration::from_millis(100);
/// The longest wait between two requests for admission.
const MAX_ADMISSION_POLL: Duration = Duration::from_secs(2);

/// Most tries of one call. A provider may rate-limit one call in fifty, and a summary of hundreds
/// of calls must not fail for that.
const MAX_TRIES: u32 = 3;
/// The wait before the second try, if the provider asks for none; the third waits four times as
/// long. Each wait becomes longer by a random share of up to half.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
/// The longest wait between tries. If the provider asks for more, the whole job waits.
const MAX_BACKOFF: Duration = Duration::from_secs(20);

/// One job's calls of one model.
pub(crate) struct JobCalls<'a> {
    store: &'a Store,
    gateway: ModelGateway<'a>,
    model: &'a Model,
    job: &'a ClaimedJob,
    /// Limits the concurrent calls of the model in this process: only a call with a permit asks the
    /// store for admission.
    permits: &'a Semaphore,
    /// Cancelled when the job's lease is lost, or the worker stops.
    lost: &'a CancellationToken,
    ledger: Mutex<CostLedger>,
}

/// The cost of the job's calls so far.
#[derive(Default)]
struct CostLedger {
    /// The cost of all calls of this run, and of the earlier calls that wrote the loaded parts.
    spent: ModelSpend,
    /// How much of `spent` is stored with parts. The rest is stored with the next part.
    spent_on_parts: ModelSpend,
    /// Calls of this run that the model answered.
    answered: u32,
    /// Admitted calls that have not ended.
    under_way: u32,
    /// Parts whose cost is in `spent`: this run has written or loaded them.
    known_parts: HashSet<Digest>,
}

impl CostLedger {
    /// Adds the cost of a call that has ended.
    fn book(&mut self, cost: ModelSpend, end: CallEnd<'_>) {
        self.under_way -= 1;
        self.spent = plus(self.spent, cost);
        self.answered += u32::from(end == CallEnd::Answered);
    }
}

impl SummaryCalls for JobCalls<'_> {
    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, Result<Answer, SummaryFailure>> {
        Box::pin(async move {
            let mut tries = 1;
            loop {
                let failure = match self.call_once(call).await {
                    Err(SummaryFailure::Call(failure)) if failure.is_retryable() => failure,
                    outcome => return outcome,
                };
                let wait = failure
                    .retry_after()
                    .unwrap_or(FIRST_BACKOFF * 4_u32.pow(tries - 1))
                    .mul_f64(1.0 + 0.5 * fastrand::f64());
                // Before the first answer the whole job fails instead: starting it again repeats
                // no call that was paid for.
                if self.ledger().answered == 0 || tries == MAX_TRIES || wait > MAX_BACKOFF {
                    return Err(failure.into());
                }
                tries += 1;
                debug!("{failure}; asking again in {wait:?}");
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = self.lost.cancelled() => return Err(Self::abandoned()),
                }
            }
        })
    }

    fn load_part<'a>(&'a self, part: &'a Digest) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            let (text, cost) = match self.store.find_partial_summary(self.job, part).await {
                Ok(found) => found?,
                Err(error) => {
                    self.store.log_failure(&error, || {
                        warn!(
                            "could not look for a stored partial summary, writing it again: {error}"
                        );
                    });
                    return None;
                }
            };
            let mut ledger = self.ledger();
            if ledger.known_parts.insert(*part) {
                ledger.spent = plus(ledger.spent, cost);
                ledger.spent_on_parts = plus(ledger.spent_on_parts, cost);
            }
            Some(text)
        })
    }

    fn store_part<'a>(&'a self, part: &'a Digest, text: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let cost = {
                let mut ledger = self.ledger();
                let cost = ModelSpend {
                    calls: ledger.spent.calls - ledger.spent_on_parts.calls,
                    input: ledger.spent.input.less(ledger.spent_on_parts.input),
                    output: ledger.spent.output.less(ledger.spent_on_parts.output),
                };
                ledger.spent_on_parts = ledger.spent;
                ledger.known_parts.insert(*part);
                cost
            };
            if let Err(error) = self
                .store
                .store_partial_summary(self.job, part, text, cost)
                .await
            {
                self.store.log_failure(&error, || {
                    warn!(
                        "could not store a partial summary, a retry will write it again: {error}"
                    );
                });
            }
        })
    }
}

impl<'a> JobCalls<'a> {
    pub(crate) fn new(
        store: &'a Store,
        access: &'a ModelAccess,
        model: &'a Model,
        permits: &'a Semaphore,
        job: &'a ClaimedJob,
        lost: &'a CancellationToken,
    ) -> Self {
        Self {
            store,
            gateway: ModelGateway::new(store, access, CallPurpose::Summary, DB_DEADLINE),
            model,
            job,
            permits,
            lost,
            ledger: Mutex::default(),
        }
    }

    /// The cost of the summary, including the parts that earlier runs have written.
    pub(crate) fn spent(&self) -> ModelSpend {
        self.ledger().spent
    }

    fn ledger(&self) -> MutexGuard<'_, CostLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits, makes and settles one call.
    async fn call_once(&self, call: &Call<'_>) -> Result<Answer, SummaryFailure> {
        let (permit, mut admitted) = self.admit(call.input + call.output).await?;
        self.ledger().under_way += 1;
        let answered = tokio::select! {
            answered = admitted.answer(call) => answered.map_err(|LeaseLost| {
                SummaryFailure::Interrupted("the lease of a call was lost")
            }),
            () = self.lost.cancelled() => Err(Self::abandoned()),
        };
        drop(permit);
        let end = answered.as_ref().map_or(CallEnd::Abandoned, CallEnd::of);
        self.ledger().book(admitted.spent(), end);
        admitted.settle(end).await;
        // The outer error: the call was interrupted. The inner one: the provider failed.
        Ok(answered??)
    }

    /// Waits until the store admits a call. Waits only for other calls to end, not for breakers and
    /// budgets, which take too long. When the tenant's share of calls is in use, only a job that
    /// already has an answer waits; any other job is deferred, so that another tenant's job can
    /// run. A summary makes its first call alone (`llm/src/model_summary/merge.rs`).
    async fn admit(
        &self,
        tokens: Tokens,
    ) -> Result<(SemaphorePermit<'a>, AdmittedCall<'a>), SummaryFailure> {
        let (mut began, mut poll) = (Instant::now(), FIRST_ADMISSION_POLL);
        loop {
            if self.lost.is_cancelled() {
                return Err(Self::abandoned());
            }
            let permit = tokio::select! {
                permit = self.permits.acquire() => permit.map_err(|_| Self::abandoned())?,
                () = self.lost.cancelled() => return Err(Self::abandoned()),
            };
            let (caller, conversation) = (self.job.caller(), self.job.conversation);
            let admit = self
                .gateway
                .admit(caller, conversation, self.model, tokens, None);
            let refusal = match admit.await {
                Ok(Ok(admitted)) => return Ok((permit, admitted)),
                Ok(Err(refusal)) => refusal,
                Err(StoreError::NotFound(_)) => {
                    return Err(SummaryFailure::Interrupted("the conversation is gone"));
                }
                Err(error) => {
                    self.store
                        .log_failure(&error, || warn!("could not admit a call: {error}"));
                    return Err(SummaryFailure::Interrupted(
                        "the database did not admit a call",
                    ));
                }
            };
            let may_wait = match refusal {
                AdmissionRefusal::Busy => true,
                AdmissionRefusal::Share => self.ledger().answered > 0,
                AdmissionRefusal::Breaker { .. }
                | AdmissionRefusal::Budget { .. }
                | AdmissionRefusal::Turn => false,
            };
            if self.ledger().under_way > 0 {
                began = Instant::now();
            }
            if !may_wait || began.elapsed() >= ADMISSION_DEADLINE {
                return Err(refusal.into());
            }
            // Lets another job of this process ask for admission meanwhile.
            drop(permit);
            tokio::time::sleep(poll.mul_f64(0.5 + fastrand::f64())).await;
            poll = (poll * 2).min(MAX_ADMISSION_POLL);
        }
    }

    const fn abandoned() -> SummaryFailure {
        SummaryFailure::Interrupted("the job lost its lease or the worker stops")
    }
}

fn plus(one: ModelSpend, other: ModelSpend) -> ModelSpend {
    ModelSpend {
        calls: one.calls + other.calls,
        input: one.input + other.input,
        output: one.output + other.output,
    }
}
