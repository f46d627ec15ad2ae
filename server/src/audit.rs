//! The audit log: log lines of the target `audit`. They record calls that need the verb admin or
//! operator, deletions, calls whose caller lacks a verb or is bound to less than they concern,
//! sign-ins and sign-outs of the page, and refused credentials. They hold no
//! content. Each source (one RPC of one tenant, or all refused credentials together) writes at most
//! [`LINES_PER_SECOND`] lines a second, so that a flood does not fill the log.

use std::{
    net::IpAddr,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anneal_core::caller::{TenantId, Verb};
use moka::sync::Cache;
use tracing::info;
use uuid::Uuid;

use crate::{failure::Failure, identity::Identity};

/// Most lines a second from one source.
const LINES_PER_SECOND: u32 = 20;
/// Most sources whose lines are counted at the same time.
const MAX_SOURCES: u64 = 10_000;

/// A source of lines. Each has a rate limit of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Source {
    RefusedCredentials,
    /// The calls of one RPC by one tenant. Each RPC is counted separately, so that a flood of one
    /// RPC does not push out the line of a deletion.
    Calls(TenantId, &'static str),
}

/// The lines that one source has written in the current second.
#[derive(Default)]
struct LineCounter {
    /// When the current second began. None: nothing was written yet.
    began: Option<Instant>,
    lines: u32,
    /// Lines left out since the last one that was written, because the second was full.
    left_out: u64,
}

/// Static, like the metrics recorder: a process has one audit log.
static COUNTERS: LazyLock<Cache<Source, Arc<Mutex<LineCounter>>>> = LazyLock::new(|| {
    Cache::builder()
        .max_capacity(MAX_SOURCES)
        .time_to_idle(Duration::from_mins(1))
        .build()
});

impl LineCounter {
    /// Counts a line. Returns how many lines were left out before it, or None if it is to be left
    /// out itself.
    fn take_line(&mut self, now: Instant) -> Option<u64> {
        if self
            .began
            .is_none_or(|began| now.duration_since(began) >= Duration::from_secs(1))
        {
            (self.began, self.lines) = (Some(now), 0);
        }
        if self.lines == LINES_PER_SECOND {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Counts the next line of this source. Returns how many were left out before it, or None if it is
/// to be left out itself.
fn count_line(source: Source) -> Option<u64> {
    let counter = COUNTERS.get_with(source, Arc::default);
    let left_out = counter
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take_line(Instant::now());
    if left_out.is_none() {
        metrics::counter!("anneal_audit_lines_left_out_total").increment(1);
    }
    left_out
}

/// Logs a refused credential: the reason, the client's address, and what `describe` says of the
/// credential. `describe` is called only for a line that is written. Other failures are not logged.
pub(crate) fn log_refused_credential(
    failure: &Failure,
    address: Option<IpAddr>,
    describe: impl FnOnce() -> String,
) {
    let Some(reason) = reason(failure) else {
        return;
    };
    metrics::counter!("anneal_auth_refused_total", "reason" => reason).increment(1);
    let Some(left_out) = count_line(Source::RefusedCredentials) else {
        return;
    };
    let shown = describe();
    let address = address_text(address);
    info!(target: "audit", event = "credential_refused", reason, address, shown, left_out, "refused a credential: {reason}");
}

/// The reason as a label. None for failures that are not about the credential: rate limits and
/// database errors.
const fn reason(failure: &Failure) -> Option<&'static str> {
    match failure {
        Failure::Auth(error) => Some(error.label()),
        Failure::TooManyUnknownKeys { .. } => Some("too_many_unknown_keys"),
        _ => None,
    }
}

/// Logs that a caller lacks a verb.
pub(crate) fn log_missing_verb(
    tenant: TenantId,
    identity: &Identity,
    rpc: &'static str,
    verb: Verb,
) {
    metrics::counter!("anneal_auth_refused_total", "reason" => "verb_missing").increment(1);
    let Some(left_out) = count_line(Source::Calls(tenant, rpc)) else {
        return;
    };
    let verb = verb.name();
    info!(target: "audit", event = "verb_missing", rpc, %tenant, caller = %identity, verb, left_out, "refused {rpc}: it needs {verb}");
}

/// Logs that a bound caller has called an RPC that concerns the whole tenant.
pub(crate) fn log_bound_credential(tenant: TenantId, identity: &Identity, rpc: &'static str) {
    metrics::counter!("anneal_auth_refused_total", "reason" => "credential_bound").increment(1);
    let Some(left_out) = count_line(Source::Calls(tenant, rpc)) else {
        return;
    };
    info!(target: "audit", event = "credential_bound", rpc, %tenant, caller = %identity, left_out, "refused {rpc}: the credential is bound");
}

/// An action of a person on a session of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionEvent {
    /// Begins it.
    SignIn,
    /// Ends it.
    SignOut,
}

impl SessionEvent {
    const fn name(self) -> &'static str {
        match self {
            Self::SignIn => "sign_in",
            Self::SignOut => "sign_out",
        }
    }
}

/// Logs that a person has signed in to the page or out of it, from this address.
pub(crate) fn log_session(
    session_event: SessionEvent,
    tenant: TenantId,
    identity: &Identity,
    address: Option<IpAddr>,
) {
    let event = session_event.name();
    let Some(left_out) = count_line(Source::Calls(tenant, event)) else {
        return;
    };
    let address = address_text(address);
    info!(target: "audit", event, %tenant, caller = %identity, address, left_out, "{event} of {identity}");
}

/// The address as lines show it; empty: the request came over no connection.
fn address_text(address: Option<IpAddr>) -> String {
    address
        .map(|address| address.to_string())
        .unwrap_or_default()
}

/// Logs the end of an audited call: one that needs the verb admin or operator, or deletes
/// something.
pub(crate) fn log_call(
    tenant: TenantId,
    identity: &Identity,
    rpc: &'static str,
    conversation: Option<Uuid>,
    code: &'static str,
) {
    let Some(left_out) = count_line(Source::Calls(tenant, rpc)) else {
        return;
    };
    let conversation = conversation.map(|id| id.to_string()).unwrap_or_default();
    info!(
        target: "audit",
        event = "call",
        rpc,
        %tenant,
        caller = %identity,
        conversation,
        code,
        left_out,
        "{rpc} ended with {code}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_flood_are_left_out_and_the_next_line_says_how_many() {
        let (mut counter, now) = (LineCounter::default(), Instant::now());
        let written = (0..1_000)
            .filter(|_| counter.take_line(now).is_some())
            .count();
        assert_eq!(written, LINES_PER_SECOND as usize);
        assert_eq!(
            counter.take_line(now + Duration::from_secs(1)),
            Some(1_000 - u64::from(LINES_PER_SECOND))
        );
        assert_eq!(counter.take_line(now + Duration::from_secs(1)), Some(0));
    }
}
