//! Refusals over HTTP: problem details (RFC 9457), made from the status that gRPC would give.

use std::collections::BTreeMap;

use anneal_proto::{
    convert::FieldError,
    v1::{self as pb, part::Part},
};
use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use utoipa::ToSchema;

use crate::{failure::Failure, reason::Reason, truncated_text::TruncatedText};

/// Why a request was refused. Programs should look at `reason`; docs/errors.md describes each
/// reason.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Problem {
    /// A URI for each reason.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    kind: Box<str>,
    /// The stable reason in words. For `MALFORMED_REQUEST` with another status than 400, the status
    /// in words.
    #[schema(value_type = String)]
    title: Box<str>,
    /// The HTTP status.
    status: u16,
    /// Why this request failed, as a sentence.
    #[schema(value_type = String)]
    detail: Box<str>,
    /// The stable reason, such as `CONVERSATION_NOT_FOUND`.
    #[schema(value_type = String)]
    reason: Box<str>,
    /// The field, parameter or path segment at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    field: Option<Box<str>>,
    /// Milliseconds after which the same request may succeed. Absent: waiting alone does not help,
    /// or the server cannot say for how long.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u32>,
    /// Names and figures of this refusal: the `ErrorInfo.metadata` of docs/errors.md.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    facts: BTreeMap<String, String>,
}

impl Problem {
    /// A request that violates HTTP or the API's use of it.
    pub(super) fn malformed(status: StatusCode, detail: impl AsRef<str> + Into<String>) -> Self {
        let problem = Self::of(Reason::MalformedRequest, status, TruncatedText::new(detail));
        match status.canonical_reason() {
            Some(phrase) if status != StatusCode::BAD_REQUEST => Self {
                title: title(phrase).into(),
                ..problem
            },
            _ => problem,
        }
    }

    /// A body above its limit.
    pub(super) fn too_large(most: usize) -> Self {
        let detail = format!("the body must be at most {most} bytes");
        let problem = Self::of(
            Reason::LimitExceeded,
            StatusCode::PAYLOAD_TOO_LARGE,
            TruncatedText::new(detail),
        );
        Self {
            field: Some("body".into()),
            ..problem
        }
    }

    /// A body that did not arrive in time.
    pub(super) fn too_slow() -> Self {
        let detail = TruncatedText::new("the body did not arrive in time");
        Self::of(
            Reason::DeadlineExceeded,
            StatusCode::REQUEST_TIMEOUT,
            detail,
        )
    }

    /// A field that is unknown or has an unacceptable value. `field` is its name over HTTP.
    pub(super) fn invalid(
        field: impl AsRef<str> + Into<String>,
        description: impl AsRef<str> + Into<String>,
    ) -> Self {
        let field = TruncatedText::new(field).into_string();
        let problem = Self::of(
            Reason::InvalidField,
            StatusCode::BAD_REQUEST,
            TruncatedText::new(description),
        );
        Self {
            detail: format!("{field}: {}", problem.detail).into(),
            field: Some(field.into()),
            ..problem
        }
    }

    /// The problem of a turn that gRPC refuses with this status.
    pub(super) fn of_turn(status: &Status, messages: TurnMessages) -> Self {
        Self::with_field_names(status, |field| {
            messages
                .field_name(field)
                .unwrap_or_else(|| field_name(field))
        })
    }

    /// The problem of a refused change of the message that a path names.
    pub(super) fn of_message(status: &Status) -> Self {
        Self::with_field_names(status, |field| {
            if field.starts_with("message_ids") {
                "messageId".to_owned()
            } else {
                field_name(field)
            }
        })
    }

    /// The problem of a refused edit.
    pub(super) fn of_edit(status: &Status) -> Self {
        Self::with_field_names(status, |field| {
            content_name(field).unwrap_or_else(|| field_name(field))
        })
    }

    /// The problem of a refused rewind.
    pub(super) fn of_rewind(status: &Status) -> Self {
        Self::with_field_names(status, |field| {
            if field == "after_message_id" {
                camel(field)
            } else {
                field_name(field)
            }
        })
    }

    /// The problem of this status. `name_field` returns the HTTP name of a field of the gRPC
    /// request.
    fn with_field_names(status: &Status, name_field: impl Fn(&str) -> String) -> Self {
        let details = status.get_error_details();
        let (reason, mut facts) = match details.error_info() {
            Some(info) => (info.reason.clone(), info.metadata.clone()),
            None => (code_name(status.code()), std::collections::HashMap::new()),
        };
        facts.remove("field");
        let violation = details
            .bad_request()
            .and_then(|bad| bad.field_violations.first());
        let field = violation.map(|violation| name_field(&violation.field));
        let detail = match (&field, violation) {
            (Some(field), Some(violation)) => format!("{field}: {}", violation.description),
            _ => TruncatedText::new(status.message()).into_string(),
        };
        let wait = details.retry_info().and_then(|retry| retry.retry_delay);
        Self {
            kind: kind(&reason).into(),
            title: title(&reason).into(),
            status: http_status(status.code(), &reason).as_u16(),
            detail: detail.into(),
            reason: reason.into(),
            field: field.map(String::into_boxed_str),
            retry_after_ms: wait.map(|wait| u32::try_from(wait.as_millis()).unwrap_or(u32::MAX)),
            facts: facts
                .into_iter()
                .map(|(name, value)| (camel(&name), value))
                .collect(),
        }
    }

