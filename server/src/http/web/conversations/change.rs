//! POST /conversations/{id}/messages/{mid}/withdraw and /restore, /conversations/{id}/rewind and
//! /choose: which messages of a conversation stand.

use anneal_proto::v1::{
    self as pb, chat_service_server::ChatService as _, message_service_server::MessageService as _,
};
use axum::response::Response;
use serde::Deserialize;

use super::{paths, turn};
use crate::{
    http::{
        caller::EndpointRpcs,
        change::parse_message_id,
        extractors::PathParams,
        problem::Problem,
        web::{
            error::WebError,
            form::Form,
            page::{self, WebCaller},
        },
    },
    verbs::Rpc,
};

/// What every change of messages has.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Change {
    /// The etag that the page shows. Empty: not checked.
    etag: String,
    /// Makes the form repeatable.
    request_id: String,
    /// Of messages from one to another: the last. Absent: one message.
    last: Option<i64>,
}

/// To which message a conversation goes back.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Rewind {
    etag: String,
    request_id: String,
    /// The newest message that the page shows. Absent: not checked.
    expected_last: Option<i64>,
    /// Messages with a greater id are withdrawn.
    message_id: i64,
}

/// Which answer stands.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice {
    etag: String,
    request_id: String,
    /// The last message of the question.
    question: i64,
    /// Number of the answer.
    number: i32,
}

/// The RPCs of these routes, which need the same verb.
pub(super) struct ChangeMessages;

impl EndpointRpcs for ChangeMessages {
    const RPCS: &'static [&'static Rpc] = &[
        Rpc::named("withdraw_messages"),
        Rpc::named("restore_messages"),
        Rpc::named("rewind"),
        Rpc::named("choose_alternative"),
    ];
}

/// The messages from the one in the path to the last one of the form.
fn range(first: &str, change: &Change) -> Result<pb::IdRange, Problem> {
    let first = parse_message_id(first)?;
    Ok(pb::IdRange {
        first_message_id: first,
        last_message_id: change.last.unwrap_or(first),
    })
}

/// Withdraws a message, with the other halves of its tool calls.
pub(super) async fn withdraw(
    WebCaller(http_caller, ..): WebCaller<ChangeMessages>,
    PathParams((id, message)): PathParams<(String, String)>,
    Form(change): Form<Change>,
) -> Result<Response, WebError> {
    let range = range(&message, &change)?;
    let first = range.first_message_id;
    let ask = pb::WithdrawMessagesRequest {
        conversation_id: id.clone(),
        range: Some(range),
        request_id: turn::request_id_of(&format!("withdraw {message}"), &change.request_id),
        etag: change.etag,
        ..pb::WithdrawMessagesRequest::default()
    };
    http_caller
        .services
        .withdraw_messages(http_caller.request(ask))
        .await?;
    Ok(page::see_other(&paths::at(&id, first), None))
}

/// Makes withdrawn messages stand again.
pub(super) async fn restore(
    WebCaller(http_caller, ..): WebCaller<ChangeMessages>,
    PathParams((id, message)): PathParams<(String, String)>,
    Form(change): Form<Change>,
) -> Result<Response, WebError> {
    let range = range(&message, &change)?;
    let first = range.first_message_id;
    let ask = pb::RestoreMessagesRequest {
        conversation_id: id.clone(),
        range: Some(range),
        request_id: turn::request_id_of(&format!("restore {message}"), &change.request_id),
        etag: change.etag,
        ..pb::RestoreMessagesRequest::default()
    };
    http_caller
        .services
        .restore_messages(http_caller.request(ask))
        .await?;
    Ok(page::see_other(&paths::at(&id, first), None))
}

/// Withdraws every message after one.
pub(super) async fn rewind(
    WebCaller(http_caller, ..): WebCaller<ChangeMessages>,
    PathParams(id): PathParams<String>,
    Form(rewind): Form<Rewind>,
) -> Result<Response, WebError> {
    let ask = pb::RewindRequest {
        conversation_id: id.clone(),
        request_id: turn::request_id_of(
            &format!("rewind {}", rewind.message_id),
            &rewind.request_id,
        ),
        etag: rewind.etag,
        expected_last_message_id: rewind.expected_last,
        after_message_id: rewind.message_id,
        ..pb::RewindRequest::default()
    };
    http_caller
        .services
        .rewind(http_caller.request(ask))
        .await?;
    Ok(page::see_other(&paths::at(&id, rewind.message_id), None))
}

/// Makes another answer to a question stand.
pub(super) async fn choose(
    WebCaller(http_caller, ..): WebCaller<ChangeMessages>,
    PathParams(id): PathParams<String>,
    Form(choice): Form<Choice>,
) -> Result<Response, WebError> {
    let ask = pb::ChooseAlternativeRequest {
        conversation_id: id.clone(),
        request_id: turn::request_id_of(
            &format!("choose {} {}", choice.question, choice.number),
            &choice.request_id,
        ),
        etag: choice.etag,
        question_message_id: choice.question,
        number: choice.number,
        ..pb::ChooseAlternativeRequest::default()
    };
    http_caller
        .services
        .choose_alternative(http_caller.request(ask))
        .await?;
    Ok(page::see_other(&paths::at(&id, choice.question), None))
}
