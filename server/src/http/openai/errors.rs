//! The error object of the protocol: `{"error": {"message", "type", "param", "code"}}`, made from
//! the status that gRPC would give.

use std::borrow::Cow;

use anneal_proto::convert::FieldError;
use axum::{
    body::Body,
    extract::Request,
    http::{HeaderName, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tonic::Status;
use uuid::Uuid;

use crate::{
    failure::Failure,
    http::{json, problem::Problem},
    reason::Reason,
    truncated_text::TruncatedText,
};

/// The paths of this protocol.
pub(super) const PATH_PREFIX: &str = "/v1/";
/// Names the request in an answer.
pub(in crate::http) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// How long a client should wait, in milliseconds.
pub(in crate::http) const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
/// The official clients repeat a request after 408, 409, 429 and 5xx unless this header is `false`.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Why a request was refused or failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) struct ApiError {
    status: StatusCode,
    message: String,
    /// The parameter at fault.
    param: Option<String>,
    code: Option<Cow<'static, str>>,
    retry_after_ms: Option<u32>,
    /// Whether the same request may succeed later. It matters only for statuses after which clients
    /// repeat a request by themselves.
    may_be_repeated: bool,
}

impl ApiError {
    /// A parameter that is missing or has an unacceptable value. A message that does not name the
    /// parameter gets its name.
    pub(in crate::http) fn invalid(
        param: impl Into<String>,
        code: Option<&'static str>,
        message: impl Into<String>,
    ) -> Self {
        let (param, message) = (
            TruncatedText::new(param.into()).into_string(),
            message.into(),
        );
        let message = if message.contains(&param) {
            message
        } else {
            format!("{param}: {message}")
        };
        Self {
            param: Some(param),
            code: code.map(Cow::Borrowed),
            ..Self::of(StatusCode::BAD_REQUEST, message)
        }
    }

    /// A parameter, or a value of it, that this server does not support.
    pub(in crate::http) fn unsupported_parameter(
        param: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self::invalid(param, Some("unsupported_parameter"), message)
    }

    /// A tool that runs in the provider's service, or an item of such a tool.
    pub(in crate::http) fn unsupported_tool(
        param: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self::invalid(param, Some("unsupported_tool"), message)
    }

    /// A parameter that does not exist.
    pub(in crate::http) fn unknown_parameter(param: impl Into<String>) -> Self {
        let param = TruncatedText::new(param.into()).into_string();
        let message = format!("Unknown parameter: '{param}'.");
        Self::invalid(param, Some("unknown_parameter"), message)
    }

    /// A parameter that is missing.
    pub(in crate::http) fn missing_parameter(param: impl Into<String>) -> Self {
        let param = TruncatedText::new(param.into()).into_string();
        let message = format!("Missing required parameter: '{param}'.");
        Self::invalid(param, Some("missing_required_parameter"), message)
    }

    /// A value of another JSON type than `expected`, such as `a string`.
    pub(in crate::http) fn invalid_type(
        param: impl Into<String>,
        expected: &str,
        found: &Value,
    ) -> Self {
        let param = TruncatedText::new(param.into()).into_string();
        let found = type_name(found);
        let message =
            format!("Invalid type for '{param}': expected {expected}, but got {found} instead.");
        Self::invalid(param, Some("invalid_type"), message)
    }

    /// Something that does not exist, or belongs to another tenant.
    pub(in crate::http) fn not_found(message: impl Into<String>) -> Self {
        Self::of(StatusCode::NOT_FOUND, message)
    }

    /// A state of the conversation in which the request cannot be served, and which waiting does not
    /// change.
    pub(in crate::http) fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            may_be_repeated: false,
            ..Self::of(StatusCode::CONFLICT, message)
        }
        .with_code(code)
    }

    #[must_use]
    pub(in crate::http) fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(Cow::Borrowed(code));
        self
    }

    #[must_use]
    pub(in crate::http) fn with_param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// The error of this problem. `name_field` returns the name that a field of the problem has in
    /// the request.
    pub(in crate::http) fn of_problem(
        problem: &Problem,
        name_field: impl Fn(&str) -> String,
    ) -> Self {
        let own = OWN_FORMS.iter().find(|own| problem.is(own.reason));
        let status = own.and_then(|own| own.status).unwrap_or_else(|| {
            let status = StatusCode::from_u16(problem.status());
            match status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR) {
                StatusCode::UNPROCESSABLE_ENTITY => StatusCode::BAD_REQUEST,
                status => status,
            }
        });
        let (message, param) = match problem.field() {
            Some(field) => {
                let param = name_field(field);
                let beginning = format!("{field}: ");
                let rest = problem.detail().strip_prefix(&beginning);
                let message = rest.map(|rest| format!("{param}: {rest}"));
                (message, Some(param))
            }
            None => (None, None),
        };
        let own_param = own.and_then(|own| own.param).map(str::to_owned);
        let code = own.map_or_else(
            || Some(Cow::Owned(problem.reason().to_lowercase())),
            |own| own.code.map(Cow::Borrowed),
        );
        Self {
            status,
            message: message.unwrap_or_else(|| problem.detail().to_owned()),
            param: own_param.or(param),
            code,
            retry_after_ms: problem.retry_after_ms(),
            may_be_repeated: own.is_none_or(|own| own.may_be_repeated),
        }
    }

    fn of(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            param: None,
            code: None,
            retry_after_ms: None,
            may_be_repeated: true,
        }
    }

    /// The error object, without the `error` around it.
    pub(in crate::http) fn object(&self) -> Value {
        json!({
            "message": self.message,
            "type": self.kind(),
            "param": self.param,
            "code": self.code,
        })
    }

    /// The HTTP status.
    pub(in crate::http) fn status(&self) -> u16 {
        self.status.as_u16()
    }

    pub(in crate::http) fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    pub(in crate::http) fn message(&self) -> &str {
        &self.message
    }

    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }
}

