//! GET /api/agents/{id}/sessions/{sid}/events.

use anneal_proto::v1::{
    self as pb, conversation_event::Event as WatchEvent,
    message_service_server::MessageService as _,
};
use axum::{
    http::HeaderMap,
    response::{Response, sse::Event},
};
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use serde::{Deserialize, Serialize};
use tonic::Status;
use utoipa::{IntoParams, ToSchema};

use super::{
    caller::{Authorized, EndpointRpcs},
    change::IdRange,
    extractors::{PathParams, QueryParams},
    json,
    message::Message,
    problem::Problem,
    session,
    sse::{self, LAST_EVENT_ID},
};
use crate::verbs::Rpc;

/// Where the watch begins.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WatchQuery {
    /// Begin with the earlier events of all messages with a greater id than this; 0: of all
    /// messages; and with all earlier changes of messages. Absent: only new events.
    after: Option<i64>,
    /// Leave out the content of messages.
    without_content: bool,
}

/// An event of a session. Send the id of the last event as Last-Event-ID to continue after it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum SessionEvent {
    /// The watch has begun. With `after`, earlier events follow first, then new ones.
    Started(WatchStarted),
    /// A message was stored.
    MessageAppended(Appended),
    /// The tokens of messages were counted.
    TokensCounted(Counted),
    /// The summary of a large message is ready.
    SummaryReady(SummaryReady),
    /// A checkpoint was created.
    CheckpointCreated(CheckpointCreated),
    /// A job has failed for good.
    JobDead(JobDead),
    /// Messages were withdrawn. The watch may have passed over some of them.
    MessagesWithdrawn(MessagesChanged),
    /// Withdrawn messages stand again.
    MessagesRestored(MessagesChanged),
    /// A message has a new version of its content.
    MessageChanged(MessageEdited),
    /// The content of messages was erased.
    MessagesErased(MessagesChanged),
    /// The watch has ended with an error.
    Error(Failed),
}

/// The start of a watch.
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

/// Tokens of the session's messages were counted.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Counted {
    /// The tokens of messages up to this one are exact.
    through_message_id: i64,
    /// Tokens of all messages: exact for counted ones, estimated for the rest.
    token_estimate: u64,
}

/// The summary of one large message.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SummaryReady {
    message_id: i64,
    /// Tokens of the summary.
    summary_tokens: u64,
    /// Tokens of the message.
    tokens: u64,
}

/// A checkpoint, without its summary.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct CheckpointCreated {
    /// The last message that the summary replaces.
    last_message_id: i64,
    /// Tokens of the summary.
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

/// Messages that one request has withdrawn, restored or erased.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct MessagesChanged {
    /// The messages, in order.
    messages: Vec<IdRange>,
    /// Number of the change in the session.
    change_id: i64,
}

impl From<pb::MessagesChanged> for MessagesChanged {
    fn from(changed: pb::MessagesChanged) -> Self {
        Self {
            messages: changed.messages.into_iter().map(IdRange::from).collect(),
            change_id: changed.change_id,
        }
    }
}

/// A new version of a message.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct MessageEdited {
    message_id: i64,
    /// Number of the version.
    version: i32,
    /// Number of the change in the session.
    change_id: i64,
}

/// Why the watch has ended.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Failed {
    pub(super) problem: Problem,
}

/// The RPCs of this endpoint.
pub(super) struct WatchSession;

impl EndpointRpcs for WatchSession {
    const RPCS: &'static [&'static Rpc] = &[
        Rpc::named("get_conversation"),
        Rpc::named("watch_conversation"),
    ];
}

/// Watches a session: sends its events as server-sent events.
#[utoipa::path(
    get,
    path = "/api/agents/{id}/sessions/{sid}/events",
    params(
        ("id" = String, Path, description = "the agent"),
        ("sid" = String, Path, description = "the session"),
        ("Last-Event-ID" = Option<String>, Header, description = "the id of the last event that was received: the watch goes on after it"),
        WatchQuery
    ),
    responses(
        (status = 200, body = SessionEvent, content_type = "text/event-stream"),
        (status = "default", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn events(
    Authorized(http_caller, _): Authorized<WatchSession>,
    PathParams((agent, id)): PathParams<(String, String)>,
    QueryParams(query): QueryParams<WatchQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    session::get_for_agent(&http_caller, &agent, &id).await?;
    let position = headers
        .get(LAST_EVENT_ID)
        .map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned());
    let ask = pb::WatchConversationRequest {
        conversation_id: id,
        position: position.unwrap_or_default(),
        after_message_id: query.after,
        without_content: query.without_content,
    };
    let watch_events = http_caller
        .services
        .watch_conversation(http_caller.request(ask))
        .await?
        .into_inner();
    response(watch_events).await
}

/// The events of a watch as server-sent events. An error before the first event is the answer.
pub(super) async fn response(
    mut watch_events: impl Stream<Item = Result<pb::ConversationEvent, Status>> + Send + Unpin + 'static,
) -> Result<Response, Problem> {
    let first = watch_events.try_next().await?;
    let watch_events = stream::iter(first.map(Ok)).chain(watch_events);
    let events =
        watch_events.map(|event| event.map_or_else(|status| Some(error_event(status)), sse_event));
    let events = events.filter_map(async |event| event);
    Ok(sse::response(events))
}

fn error_event(status: Status) -> Result<Event, axum::Error> {
    Event::default().json_data(SessionEvent::Error(Failed {
        problem: status.into(),
    }))
}

/// The server-sent event, with the position as its id. None: this version does not know the event.
fn sse_event(event: pb::ConversationEvent) -> Option<Result<Event, axum::Error>> {
    let session_event = match event.event? {
        WatchEvent::Started(started) => SessionEvent::Started(WatchStarted {
            last_message_id: started.last_message_id,
        }),
        WatchEvent::MessageAppended(message) => SessionEvent::MessageAppended(Appended {
            message: message.into(),
        }),
        WatchEvent::TokensCounted(counted) => SessionEvent::TokensCounted(Counted {
            through_message_id: counted.through_message_id,
            token_estimate: counted.token_total.map_or(0, |total| total.tokens),
        }),
        WatchEvent::SummaryReady(ready) => SessionEvent::SummaryReady(SummaryReady {
            message_id: ready.message_id,
            summary_tokens: ready.summary_tokens,
            tokens: ready.tokens,
        }),
        WatchEvent::CheckpointCreated(made) => SessionEvent::CheckpointCreated(CheckpointCreated {
            last_message_id: made.last_message_id,
            token_usage: made.token_usage,
        }),
        WatchEvent::JobDead(dead) => SessionEvent::JobDead(JobDead {
            kind: json::enum_name(dead.kind().as_str_name(), "JOB_KIND_"),
            attempts: dead.attempts,
            last_error: dead.last_error,
        }),
        WatchEvent::MessagesWithdrawn(changed) => SessionEvent::MessagesWithdrawn(changed.into()),
        WatchEvent::MessagesRestored(changed) => SessionEvent::MessagesRestored(changed.into()),
        WatchEvent::MessageChanged(edited) => SessionEvent::MessageChanged(MessageEdited {
            message_id: edited.message_id,
            version: edited.version,
            change_id: edited.change_id,
        }),
        WatchEvent::MessagesErased(changed) => SessionEvent::MessagesErased(changed.into()),
    };
    Some(Event::default().id(event.position).json_data(session_event))
}
