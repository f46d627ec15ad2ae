//! POST /api/agents/{id}/chat.

use anneal_core::{digest, limits::PARTS_PER_MESSAGE};
use anneal_proto::v1::{
    self as pb, conversation_service_server::ConversationService as _, message_service_server::MessageService as _,
};
use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response, sse::Event},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use futures::stream;
use pb::part::Part;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    door::{Allowed, Calls, Door, Visitor},
    json::{self, Body},
    live::{Asked, Patience, Place, Reader, Session, TurnEvent},
    problem::Problem,
    session,
    sse::{self, LAST_EVENT_ID},
};
use crate::{
    parse,
    status::{Failure, Reason},
    turn,
    verbs::Rpc,
};

/// What the user says.
#[derive(Debug, Default, Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ChatBody {
    /// The user's words; may be empty where there is a picture.
    message: String,
    /// The session that goes on; absent: a new one of this agent.
    session_id: Option<String>,
    /// The end user of a session that is made, at most 128 bytes; one that goes on keeps its own.
    user_id: Option<String>,
    /// What the model should know beside the words: a second text of the same message.
    context: Option<String>,
    /// Pictures: http(s) URLs, or data: URIs with a picture in base64.
    images: Option<Vec<String>>,
    /// Makes the request repeatable: at most 128 bytes. Repeated, it gives the same answer, and where no session is named
    /// the same new one of this agent.
    request_id: Option<String>,
    /// The model, by its name in the server's configuration; absent: the session's, or the server's.
    model: Option<String>,
    /// Room for the answer, at least 1.
    max_output_tokens: Option<u64>,
}

/// What a turn calls; whoever joins one that runs already makes no call of its own, and may do no less.
pub(super) struct ChatTurn;

impl Calls for ChatTurn {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("chat")];
}