    fn of(reason: Reason, status: StatusCode, detail: TruncatedText) -> Self {
        let reason = reason.name();
        Self {
            kind: kind(reason).into(),
            title: title(reason).into(),
            status: status.as_u16(),
            detail: detail.into_string().into(),
            reason: reason.into(),
            field: None,
            retry_after_ms: None,
            facts: BTreeMap::new(),
        }
    }

    /// Whether the problem has this reason.
    pub(super) fn is(&self, reason: Reason) -> bool {
        *self.reason == *reason.name()
    }

    /// The problem of a status, whose field keeps its name in the gRPC request.
    pub(super) fn of_rpc(status: &Status) -> Self {
        Self::with_field_names(status, str::to_owned)
    }

    /// The problem of a refused field, which keeps its name in the gRPC request.
    pub(super) fn of_field(error: FieldError) -> Self {
        Self::of_rpc(&Status::from(Failure::from(error)))
    }

    /// The stable reason.
    pub(super) fn reason(&self) -> &str {
        &self.reason
    }

    /// The reason, or the status, in words.
    pub(super) fn title(&self) -> &str {
        &self.title
    }

    /// The HTTP status.
    pub(super) const fn status(&self) -> u16 {
        self.status
    }

    /// Why the request failed, as a sentence.
    pub(super) fn detail(&self) -> &str {
        &self.detail
    }

    /// The field, parameter or path segment at fault.
    pub(super) fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    /// Milliseconds after which the same request may succeed.
    pub(super) const fn retry_after_ms(&self) -> Option<u32> {
        self.retry_after_ms
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Status::from(failure).into()
    }
}

impl From<FieldError> for Problem {
    fn from(error: FieldError) -> Self {
        Failure::from(error).into()
    }
}

impl From<Status> for Problem {
    fn from(status: Status) -> Self {
        Self::with_field_names(&status, field_name)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).expect("strings and numbers can be written");
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.status == StatusCode::UNAUTHORIZED.as_u16() {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(wait) = self.retry_after_ms {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(wait.div_ceil(1_000)));
        }
        // Middleware makes the errors of other protocols from it.
        response.extensions_mut().insert(self);
        response
    }
}

/// The `type` of the problem with this reason: `CONVERSATION_NOT_FOUND` becomes
/// `urn:anneal:problem:conversation-not-found`.
fn kind(reason: &str) -> String {
    format!(
        "urn:anneal:problem:{}",
        reason.to_lowercase().replace('_', "-")
    )
}

/// The title of a problem, from its reason or its HTTP status: `CONVERSATION_NOT_FOUND` becomes
/// `Conversation not found`, and `Method Not Allowed` becomes `Method not allowed`.
fn title(name: &str) -> String {
    let words = name.to_lowercase().replace('_', " ");
    let (first, rest) = words.split_at(words.len().min(1));
    format!("{}{rest}", first.to_uppercase())
}