/// What this protocol has of its own for a reason.
#[derive(Clone, Copy)]
struct OwnForm {
    reason: Reason,
    /// None: the status of the problem.
    status: Option<StatusCode>,
    param: Option<&'static str>,
    code: Option<&'static str>,
    may_be_repeated: bool,
}

const fn own(reason: Reason, code: Option<&'static str>) -> OwnForm {
    OwnForm {
        reason,
        status: None,
        param: None,
        code,
        may_be_repeated: true,
    }
}

/// The reasons that the protocol has a form for. The code of the others is their name.
const OWN_FORMS: [OwnForm; 18] = [
    own(Reason::MalformedRequest, None),
    own(Reason::ConversationNotFound, None),
    own(Reason::MessageNotFound, None),
    own(Reason::InvalidField, Some("invalid_value")),
    own(Reason::Unauthenticated, Some("invalid_api_key")),
    own(Reason::VerbMissing, Some("insufficient_permissions")),
    own(Reason::CredentialBound, Some("insufficient_permissions")),
    own(Reason::TurnInProgress, Some("conversation_locked")),
    own(Reason::TenantBudgetSpent, Some("insufficient_quota")),
    own(Reason::TenantRateExceeded, Some("rate_limit_exceeded")),
    own(Reason::UnknownKeysExceeded, Some("rate_limit_exceeded")),
    own(Reason::ModelBusy, Some("rate_limit_exceeded")),
    own(Reason::Overloaded, Some("rate_limit_exceeded")),
    OwnForm {
        status: Some(StatusCode::BAD_REQUEST),
        param: Some("input"),
        ..own(Reason::ContextOverflow, Some("context_length_exceeded"))
    },
    OwnForm {
        status: Some(StatusCode::BAD_REQUEST),
        param: Some("input"),
        ..own(Reason::BudgetTooSmall, Some("context_length_exceeded"))
    },
    OwnForm {
        status: Some(StatusCode::NOT_FOUND),
        param: Some("model"),
        ..own(Reason::ModelNotConfigured, Some("model_not_found"))
    },
    OwnForm {
        status: Some(StatusCode::TOO_MANY_REQUESTS),
        may_be_repeated: false,
        ..own(Reason::StorageQuotaExceeded, Some("insufficient_quota"))
    },
    OwnForm {
        may_be_repeated: false,
        ..own(Reason::RequestIdReused, Some("request_id_reused"))
    },
];

