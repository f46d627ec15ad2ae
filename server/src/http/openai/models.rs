//! GET /v1/models and GET /v1/models/{model}: the models that this server can call.

use axum::{extract::State, response::Response, routing};
use serde_json::{Value, json};

use super::errors::ApiError;
use crate::{
    failure::Failure,
    http::{
        Route,
        caller::{Authorized, EndpointRpcs},
        extractors::{NoParams, PathParams, QueryParams},
        json,
        state::HttpState,
    },
    verbs::Rpc,
};

/// The routes of this module. The name of a model may have slashes.
pub(super) const ROUTES: &[Route] = &[
    ("/v1/models", || routing::get(list_models)),
    ("/v1/models/{*model}", || routing::get(get_model)),
];

/// These endpoints call no RPC: every caller with a credential may see the models.
struct ShowModels;

impl EndpointRpcs for ShowModels {
    const RPCS: &'static [&'static Rpc] = &[];
}

/// Lists the models, by name.
async fn list_models(
    State(state): State<HttpState>,
    _: Authorized<ShowModels>,
    _: QueryParams<NoParams>,
) -> Response {
    let settings = state.services.state.settings.get();
    let models: Vec<Value> = settings.models.models.names().map(show).collect();
    json::response(&json!({"object": "list", "data": models}))
}

/// Returns one model.
async fn get_model(
    State(state): State<HttpState>,
    _: Authorized<ShowModels>,
    PathParams(name): PathParams<String>,
    _: QueryParams<NoParams>,
) -> Result<Response, ApiError> {
    let settings = state.services.state.settings.get();
    match settings.models.models.find(&name) {
        Some(model) => Ok(json::response(&show(model.name()))),
        None => Err(Failure::model_not_configured(name).into()),
    }
}

/// A model as it is shown. The server knows neither when it was made nor by whom: the name is one
/// of the server's own configuration.
fn show(name: &str) -> Value {
    json!({"id": name, "object": "model", "created": 0, "owned_by": "anneal"})
}