/// The HTTP status that google.rpc maps this gRPC code to, with these exceptions: some reasons have
/// an HTTP status of their own, `FAILED_PRECONDITION` is 422 (not 400), and `CANCELLED` is 500 (not
/// 499).
fn http_status(code: Code, reason: &str) -> StatusCode {
    match code {
        _ if reason == Reason::EtagMismatch.name() => StatusCode::PRECONDITION_FAILED,
        _ if reason == Reason::StorageQuotaExceeded.name() => StatusCode::INSUFFICIENT_STORAGE,
        Code::InvalidArgument | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::FailedPrecondition => StatusCode::UNPROCESSABLE_ENTITY,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Ok | Code::Cancelled | Code::Unknown | Code::Internal | Code::DataLoss => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

/// The HTTP name of a field of a gRPC request.
fn field_name(field: &str) -> String {
    let inner = ["conversation.", "options."]
        .iter()
        .find_map(|outer| field.strip_prefix(outer));
    let name = inner.unwrap_or(field);
    match name {
        "conversation_id" => "sessionId".to_owned(),
        "turn_request_id" => "requestId".to_owned(),
        "question_message_id" => "messageId".to_owned(),
        "after_message_id" => "after".to_owned(),
        "position" => "Last-Event-ID".to_owned(),
        name if name.starts_with("messages") => "message".to_owned(),
        // Over HTTP a picture is a single string.
        name if name.starts_with("images[") => {
            name.split('.').next().unwrap_or_default().to_owned()
        }
        name => camel(name),
    }
}

/// The messages of a turn, as fields of its HTTP request: results of tools, and after them the
/// user's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TurnMessages {
    /// Whether the first one has results of tools.
    has_results: bool,
    /// How many texts precede the pictures of the user's message.
    texts: usize,
}

impl TurnMessages {
    /// The messages of this request.
    pub(super) fn of(messages: &[pb::NewMessage]) -> Self {
        let first = messages.first();
        let has_results = first.is_some_and(|first| first.role() == pb::Role::Tool);
        let users = messages.get(usize::from(has_results));
        let parts = users.map_or(&[][..], |message| &message.parts);
        let is_text = |part: &&pb::Part| matches!(part.part, Some(Part::Text(_)));
        Self {
            has_results,
            texts: parts.iter().take_while(is_text).count(),
        }
    }

    /// The HTTP name of the result or the picture that a field of the gRPC request is in:
    /// `toolResults[0].toolUseId`, or `images[0]` for the first part after the texts. None: the
    /// field is in none of them.
    fn field_name(self, field: &str) -> Option<String> {
        if self.has_results
            && let Some(inside) = field.strip_prefix("messages[0].parts")
        {
            let inside = inside.replacen(".tool_result", "", 1);
            return Some(format!("toolResults{}", camel(&inside)));
        }
        let users = format!("messages[{}].parts[", usize::from(self.has_results));
        let (part, _) = field.strip_prefix(&users)?.split_once("].media")?;
        let index = part.parse::<usize>().ok()?.checked_sub(self.texts)?;
        Some(format!("images[{index}]"))
    }
}

/// The HTTP name of a field of an edit's new message: `content[0].id` for
/// `message.parts[0].tool_use.id`. None: the field is none of it.
fn content_name(field: &str) -> Option<String> {
    const PART_TYPES: [&str; 5] = ["text", "tool_use", "tool_result", "media", "reasoning"];
    if field == "message" {
        return Some("content".to_owned());
    }
    let Some(inside) = field.strip_prefix("message.parts") else {
        return field.strip_prefix("message.").map(camel);
    };
    let mut segments = inside.split('.');
    let mut name = format!("content{}", segments.next().unwrap_or_default());
    // A block has no object in it that has the name of its type.
    let fields = segments.enumerate();
    for (_, segment) in fields.filter(|(index, one)| *index > 0 || !PART_TYPES.contains(one)) {
        name.push('.');
        name.push_str(&camel(segment));
    }
    Some(name)
}

/// Converts a name to camel case: `last_message_id` becomes `lastMessageId`.
fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let mut all = String::with_capacity(name.len());
    all.push_str(words.next().unwrap_or_default());
    for word in words {
        let mut letters = word.chars();
        all.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        all.push_str(letters.as_str());
    }
    all
}

