//! POST /conversations/{id}/messages/{mid}/edit and /regenerate: a question is answered anew, after
//! an edit or as it stands.

use anneal_core::message::MessageId;
use anneal_proto::v1::{self as pb, message_service_server::MessageService as _};
use anneal_store::StoreError;
use axum::{extract::State, response::Response};
use serde::Deserialize;

use super::turn;
use crate::{
    failure::Failure,
    http::{
        caller::HttpCaller,
        change,
        chat::ChatTurn,
        chat_body::ChatBody,
        extractors::PathParams,
        problem::Problem,
        resumable_turns::SessionOrigin,
        state::HttpState,
        web::{
            error::WebError,
            form::{Form, MessageForm},
            page::WebCaller,
        },
    },
};

/// The state of the conversation that the page shows. The form is refused if it has changed, except
/// in fields that the form leaves out.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Seen {
    etag: String,
    /// The newest message, withdrawn ones included.
    expected_last: Option<i64>,
    request_id: String,
}

/// The fields of an edit.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Edit {
    message: String,
    /// The version of the message that is shown; 0: not checked.
    version: i32,
    etag: String,
    expected_last: Option<i64>,
    request_id: String,
}

/// Replaces a message of the user, withdraws what came after it, and begins a turn that answers.
pub(super) async fn edit(
    State(state): State<HttpState>,
    WebCaller(http_caller, ..): WebCaller<ChatTurn>,
    PathParams((id, message)): PathParams<(String, String)>,
    MessageForm(edit): MessageForm<Edit>,
) -> Result<Response, WebError> {
    let number = change::parse_message_id(&message)?;
    let request_id = turn::request_id_of(&format!("edit {message}"), &edit.request_id);
    let mut expected = edit.expected_last;
    if !turn::has_begun(&http_caller, &id, &request_id).await? {
        let conversation = check_etag(&http_caller, &id, &edit.etag).await?;
        expected = expected.or(Some(conversation.message_count));
        check_version(&http_caller, (&id, number), edit.version).await?;
    }
    let body = ChatBody {
        message: turn::text(&edit.message),
        edit_message_id: Some(number),
        expected_last_message_id: expected,
        ..ChatBody::default()
    };
    let names = (id.as_str(), request_id);
    let notice = turn::begin(&state, http_caller, names, body, SessionOrigin::Existing).await?;
    Ok(turn::show(&id, notice))
}

/// Begins a turn that answers the newest question again.
pub(super) async fn regenerate(
    State(state): State<HttpState>,
    WebCaller(http_caller, ..): WebCaller<ChatTurn>,
    PathParams((id, message)): PathParams<(String, String)>,
    Form(seen): Form<Seen>,
) -> Result<Response, WebError> {
    let number = change::parse_message_id(&message)?;
    let request_id = turn::request_id_of(&format!("regenerate {number}"), &seen.request_id);
    let mut expected = seen.expected_last;
    if !turn::has_begun(&http_caller, &id, &request_id).await? {
        let conversation = check_etag(&http_caller, &id, &seen.etag).await?;
        expected = expected.or(Some(conversation.message_count));
        check_newest(&http_caller, &id, number).await?;
    }
    let body = ChatBody {
        regenerate: true,
        expected_last_message_id: expected,
        ..ChatBody::default()
    };
    let names = (id.as_str(), request_id);
    let notice = turn::begin(&state, http_caller, names, body, SessionOrigin::Existing).await?;
    Ok(turn::show(&id, notice))
}

/// Returns the conversation, if it is as the page shows it.
async fn check_etag(
    http_caller: &HttpCaller,
    id: &str,
    etag: &str,
) -> Result<pb::Conversation, Problem> {
    let conversation = super::get_conversation(http_caller, id).await?;
    if !etag.is_empty() && etag != conversation.etag {
        return Err(Failure::from(StoreError::EtagMismatch).into());
    }
    Ok(conversation)
}

/// Fails unless this is the version of the message that stands; 0: any.
async fn check_version(
    http_caller: &HttpCaller,
    (id, message): (&str, i64),
    expected: i32,
) -> Result<(), Problem> {
    let ask = pb::GetMessageRequest {
        conversation_id: id.to_owned(),
        message_id: message,
        // The content is not wanted.
        range: Some(pb::ByteRange {
            offset: 0,
            length: 1,
        }),
        ..pb::GetMessageRequest::default()
    };
    let found = http_caller
        .services
        .get_message(http_caller.request(ask))
        .await?;
    let actual = found.into_inner().message.unwrap_or_default().version;
    if expected != 0 && expected != actual {
        return Err(Failure::from(StoreError::VersionMismatch { expected, actual }).into());
    }
    Ok(())
}

/// Fails unless this is the newest message that stands.
async fn check_newest(http_caller: &HttpCaller, id: &str, message: i64) -> Result<(), Problem> {
    let ask = pb::ListMessagesRequest {
        conversation_id: id.to_owned(),
        page_size: 1,
        newest_first: true,
        without_content: true,
        ..pb::ListMessagesRequest::default()
    };
    let found = http_caller
        .services
        .list_messages(http_caller.request(ask))
        .await?;
    let newest = found.into_inner().messages.pop().unwrap_or_default();
    if newest.message_id != message {
        let error = StoreError::NotTheNewest {
            expected: MessageId(message),
            actual: MessageId(newest.message_id),
        };
        return Err(Failure::from(error).into());
    }
    Ok(())
}