/// One turn: what was said is stored, the model called, its answer told as it comes and stored. The turn goes on when the
/// client goes away; the same request with Last-Event-ID, its body the same or empty, gives exactly what is missing. A turn that
/// is refused stores nothing, and makes no session.
#[utoipa::path(
    post,
    path = "/api/agents/{id}/chat",
    params(
        ("id" = String, Path, description = "the agent"),
        ("Last-Event-ID" = Option<String>, Header, description = "the id of the last event that was received")
    ),
    request_body = ChatBody,
    responses(
        (status = 200, body = TurnEvent, content_type = "text/event-stream"),
        (status = 204, description = "nothing is missing: Last-Event-ID is that of the last event"),
        (status = "default", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn chat(
    State(door): State<Door>,
    Allowed(visitor, _): Allowed<ChatTurn>,
    json::Place(agent): json::Place<String>,
    headers: HeaderMap,
    Body(body): Body<ChatBody>,
) -> Result<Response, Problem> {
    session::agent(&agent)?;
    let Some(id) = headers.get(LAST_EVENT_ID) else {
        return Ok(told(begin(&door, visitor, &agent, body.unwrap_or_default()).await?));
    };
    let place = Place::parse(id.as_bytes());
    let place = place.ok_or_else(forged)?;
    let asked = again(&visitor, &agent, place, body.unwrap_or_default()).await?;
    if asked.place.as_ref().is_some_and(|place| place.is_end) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(told(door.live.join(visitor, asked, door.closing.clone())))
}

/// How often a session is made for one turn.
const SESSIONS_MADE: usize = 3;

/// The reader of a turn that begins, once what is said is stored. A session that was made for it may be taken back by the
/// same request that was refused elsewhere meanwhile: it is then made again.
async fn begin(door: &Door, visitor: Visitor, agent: &str, body: ChatBody) -> Result<Reader, Problem> {
    let mut made = 0;
    loop {
        let asked = first(&visitor, agent, body.clone()).await?;
        made += usize::from(asked.session == Session::Made);
        let may_be_gone = asked.session == Session::Made && made < SESSIONS_MADE;
        let mut reader = door.live.join(visitor.clone(), asked, door.closing.clone());
        match reader.started().await {
            Err(problem) if may_be_gone && problem.is(Reason::ConversationNotFound) => {}
            Err(problem) => return Err(problem),
            Ok(()) => return Ok(reader),
        }
    }
}

/// A turn that begins.
async fn first(visitor: &Visitor, agent: &str, body: ChatBody) -> Result<Asked, Problem> {
    let message = said(&body)?;
    let request_id = match &body.request_id {
        Some(id) if !id.is_empty() => id.clone(),
        _ => uuid::Uuid::new_v4().to_string(),
    };
    let (conversation, session) = match &body.session_id {
        Some(id) => (session::of_agent(visitor, agent, id).await?, Session::Given),
        None => (begun(visitor, agent, &request_id, body.user_id).await?, Session::Made),
    };
    let ask = pb::ChatRequest {
        conversation_id: conversation.conversation_id,
        request_id,
        messages: vec![message],
        model: body.model.unwrap_or_default(),
        max_output_tokens: body.max_output_tokens,
        ..pb::ChatRequest::default()
    };
    Ok(Asked { ask, session, patience: Patience::None, place: None })
}

/// A turn that a reader comes back to. What was said is taken from where it is stored; where the body says it again, it is
/// the same.
async fn again(visitor: &Visitor, agent: &str, place: Place, body: ChatBody) -> Result<Asked, Problem> {
    for (field, given, known) in
        [("sessionId", &body.session_id, &place.session), ("requestId", &body.request_id, &place.request)]
    {
        if given.as_ref().is_some_and(|given| given != known) {
            return Err(Problem::invalid(field, "is not that of the Last-Event-ID"));
        }
    }
    let conversation_id = session::of_agent(visitor, agent, &place.session).await?.conversation_id;
    let message = if body.is_silent() {
        stored(visitor, &conversation_id, &place).await?
    } else {
        let message = said(&body)?;
        match find_said(visitor, &conversation_id, &place, &message).await? {
            Some(id) if id == place.message => message,
            _ => return Err(forged()),
        }
    };
    let ask = pb::ChatRequest {
        conversation_id,
        request_id: place.request.clone(),
        messages: vec![message],
        model: body.model.unwrap_or_default(),
        max_output_tokens: body.max_output_tokens,
        ..pb::ChatRequest::default()
    };
    Ok(Asked { ask, session: Session::Given, patience: Patience::UntilItsEnd, place: Some(place) })
}

/// What the turn of this place says, as it is stored. Places come from outside: a message that is not the one of the turn
/// would be said once more.
async fn stored(visitor: &Visitor, conversation_id: &str, place: &Place) -> Result<pb::NewMessage, Problem> {
    let ask =
        pb::GetMessageRequest { conversation_id: conversation_id.to_owned(), message_id: place.message, range: None };
    let found = visitor.services.get_message(visitor.request(ask)).await.map_err(Problem::from);
    let found = found.map_err(|problem| if problem.is(Reason::MessageNotFound) { forged() } else { problem })?;
    let stored = found.into_inner().message.unwrap_or_default();
    let message = pb::NewMessage { role: stored.role, parts: stored.parts, metadata: stored.metadata };
    match find_said(visitor, conversation_id, place, &message).await {
        Ok(Some(id)) if id == place.message => Ok(message),
        Err(problem) if !problem.is(Reason::RequestIdReused) => Err(problem),
        Ok(_) | Err(_) => Err(forged()),
    }
}

/// The message that the turn of this place has stored with these words; fails where it has said others.
async fn find_said(
    visitor: &Visitor,
    conversation_id: &str,
    place: &Place,
    message: &pb::NewMessage,
) -> Result<Option<i64>, Problem> {
    let id = parse::conversation_id(conversation_id)?;
    let message = parse::message("message", message.clone())?;
    let found = turn::find_said(&visitor.services.house, visitor.caller, id, &place.request, message).await?;
    Ok(found.map(|id| id.0))
}

fn forged() -> Problem {
    Problem::invalid("Last-Event-ID", "is not the id of an event of a chat")
}

/// A new session of the agent; for a repeated request the same one. Requests of other agents, and those that make
/// conversations over gRPC, may have the same id.
async fn begun(
    visitor: &Visitor,
    agent: &str,
    request_id: &str,
    user_id: Option<String>,
) -> Result<pb::Conversation, Problem> {
    parse::request_id(request_id)?;
    let cause = digest::of_fields([agent.as_bytes(), request_id.as_bytes()]);
    let ask = pb::CreateConversationRequest {
        request_id: format!("http chat {}", URL_SAFE_NO_PAD.encode(cause)),
        agent_id: agent.to_owned(),
        user_id: user_id.unwrap_or_default(),
        ..pb::CreateConversationRequest::default()
    };
    Ok(visitor.services.create_conversation(visitor.request(ask)).await?.into_inner())
}

impl ChatBody {
    /// Whether it leaves unsaid what the user says.
    fn is_silent(&self) -> bool {
        self.message.is_empty()
            && self.context.as_ref().is_none_or(String::is_empty)
            && self.images.as_ref().is_none_or(Vec::is_empty)
    }
}

/// The user's message: the words, the context, the pictures.
fn said(body: &ChatBody) -> Result<pb::NewMessage, Problem> {
    let images = body.images.as_deref().unwrap_or_default();
    if body.message.is_empty() && images.is_empty() {
        return Err(Problem::invalid("message", "must not be empty"));
    }
    if images.len() > PARTS_PER_MESSAGE - 2 {
        return Err(Failure::limit("images", PARTS_PER_MESSAGE - 2, "pictures").into());
    }
    let texts = [Some(&body.message), body.context.as_ref()].into_iter().flatten().filter(|text| !text.is_empty());
    let mut parts: Vec<Part> = texts.map(|text| Part::Text(pb::TextPart { text: text.clone() })).collect();
    for (index, uri) in images.iter().enumerate() {
        let field = format!("images[{index}]");
        let refused = || Problem::invalid(&*field, "must be an http(s) URL, or a data: URI of image/…");
        let media_type = media_type(uri).ok_or_else(refused)?;
        let picture = pb::MediaPart { uri: uri.clone(), media_type, size_bytes: 0, tokens: 0 };
        // Only here is it known which of the pictures it is.
        parse::media(&field, picture.clone())?;
        parts.push(Part::Media(picture));
    }
    let parts = parts.into_iter().map(|part| pb::Part { part: Some(part) }).collect();
    Ok(pb::NewMessage { role: pb::Role::User.into(), parts, ..pb::NewMessage::default() })
}

/// The media type of a picture: as its data: URI says, or by the ending of its path, JPEG where that says nothing.
fn media_type(uri: &str) -> Option<String> {
    if let Some(inline) = uri.strip_prefix("data:") {
        let (kind, _) = inline.split_once([';', ','])?;
        return (kind.starts_with("image/") && inline.contains(',')).then(|| kind.to_owned());
    }
    let url: axum::http::Uri = uri.parse().ok()?;
    url.host()?;
    if !matches!(url.scheme_str(), Some("http" | "https")) {
        return None;
    }
    let ending = url.path().rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase()).unwrap_or_default();
    let kind = match ending.as_str() {
        "png" => "image/png",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "heic" => "image/heic",
        "heif" => "image/heif",
        _ => "image/jpeg",
    };
    Some(kind.to_owned())
}

/// The turn as server-sent events.
fn told(reader: Reader) -> Response {
    sse::answer(stream::unfold(reader, |mut reader| async {
        let (id, event) = reader.next().await?;
        Some((Event::default().id(id).json_data(event), reader))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_known_by_its_uri() {
        let known = |uri| media_type(uri);
        assert_eq!(known("data:image/png;base64,AA=="), Some("image/png".into()));
        assert_eq!(known("https://cdn.example/a.WEBP?x=1.gif"), Some("image/webp".into()));
        assert_eq!(known("https://cdn.example/a"), Some("image/jpeg".into()));
        for broken in ["", "a.png", "data:text/html,x", "data:image/png;base64", "file:///etc/passwd", "javascript:x"] {
            assert_eq!(known(broken), None, "{broken}");
        }
    }
}
