//! The meanings of providers' error codes. Codes are compared as a whole, without regard to case
//! and to the marks between their words, and only from fields that hold codes.

use super::OverflowKind;

/// The meaning of a provider's error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CodeMeaning {
    /// An overflow of this kind. The text is the code as the tables below spell it.
    Overflow(OverflowKind, &'static str),
    /// An error about something else than size: key, permission, quota, rate, availability, an
    /// unknown model, a content filter. If its message has the wording of an overflow, the message
    /// only quotes that wording.
    Unrelated,
}

/// Codes of [`OverflowKind::Input`].
const INPUT: [&str; 7] = [
    "context_length_exceeded",
    "context_window_exceeded",
    "exceed_context_size_error",
    "model_max_prompt_tokens_exceeded",
    "model_context_window_exceeded",
    "token_quantity_exceeded",
    "ContextWindowExceededError",
];

/// Codes of [`OverflowKind::Bytes`].
const BYTES: [&str; 5] = [
    "request_too_large",
    "entity.too.large",
    "RequestEntityTooLargeException",
    "PayloadTooLargeError",
    "payload_too_large",
];

/// Codes of [`OverflowKind::MessageTooLong`].
const MESSAGE_TOO_LONG: [&str; 2] = ["string_above_max_length", "string_too_long"];

/// Codes of [`CodeMeaning::Unrelated`].
const UNRELATED: [&str; 36] = [
    "rate_limit_exceeded",
    "rate_limit_error",
    "rate_limited",
    "too_many_requests",
    "RateLimitError",
    "ThrottlingException",
    "ThrottlingError",
    "RESOURCE_EXHAUSTED",
    "insufficient_quota",
    "quota_exceeded",
    "ServiceQuotaExceededException",
    "billing_error",
    "invalid_api_key",
    "authentication_error",
    "AuthenticationError",
    "UNAUTHENTICATED",
    "UnrecognizedClientException",
    "permission_error",
    "permission_denied",
    "PERMISSION_DENIED",
    "PermissionDeniedError",
    "AccessDeniedException",
    "not_found_error",
    "NotFoundError",
    "ResourceNotFoundException",
    "model_not_found",
    "DeploymentNotFound",
    "overloaded_error",
    "UNAVAILABLE",
    "ServiceUnavailableError",
    "ServiceUnavailableException",
    "timeout_error",
    "DEADLINE_EXCEEDED",
    "ModelTimeoutException",
    "content_filter",
    "ContentPolicyViolationError",
];

/// HTTP statuses of codes, for errors within an answer whose own status is a success.
const STATUSES: [(u16, &[&str]); 7] = [
    (
        400,
        &[
            "invalid_request_error",
            "INVALID_ARGUMENT",
            "BadRequestError",
            "ValidationException",
        ],
    ),
    (
        401,
        &[
            "authentication_error",
            "invalid_api_key",
            "AuthenticationError",
            "UNAUTHENTICATED",
        ],
    ),
    (
        403,
        &[
            "permission_error",
            "permission_denied",
            "PermissionDeniedError",
            "AccessDeniedException",
        ],
    ),
    (
        404,
        &[
            "not_found_error",
            "NotFoundError",
            "model_not_found",
            "ResourceNotFoundException",
            "NOT_FOUND",
        ],
    ),
    (
        429,
        &[
            "rate_limit_error",
            "rate_limit_exceeded",
            "rate_limited",
            "too_many_requests",
            "RateLimitError",
            "RESOURCE_EXHAUSTED",
            "ThrottlingException",
            "insufficient_quota",
            "quota_exceeded",
        ],
    ),
    (
        503,
        &[
            "UNAVAILABLE",
            "ServiceUnavailableError",
            "ServiceUnavailableException",
        ],
    ),
    (529, &["overloaded_error"]),
];

/// The HTTP status of a code; None if [`STATUSES`] does not list the code.
pub(super) fn status_of(code: &str) -> Option<u16> {
    let has_code = |codes: &&[&str]| codes.iter().any(|known| known.eq_ignore_ascii_case(code));
    STATUSES
        .iter()
        .find(|(_, codes)| has_code(codes))
        .map(|(status, _)| *status)
}

/// Codes of [`OverflowKind::QuotaTooSmall`]. GitHub Models: the limit of the plan for one request,
/// which is not the model's window.
const QUOTA_TOO_SMALL: [&str; 1] = ["tokens_limit_reached"];

/// The meaning of a code; None if the code is unknown, or too general to mean anything here.
pub(super) fn look_up(code: &str) -> Option<CodeMeaning> {
    let find_in = |codes: &[&'static str]| codes.iter().copied().find(|known| is_same(known, code));
    let tables: [(&[&'static str], OverflowKind); 4] = [
        (&INPUT, OverflowKind::Input),
        (&BYTES, OverflowKind::Bytes),
        (&MESSAGE_TOO_LONG, OverflowKind::MessageTooLong),
        (&QUOTA_TOO_SMALL, OverflowKind::QuotaTooSmall),
    ];
    let overflow = tables
        .into_iter()
        .find_map(|(codes, kind)| Some(CodeMeaning::Overflow(kind, find_in(codes)?)));
    overflow.or_else(|| find_in(&UNRELATED).map(|_| CodeMeaning::Unrelated))
}

/// Whether two spellings are of one code: `ContextWindowExceeded` is `context_window_exceeded`.
fn is_same(known: &str, code: &str) -> bool {
    fn letters(code: &str) -> impl Iterator<Item = u8> {
        code.bytes()
            .filter(|byte| !matches!(byte, b'_' | b'-' | b'.' | b' '))
            .map(|byte| byte.to_ascii_lowercase())
    }
    letters(known).eq(letters(code))
}

/// Whether an HTTP status alone means something else than size: the key, the payment, the address
/// or the rate.
pub(super) const fn is_unrelated_status(status: u16) -> bool {
    matches!(status, 401..=404 | 407 | 429)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_known_in_any_spelling_and_only_as_a_whole() {
        for code in [
            "context_window_exceeded",
            "ContextWindowExceeded",
            "CONTEXT-WINDOW-EXCEEDED",
        ] {
            assert_eq!(
                look_up(code),
                Some(CodeMeaning::Overflow(
                    OverflowKind::Input,
                    "context_window_exceeded"
                )),
                "{code}"
            );
        }
        assert_eq!(look_up("RateLimitExceeded"), Some(CodeMeaning::Unrelated));
        for code in ["context_window", "no_context_window_exceeded", "", "_"] {
            assert_eq!(look_up(code), None, "{code}");
        }
    }
}
