//! GET /api/agents/{id}/sessions/{sid}: one JSON document of any length, written page by page.

use std::collections::VecDeque;

use anneal_core::limits::PAGE_MAX;
use anneal_proto::v1::{
    self as pb, context_service_server::ContextService as _,
    message_service_server::MessageService as _,
};
use axum::{
    body::{Body, Bytes},
    http::{Extensions, HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    caller::{Authorized, EndpointRpcs, HttpCaller},
    extractors::{PathParams, QueryParams},
    message::Message,
    problem::Problem,
    session::{self, Session, unix_millis},
};
use crate::{limits::cpu_pool, verbs::Rpc};

/// Which part of the history is wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryQuery {
    /// Only messages with a greater id.
    after: Option<i64>,
    /// The answer has at most this many messages; absent: all.
    limit: Option<u32>,
    /// Whether withdrawn messages are in the history, too. Absent: no.
    include_withdrawn: bool,
}

/// A session with its history.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionHistory {
    #[serde(flatten)]
    session: Session,
    /// In the order of their ids. None has a greater id than `messageCount`.
    messages: Vec<Message>,
    /// Separators among these messages. A context starts after the last separator.
    separators: Vec<Mark>,
    /// Summaries that replace older messages in contexts, newest first.
    compactions: Vec<Compaction>,
}

// The names of the types are part of the OpenAPI document: a separator is a `Mark` there, and a
// checkpoint is a `Compaction`.
/// A separator that the user has inserted.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Mark {
    /// The message before it.
    after_message_id: i64,
    /// Milliseconds since 1970.
    created_at: i64,
}

/// A checkpoint: a summary that replaces older messages in contexts.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Compaction {
    /// The first message that the summary does not replace.
    first_kept_entry_id: i64,
    /// Tokens of the content that the checkpoint replaced.
    tokens_before: u64,
    /// Tokens of the context after the checkpoint.
    tokens_after: u64,
    summary: String,
    /// Milliseconds since 1970.
    created_at: i64,
    /// Whether contexts may use the checkpoint. A later separator makes it invalid.
    valid: bool,
}

/// The RPCs of this endpoint.
pub(super) struct GetSession;

impl EndpointRpcs for GetSession {
    const RPCS: &'static [&'static Rpc] = &[
        Rpc::named("get_conversation"),
        Rpc::named("list_messages"),
        Rpc::named("list_checkpoints"),
    ];
}

/// The session with all or some of its messages.
#[utoipa::path(
    get,
    path = "/api/agents/{id}/sessions/{sid}",
    params(
        ("id" = String, Path, description = "the agent"),
        ("sid" = String, Path, description = "the session"),
        HistoryQuery
    ),
    responses((status = 200, body = SessionHistory), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
pub(super) async fn get_session(
    Authorized(http_caller, _): Authorized<GetSession>,
    PathParams((agent, id)): PathParams<(String, String)>,
    QueryParams(query): QueryParams<HistoryQuery>,
) -> Result<Response, Problem> {
    if query.limit == Some(0) {
        return Err(Problem::invalid("limit", "must be at least 1"));
    }
    let conversation = session::get_for_agent(&http_caller, &agent, &id).await?;
    let etag = session::etag(&conversation);
    let writer = DocumentWriter {
        newest_message_id: conversation.message_count,
        after_message_id: query.after.unwrap_or(0),
        messages_left: query.limit.map_or(i64::MAX, i64::from),
        include_withdrawn: query.include_withdrawn,
        http_caller,
        id,
        separators: VecDeque::new(),
        entries_written: 0,
        next: Next::Messages(Box::new(Session::from(conversation))),
    };
    let mut pieces = Box::pin(pieces(writer));
    // An error in the first page becomes an HTTP status. An error in a later page cuts the document
    // off.
    let first = pieces.try_next().await?.unwrap_or_default();
    let broken = |problem| std::io::Error::other(format!("{problem:?}"));
    let body = Body::from_stream(
        stream::once(async { Ok(first) })
            .chain(pieces)
            .map_err(broken),
    );
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::ETAG, etag),
    ];
    Ok((headers, body).into_response())
}

