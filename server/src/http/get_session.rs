//! GET /api/agents/{id}/sessions/{sid}: one JSON document of any length, written page by page.

use std::collections::VecDeque;

use anneal_core::limits::PAGE_MOST;
use anneal_proto::v1::{
    self as pb, context_service_server::ContextService as _, message_service_server::MessageService as _,
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
    door::{Allowed, Calls, Visitor},
    json::{Parameters, Place},
    message::Message,
    problem::Problem,
    session::{self, Session, milliseconds},
};
use crate::{cpu, verbs::Rpc};

/// Which part of the history.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// Only messages with a greater id.
    after: Option<i64>,
    /// At most so many messages; absent: all.
    limit: Option<u32>,
}

/// A session with its history.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionHistory {
    #[serde(flatten)]
    session: Session,
    /// In the order of their ids, up to `messageCount`.
    messages: Vec<Message>,
    /// Marks of the user among these messages: contexts start after them.
    separators: Vec<Mark>,
    /// Summaries of the older part, newest first.
    compactions: Vec<Compaction>,
}

/// A mark that the user has put into the session.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Mark {
    /// It stands after this message.
    after_message_id: i64,
    /// Milliseconds since 1970.
    created_at: i64,
}

/// A checkpoint: a summary that contexts begin with.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Compaction {
    /// The first message that contexts still hold as it was said.
    first_kept_entry_id: i64,
    /// Tokens of what the summary replaces, and of what contexts held after it.
    tokens_before: u64,
    tokens_after: u64,
    summary: String,
    /// Milliseconds since 1970.
    created_at: i64,
    /// Whether it still holds: a later separator sets it aside.
    valid: bool,
}

/// What reading a session calls.
pub(super) struct GetSession;

impl Calls for GetSession {
    const RPCS: &'static [&'static Rpc] =
        &[Rpc::named("get_conversation"), Rpc::named("list_messages"), Rpc::named("list_checkpoints")];
}

/// The session with its messages, or a part of them.
#[utoipa::path(
    get,
    path = "/api/agents/{id}/sessions/{sid}",
    params(
        ("id" = String, Path, description = "the agent"),
        ("sid" = String, Path, description = "the session"),
        Wanted
    ),
    responses((status = 200, body = SessionHistory), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
pub(super) async fn get_session(
    Allowed(visitor, _): Allowed<GetSession>,
    Place((agent, id)): Place<(String, String)>,
    Parameters(wanted): Parameters<Wanted>,
) -> Result<Response, Problem> {
    if wanted.limit == Some(0) {
        return Err(Problem::invalid("limit", "must be at least 1"));
    }
    let conversation = session::of_agent(&visitor, &agent, &id).await?;
    let etag = session::etag(&conversation);
    let writing = Writing {
        last: conversation.message_count,
        after: wanted.after.unwrap_or(0),
        left: wanted.limit.map_or(i64::MAX, i64::from),
        visitor,
        id,
        marks: VecDeque::new(),
        written: 0,
        next: Next::Messages(Session::from(conversation)),
    };
    let mut pieces = Box::pin(pieces(writing));
    // What is refused at once is refused with a status; what breaks later breaks the document off.
    let first = pieces.try_next().await?.unwrap_or_default();
    let broken = |problem| std::io::Error::other(format!("{problem:?}"));
    let body = Body::from_stream(stream::once(async { Ok(first) }).chain(pieces).map_err(broken));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::ETAG, etag),
    ];
    Ok((headers, body).into_response())
}

/// How far the document is written.
struct Writing {
    visitor: Visitor,
    id: String,
    /// The newest message when the document was begun: it ends there.
    last: i64,
    after: i64,
    /// Messages that may still be written.
    left: i64,
    marks: VecDeque<Mark>,
    /// Entries of the present list.
    written: usize,
    next: Next,
}

/// What comes next.
enum Next {
    /// The session itself, and its first messages.
    Messages(Session),
    /// More of them.
    More,
    /// What stands beside the messages.
    Marks,
    /// More of it.
    MoreMarks,
    /// Checkpoints from this page on.
    Compactions(String),
    End,
}

/// Checkpoints in one page: a summary may be long.
const COMPACTIONS: i32 = 16;
/// Separators in one piece.
const MARKS: usize = 1_000;

fn pieces(writing: Writing) -> impl Stream<Item = Result<Bytes, Problem>> + Send {
    stream::try_unfold(writing, |mut writing| async move {
        let piece = writing.piece().await?;
        Ok(piece.map(|piece| (Bytes::from(piece), writing)))
    })
}

