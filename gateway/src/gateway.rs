//! Admits a call, holds its lease, and settles it when it ends.

use std::time::Duration;

use anneal_core::{
    admission::{AdmissionRefusal, CallPurpose},
    caller::{Caller, ConversationId},
    tokens::Tokens,
};
use anneal_llm::{
    ModelAccess,
    provider::{Answer, Call, CallFailure, Model},
};
use anneal_store::{CallAsk, CallOutcome, ModelLease, ModelSpend, Store, StoreError};
use tracing::warn;

use crate::{call_end::CallEnd, call_metrics::count_tokens, provider_calls::ProviderCalls};

/// Admits the calls of one purpose to a process's models. Cheap to make and to copy.
#[derive(Clone, Copy)]
pub struct ModelGateway<'a> {
    store: &'a Store,
    access: &'a ModelAccess,
    purpose: CallPurpose,
    settle_deadline: Duration,
}

impl<'a> ModelGateway<'a> {
    /// A gateway for calls of one purpose. A settlement that takes longer than `settle_deadline`
    /// goes on in the background.
    pub const fn new(
        store: &'a Store,
        access: &'a ModelAccess,
        purpose: CallPurpose,
        settle_deadline: Duration,
    ) -> Self {
        Self {
            store,
            access,
            purpose,
            settle_deadline,
        }
    }

    /// The store that admits the calls.
    pub(crate) const fn store(&self) -> &'a Store {
        self.store
    }

    /// Admits a call for a conversation, or returns the reason for refusing it. `tokens` is the
    /// most that the call may use: its input and the reserve for its output. Does not wait: if too
    /// many calls are under way, this one is refused. `turn`: the turn that the call answers, or
    /// after which it keeps a cache warm; None: the call is for a summary.
    pub async fn admit(
        &self,
        caller: Caller,
        conversation: ConversationId,
        model: &'a Model,
        tokens: Tokens,
        turn: Option<TurnLease<'_>>,
    ) -> Result<Result<AdmittedCall<'a>, AdmissionRefusal>, StoreError> {
        let ask = CallAsk {
            model: model.name(),
            conversation,
            purpose: self.purpose,
            tokens,
            is_stored: turn.is_none_or(|turn| turn.request_id.is_some()),
            limits: self.access.limits(model),
            request_id: turn.and_then(|turn| turn.request_id),
            replaces: turn.and_then(|turn| turn.replaces),
        };
        let admitted = self.store.admit_call(caller, &ask).await?;
        Ok(admitted.map(|lease| AdmittedCall {
            gateway: *self,
            lease,
            provider_calls: ProviderCalls::new(model),
            is_settled: false,
        }))
    }
}

/// The turn that a call answers, or after which it keeps a cache warm.
#[derive(Debug, Clone, Copy)]
pub struct TurnLease<'a> {
    /// The turn's request id. None: the turn is not stored, and there is no such conversation.
    pub request_id: Option<&'a str>,
    /// The lease of an earlier call of the same turn, which ends when this call is admitted; None:
    /// this is the turn's first call. The earlier call is still to be settled.
    pub replaces: Option<&'a ModelLease>,
}

/// An admitted call. It may consist of several calls of the provider, or of none. If it is dropped
/// without [`Self::settle`], it is settled in the background as an abandoned call.
pub struct AdmittedCall<'a> {
    gateway: ModelGateway<'a>,
    lease: ModelLease,
    provider_calls: ProviderCalls<'a>,
    is_settled: bool,
}

impl<'a> AdmittedCall<'a> {
    /// Borrows the lease and the provider calls separately, so that the caller can renew the lease
    /// while it makes a call.
    pub const fn split(&mut self) -> (CallLease<'_>, &mut ProviderCalls<'a>) {
        let lease = CallLease {
            store: self.gateway.store,
            lease: &self.lease,
        };
        (lease, &mut self.provider_calls)
    }

    /// The lease as the store knows it.
    pub const fn lease(&self) -> &ModelLease {
        &self.lease
    }

    /// Calls the model once, under the lease, and returns its whole answer.
    pub async fn answer(
        &mut self,
        call: &Call<'_>,
    ) -> Result<Result<Answer, CallFailure>, LeaseLost> {
        let (lease, provider_calls) = self.split();
        lease.unless_lost(provider_calls.answer(call)).await
    }

    /// The cost so far, including that of a call that did not complete.
    pub fn spent(&self) -> ModelSpend {
        self.provider_calls.spent()
    }

    /// The failure of a call that its caller gave up after the provider had sent nothing for too
    /// long; None: the call has ended otherwise.
    pub fn hang_failure(&self, end: CallEnd<'_>) -> Option<CallFailure> {
        let has_hung = end == CallEnd::GivenUp && self.provider_calls.has_hung();
        has_hung.then(CallFailure::unanswered)
    }

    /// Ends the lease, books the cost and updates the breakers. If that fails, or if the future is
    /// dropped, the store tries again in the background.
    pub async fn settle(mut self, end: CallEnd<'_>) {
        let outcome = self.close(end);
        // From here on the store retries.
        self.is_settled = true;
        let gateway = self.gateway;
        let store = gateway.store.clone().with_deadline(gateway.settle_deadline);
        if let Err(error) = store.settle_call(&self.lease, &outcome).await {
            gateway.store.log_failure(&error, || {
                warn!(
                    "could not settle a model call, it is tried again in the background: {error}"
                );
            });
        }
    }

    /// Counts the call's tokens in the metrics. Returns how the call ended.
    fn close(&self, end: CallEnd<'_>) -> CallOutcome {
        let spent = self.spent();
        count_tokens(self.provider_calls.model(), spent);
        let hang_failure = self.hang_failure(end);
        let end = hang_failure.as_ref().map_or(end, CallEnd::Failed);
        CallOutcome {
            input: spent.input,
            output: spent.output,
            calls: spent.calls,
            failed_calls: self.provider_calls.failed(),
            verdict: end.verdict(self.gateway.purpose),
        }
    }
}

impl Drop for AdmittedCall<'_> {
    fn drop(&mut self) {
        if !self.is_settled {
            let outcome = self.close(CallEnd::Abandoned);
            self.gateway
                .store
                .settle_call_in_background(&self.lease, outcome);
        }
    }
}

/// The lease of an admitted call.
#[derive(Clone, Copy)]
pub struct CallLease<'a> {
    store: &'a Store,
    lease: &'a ModelLease,
}

/// The lease of a call is lost: other calls may be admitted in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the lease of a call was lost")]
pub struct LeaseLost;

impl CallLease<'_> {
    /// Runs `work` and renews the lease meanwhile. If the lease is lost, `work` is dropped.
    pub async fn unless_lost<T>(&self, work: impl Future<Output = T>) -> Result<T, LeaseLost> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = self.store.maintain_lease(self.lease) => Err(LeaseLost),
        }
    }

    /// The lease as the store knows it, to store the answer of a call under it.
    pub const fn model_lease(&self) -> &ModelLease {
        self.lease
    }

    /// Renews the lease once. False if it is lost.
    pub async fn renew(&self) -> Result<bool, StoreError> {
        self.store.renew_call(self.lease).await
    }
}
