//! The error details of a gRPC status.

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// The parts of a status that tests compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusDetails {
    /// The gRPC code.
    pub code: Code,
    /// The reason in the status's ErrorInfo. Empty if it has none.
    pub reason: String,
    /// The first field that the status's BadRequest names. Empty if it names none.
    pub field: String,
    /// Whether the status has a RetryInfo.
    pub retry: bool,
}

/// Reads the parts of a status that tests compare.
pub fn status_details(status: &Status) -> StatusDetails {
    let details = status.get_error_details();
    let field = details
        .bad_request()
        .and_then(|bad| bad.field_violations.first())
        .map(|first| first.field.clone());
    StatusDetails {
        code: status.code(),
        reason: details
            .error_info()
            .map(|info| info.reason.clone())
            .unwrap_or_default(),
        field: field.unwrap_or_default(),
        retry: details.retry_info().is_some(),
    }
}

/// Asserts that a call was refused with this code, this reason and this field (empty: no field).
#[track_caller]
pub fn assert_refused<T: std::fmt::Debug>(
    outcome: Result<T, Status>,
    code: Code,
    reason: &str,
    field: &str,
) {
    let status = outcome.expect_err("the call is refused");
    let details = status_details(&status);
    assert_eq!(
        (
            details.code,
            details.reason.as_str(),
            details.field.as_str()
        ),
        (code, reason, field),
        "{status}"
    );
}
