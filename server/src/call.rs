//! What surrounds every RPC: whose call it is, how long it may take, room for it, its span and its figures.

use std::{cell::Cell, future::Future, panic::AssertUnwindSafe, sync::OnceLock, time::Duration};

use anneal_core::{
    caller::{Caller, TenantId, Verb},
    limits::{CHAT_DEADLINE_SECONDS, DEADLINE_DEFAULT_SECONDS, DEADLINE_MOST_SECONDS, WATCH_DEADLINE_SECONDS},
};
use anneal_proto::codec::ENTRIES;
use futures::FutureExt as _;
use prost::Message;
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status, metadata::MetadataMap};
use tracing::{Instrument as _, Span, debug, info_span};
use uuid::Uuid;

use crate::{
    audit,
    auth::{Identity, Proof, Stranger},
    content::Holding,
    cpu::CpuPool,
    encoded,
    house::House,
    room::{Places, Room},
    status::Failure,
    traffic::RequestRoom,
    verbs::Rpc,
};

/// How long calls of a kind may take, in seconds.
#[derive(Clone, Copy)]
pub(crate) struct Deadlines {
    /// When the caller does not say.
    default: u64,
    /// Whatever the caller says.
    most: u64,
}

impl Deadlines {
    /// Calls that ask the database and answer.
    const UNARY: Self = Self { default: DEADLINE_DEFAULT_SECONDS, most: DEADLINE_MOST_SECONDS };
    /// Calls that wait for a model.
    const CHAT: Self = Self { default: CHAT_DEADLINE_SECONDS, most: CHAT_DEADLINE_SECONDS };
    /// Calls that stay until somebody ends them.
    const WATCH: Self = Self { default: WATCH_DEADLINE_SECONDS, most: WATCH_DEADLINE_SECONDS };
}

/// One call under way.
pub(crate) struct Call {
    name: &'static str,
    /// Whose call it is.
    pub(crate) caller: Caller,
    /// What it was let in with.
    identity: Identity,
    proof: Option<Proof>,
    started: Instant,
    deadline: Duration,
    /// What the audit log will say of it; None: nothing.
    audited: Option<Audited>,
    /// Its room among the calls under way, taken until it is dropped.
    _room: Places,
    /// The room for its request, taken as long.
    _request_room: Option<RequestRoom>,
}

impl Call {
    /// Takes in a call: finds its caller and its deadline, refuses it when its caller may not, or too many are under way.
    pub(crate) fn begin<T>(house: &House, rpc: &'static Rpc, request: &Request<T>) -> Result<Self, Status> {
        Self::begin_among(&house.calls, rpc, request, Deadlines::UNARY)
    }

    /// The same for a turn, which has room of its own: those that wait for a model must not keep out those that do not.
    pub(crate) fn begin_turn<T>(house: &House, rpc: &'static Rpc, request: &Request<T>) -> Result<Self, Status> {
        Self::begin_among(&house.turn_room, rpc, request, Deadlines::CHAT)
    }

    /// The same for a watch, which has room of its own: those that stay must not keep out those that come and go.
    pub(crate) fn begin_watch<T>(house: &House, rpc: &'static Rpc, request: &Request<T>) -> Result<Self, Status> {
        Self::begin_among(house.watching.room(), rpc, request, Deadlines::WATCH)
    }

    fn begin_among<T>(
        room: &Room,
        rpc: &'static Rpc,
        request: &Request<T>,
        deadlines: Deadlines,
    ) -> Result<Self, Status> {
        let caller = request.extensions().get::<Caller>().copied();
        let caller = caller.ok_or(Failure::Stranger(Stranger::NoCredential))?;
        let identity = request.extensions().get::<Identity>().cloned().unwrap_or(Identity::Anyone);
        rpc.check(caller, &identity)?;
        let request_room = request.extensions().get::<RequestRoom>().cloned();
        if let Some(room) = &request_room {
            room.grow_by_entries(ENTRIES.try_with(Cell::get).unwrap_or_default())?;
        }
        let name = rpc.name;
        let entered = room.enter(caller.tenant());
        let room = entered.inspect_err(|_| metrics::counter!("shed_total", "rpc" => name).increment(1))?;
        let deadline = deadline(request.metadata(), deadlines);
        let proof = request.extensions().get::<Proof>().cloned();
        let call = Self {
            name,
            caller,
            identity,
            proof,
            started: Instant::now(),
            deadline,
            audited: None,
            _room: room,
            _request_room: request_room,
        };
        let is_audited = rpc.verbs.iter().any(|verb| matches!(verb, Verb::Admin | Verb::Operator));
        Ok(if is_audited { call.audited(None) } else { call })
    }

    /// The same call, and the audit log says that it was about this conversation.
    pub(crate) fn about(self, conversation_id: &str) -> Self {
        self.audited(Uuid::try_parse(conversation_id).ok())
    }

    fn audited(mut self, conversation: Option<Uuid>) -> Self {
        let (rpc, tenant, identity) = (self.name, self.caller.tenant(), self.identity.clone());
        match &mut self.audited {
            Some(audited) => audited.conversation = conversation,
            None => self.audited = Some(Audited { rpc, tenant, identity, conversation, code: OnceLock::new() }),
        }
        self
    }