/// The name that a field of a gRPC request, or of a turn over HTTP, has in the requests of this
/// protocol.
pub(super) fn param_name(field: &str) -> String {
    let field = snake_case(field);
    let inner = ["conversation.", "options."]
        .iter()
        .find_map(|outer| field.strip_prefix(outer));
    match inner.unwrap_or(&field) {
        "conversation_id" | "session_id" => "conversation".to_owned(),
        "request_id" => "Idempotency-Key".to_owned(),
        "system_prompt" => "instructions".to_owned(),
        "reasoning_effort" => "reasoning.effort".to_owned(),
        format if let Some(inside) = format.strip_prefix("response_format") => {
            format!("text.format{}", inside.replace(".json_schema", ""))
        }
        // A message of a turn is an item of its input.
        name if name == "message" || name.starts_with("messages") => "input".to_owned(),
        name => name.to_owned(),
    }
}

/// A name in snake case. Turns over HTTP have their fields in camel case.
fn snake_case(field: &str) -> String {
    let mut name = String::with_capacity(field.len());
    for character in field.chars() {
        if character.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(character.to_ascii_lowercase());
    }
    name
}

/// A JSON type with its article.
const fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> Self {
        Self::of_problem(&problem, param_name)
    }
}

impl From<Status> for ApiError {
    fn from(status: Status) -> Self {
        Problem::of_rpc(&status).into()
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        Status::from(failure).into()
    }
}

impl From<FieldError> for ApiError {
    fn from(error: FieldError) -> Self {
        Failure::from(error).into()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = json::response(&json!({"error": self.object()}));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(wait) = self.retry_after_ms {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(wait.div_ceil(1_000)));
            headers.insert(RETRY_AFTER_MS, HeaderValue::from(wait));
        }
        if !self.may_be_repeated {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        response
    }
}

/// Middleware that gives the answers of other protocols their form. Under `/v1` a problem becomes
/// the error object, and every answer has a request id. The readers of an agent's UI stream show
/// the body of a refusal as it is, so a problem becomes its sentence there.
pub(in crate::http) async fn shape(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_of_protocol = path.starts_with(PATH_PREFIX);
    let is_of_ui = is_ui_path(path);
    let mut response = next.run(request).await;
    if is_of_protocol {
        if let Some(problem) = response.extensions_mut().remove::<Problem>() {
            response = with_answer(response, ApiError::from(problem).into_response());
        }
        let id = request_id();
        response.headers_mut().entry(REQUEST_ID).or_insert(id);
    } else if is_of_ui && let Some(problem) = response.extensions_mut().remove::<Problem>() {
        let sentence = problem.detail().to_owned().into_response();
        let status = response.status();
        response = with_answer(response, (status, sentence).into_response());
    }
    response
}

/// Whether this is a path of the UI stream: `/api/agents/{id}/ui`, or one below it.
fn is_ui_path(path: &str) -> bool {
    let inside = path.strip_prefix("/api/agents/");
    let segment = inside.and_then(|inside| inside.split('/').nth(1));
    segment == Some("ui")
}

/// The response with the status and the body of this answer. Headers of the response that the
/// answer does not have, such as those of CORS, stay.
fn with_answer(response: Response, answer: Response) -> Response {
    let (mut parts, _) = response.into_parts();
    let (answer, body) = answer.into_parts();
    parts.status = answer.status;
    parts.headers.remove(header::CONTENT_LENGTH);
    for (name, value) in answer.headers {
        if let Some(name) = name {
            parts.headers.insert(name, value);
        }
    }
    Response::from_parts(parts, Body::new(body))
}

/// A new id of a request.
fn request_id() -> HeaderValue {
    let id =
        anneal_trace::current_trace_id().unwrap_or_else(|| Uuid::new_v4().as_simple().to_string());
    HeaderValue::try_from(format!("req_{id}")).expect("hexadecimal digits are visible ASCII")
}

#[cfg(test)]
mod tests {
    use anneal_store::{Entity, StoreError};
    use axum::{Router, middleware, routing};
    use tower::ServiceExt as _;

    use super::*;

    fn error_of(failure: Failure) -> ApiError {
        ApiError::from(failure)
    }

    #[test]
    fn an_error_object_has_all_four_keys() {
        let object = ApiError::not_found("Nothing.").object();
        assert_eq!(
            object,
            json!({"message": "Nothing.", "type": "invalid_request_error", "param": null, "code": null})
        );
        let unsupported = ApiError::unsupported_tool("tools[0]", "Not here.").object();
        assert_eq!(
            (&unsupported["param"], &unsupported["code"]),
            (&json!("tools[0]"), &json!("unsupported_tool"))
        );
    }

