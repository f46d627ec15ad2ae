//! One RPC under way: its caller, deadline, concurrency limit, span, metrics and audit log line.

use std::{cell::Cell, future::Future, panic::AssertUnwindSafe, sync::OnceLock, time::Duration};

use anneal_core::{
    caller::{Caller, TenantId, Verb},
    limits::{
        CHAT_DEADLINE_SECONDS, DEADLINE_DEFAULT_SECONDS, DEADLINE_MAX_SECONDS,
        WATCH_DEADLINE_SECONDS,
    },
};
use anneal_proto::codec::ENTRIES;
use anneal_store::OutageLog;
use anneal_trace::SpanRole;
use futures::FutureExt as _;
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status, metadata::MetadataMap};
use tracing::{Instrument as _, Span, debug, info_span};
use uuid::Uuid;

use crate::{
    audit,
    auth::Proof,
    call_metrics::{self, code_name},
    failure::{AuthError, Failure},
    identity::Identity,
    limits::{
        concurrency::{ConcurrencyLimit, Permit},
        content_budget::WithReservation,
    },
    state::ServerState,
    traffic::RequestMemory,
    verbs::Rpc,
};

/// The deadlines of a kind of call, in seconds.
#[derive(Clone, Copy)]
pub(crate) struct Deadlines {
    /// The deadline of a call without `grpc-timeout`.
    default: u64,
    /// Upper bound of `grpc-timeout`.
    most: u64,
}

impl Deadlines {
    /// Calls that query the database and answer.
    const UNARY: Self = Self {
        default: DEADLINE_DEFAULT_SECONDS,
        most: DEADLINE_MAX_SECONDS,
    };
    /// Calls that wait for a model.
    const CHAT: Self = Self {
        default: CHAT_DEADLINE_SECONDS,
        most: CHAT_DEADLINE_SECONDS,
    };
    /// Streams that end when the client or the server ends them.
    const WATCH: Self = Self {
        default: WATCH_DEADLINE_SECONDS,
        most: WATCH_DEADLINE_SECONDS,
    };
}

/// The route of the HTTP request that makes a call: `/api/agents/{id}/chat`. An extension of the
/// call's request, set while traces are exported.
#[derive(Clone)]
pub(crate) struct HttpRoute(pub(crate) String);

/// An extension of a turn's request: its request id was made for it, so no earlier call has it.
#[derive(Clone, Copy)]
pub(crate) struct NewRequestId;

/// One RPC under way.
pub(crate) struct RpcCall {
    rpc: &'static Rpc,
    span: Span,
    /// The tenant and its verbs.
    pub(crate) caller: Caller,
    /// The caller's name for logs.
    identity: Identity,
    /// Checks the caller's credential again. None: callers need no credential.
    proof: Option<Proof>,
    started: Instant,
    /// How long the call may take from `started` on.
    timeout: Duration,
    /// Counts the call if it fails because the database is unavailable.
    outage_log: OutageLog,
    /// Writes to the audit log when it is dropped; None for RPCs that are not audited.
    audit: Option<AuditOnDrop>,
    /// Counts the call against its concurrency limit until it is dropped.
    _permit: Permit,
    /// Counts the request's bytes until the call is dropped.
    _request_memory: Option<RequestMemory>,
}

impl RpcCall {
    /// Admits a call: finds its caller and deadline. Refuses the call if its caller lacks a verb,
    /// or if the limit of concurrent calls or of request memory is reached.
    pub(crate) fn begin<T>(
        state: &ServerState,
        rpc: &'static Rpc,
        request: &Request<T>,
    ) -> Result<Self, Status> {
        Self::admit(state, &state.call_limit, rpc, request, Deadlines::UNARY)
    }

    /// Admits a turn. Turns have a limit of their own: calls that wait for a model must not use up
    /// the limit of short calls.
    pub(crate) fn begin_turn<T>(
        state: &ServerState,
        rpc: &'static Rpc,
        request: &Request<T>,
    ) -> Result<Self, Status> {
        Self::admit(state, &state.turn_limit, rpc, request, Deadlines::CHAT)
    }

    /// Admits a watch. Watches have a limit of their own: long streams must not use up the limit of
    /// short calls.
    pub(crate) fn begin_watch<T>(
        state: &ServerState,
        rpc: &'static Rpc,
        request: &Request<T>,
    ) -> Result<Self, Status> {
        let limit = state.watch_registry.limit();
        Self::admit(state, limit, rpc, request, Deadlines::WATCH)
    }