/// Progress of writing the document.
struct DocumentWriter {
    http_caller: HttpCaller,
    id: String,
    /// The newest message when the document was begun. Later messages are not written.
    newest_message_id: i64,
    /// Only messages with a greater id are still to be written.
    after_message_id: i64,
    /// Number of messages that may still be written.
    messages_left: i64,
    /// Whether withdrawn messages are written.
    include_withdrawn: bool,
    separators: VecDeque<Mark>,
    /// Number of entries of the current list that were written.
    entries_written: usize,
    next: Next,
}

/// The part to write next.
enum Next {
    /// The session, and its first messages.
    Messages(Box<Session>),
    /// Further messages.
    MoreMessages,
    /// The start of the separators.
    Separators,
    /// Further separators.
    MoreSeparators,
    /// Checkpoints, from the page with this token on.
    Compactions(String),
    End,
}

/// Checkpoints per page. Few, because a summary may be long.
const COMPACTIONS_PER_PAGE: i32 = 16;
/// Separators in one piece of the document.
const SEPARATORS_PER_PIECE: usize = 1_000;

fn pieces(writer: DocumentWriter) -> impl Stream<Item = Result<Bytes, Problem>> + Send {
    stream::try_unfold(writer, |mut writer| async move {
        let piece = writer.next_piece().await?;
        Ok(piece.map(|piece| (Bytes::from(piece), writer)))
    })
}

