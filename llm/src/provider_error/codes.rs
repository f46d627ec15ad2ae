//! What providers' codes prove: looked up whole, from the fields that hold codes, never searched for in text.

use super::OverflowKind;

/// What a code proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    /// This kind, whatever the message says, and the code as we write it; the message may still name numbers.
    Kind(OverflowKind, &'static str),
    /// Key, quota, rate or outage: a wording of overflow beside it is somebody else's.
    Elsewhere,
}

const INPUT: [&str; 7] = [
    "context_length_exceeded",
    "context_window_exceeded",
    "exceed_context_size_error",
    "model_max_prompt_tokens_exceeded",
    "model_context_window_exceeded",
    "token_quantity_exceeded",
    "ContextWindowExceededError",
];

const BYTES: [&str; 5] = [
    "request_too_large",
    "entity.too.large",
    "RequestEntityTooLargeException",
    "PayloadTooLargeError",
    "payload_too_large",
];

const MESSAGE_TOO_LONG: [&str; 2] = ["string_above_max_length", "string_too_long"];

const ELSEWHERE: [&str; 36] = [
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

/// HTTP statuses that codes stand for, where an answer that began as a success has no other.
const STATUSES: [(u16, &[&str]); 8] = [
    (400, &["invalid_request_error", "INVALID_ARGUMENT", "BadRequestError", "ValidationException"]),
    (401, &["authentication_error", "invalid_api_key", "AuthenticationError", "UNAUTHENTICATED"]),
    (403, &["permission_error", "permission_denied", "PermissionDeniedError", "AccessDeniedException"]),
    (404, &["not_found_error", "NotFoundError", "model_not_found", "ResourceNotFoundException", "NOT_FOUND"]),
    (429, &["rate_limit_error", "rate_limit_exceeded", "rate_limited", "too_many_requests", "RateLimitError"]),
    (429, &["RESOURCE_EXHAUSTED", "ThrottlingException", "insufficient_quota", "quota_exceeded"]),
    (503, &["UNAVAILABLE", "ServiceUnavailableError", "ServiceUnavailableException"]),
    (529, &["overloaded_error"]),
];

/// The HTTP status that a code stands for.
pub(super) fn status(code: &str) -> Option<u16> {
    let named = |codes: &&[&str]| codes.iter().any(|known| known.eq_ignore_ascii_case(code));
    STATUSES.iter().find(|(_, codes)| named(codes)).map(|(status, _)| *status)
}

/// GitHub Models: what the plan allows in one request, whatever the model could take.
const QUOTA_TOO_SMALL: [&str; 1] = ["tokens_limit_reached"];

/// What a code proves; None for one that is too general.
pub(super) fn read(code: &str) -> Option<Code> {
    let known = |codes: &[&'static str]| codes.iter().copied().find(|known| known.eq_ignore_ascii_case(code));
    let tables: [(&[&'static str], OverflowKind); 4] = [
        (&INPUT, OverflowKind::Input),
        (&BYTES, OverflowKind::Bytes),
        (&MESSAGE_TOO_LONG, OverflowKind::MessageTooLong),
        (&QUOTA_TOO_SMALL, OverflowKind::QuotaTooSmall),
    ];
    let proven = tables.into_iter().find_map(|(codes, kind)| Some(Code::Kind(kind, known(codes)?)));
    proven.or_else(|| known(&ELSEWHERE).map(|_| Code::Elsewhere))
}

/// Whether an HTTP status says by itself that key, quota or address is wrong.
pub(super) const fn is_elsewhere(status: u16) -> bool {
    matches!(status, 401..=404 | 407 | 429)
}