    fn admit<T>(
        state: &ServerState,
        limit: &ConcurrencyLimit,
        rpc: &'static Rpc,
        request: &Request<T>,
        deadlines: Deadlines,
    ) -> Result<Self, Status> {
        let caller = request.extensions().get::<Caller>().copied();
        let caller = caller.ok_or(Failure::Auth(AuthError::NoCredential))?;
        let identity = request
            .extensions()
            .get::<Identity>()
            .cloned()
            .unwrap_or(Identity::Anyone);
        rpc.check(caller, &identity)?;
        let request_memory = request.extensions().get::<RequestMemory>().cloned();
        if let Some(memory) = &request_memory {
            // The decoder has counted the list and map entries of this request.
            memory.reserve_entries(ENTRIES.try_with(Cell::get).unwrap_or_default())?;
        }
        let permit = limit
            .try_acquire(caller.tenant())
            .inspect_err(|_| call_metrics::count_shed(rpc))?;
        let timeout = call_timeout(request.metadata(), deadlines);
        let proof = request.extensions().get::<Proof>().cloned();
        let call = Self {
            rpc,
            span: open_span(rpc, caller, &identity, request),
            caller,
            identity,
            proof,
            started: Instant::now(),
            timeout,
            outage_log: state.store.outage_log().clone(),
            audit: None,
            _permit: permit,
            _request_memory: request_memory,
        };
        let is_audited = rpc
            .verbs
            .iter()
            .any(|verb| matches!(verb, Verb::Admin | Verb::Operator));
        Ok(if is_audited {
            call.with_audit(None)
        } else {
            call
        })
    }

    /// Writes the call to the audit log when it ends, with the conversation that it is about.
    pub(crate) fn with_audit_log_line(self, conversation_id: &str) -> Self {
        self.with_audit(Uuid::try_parse(conversation_id).ok())
    }

    fn with_audit(mut self, conversation: Option<Uuid>) -> Self {
        let (rpc, tenant, identity) = (self.rpc.name, self.caller.tenant(), self.identity.clone());
        match &mut self.audit {
            Some(audit) => audit.conversation = conversation,
            None => {
                self.audit = Some(AuditOnDrop {
                    rpc,
                    tenant,
                    identity,
                    conversation,
                    code: OnceLock::new(),
                });
            }
        }
        self
    }

    /// Extends the deadline by `wait`: the time that the caller asked the server to wait.
    pub(crate) const fn extend_deadline(mut self, wait: Duration) -> Self {
        self.timeout = self.timeout.saturating_add(wait);
        self
    }

    /// Gives the call the longest time that a turn may take, whatever its caller has asked for: it
    /// goes on without its caller.
    pub(crate) const fn with_longest_turn_deadline(mut self) -> Self {
        self.timeout = Duration::from_secs(CHAT_DEADLINE_SECONDS);
        self
    }

