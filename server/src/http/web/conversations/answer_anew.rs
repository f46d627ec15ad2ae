//! POST /conversations/{id}/messages/{mid}/edit and /regenerate: a question is answered anew, after
//! an edit or as it stands.

use axum::{extract::State, response::Response};
use serde::Deserialize;

use super::{paths, turn};
use crate::http::{
    change,
    chat::ChatTurn,
    chat_body::ChatBody,
    extractors::PathParams,
    resumable_turns::SessionOrigin,
    state::HttpState,
    web::{
        error::WebError,
        form::{Form, MessageForm},
        page::{self, WebCaller},
    },
};

/// The fields of an edit.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Edit {
    message: String,
    request_id: String,
}

/// The fields of another answer to the newest question.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Regenerate {
    request_id: String,
}

/// Replaces a message of the user, withdraws what came after it, and begins a turn that answers.
pub(super) async fn edit(
    State(state): State<HttpState>,
    WebCaller(http_caller, ..): WebCaller<ChatTurn>,
    PathParams((id, message)): PathParams<(String, String)>,
    MessageForm(edit): MessageForm<Edit>,
) -> Result<Response, WebError> {
    let body = ChatBody {
        message: turn::text(&edit.message),
        edit_message_id: Some(change::parse_message_id(&message)?),
        ..ChatBody::default()
    };
    let names = (
        id.as_str(),
        turn::request_id_of(&format!("edit {message}"), &edit.request_id),
    );
    turn::begin(&state, http_caller, names, body, SessionOrigin::Existing).await?;
    Ok(page::see_other(&paths::end(&id), None))
}

/// Begins a turn that answers the newest question again.
pub(super) async fn regenerate(
    State(state): State<HttpState>,
    WebCaller(http_caller, ..): WebCaller<ChatTurn>,
    PathParams((id, message)): PathParams<(String, String)>,
    Form(again): Form<Regenerate>,
) -> Result<Response, WebError> {
    let body = ChatBody {
        regenerate: true,
        ..ChatBody::default()
    };
    let form = format!("regenerate {}", change::parse_message_id(&message)?);
    let names = (id.as_str(), turn::request_id_of(&form, &again.request_id));
    turn::begin(&state, http_caller, names, body, SessionOrigin::Existing).await?;
    Ok(page::see_other(&paths::end(&id), None))
}
