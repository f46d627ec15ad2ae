//! The audit log: log lines of the target `audit` that say who did what an operator may be asked about later. Calls that need the
//! verbs admin or operator, deletions, and credentials that were refused; never content. A flood of them is cut to some lines a second
//! for each tenant and RPC, and of all strangers together.

use std::{
    net::IpAddr,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anneal_core::caller::{TenantId, Verb};
use http::HeaderMap;
use moka::sync::Cache;
use tracing::info;
use uuid::Uuid;

use crate::{
    auth::{Identity, KeyText, bearer},
    status::Failure,
};

/// Lines a second about the calls of one RPC by one tenant, and about all who were refused.
const LINES_PER_SECOND: u32 = 20;
/// Tenants and RPCs whose lines are counted at once.
const SOURCES: u64 = 10_000;

/// Whom lines are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Source {
    Strangers,
    /// The RPC too, so that a flood of other calls hides no deletion.
    Calls(TenantId, &'static str),
}

/// The lines of one source in the current second.
#[derive(Default)]
struct Second {
    began: Option<Instant>,
    lines: u32,
    /// Lines that were not written since the last one that was.
    left_out: u64,
}

/// One log of one process, as metrics are.
static WRITTEN: LazyLock<Cache<Source, Arc<Mutex<Second>>>> =
    LazyLock::new(|| Cache::builder().max_capacity(SOURCES).time_to_idle(Duration::from_mins(1)).build());

impl Second {
    /// How many lines were left out before this one; None: it is left out itself.
    fn next(&mut self, now: Instant) -> Option<u64> {
        if self.began.is_none_or(|began| now.duration_since(began) >= Duration::from_secs(1)) {
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

/// How many lines were left out before the next one of this source; None: it is left out itself.
fn next_of(source: Source) -> Option<u64> {
    let second = WRITTEN.get_with(source, Arc::default);
    let left_out = second.lock().unwrap_or_else(PoisonError::into_inner).next(Instant::now());
    if left_out.is_none() {
        metrics::counter!("audit_lines_left_out_total").increment(1);
    }
    left_out
}

/// Notes that a credential was refused: why, where it came from, and which it was, as far as that may be shown.
pub(crate) fn refused(failure: &Failure, address: Option<IpAddr>, headers: &HeaderMap) {
    let Some(reason) = reason(failure) else { return };
    metrics::counter!("auth_refused_total", "reason" => reason).increment(1);
    let Some(left_out) = next_of(Source::Strangers) else { return };
    let shown = match bearer(headers) {
        Ok(Some(text)) => KeyText::parse(text).map_or_else(|| "token".to_owned(), |key| format!("key:{}", key.id())),
        Ok(None) => "none".to_owned(),
        Err(_) => "malformed".to_owned(),
    };
    let address = address.map(|address| address.to_string()).unwrap_or_default();
    info!(target: "audit", event = "credential_refused", reason, address, shown, left_out, "refused a credential: {reason}");
}

/// The label of a refusal; None: it is the caller's rate or the database, and not its credential.
const fn reason(failure: &Failure) -> Option<&'static str> {
    match failure {
        Failure::Stranger(stranger) => Some(stranger.label()),
        Failure::TooManyUnknownKeys { .. } => Some("too_many_unknown_keys"),
        _ => None,
    }
}

/// Notes that a caller asked for what its verbs do not allow.
pub(crate) fn verb_missing(tenant: TenantId, identity: &Identity, rpc: &'static str, verb: Verb) {
    metrics::counter!("auth_refused_total", "reason" => "verb_missing").increment(1);
    let Some(left_out) = next_of(Source::Calls(tenant, rpc)) else { return };
    let verb = verb.name();
    info!(target: "audit", event = "verb_missing", rpc, %tenant, caller = %identity, verb, left_out, "refused {rpc}: it needs {verb}");
}

/// Notes that a call has ended that admins or operators make, or that takes something away.
pub(crate) fn called(
    tenant: TenantId,
    identity: &Identity,
    rpc: &'static str,
    about: Option<Uuid>,
    code: &'static str,
) {
    let Some(left_out) = next_of(Source::Calls(tenant, rpc)) else { return };
    let conversation = about.map(|id| id.to_string()).unwrap_or_default();
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
    fn a_flood_of_lines_is_cut_and_the_next_second_says_by_how_many() {
        let (mut second, now) = (Second::default(), Instant::now());
        let written = (0..1_000).filter(|_| second.next(now).is_some()).count();
        assert_eq!(written, LINES_PER_SECOND as usize);
        assert_eq!(second.next(now + Duration::from_secs(1)), Some(1_000 - u64::from(LINES_PER_SECOND)));
        assert_eq!(second.next(now + Duration::from_secs(1)), Some(0));
    }
}
