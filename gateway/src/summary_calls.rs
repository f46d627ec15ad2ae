//! The model calls of one summary. Each call waits for its admission and goes through the gateway.
//! It is repeated if the provider fails for the moment. A summary may have several calls under way
//! at once.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anneal_core::{
    caller::{Caller, ConversationId},
    tokens::Tokens,
};
use anneal_llm::{
    SummaryFailure,
    provider::{AdmissionRefusal, Answer, Call, Model},
};
use anneal_store::{ModelSpend, StoreError};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{
    call_end::CallEnd,
    gateway::{AdmittedCall, LeaseLost, ModelGateway, TurnLease},
};

/// How long a call waits for admission. While another call of the summary is under way, the time
/// does not run: that call's end makes room for this one.
const ADMISSION_DEADLINE: Duration = Duration::from_secs(20);
/// The wait before the second request for admission. Each further wait is twice as long. Each wait
/// is varied by half, so that summaries do not ask all at once.
const FIRST_ADMISSION_POLL: Duration = Duration::from_millis(100);
/// The longest wait between two requests for admission.
const MAX_ADMISSION_POLL: Duration = Duration::from_secs(2);

/// Most tries of one call. A provider may rate-limit one call in fifty, and a summary of hundreds
/// of calls must not fail for that.
const MAX_TRIES: u32 = 3;
/// The wait before the second try, if the provider asks for none; the third waits four times as
/// long. Each wait becomes longer by a random share of up to half.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
/// The longest wait between tries. If the provider asks for more, the whole summary fails.
const MAX_BACKOFF: Duration = Duration::from_secs(20);

/// The material of a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SummarySubject {
    /// Stored messages of this conversation.
    Conversation(ConversationId),
    /// Messages that are not stored.
    Unstored,
}

/// Makes the calls of one summary, and adds up their cost.
pub struct CallsOfSummary<'a> {
    gateway: ModelGateway<'a>,
    model: &'a Model,
    caller: Caller,
    subject: SummarySubject,
    /// Limits the concurrent calls of the model in this process: only a call with a permit asks the
    /// store for admission.
    permits: &'a Semaphore,
    /// Cancelled when the summary is not wanted any more.
    cancelled: &'a CancellationToken,
    ledger: Mutex<Ledger>,
}

/// The calls so far.
#[derive(Default)]
struct Ledger {
    spent: ModelSpend,
    /// Calls that the model answered.
    answered: u32,
    /// Admitted calls that have not ended.
    under_way: u32,
}

impl Ledger {
    /// Adds the cost of a call that has ended.
    fn book(&mut self, cost: ModelSpend, end: CallEnd<'_>) {
        self.under_way -= 1;
        self.spent = self.spent + cost;
        self.answered += u32::from(end == CallEnd::Answered);
    }
}

impl<'a> CallsOfSummary<'a> {
    /// No calls yet.
    pub fn new(
        gateway: ModelGateway<'a>,
        model: &'a Model,
        (caller, subject): (Caller, SummarySubject),
        permits: &'a Semaphore,
        cancelled: &'a CancellationToken,
    ) -> Self {
        Self {
            gateway,
            model,
            caller,
            subject,
            permits,
            cancelled,
            ledger: Mutex::default(),
        }
    }

    /// The cost of all calls, and what was added to it.
    pub fn spent(&self) -> ModelSpend {
        self.ledger().spent
    }

    /// Adds the cost of earlier calls.
    pub fn add_spent(&self, cost: ModelSpend) {
        let mut ledger = self.ledger();
        ledger.spent = ledger.spent + cost;
    }

    /// Makes one call. Tries again if the provider fails for the moment, unless the model has not
    /// answered any call of the summary yet.
    pub async fn call(&self, call: &Call<'_>) -> Result<Answer, SummaryFailure> {
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
            // Before the first answer the whole summary fails instead: starting it again repeats no
            // call that was paid for.
            if self.ledger().answered == 0 || tries == MAX_TRIES || wait > MAX_BACKOFF {
                return Err(failure.into());
            }
            tries += 1;
            debug!("{failure}; asking again in {wait:?}");
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.cancelled.cancelled() => return Err(Self::abandoned()),
            }
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
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
            () = self.cancelled.cancelled() => Err(Self::abandoned()),
        };
        drop(permit);
        let end = answered.as_ref().map_or(CallEnd::Abandoned, CallEnd::of);
        self.ledger().book(admitted.spent(), end);
        admitted.settle(end).await;
        // The outer error: the call was interrupted. The inner one: the provider failed.
        Ok(answered??)
    }

    /// Waits until the store admits a call. Waits only for other calls to end, not for breakers and
    /// budgets, which take too long. When the tenant's share of calls is in use, only a summary that
    /// already has an answer waits; any other one fails, so that another tenant's can be written. A
    /// summary makes its first call alone (`llm/src/model_summary/merge.rs`).
    async fn admit(
        &self,
        tokens: Tokens,
    ) -> Result<(SemaphorePermit<'a>, AdmittedCall<'a>), SummaryFailure> {
        let (mut began, mut poll) = (Instant::now(), FIRST_ADMISSION_POLL);
        loop {
            if self.cancelled.is_cancelled() {
                return Err(Self::abandoned());
            }
            let permit = tokio::select! {
                permit = self.permits.acquire() => permit.map_err(|_| Self::abandoned())?,
                () = self.cancelled.cancelled() => return Err(Self::abandoned()),
            };
            let refusal = match self.ask_for_admission(tokens).await? {
                Ok(admitted) => return Ok((permit, admitted)),
                Err(refusal) => refusal,
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
            // Lets another summary of this process ask for admission meanwhile.
            drop(permit);
            tokio::time::sleep(poll.mul_f64(0.5 + fastrand::f64())).await;
            poll = (poll * 2).min(MAX_ADMISSION_POLL);
        }
    }

    /// Asks once for the admission of a call.
    async fn ask_for_admission(
        &self,
        tokens: Tokens,
    ) -> Result<Result<AdmittedCall<'a>, AdmissionRefusal>, SummaryFailure> {
        let (conversation, lease) = match self.subject {
            SummarySubject::Conversation(conversation) => (conversation, None),
            // Several calls may be under way, and each needs a lease of its own.
            SummarySubject::Unstored => (
                ConversationId(uuid::Uuid::new_v4()),
                Some(TurnLease {
                    request_id: None,
                    replaces: None,
                }),
            ),
        };
        let admitting = self
            .gateway
            .admit(self.caller, conversation, self.model, tokens, lease);
        match admitting.await {
            Ok(outcome) => Ok(outcome),
            Err(StoreError::NotFound(_)) => {
                Err(SummaryFailure::Interrupted("the conversation is gone"))
            }
            Err(error) => {
                let store = self.gateway.store();
                store.log_failure(&error, || warn!("could not admit a call: {error}"));
                Err(SummaryFailure::Interrupted(
                    "the database did not admit a call",
                ))
            }
        }
    }

    const fn abandoned() -> SummaryFailure {
        SummaryFailure::Interrupted("its caller has gone, or this process stops")
    }
}
