//! GET /api/agents/{id}/sessions/{sid}/messages/{mid}/alternatives, and POST …/{n}/choose below it.

use anneal_proto::v1::{
    self as pb, chat_service_server::ChatService as _, message_service_server::MessageService as _,
};
use axum::{http::HeaderMap, response::Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    caller::{Authorized, EndpointRpcs},
    change::{self, IdRange, MessageChange},
    extractors::{JsonBody, NoParams, PathParams, QueryParams},
    json,
    problem::Problem,
    session::{self, unix_millis},
};
use crate::verbs::Rpc;

/// The answers to a question.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Alternatives {
    /// Withdrawn ones in the order of answering, then the one that stands.
    alternatives: Vec<Alternative>,
}

/// One answer to a question that was answered several times.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Alternative {
    /// 1, 2, 3 … in the order of answering.
    number: i32,
    /// The last message of the question.
    question_message_id: i64,
    /// The version of the question that it answers.
    question_version: i32,
    /// The messages of the answer, in order.
    messages: Vec<IdRange>,
    /// Whether it stands.
    current: bool,
    /// Whether it was stopped before its end.
    stopped: bool,
    /// The model that answered. Empty if it was not recorded.
    model: String,
    /// When it was stored, in milliseconds since 1970. Absent: it has no message of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<i64>,
    /// The beginning of its text, at most 1 KiB.
    text: String,
}

impl From<pb::Alternative> for Alternative {
    fn from(alternative: pb::Alternative) -> Self {
        Self {
            number: alternative.number,
            question_message_id: alternative.question_message_id,
            question_version: alternative.question_version,
            messages: alternative
                .messages
                .into_iter()
                .map(IdRange::from)
                .collect(),
            current: alternative.current,
            stopped: alternative.stopped,
            model: alternative.model,
            created_at: alternative
                .created_time
                .as_ref()
                .map(|time| unix_millis(Some(time))),
            text: alternative.text,
        }
    }
}

/// The answer that is to stand again.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct ChooseBody {
    /// Makes the request repeatable: at most 128 bytes.
    request_id: Option<String>,
    /// Chooses only if this is the newest message's id.
    expected_last_message_id: Option<i64>,
}

/// The RPCs of the list, which looks up the session and reads the message.
pub(super) struct ListAlternatives;

impl EndpointRpcs for ListAlternatives {
    const RPCS: &'static [&'static Rpc] =
        &[Rpc::named("get_message"), Rpc::named("get_conversation")];
}

/// The RPCs of the choice, which looks up the session and changes its messages.
pub(super) struct ChooseAlternative;

impl EndpointRpcs for ChooseAlternative {
    const RPCS: &'static [&'static Rpc] = &[
        Rpc::named("choose_alternative"),
        Rpc::named("get_conversation"),
    ];
}

/// Lists the answers to the question that a message is, or belongs to the answer of.
#[utoipa::path(
    get,
    path = "/api/agents/{id}/sessions/{sid}/messages/{mid}/alternatives",
    params(
        ("id" = String, Path, description = "the agent"),
        ("sid" = String, Path, description = "the session"),
        ("mid" = i64, Path, description = "the message, which must not be withdrawn")
    ),
    responses((status = 200, body = Alternatives), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
pub(super) async fn list_alternatives(
    Authorized(http_caller, _): Authorized<ListAlternatives>,
    PathParams((agent, id, message_id)): PathParams<(String, String, String)>,
    _: QueryParams<NoParams>,
) -> Result<Response, Problem> {
    let message_id = change::parse_message_id(&message_id)?;
    session::get_for_agent(&http_caller, &agent, &id).await?;
    let ask = pb::GetMessageRequest {
        conversation_id: id,
        message_id,
        // Of the message itself nothing is shown.
        range: Some(pb::ByteRange {
            offset: 0,
            length: 1,
        }),
        alternatives: true,
        ..pb::GetMessageRequest::default()
    };
    let found = http_caller
        .services
        .get_message(http_caller.request(ask))
        .await?
        .into_inner();
    let alternatives = found.alternatives.into_iter().map(Alternative::from);
    Ok(json::response(&Alternatives {
        alternatives: alternatives.collect(),
    }))
}

/// Makes an earlier answer to a question stand again.
///
/// What stands after the question is withdrawn, and stays as an alternative.
#[utoipa::path(
    post,
    path = "/api/agents/{id}/sessions/{sid}/messages/{mid}/alternatives/{n}/choose",
    params(
        ("id" = String, Path, description = "the agent"),
        ("sid" = String, Path, description = "the session"),
        ("mid" = i64, Path, description = "the last message of the question"),
        ("n" = i32, Path, description = "the number of the answer"),
        ("If-Match" = Option<String>, Header, description = "the ETag that the client has; if the stored one differs, the request fails with ETAG_MISMATCH")
    ),
    request_body = ChooseBody,
    responses((status = 200, body = MessageChange), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
pub(super) async fn choose_alternative(
    Authorized(http_caller, _): Authorized<ChooseAlternative>,
    PathParams((agent, id, message_id, number)): PathParams<(String, String, String, String)>,
    _: QueryParams<NoParams>,
    headers: HeaderMap,
    JsonBody(body): JsonBody<ChooseBody>,
) -> Result<Response, Problem> {
    let body = body.unwrap_or_default();
    let question_message_id = change::parse_message_id(&message_id)?;
    let number = number
        .parse::<i32>()
        .map_err(|_| Problem::invalid("number", "must be a number"))?;
    let etag = session::if_match_etag(&headers)?;
    session::get_for_agent(&http_caller, &agent, &id).await?;
    let ask = pb::ChooseAlternativeRequest {
        conversation_id: id,
        request_id: body.request_id.unwrap_or_default(),
        expected_last_message_id: body.expected_last_message_id,
        etag,
        question_message_id,
        number,
    };
    let chosen = http_caller
        .services
        .choose_alternative(http_caller.request(ask))
        .await?
        .into_inner();
    Ok(change::response(chosen))
}
