//! The metrics that every call records, and the names of status codes in them. The handle of each
//! metric is kept: to find it by its labels takes longer than to record with it. Slow calls are kept
//! one by one for operators.

use std::{
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use metrics::{Counter, Histogram};
use tonic::Code;

use crate::{
    slow_calls::{SlowCall, SlowCalls},
    verbs::{RPCS, Rpc},
};

/// Status codes are the numbers from 0 to 16.
const CODES: usize = 17;

/// The handles of each RPC, in the order of [`RPCS`]: one per status code.
static DURATIONS: [[OnceLock<Histogram>; CODES]; RPCS.len()] =
    [const { [const { OnceLock::new() }; CODES] }; RPCS.len()];
static SHED: [OnceLock<Counter>; RPCS.len()] = [const { OnceLock::new() }; RPCS.len()];
/// The slowest calls of this process.
static SLOW_CALLS: SlowCalls = SlowCalls::new();

/// Records how long a call took, which has just ended.
pub(crate) fn record_duration(rpc: &'static Rpc, code: Code, seconds: f64) {
    let handle = || {
        let (rpc, code) = (rpc.name, code_name(code));
        metrics::histogram!("anneal_rpc_server_duration_seconds", "rpc" => rpc, "code" => code)
    };
    if let Some(index) = index(rpc) {
        DURATIONS[index][code as usize]
            .get_or_init(handle)
            .record(seconds);
        let call = SlowCall {
            rpc,
            code,
            duration: Duration::from_secs_f64(seconds),
            ended: SystemTime::now(),
        };
        SLOW_CALLS.offer(index, call);
    }
}

/// Counts a call that is refused because too many are under way.
pub(crate) fn count_shed(rpc: &'static Rpc) {
    let handle = || metrics::counter!("anneal_shed_total", "rpc" => rpc.name);
    if let Some(index) = index(rpc) {
        SHED[index].get_or_init(handle).increment(1);
    }
}

/// Up to `limit` of the slowest calls of the hour before `now`, the slowest first.
pub(crate) fn list_slow_calls(now: SystemTime, limit: usize) -> Vec<SlowCall> {
    SLOW_CALLS.list(now, limit)
}

/// The place of an RPC in [`RPCS`]. None does not occur: there are no others.
fn index(rpc: &Rpc) -> Option<usize> {
    RPCS.iter().position(|other| other.name == rpc.name)
}

/// The name of a status code in metrics and logs.
pub(crate) const fn code_name(code: Code) -> &'static str {
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
