//! POST /conversations/{id}/stop: stops the turn that is under way.

use anneal_proto::v1::{self as pb, chat_service_server::ChatService as _};
use axum::response::Response;
use serde::Deserialize;

use super::paths;
use crate::{
    http::{
        caller::EndpointRpcs,
        extractors::PathParams,
        web::{
            error::WebError,
            form::Form,
            page::{self, WebCaller},
        },
    },
    verbs::Rpc,
};

/// Which turn is stopped.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Stop {
    /// Empty: the turn that is under way.
    request_id: String,
    /// Whether what has come of the answer is kept. Absent: as the policy says.
    keep: Option<bool>,
}

/// The RPC of this route.
pub(super) struct StopTurn;

impl EndpointRpcs for StopTurn {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("cancel_turn")];
}

/// Stops the turn, and waits some seconds for its end.
pub(super) async fn stop(
    WebCaller(http_caller, ..): WebCaller<StopTurn>,
    PathParams(id): PathParams<String>,
    Form(stop): Form<Stop>,
) -> Result<Response, WebError> {
    let ask = pb::CancelTurnRequest {
        conversation_id: id.clone(),
        turn_request_id: stop.request_id,
        keep_partial: stop.keep,
        wait: None,
    };
    http_caller
        .services
        .cancel_turn(http_caller.request(ask))
        .await?;
    Ok(page::see_other(&paths::end(&id), None))
}
