//! DELETE /api/agents/{id}/sessions/{sid}/turn.

use anneal_proto::v1::{self as pb, chat_service_server::ChatService as _};
use axum::response::Response;
use prost_types::Duration;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    caller::{Authorized, EndpointRpcs},
    extractors::{PathParams, QueryParams},
    json,
    problem::Problem,
    session,
};
use crate::verbs::Rpc;

/// Which turn is stopped, and what is kept of its answer.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct CancelParams {
    /// The request id of the turn. Absent: the turn that runs.
    request_id: Option<String>,
    /// Whether what has come of the answer is kept. Absent: as the session's policy says.
    keep: Option<bool>,
    /// How many seconds to wait for the end of the turn, at most 30. Absent: 5.
    wait: Option<u32>,
}

/// What became of the turn.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct CancelledTurn {
    /// kept, dropped, answered (the whole answer is stored), not_running, or pending (the turn's
    /// server has not answered yet).
    outcome: String,
    /// The request id of the turn. Empty: no turn ran.
    request_id: String,
    /// The id of the stored answer; 0: none is stored.
    answer_message_id: i64,
}

/// The RPCs of this endpoint, which looks up the session and stops its turn.
pub(super) struct CancelTurn;

impl EndpointRpcs for CancelTurn {
    const RPCS: &'static [&'static Rpc] =
        &[Rpc::named("cancel_turn"), Rpc::named("get_conversation")];
}

/// Stops a turn that runs, and keeps what has come of its answer.
#[utoipa::path(
    delete,
    path = "/api/agents/{id}/sessions/{sid}/turn",
    params(
        ("id" = String, Path, description = "the agent"),
        ("sid" = String, Path, description = "the session"),
        CancelParams
    ),
    responses((status = 200, body = CancelledTurn), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
pub(super) async fn cancel_turn(
    Authorized(http_caller, _): Authorized<CancelTurn>,
    PathParams((agent, id)): PathParams<(String, String)>,
    QueryParams(params): QueryParams<CancelParams>,
) -> Result<Response, Problem> {
    session::get_for_agent(&http_caller, &agent, &id).await?;
    let ask = pb::CancelTurnRequest {
        conversation_id: id,
        turn_request_id: params.request_id.unwrap_or_default(),
        keep_partial: params.keep,
        wait: params.wait.map(|seconds| Duration {
            seconds: i64::from(seconds),
            nanos: 0,
        }),
    };
    let stopped = http_caller
        .services
        .cancel_turn(http_caller.request(ask))
        .await?
        .into_inner();
    Ok(json::response(&CancelledTurn {
        outcome: json::enum_name(stopped.outcome().as_str_name(), "CANCEL_OUTCOME_"),
        request_id: stopped.turn_request_id,
        answer_message_id: stopped.answer_message_id,
    }))
}
