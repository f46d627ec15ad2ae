//! The log lines of breakers that open and close: one warning for each. A settlement decides the
//! change under the lock of the model's row, so at most one process logs it: none does if the
//! answer to the commit is lost, because the next try finds the call settled. A half-open breaker
//! that opens again after a failed trial call has not closed, so that is not logged.

use std::time::Duration;

use tracing::warn;

use super::lease::ModelLease;

/// A failure of a model, as it is stored and logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFault {
    /// The kind of failure: its label in metrics.
    pub kind: &'static str,
    /// The HTTP status, if the provider has sent one.
    pub status: Option<u16>,
    /// The failure in words, without content of messages.
    pub text: String,
}

/// The owner of a breaker.
pub(super) enum BreakerOwner {
    /// The model's, for all tenants.
    Model,
    /// A tenant's, for one model.
    Tenant {
        /// The tenant's name.
        name: String,
    },
}

/// The change of a breaker.
enum Change {
    Opened {
        /// Failed calls in a row.
        failures: u32,
        /// The last failure.
        fault: ModelFault,
    },
    Closed {
        /// How long the breaker was open, trial calls included.
        open_for: Duration,
    },
}

/// A breaker that a settlement opens or closes.
pub(super) struct BreakerChange {
    owner: BreakerOwner,
    change: Change,
}

impl BreakerChange {
    /// A breaker that opens after this many failures in a row.
    pub(super) fn opened(owner: BreakerOwner, failures: u32, fault: &ModelFault) -> Self {
        let fault = fault.clone();
        Self {
            owner,
            change: Change::Opened { failures, fault },
        }
    }

    /// A breaker that closes after this time.
    pub(super) const fn closed(owner: BreakerOwner, open_for: Duration) -> Self {
        Self {
            owner,
            change: Change::Closed { open_for },
        }
    }

    /// Logs the change that the settlement of this call has committed.
    pub(super) fn log(&self, lease: &ModelLease) {
        let model = lease.model.as_str();
        let (scope, owner) = match &self.owner {
            BreakerOwner::Model => ("model", "for all tenants".to_owned()),
            BreakerOwner::Tenant { name } => ("tenant", format!("for the tenant {name}")),
        };
        let tenant = lease.caller.tenant();
        match &self.change {
            Change::Opened { failures, fault } => {
                let open_seconds = lease.breaker.cooldown_seconds;
                warn!(
                    model,
                    scope,
                    %tenant,
                    failures,
                    failure = fault.kind,
                    status = fault.status,
                    open_seconds,
                    "the breaker of {model} opened {owner}: {failures} calls failed in a row, the last \
                     one because {}; no call is made for {open_seconds} s",
                    fault.text
                );
            }
            Change::Closed { open_for } => {
                let open_seconds = open_for.as_secs();
                warn!(
                    model,
                    scope,
                    %tenant,
                    open_seconds,
                    "the breaker of {model} closed {owner}: the model has answered, after {open_seconds} s"
                );
            }
        }
    }
}
