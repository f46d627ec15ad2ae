//! What a refused call says.

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// A refusal, as tests compare it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The gRPC code.
    pub code: Code,
    /// The stable reason of its ErrorInfo.
    pub reason: String,
    /// The field that its BadRequest blames; empty when it blames none.
    pub field: String,
    /// Whether it says when to try again.
    pub retry: bool,
}

/// Reads code, reason and field of a status.
pub fn refusal(status: &Status) -> Refusal {
    let details = status.get_error_details();
    let field = details.bad_request().and_then(|bad| bad.field_violations.first()).map(|first| first.field.clone());
    Refusal {
        code: status.code(),
        reason: details.error_info().map(|info| info.reason.clone()).unwrap_or_default(),
        field: field.unwrap_or_default(),
        retry: details.retry_info().is_some(),
    }
}

/// Asserts that a call was refused with this code, for this reason, blaming this field (empty: none).
#[track_caller]
pub fn assert_refused<T: std::fmt::Debug>(outcome: Result<T, Status>, code: Code, reason: &str, field: &str) {
    let status = outcome.expect_err("the call is refused");
    let said = refusal(&status);
    assert_eq!((said.code, said.reason.as_str(), said.field.as_str()), (code, reason, field), "{status}");
}