    /// Runs the call's work within its deadline and makes the answer.
    pub(crate) async fn run<T>(
        self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<Response<T>, Status> {
        let span = self.span();
        // A panic fails this call alone. Unwinding further would close the connection, and with it
        // other calls.
        let work = AssertUnwindSafe(work)
            .catch_unwind()
            .map(|ended| ended.unwrap_or(Err(Failure::Panicked)));
        let timed = async {
            tokio::time::timeout(self.timeout, work)
                .await
                .unwrap_or(Err(Failure::Deadline))
        };
        let outcome = timed
            .instrument(span.clone())
            .await
            .inspect_err(|failure| span.in_scope(|| self.record_failure(failure)))
            .map(Response::new)
            .map_err(Status::from);
        let code = outcome.as_ref().map_or_else(Status::code, |_| Code::Ok);
        span.in_scope(|| self.record_end(code));
        outcome
    }

    /// Runs a call that reads content. Its reservation is held until the answer has been sent.
    pub(crate) async fn run_with_reservation<T>(
        self,
        work: impl Future<Output = Result<WithReservation<T>, Failure>>,
    ) -> Result<Response<T>, Status> {
        let WithReservation {
            answer,
            reservation,
        } = self.run(work).await?.into_inner();
        let mut response = Response::new(answer);
        response.extensions_mut().insert(reservation);
        Ok(response)
    }

    /// Waits until the caller's credential becomes invalid, and returns the failure for that. Never
    /// returns if callers need no credential. For calls that run long.
    pub(crate) async fn wait_for_credential_end(&self) -> Failure {
        match &self.proof {
            Some(proof) => proof.wait_until_invalid().await,
            None => std::future::pending().await,
        }
    }

    /// Checks the caller's credential again after the call. None: callers need no credential.
    pub(crate) fn proof(&self) -> Option<Proof> {
        self.proof.clone()
    }

    /// The caller's name in logs.
    pub(crate) fn caller_name(&self) -> String {
        self.identity.to_string()
    }

    /// The span of the call's work and log lines.
    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    /// When the call's time is over.
    pub(crate) fn deadline(&self) -> Instant {
        self.started + self.timeout
    }

    /// Counts the call in the log of outages, if it failed because the database is unavailable.
    pub(crate) fn record_failure(&self, failure: &Failure) {
        if let Failure::Store(error) = failure {
            self.outage_log.count(error);
        }
    }

    /// Records the duration and the status code: metrics, log and audit log.
    pub(crate) fn record_end(&self, code: Code) {
        if let Some(audit) = &self.audit {
            // Set once: a call ends once.
            let _ = audit.code.set(code);
        }
        anneal_trace::set_attribute(
            &self.span,
            "rpc.grpc.status_code",
            i64::from(i32::from(code)),
        );
        if is_server_fault(code) {
            anneal_trace::set_failure(&self.span, code_name(code));
        }
        let seconds = self.started.elapsed().as_secs_f64();
        call_metrics::record_duration(self.rpc, code, seconds);
        let duration_ms = seconds * 1_000.0;
        debug!(
            code = code_name(code),
            duration_ms,
            "{} ended with {} in {duration_ms:.1} ms",
            self.rpc.name,
            code_name(code)
        );
    }
}

/// Opens the span of a call. It continues the trace that the caller names in `traceparent`.
fn open_span<T>(
    rpc: &'static Rpc,
    caller: Caller,
    identity: &Identity,
    request: &Request<T>,
) -> Span {
    let span = info_span!("rpc", rpc = rpc.name, tenant = %caller.tenant(), caller = %identity);
    if !anneal_trace::is_on() {
        return span;
    }
    let traceparent = request
        .metadata()
        .get(anneal_trace::TRACEPARENT)
        .and_then(|value| value.to_str().ok());
    anneal_trace::continue_trace(&span, traceparent);
    let name = rpc.path.trim_start_matches('/');
    anneal_trace::describe_span(&span, SpanRole::Server, name);
    if let Some((service, method)) = name.split_once('/') {
        anneal_trace::set_attribute(&span, "rpc.service", service);
        anneal_trace::set_attribute(&span, "rpc.method", method);
    }
    match request.extensions().get::<HttpRoute>() {
        Some(HttpRoute(route)) => {
            anneal_trace::set_attribute(&span, "http.route", route.clone());
        }
        None => anneal_trace::set_attribute(&span, "rpc.system", "grpc"),
    }
    span
}

/// Whether a status code is the server's failure. OpenTelemetry counts these codes, and no others,
/// as errors of the server's span.
const fn is_server_fault(code: Code) -> bool {
    matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    )
}

/// Writes the audit log line of a call when it is dropped, so that it is also written when the
/// client disconnects.
struct AuditOnDrop {
    rpc: &'static str,
    tenant: TenantId,
    identity: Identity,
    conversation: Option<Uuid>,
    /// The status code; not set: the client disconnected (CANCELLED).
    code: OnceLock<Code>,
}

impl Drop for AuditOnDrop {
    fn drop(&mut self) {
        let code = code_name(self.code.get().copied().unwrap_or(Code::Cancelled));
        audit::log_call(
            self.tenant,
            &self.identity,
            self.rpc,
            self.conversation,
            code,
        );
    }
}

/// How long a call may take: its `grpc-timeout`, at most `allowed.most`. Without `grpc-timeout` it
/// is the default.
fn call_timeout(metadata: &MetadataMap, allowed: Deadlines) -> Duration {
    let requested = metadata
        .get("grpc-timeout")
        .and_then(|value| value.to_str().ok())
        .and_then(parse_timeout);
    requested
        .unwrap_or(Duration::from_secs(allowed.default))
        .min(Duration::from_secs(allowed.most))
}

/// Parses a gRPC timeout: up to eight digits and a unit (`H`, `M`, `S`, `m`, `u`, `n`).
fn parse_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let amount: u64 = if digits.len() <= 8 {
        digits.parse().ok()?
    } else {
        return None;
    };
    match unit {
        "H" => Some(Duration::from_secs(amount * 3_600)),
        "M" => Some(Duration::from_secs(amount * 60)),
        "S" => Some(Duration::from_secs(amount)),
        "m" => Some(Duration::from_millis(amount)),
        "u" => Some(Duration::from_micros(amount)),
        "n" => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_in_the_form_of_grpc_are_parsed_and_others_are_not() {
        assert_eq!(parse_timeout("5S"), Some(Duration::from_secs(5)));
        assert_eq!(parse_timeout("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parse_timeout("123456789S"), None, "more than eight digits");
        for broken in ["", "S", "5", "5x", "-5S", "é"] {
            assert_eq!(parse_timeout(broken), None, "{broken}");
        }
    }
}