    /// The same call, given `wait` more: what the caller asked to wait for does not count as slowness.
    pub(crate) const fn patient(mut self, wait: Duration) -> Self {
        self.deadline = self.deadline.saturating_add(wait);
        self
    }

    /// Runs a call within its deadline and answers it.
    pub(crate) async fn run<T>(self, work: impl Future<Output = Result<T, Failure>>) -> Result<Response<T>, Status> {
        let span = self.span();
        // A bug in one call must not take its connection, and with it the calls of others, away.
        let work = AssertUnwindSafe(work).catch_unwind().map(|ended| ended.unwrap_or(Err(Failure::Panicked)));
        let timed = async { tokio::time::timeout(self.deadline, work).await.unwrap_or(Err(Failure::Deadline)) };
        let outcome = timed.instrument(span.clone()).await.map(Response::new).map_err(Status::from);
        let code = outcome.as_ref().map_or_else(Status::code, |_| Code::Ok);
        span.in_scope(|| self.ended(code));
        outcome
    }

    /// The same for a call that reads content: the room for it is held until the answer has gone out.
    pub(crate) async fn run_holding<T>(
        self,
        work: impl Future<Output = Result<Holding<T>, Failure>>,
    ) -> Result<Response<T>, Status> {
        let Holding { answer, reservation } = self.run(work).await?.into_inner();
        let mut response = Response::new(answer);
        response.extensions_mut().insert(reservation);
        Ok(response)
    }

    /// The same, and a long answer is encoded on a thread of this pool; None: it does not go out as protobuf.
    pub(crate) async fn run_encoding<T: Message + Default + 'static>(
        self,
        work: impl Future<Output = Result<Holding<T>, Failure>>,
        pool: Option<&CpuPool>,
    ) -> Result<Response<T>, Status> {
        let tenant = self.caller.tenant();
        let work = async {
            let answer = work.await?;
            match pool {
                Some(pool) => encoded::encode_long(answer, pool, tenant).await,
                None => Ok(answer.map(|answer| (answer, None))),
            }
        };
        let (metadata, (answer, encoded), mut extensions) = self.run_holding(work).await?.into_parts();
        if let Some(encoded) = encoded {
            extensions.insert(encoded);
        }
        Ok(Response::from_parts(metadata, answer, extensions))
    }

    /// Returns, with what to tell, when the caller's credential does not hold any more: for calls that stay.
    pub(crate) async fn credential_ends(&self) -> Failure {
        match &self.proof {
            Some(proof) => proof.ends().await,
            None => std::future::pending().await,
        }
    }

    /// The span that everything done for the call belongs to.
    pub(crate) fn span(&self) -> Span {
        info_span!("rpc", rpc = self.name, tenant = %self.caller.tenant(), caller = %self.identity)
    }

    /// When its time is up.
    pub(crate) fn deadline(&self) -> Instant {
        self.started + self.deadline
    }

    /// Takes down how long the call took and how it ended.
    pub(crate) fn ended(&self, code: Code) {
        if let Some(audited) = &self.audited {
            // A call ends once.
            let _ = audited.code.set(code);
        }
        let seconds = self.started.elapsed().as_secs_f64();
        metrics::histogram!("rpc_server_duration_seconds", "rpc" => self.name, "code" => code_name(code))
            .record(seconds);
        let duration_ms = seconds * 1_000.0;
        debug!(
            code = code_name(code),
            duration_ms,
            "{} ended with {} in {duration_ms:.1} ms",
            self.name,
            code_name(code)
        );
    }
}

/// A call that the audit log hears of when it is over, also where its caller has left before.
struct Audited {
    rpc: &'static str,
    tenant: TenantId,
    identity: Identity,
    conversation: Option<Uuid>,
    /// How it has ended.
    code: OnceLock<Code>,
}

impl Drop for Audited {
    fn drop(&mut self) {
        let code = code_name(self.code.get().copied().unwrap_or(Code::Cancelled));
        audit::called(self.tenant, &self.identity, self.rpc, self.conversation, code);
    }
}

/// The caller's `grpc-timeout`, within what the server allows.
fn deadline(metadata: &MetadataMap, allowed: Deadlines) -> Duration {
    let asked = metadata.get("grpc-timeout").and_then(|value| value.to_str().ok()).and_then(parse_timeout);
    asked.unwrap_or(Duration::from_secs(allowed.default)).min(Duration::from_secs(allowed.most))
}

/// A gRPC timeout: up to eight digits and a unit (`H`, `M`, `S`, `m`, `u`, `n`).
fn parse_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let amount: u64 = if digits.len() <= 8 { digits.parse().ok()? } else { return None };
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

const fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_grpc_writes_them() {
        assert_eq!(parse_timeout("5S"), Some(Duration::from_secs(5)));
        assert_eq!(parse_timeout("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parse_timeout("123456789S"), None, "more than eight digits");
        for broken in ["", "S", "5", "5x", "-5S", "é"] {
            assert_eq!(parse_timeout(broken), None, "{broken}");
        }
    }
}