/// The name of a gRPC code: `DeadlineExceeded` becomes `DEADLINE_EXCEEDED`. It stands in for the
/// reason of a status that has none.
fn code_name(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(letter.to_uppercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_names_are_converted_to_names_over_http() {
        assert_eq!(
            (camel("last_message_id"), camel("page")),
            ("lastMessageId".into(), "page".into())
        );
        assert_eq!(camel("a__é"), "aÉ");
        assert_eq!(
            (title("JOB_NOT_FOUND"), title("")),
            ("Job not found".into(), String::new())
        );
        assert_eq!(code_name(Code::DeadlineExceeded), "DEADLINE_EXCEEDED");
        assert_eq!(field_name("conversation.title"), "title");
        assert_eq!(field_name("turn_request_id"), "requestId");
        assert_eq!(field_name("messages[0].parts[1].text"), "message");
        assert_eq!(field_name("images[1].media_type"), "images[1]");
        assert_eq!(field_name("message_ids[3]"), "messageIds[3]");
        assert_eq!(field_name("range.last_message_id"), "range.lastMessageId");
    }

    #[test]
    fn fields_of_a_turns_messages_have_the_names_of_its_request_over_http() {
        let part = |part: Part| pb::Part { part: Some(part) };
        let text = || part(Part::Text(pb::TextPart::default()));
        let picture = part(Part::Media(pb::MediaPart::default()));
        let result = part(Part::ToolResult(pb::ToolResultPart::default()));
        let message = |role: pb::Role, parts: Vec<pb::Part>| pb::NewMessage {
            role: role.into(),
            parts,
            ..pb::NewMessage::default()
        };
        let users = message(pb::Role::User, vec![text(), text(), picture]);
        let results = message(pb::Role::Tool, vec![result]);
        let name = |messages: &[pb::NewMessage], field: &str| {
            let name = TurnMessages::of(messages).field_name(field);
            name.unwrap_or_else(|| field_name(field))
        };
        let alone = std::slice::from_ref(&users);
        assert_eq!(name(alone, "messages[0].parts[2].media.uri"), "images[0]");
        assert_eq!(name(alone, "messages[0].parts[1].text"), "message");
        assert_eq!(name(alone, "messages[0].parts[1].media"), "message");
        let both = [results, users.clone()];
        for (field, expected) in [
            ("messages[0].parts", "toolResults"),
            (
                "messages[0].parts[1].tool_result.tool_use_id",
                "toolResults[1].toolUseId",
            ),
            (
                "messages[0].parts[0].tool_result.media[2].media_type",
                "toolResults[0].media[2].mediaType",
            ),
            ("messages[1].parts[3].media.uri", "images[1]"),
            ("messages[1].parts", "message"),
        ] {
            assert_eq!(name(&both, field), expected);
        }
    }

    #[test]
    fn fields_of_changes_have_the_names_of_their_requests_over_http() {
        let status_for = |field: &str| Status::from(Failure::invalid(field, "is wrong"));
        let of_message = |field: &str| Problem::of_message(&status_for(field)).field;
        assert_eq!(
            of_message("message_ids[0]").as_deref(),
            Some("messageId"),
            "the path names one message"
        );
        assert_eq!(of_message("etag").as_deref(), Some("etag"));
        let of_rewind = |field: &str| Problem::of_rewind(&status_for(field)).field;
        assert_eq!(
            of_rewind("after_message_id").as_deref(),
            Some("afterMessageId")
        );
        assert_eq!(of_rewind("request_id").as_deref(), Some("requestId"));
        for (field, name) in [
            ("message", "content"),
            ("message.parts", "content"),
            ("message.parts[0]", "content[0]"),
            ("message.parts[3].tool_use.id", "content[3].id"),
            (
                "message.parts[0].tool_result.tool_use_id",
                "content[0].toolUseId",
            ),
            (
                "message.parts[0].tool_result.media[1].media_type",
                "content[0].media[1].mediaType",
            ),
            ("message.parts[2].media.uri", "content[2].uri"),
            ("message.metadata", "metadata"),
            ("message_id", "messageId"),
            ("expected_version", "expectedVersion"),
        ] {
            let of_edit = Problem::of_edit(&status_for(field)).field;
            assert_eq!(of_edit.as_deref(), Some(name), "{field}");
        }
    }

    #[test]
    fn a_problem_is_short_even_when_its_values_are_megabytes() {
        for text in ["a_", "_", "ß_", "x", "🦀"] {
            let long = text.repeat(4_000_000 / text.len());
            let problems = [
                Problem::invalid(&*long, &*long),
                Problem::from(Failure::limit(&*long, 1, "bytes").within(&long)),
                Problem::from(Failure::invalid("metadata", &*long)),
                Problem::from(Failure::malformed(&*long)),
                Problem::from(Failure::model_not_configured(&*long)),
                Problem::malformed(StatusCode::BAD_REQUEST, long.clone()),
                Problem::from(Status::internal(long.clone())),
            ];
            for problem in problems {
                let body = serde_json::to_string(&problem).expect("is JSON");
                assert!(body.len() < 2_000, "{} bytes", body.len());
            }
            let status = Status::from(Failure::invalid(long.clone(), long));
            let headers = status
                .into_http::<()>()
                .headers()
                .iter()
                .map(|(_, value)| value.len())
                .sum::<usize>();
            assert!(headers < 4_000, "{headers} bytes of headers");
        }
    }

    #[test]
    fn a_failure_keeps_reason_field_and_wait() {
        let problem = Problem::from(Failure::Overloaded);
        assert_eq!(
            (problem.status, &*problem.reason, problem.retry_after_ms),
            (429, "OVERLOADED", Some(200))
        );
        let problem = Problem::from(Failure::invalid("conversation_id", "must be a UUID"));
        assert_eq!(
            (problem.status, problem.field.as_deref()),
            (400, Some("sessionId"))
        );
        assert_eq!(&*problem.detail, "sessionId: must be a UUID");
        assert_eq!(&*problem.kind, "urn:anneal:problem:invalid-field");
    }

    #[test]
    fn a_field_of_the_http_request_keeps_its_name() {
        for name in [
            "conversation_id",
            "messages",
            "position",
            "images[0].uri",
            "",
        ] {
            let problem = Problem::invalid(name, "unknown field");
            assert_eq!(
                (problem.field.as_deref(), &*problem.detail),
                (Some(name), &*format!("{name}: unknown field"))
            );
        }
    }
}