impl DocumentWriter {
    /// The next piece of the document. None: it is complete.
    async fn next_piece(&mut self) -> Result<Option<Vec<u8>>, Problem> {
        // Check again for each piece, because a slow reader may take hours.
        self.http_caller.recheck_credential().await?;
        let mut piece = Vec::new();
        // Each branch sets `next` again, unless it writes the end of the document.
        match std::mem::replace(&mut self.next, Next::End) {
            Next::Messages(session) => {
                write(&mut piece, &session);
                // Takes off the closing brace, because further fields follow.
                piece.pop();
                piece.extend_from_slice(br#","messages":["#);
                self.write_messages(&mut piece).await?;
            }
            Next::MoreMessages => self.write_messages(&mut piece).await?,
            Next::Separators => {
                piece.extend_from_slice(br#"],"separators":["#);
                self.entries_written = 0;
                self.next = Next::MoreSeparators;
            }
            Next::MoreSeparators => {
                for separator in self
                    .separators
                    .drain(..self.separators.len().min(SEPARATORS_PER_PIECE))
                {
                    write_entry(&mut piece, &mut self.entries_written, &separator);
                }
                self.next = Next::MoreSeparators;
                if self.separators.is_empty() {
                    piece.extend_from_slice(br#"],"compactions":["#);
                    self.entries_written = 0;
                    self.next = Next::Compactions(String::new());
                }
            }
            Next::Compactions(token) => self.write_compactions(&mut piece, token).await?,
            Next::End => return Ok(None),
        }
        Ok(Some(piece))
    }

    async fn write_messages(&mut self, piece: &mut Vec<u8>) -> Result<(), Problem> {
        let ask = pb::ListMessagesRequest {
            conversation_id: self.id.clone(),
            page_size: self.messages_left.min(PAGE_MAX) as i32,
            after_message_id: self.after_message_id,
            include_withdrawn: self.include_withdrawn,
            ..pb::ListMessagesRequest::default()
        };
        // The memory of the page stays reserved until its messages are written into the piece. From
        // then on `traffic/` counts the piece, as bytes that wait to be read.
        let (_, page, reservation) = self
            .http_caller
            .services
            .list_messages(self.http_caller.request(ask))
            .await?
            .into_parts();
        let mut is_last_page = page.next_page_token.is_empty();
        let mut messages = page.messages;
        let wanted =
            messages.partition_point(|message| message.message_id <= self.newest_message_id);
        is_last_page |= wanted < messages.len();
        messages.truncate(wanted);
        if let Some(last) = messages.last() {
            self.after_message_id = last.message_id;
            self.messages_left -= messages.len() as i64;
        }
        self.write_entries(piece, messages, Message::from, reservation)
            .await?;
        // The last separators may stand after withdrawn messages, which are not listed.
        let last_place = if is_last_page {
            self.newest_message_id
        } else {
            self.after_message_id
        };
        let separators = page
            .separators
            .into_iter()
            .filter(|separator| separator.after_message_id <= last_place);
        self.separators.extend(separators.map(|separator| Mark {
            after_message_id: separator.after_message_id,
            created_at: unix_millis(separator.created_time.as_ref()),
        }));
        self.next = if is_last_page
            || self.messages_left == 0
            || self.after_message_id >= self.newest_message_id
        {
            Next::Separators
        } else {
            Next::MoreMessages
        };
        Ok(())
    }

    async fn write_compactions(
        &mut self,
        piece: &mut Vec<u8>,
        page_token: String,
    ) -> Result<(), Problem> {
        let ask = pb::ListCheckpointsRequest {
            conversation_id: self.id.clone(),
            page_size: COMPACTIONS_PER_PAGE,
            page_token,
            ..pb::ListCheckpointsRequest::default()
        };
        let answered = self
            .http_caller
            .services
            .list_checkpoints(self.http_caller.request(ask))
            .await?;
        let (_, page, reservation) = answered.into_parts();
        self.write_entries(piece, page.checkpoints, Compaction::from, reservation)
            .await?;
        if page.next_page_token.is_empty() {
            piece.extend_from_slice(b"]}");
        } else {
            self.next = Next::Compactions(page.next_page_token);
        }
        Ok(())
    }

    /// Writes entries of the current list, on the CPU pool if they are many or long. `reservation`
    /// holds the memory of the entries.
    async fn write_entries<T, E>(
        &mut self,
        piece: &mut Vec<u8>,
        entries: Vec<T>,
        from: fn(T) -> E,
        reservation: Extensions,
    ) -> Result<(), Problem>
    where
        T: prost::Message + 'static,
        E: Serialize + 'static,
    {
        let (mut entries_written, mut text) = (self.entries_written, std::mem::take(piece));
        let is_long = cpu_pool::is_long(entries.iter().map(T::encoded_len).sum(), entries.len());
        let write_all = move || {
            let _reservation = reservation;
            for entry in entries {
                write_entry(&mut text, &mut entries_written, &from(entry));
            }
            (entries_written, text)
        };
        let tenant = self.http_caller.caller.tenant();
        (self.entries_written, *piece) = self
            .http_caller
            .services
            .state
            .cpu
            .run_if(is_long, tenant, write_all)
            .await?;
        Ok(())
    }
}

impl From<pb::Checkpoint> for Compaction {
    fn from(checkpoint: pb::Checkpoint) -> Self {
        Self {
            first_kept_entry_id: checkpoint.last_message_id + 1,
            tokens_before: checkpoint.tokens_before,
            tokens_after: checkpoint.tokens_after,
            summary: checkpoint.summary,
            created_at: unix_millis(checkpoint.created_time.as_ref()),
            valid: checkpoint.valid,
        }
    }
}

/// Writes one entry of a list, after a comma unless it is the first.
fn write_entry<T: Serialize>(piece: &mut Vec<u8>, entries_written: &mut usize, entry: &T) {
    if *entries_written > 0 {
        piece.push(b',');
    }
    *entries_written += 1;
    write(piece, entry);
}

fn write<T: Serialize>(piece: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(piece, value)
        .expect("strings, numbers and maps of strings can be written to memory");
}
