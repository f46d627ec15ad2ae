//! The model calls of one job's summary (`gateway/src/summary_calls.rs`). Finished parts of a long
//! summary are stored, so that a later run of the job reuses them.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use anneal_core::{admission::CallPurpose, digest::Digest};
use anneal_gateway::{CallsOfSummary, ModelGateway, SummarySubject};
use anneal_llm::{
    BoxFuture, ModelAccess, SummaryCalls, SummaryFailure,
    provider::{Answer, Call, Model},
};
use anneal_store::{ClaimedJob, ModelSpend, Store};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::deadline::DB_DEADLINE;

/// One job's calls of one model.
pub(crate) struct JobCalls<'a> {
    store: &'a Store,
    job: &'a ClaimedJob,
    /// Its cost is that of all calls of this run, and of the earlier calls that wrote the loaded
    /// parts.
    calls: CallsOfSummary<'a>,
    parts: Mutex<PartLedger>,
}

/// The cost that is stored with parts.
#[derive(Default)]
struct PartLedger {
    /// How much of the job's cost is stored with parts. The rest is stored with the next part.
    spent: ModelSpend,
    /// Parts whose cost is in the job's: this run has written or loaded them.
    known: HashSet<Digest>,
}

impl SummaryCalls for JobCalls<'_> {
    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, Result<Answer, SummaryFailure>> {
        Box::pin(self.calls.call(call))
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
            let mut parts = self.parts();
            if parts.known.insert(*part) {
                self.calls.add_spent(cost);
                parts.spent = parts.spent + cost;
            }
            Some(text)
        })
    }

    fn store_part<'a>(&'a self, part: &'a Digest, text: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let cost = {
                let mut parts = self.parts();
                let spent = self.calls.spent();
                let cost = ModelSpend {
                    calls: spent.calls - parts.spent.calls,
                    input: spent.input.less(parts.spent.input),
                    output: spent.output.less(parts.spent.output),
                };
                parts.spent = spent;
                parts.known.insert(*part);
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
        let gateway = ModelGateway::new(store, access, CallPurpose::Summary, DB_DEADLINE);
        let subject = SummarySubject::Conversation(job.conversation);
        Self {
            store,
            job,
            calls: CallsOfSummary::new(gateway, model, (job.caller(), subject), permits, lost),
            parts: Mutex::default(),
        }
    }

    /// The cost of the summary, including the parts that earlier runs have written.
    pub(crate) fn spent(&self) -> ModelSpend {
        self.calls.spent()
    }

    fn parts(&self) -> MutexGuard<'_, PartLedger> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
