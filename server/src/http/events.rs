//! GET /api/agents/{id}/sessions/{sid}/events.

use anneal_proto::v1::{
    self as pb, conversation_event::Event as Happened, message_service_server::MessageService as _,
};
use axum::{
    http::HeaderMap,
    response::{Response, sse::Event},
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::{Deserialize, Serialize};
use tonic::Status;
use utoipa::{IntoParams, ToSchema};

use super::{
    door::{Allowed, Calls},
    json::{self, Parameters, Place},
    message::Message,
    problem::Problem,
    session,
    sse::{self, LAST_EVENT_ID},
};
use crate::verbs::Rpc;

/// Where the watch begins.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// First what has happened to messages with a greater id; 0: to all. Absent: only what happens from now on.
    after: Option<i64>,
    /// Leave the messages' content out.
    without_content: bool,
}

/// What happens to a session. The id of each event is its place: Last-Event-ID goes on after it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum SessionEvent {
    /// The watch has begun. What comes is new since then; with `after`, first what has happened up to then.
    Started(WatchStarted),
    /// A message was stored.
    MessageAppended(Appended),
    /// Messages were counted.
    TokensCounted(Counted),
    /// A large message has its summary now.
    SummaryReady(SummaryReady),
    /// There is a new checkpoint.
    CheckpointCreated(CheckpointCreated),
    /// A job was given up.
    JobDead(JobDead),
    /// The watch ends.
    Error(Failed),
}

/// Where a watch begins.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct WatchStarted {
    /// The newest message when the watch began.
    last_message_id: i64,
}

/// A message that was stored.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Appended {
    message: Message,
}

/// How far counting has come.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Counted {
    through_message_id: i64,
    token_estimate: u64,
}

/// The summary of one large message.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SummaryReady {
    message_id: i64,
    summary_tokens: u64,
    tokens: u64,
}

/// A checkpoint, without its summary.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct CheckpointCreated {
    last_message_id: i64,
    /// Tokens of its summary.
    token_usage: u64,
}

/// A job that waits for an operator.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct JobDead {
    /// count_tokens, checkpoint or summarize_messages.
    kind: String,
    attempts: i32,
    last_error: String,
}

/// Why events end.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Failed {
    pub(super) problem: Problem,
}

/// What watching a session calls.
pub(super) struct WatchSession;

impl Calls for WatchSession {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("get_conversation"), Rpc::named("watch_conversation")];
}

/// What happens to the session, as it happens, as server-sent events.
#[utoipa::path(
    get,
    path = "/api/agents/{id}/sessions/{sid}/events",
    params(
        ("id" = String, Path, description = "the agent"),
        ("sid" = String, Path, description = "the session"),
        ("Last-Event-ID" = Option<String>, Header, description = "goes on after this event"),
        Wanted
    ),
    responses(
        (status = 200, body = SessionEvent, content_type = "text/event-stream"),
        (status = "default", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn events(
    Allowed(visitor, _): Allowed<WatchSession>,
    Place((agent, id)): Place<(String, String)>,
    Parameters(wanted): Parameters<Wanted>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    session::of_agent(&visitor, &agent, &id).await?;
    let position = headers.get(LAST_EVENT_ID).map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned());
    let ask = pb::WatchConversationRequest {
        conversation_id: id,
        position: position.unwrap_or_default(),
        after_message_id: wanted.after,
        without_content: wanted.without_content,
    };
    let mut changes = visitor.services.watch_conversation(visitor.request(ask)).await?.into_inner();
    // What is refused at once is refused with a status.
    let first = changes.try_next().await?;
    let changes = stream::iter(first.map(Ok)).chain(changes);
    let told = changes.map(|change| change.map_or_else(|status| Some(failed(status)), happened));
    let told = told.filter_map(async |event| event);
    Ok(sse::answer(told))
}

fn failed(status: Status) -> Result<Event, axum::Error> {
    Event::default().json_data(SessionEvent::Error(Failed { problem: status.into() }))
}

/// The event with its place; None for one that this version does not know.
fn happened(change: pb::ConversationEvent) -> Option<Result<Event, axum::Error>> {
    let event = match change.event? {
        Happened::Started(started) => SessionEvent::Started(WatchStarted { last_message_id: started.last_message_id }),
        Happened::MessageAppended(message) => SessionEvent::MessageAppended(Appended { message: message.into() }),
        Happened::TokensCounted(counted) => SessionEvent::TokensCounted(Counted {
            through_message_id: counted.through_message_id,
            token_estimate: counted.token_total.map_or(0, |total| total.tokens),
        }),
        Happened::SummaryReady(ready) => SessionEvent::SummaryReady(SummaryReady {
            message_id: ready.message_id,
            summary_tokens: ready.summary_tokens,
            tokens: ready.tokens,
        }),
        Happened::CheckpointCreated(made) => SessionEvent::CheckpointCreated(CheckpointCreated {
            last_message_id: made.last_message_id,
            token_usage: made.token_usage,
        }),
        Happened::JobDead(dead) => SessionEvent::JobDead(JobDead {
            kind: json::spelled(dead.kind().as_str_name(), "JOB_KIND_"),
            attempts: dead.attempts,
            last_error: dead.last_error,
        }),
    };
    Some(Event::default().id(change.position).json_data(event))
}