impl Writing {
    /// The next piece of the document; None: it is written.
    async fn piece(&mut self) -> Result<Option<Vec<u8>>, Problem> {
        // Who reads slowly may be read to for hours.
        self.visitor.is_still_known().await?;
        let mut piece = Vec::new();
        match std::mem::replace(&mut self.next, Next::End) {
            Next::Messages(session) => {
                write(&mut piece, &session);
                piece.pop();
                piece.extend_from_slice(br#","messages":["#);
                self.messages(&mut piece).await?;
            }
            Next::More => self.messages(&mut piece).await?,
            Next::Marks => {
                piece.extend_from_slice(br#"],"separators":["#);
                self.written = 0;
                self.next = Next::MoreMarks;
            }
            Next::MoreMarks => {
                for mark in self.marks.drain(..self.marks.len().min(MARKS)) {
                    write_entry(&mut piece, &mut self.written, &mark);
                }
                self.next = Next::MoreMarks;
                if self.marks.is_empty() {
                    piece.extend_from_slice(br#"],"compactions":["#);
                    self.written = 0;
                    self.next = Next::Compactions(String::new());
                }
            }
            Next::Compactions(token) => self.compactions(&mut piece, token).await?,
            Next::End => return Ok(None),
        }
        Ok(Some(piece))
    }

    async fn messages(&mut self, piece: &mut Vec<u8>) -> Result<(), Problem> {
        let ask = pb::ListMessagesRequest {
            conversation_id: self.id.clone(),
            page_size: self.left.min(PAGE_MOST) as i32,
            after_message_id: self.after,
            ..pb::ListMessagesRequest::default()
        };
        // The room for the page is held until it is written, and counts as an answer that waits from then on.
        let (_, page, room) = self.visitor.services.list_messages(self.visitor.request(ask)).await?.into_parts();
        let mut is_whole = page.next_page_token.is_empty();
        let mut messages = page.messages;
        let wanted = messages.partition_point(|message| message.message_id <= self.last);
        is_whole |= wanted < messages.len();
        messages.truncate(wanted);
        if let Some(last) = messages.last() {
            (self.after, self.left) = (last.message_id, self.left - messages.len() as i64);
        }
        self.write_entries(piece, messages, Message::from, room).await?;
        let marks = page.separators.into_iter().filter(|mark| mark.after_message_id <= self.after);
        self.marks.extend(marks.map(|mark| Mark {
            after_message_id: mark.after_message_id,
            created_at: milliseconds(mark.created_time.as_ref()),
        }));
        self.next = if is_whole || self.left == 0 || self.after >= self.last { Next::Marks } else { Next::More };
        Ok(())
    }

    async fn compactions(&mut self, piece: &mut Vec<u8>, page_token: String) -> Result<(), Problem> {
        let ask = pb::ListCheckpointsRequest { conversation_id: self.id.clone(), page_size: COMPACTIONS, page_token };
        let answered = self.visitor.services.list_checkpoints(self.visitor.request(ask)).await?;
        let (_, page, room) = answered.into_parts();
        self.write_entries(piece, page.checkpoints, Compaction::from, room).await?;
        if page.next_page_token.is_empty() {
            piece.extend_from_slice(b"]}");
        } else {
            self.next = Next::Compactions(page.next_page_token);
        }
        Ok(())
    }

    /// Writes entries of the present list, away from the async thread where they are long. `room`: what holds the room for
    /// them.
    async fn write_entries<T, E>(
        &mut self,
        piece: &mut Vec<u8>,
        entries: Vec<T>,
        from: fn(T) -> E,
        room: Extensions,
    ) -> Result<(), Problem>
    where
        T: prost::Message + 'static,
        E: Serialize + 'static,
    {
        let (mut written, mut text) = (self.written, std::mem::take(piece));
        let is_long = cpu::is_long(entries.iter().map(T::encoded_len).sum(), entries.len());
        let write_all = move || {
            let _room = room;
            for entry in entries {
                write_entry(&mut text, &mut written, &from(entry));
            }
            (written, text)
        };
        let tenant = self.visitor.caller.tenant();
        (self.written, *piece) = self.visitor.services.house.cpu.run_if(is_long, tenant, write_all).await?;
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
            created_at: milliseconds(checkpoint.created_time.as_ref()),
            valid: checkpoint.valid,
        }
    }
}

/// Writes an entry of a list of which so many are written.
fn write_entry<T: Serialize>(piece: &mut Vec<u8>, written: &mut usize, entry: &T) {
    if *written > 0 {
        piece.push(b',');
    }
    *written += 1;
    write(piece, entry);
}

fn write<T: Serialize>(piece: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(piece, value).expect("strings, numbers and maps of strings can be written to memory");
}
