//! POST /conversations/{id}/turn: a message of the user, which the model answers.

use axum::{extract::State, response::Response};
use serde::Deserialize;

use super::turn;
use crate::{
    http::{
        bounded_collections::BoundedPictures,
        chat::ChatTurn,
        chat_body::ChatBody,
        extractors::PathParams,
        resumable_turns::SessionOrigin,
        state::HttpState,
        web::{error::WebError, form::MessageForm, page::WebCaller},
    },
    reason::Reason,
};

/// The fields of the composer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NewTurn {
    message: String,
    /// Pictures: http(s) URLs or data: URIs, separated by white space.
    images: String,
    /// Empty: the conversation's own model, or the server's.
    model: String,
    /// Makes the form repeatable: sent twice, it is one turn.
    request_id: String,
    /// The turn is refused unless this is the newest message's id.
    expected_last: Option<i64>,
}

/// Begins a turn with the message. The page that follows shows its answer.
pub(super) async fn send(
    State(state): State<HttpState>,
    WebCaller(http_caller, ..): WebCaller<ChatTurn>,
    PathParams(id): PathParams<String>,
    MessageForm(new): MessageForm<NewTurn>,
) -> Result<Response, WebError> {
    let images: Vec<String> = new.images.split_whitespace().map(str::to_owned).collect();
    let body = ChatBody {
        message: turn::text(&new.message),
        images: (!images.is_empty()).then_some(BoundedPictures(images)),
        model: (!new.model.is_empty()).then_some(new.model),
        expected_last_message_id: new.expected_last,
        ..ChatBody::default()
    };
    let names = (id.as_str(), turn::request_id(new.request_id));
    let again = (http_caller.clone(), body.clone());
    let begun = turn::begin(&state, http_caller, names, body, SessionOrigin::Existing).await;
    let notice = match begun {
        // The text was changed after a turn of this form had failed.
        Err(problem) if problem.is(Reason::RequestIdReused) => {
            let (names, (http_caller, body)) = ((id.as_str(), turn::random_request_id()), again);
            turn::begin(&state, http_caller, names, body, SessionOrigin::Existing).await?
        }
        begun => begun?,
    };
    Ok(turn::show(&id, notice))
}