    #[test]
    fn failures_have_the_status_type_and_code_of_the_protocol() {
        let missing = error_of(StoreError::NotFound(Entity::Conversation).into());
        assert_eq!((missing.status(), missing.code()), (404, None));
        assert_eq!(missing.kind(), "invalid_request_error");
        let busy = error_of(Failure::Overloaded);
        assert_eq!(
            (busy.status(), busy.code(), busy.kind()),
            (429, Some("rate_limit_exceeded"), "rate_limit_error")
        );
        let model = error_of(Failure::ModelNotConfigured {
            model: crate::truncated_text::TruncatedText::new("gpt"),
        });
        assert_eq!(
            (model.status(), model.code()),
            (404, Some("model_not_found"))
        );
        assert_eq!(model.object()["param"], "model");
        let stopping = error_of(Failure::ServerStopping);
        assert_eq!(
            (stopping.status(), stopping.code(), stopping.kind()),
            (503, Some("server_stopping"), "server_error")
        );
    }

    #[test]
    fn a_refused_field_is_the_param_under_its_name_in_this_protocol() {
        let limit = error_of(Failure::limit("messages[0].parts", 256, "parts"));
        assert_eq!(limit.object()["param"], "input");
        assert_eq!(limit.code(), Some("limit_exceeded"));
        let named = error_of(Failure::invalid("options.temperature", "is too hot"));
        assert_eq!(named.object()["param"], "temperature");
        assert_eq!(named.code(), Some("invalid_value"));
        for (field, param) in [
            ("sessionId", "conversation"),
            ("options.reasoning_effort", "reasoning.effort"),
            (
                "options.response_format.json_schema.name",
                "text.format.name",
            ),
            ("responseFormat.jsonSchema.name", "text.format.name"),
            ("systemPrompt", "instructions"),
            ("maxOutputTokens", "max_output_tokens"),
        ] {
            assert_eq!(param_name(field), param);
        }
    }

    #[test]
    fn a_storage_quota_is_not_waited_for_and_a_wait_is_in_two_headers() {
        let quota = error_of(Failure::StorageQuota {
            limit: "storage_bytes",
            most: 1,
        });
        let answer = quota.into_response();
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.headers()[SHOULD_RETRY], "false");
        let answer = error_of(Failure::Overloaded).into_response();
        assert_eq!(answer.headers()[header::RETRY_AFTER], "1");
        assert_eq!(answer.headers()[RETRY_AFTER_MS], "200");
        assert!(!answer.headers().contains_key(SHOULD_RETRY));
    }

    /// The answer to a request for this path from a router whose every route is refused.
    async fn refused_at(path: &str) -> (Response, String) {
        async fn refuse() -> Response {
            let mut response = Problem::from(Failure::ServerStopping).into_response();
            let origin = HeaderValue::from_static("https://a.example");
            let headers = response.headers_mut();
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            response
        }
        let router = Router::new()
            .fallback(routing::any(refuse))
            .layer(middleware::from_fn(shape));
        let request = Request::builder().uri(path).body(Body::empty());
        let answer = router.oneshot(request.expect("is a request")).await;
        let (parts, body) = answer.expect("routers do not fail").into_parts();
        let body = axum::body::to_bytes(body, 4_096).await.expect("is whole");
        let text = String::from_utf8_lossy(&body).into_owned();
        (Response::from_parts(parts, Body::empty()), text)
    }

    #[tokio::test]
    async fn a_problem_has_the_form_of_the_protocol_whose_path_was_asked_for() {
        let (answer, body) = refused_at("/v1/conversations").await;
        let body: Value = serde_json::from_str(&body).expect("is JSON");
        assert_eq!(body["error"]["code"], "server_stopping");
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/json");
        let id = answer.headers()[REQUEST_ID].to_str().expect("is text");
        assert!(id.starts_with("req_"), "{id}");
        assert_eq!(
            answer.headers()[header::ACCESS_CONTROL_ALLOW_ORIGIN],
            "https://a.example"
        );
        let (answer, body) = refused_at("/api/agents/a/ui").await;
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(
            answer.headers()[header::CONTENT_TYPE],
            "text/plain; charset=utf-8"
        );
        assert!(!body.contains('{'), "{body}");
        let (answer, body) = refused_at("/api/agents/a/chat").await;
        assert!(body.contains("SERVER_STOPPING"), "{body}");
        assert!(!answer.headers().contains_key(REQUEST_ID));
    }
}
