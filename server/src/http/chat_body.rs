//! The body of a chat turn: what the turn answers, and how.

use anneal_core::limits::PARTS_PER_MESSAGE;
use anneal_proto::{
    convert::message,
    v1::{self as pb, part::Part},
};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    bounded_collections::{BoundedLabels, BoundedModels, BoundedPictures},
    chat_options::{
        ChatOptions, ReasoningEffort, ResponseFormat, StopTexts, Tool, ToolChoice, Tools,
    },
    new_tool_results::{NewToolResult, NewToolResults},
    problem::Problem,
};
use crate::failure::Failure;

/// The user's message, and how the model should answer.
#[derive(Debug, Default, Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ChatBody {
    /// The user's text. May be empty if there is a picture.
    #[serde(default)]
    pub(super) message: String,
    /// The session to continue; absent: a new session of this agent.
    pub(super) session_id: Option<String>,
    /// The end user of a new session, at most 128 bytes. A session that is continued keeps its own.
    pub(super) user_id: Option<String>,
    /// Further information for the model: a second text in the same message.
    pub(super) context: Option<String>,
    /// Pictures: http(s) URLs, or data: URIs with a picture in base64.
    #[schema(value_type = Option<Vec<String>>)]
    pub(super) images: Option<BoundedPictures>,
    /// Makes the request repeatable, at most 128 bytes. A repetition gets the same answer and, if
    /// no session is named, the same new session of this agent.
    pub(super) request_id: Option<String>,
    /// The model, by its name in the server's configuration; absent: the model of the session, or
    /// the default of the server.
    pub(super) model: Option<String>,
    /// Models that are tried in order after `model`, as long as nothing of an answer was sent: at
    /// most 7. Absent: those that the server's settings name after the first model; none if `model`
    /// is given.
    #[schema(value_type = Option<Vec<String>>)]
    pub(super) fallback_models: Option<BoundedModels>,
    /// The turn is refused unless this is the newest message's id; 0: unless the session is empty.
    /// Ignored if an earlier request with the same `requestId` has begun the turn.
    pub(super) expected_last_message_id: Option<i64>,
    /// Whether the server calls the model once more, shortly before its provider's cache would
    /// expire, with the same context and an output of one token.
    #[serde(default)]
    pub(super) cache_ping: bool,
    /// The treatment of a context that is too long for the model. Absent: it is reduced.
    pub(super) on_overflow: Option<OnOverflow>,
    /// Most tokens of the answer, at least 1.
    pub(super) max_output_tokens: Option<u64>,
    /// Results of the tool calls of the answer before: instead of `message`, or before it.
    #[schema(value_type = Option<Vec<NewToolResult>>)]
    pub(super) tool_results: Option<NewToolResults>,
    /// Answers the newest question again, without a message. Its answer is withdrawn.
    #[serde(default)]
    pub(super) regenerate: bool,
    /// The id of a message of the user. `message` replaces it, what came after it is withdrawn, and
    /// the model answers.
    pub(super) edit_message_id: Option<i64>,
    /// Tools that the model may call: at most 128, 256 KiB in all. Absent: those of the session.
    #[schema(value_type = Option<Vec<Tool>>)]
    pub(super) tools: Option<Tools>,
    /// Whether the model calls a tool, and which.
    pub(super) tool_choice: Option<ToolChoice>,
    /// Whether one answer may call several tools.
    pub(super) parallel_tool_calls: Option<bool>,
    /// The shape of the answer's text.
    pub(super) response_format: Option<ResponseFormat>,
    /// Sampling temperature, 0 to 2.
    pub(super) temperature: Option<f32>,
    /// Nucleus sampling, 0 to 1.
    pub(super) top_p: Option<f32>,
    /// Texts before which the model stops: at most 16, each 1 to 128 bytes.
    #[schema(value_type = Option<Vec<String>>)]
    pub(super) stop: Option<StopTexts>,
    /// How much the model thinks before it answers.
    pub(super) reasoning_effort: Option<ReasoningEffort>,
    /// Labels for the provider: at most 32, with 4 KiB in all.
    #[schema(value_type = Option<std::collections::BTreeMap<String, String>>)]
    pub(super) metadata: Option<BoundedLabels>,
}

/// The treatment of a context that is too long for the model.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum OnOverflow {
    /// Tool results are truncated, then older messages are compacted.
    Reduce,
    /// The turn fails with `CONTEXT_OVERFLOW`.
    Fail,
}

impl From<OnOverflow> for pb::OnOverflow {
    fn from(on_overflow: OnOverflow) -> Self {
        match on_overflow {
            OnOverflow::Reduce => Self::Reduce,
            OnOverflow::Fail => Self::Fail,
        }
    }
}

impl ChatBody {
    /// Whether the body has no text, no picture and no result of a tool.
    pub(super) fn has_no_prompt(&self) -> bool {
        self.has_no_user_message() && !self.has_tool_results()
    }

    /// Whether the body has no text and no picture.
    fn has_no_user_message(&self) -> bool {
        self.message.is_empty()
            && self.context.as_ref().is_none_or(String::is_empty)
            && self
                .images
                .as_ref()
                .is_none_or(|images| images.0.is_empty())
    }

    fn has_tool_results(&self) -> bool {
        self.tool_results
            .as_ref()
            .is_some_and(|results| !results.is_empty())
    }

    /// The turn as the RPC takes it: in this session, with this request id and these messages. It
    /// goes on without its readers: its caller is the relay, which never leaves it.
    pub(super) fn into_request(
        self,
        (session, request_id): (String, String),
        messages: Vec<pb::NewMessage>,
    ) -> Result<pb::ChatRequest, Problem> {
        let options = ChatOptions {
            tools: self.tools,
            tool_choice: self.tool_choice,
            parallel_tool_calls: self.parallel_tool_calls,
            response_format: self.response_format,
            temperature: self.temperature,
            top_p: self.top_p,
            stop: self.stop,
            reasoning_effort: self.reasoning_effort,
            metadata: self.metadata,
            max_output_tokens: None,
        };
        let options = options.into_options("")?;
        Ok(pb::ChatRequest {
            conversation_id: session,
            request_id,
            messages,
            model: self.model.unwrap_or_default(),
            fallback_models: self.fallback_models.unwrap_or_default().0,
            max_output_tokens: self.max_output_tokens,
            expected_last_message_id: self.expected_last_message_id,
            options: (options != pb::ChatOptions::default()).then_some(options),
            regenerate: self.regenerate,
            edit_message_id: self.edit_message_id,
            on_disconnect: pb::OnDisconnect::Finish.into(),
            cache_ping: self.cache_ping,
            on_overflow: self
                .on_overflow
                .map_or(pb::OnOverflow::Unspecified, Into::into)
                .into(),
            ..pb::ChatRequest::default()
        })
    }
}

/// The messages of the turn: results of tools, and the user's message. None if the newest question
/// is answered again.
pub(super) fn prompt(body: &ChatBody) -> Result<Vec<pb::NewMessage>, Problem> {
    if body.regenerate && body.has_no_prompt() {
        return Ok(Vec::new());
    }
    let results = body.tool_results.clone().unwrap_or_default().into_message();
    let mut messages: Vec<pb::NewMessage> = results.into_iter().collect();
    if messages.is_empty() || !body.has_no_user_message() {
        messages.push(user_message(body)?);
    }
    Ok(messages)
}

/// The user's message: text, context, pictures.
fn user_message(body: &ChatBody) -> Result<pb::NewMessage, Problem> {
    let images = body.images.as_ref().map_or(&[][..], |images| &images.0);
    if body.message.is_empty() && images.is_empty() {
        return Err(Problem::invalid("message", "must not be empty"));
    }
    // Two parts are kept for the texts `message` and `context`.
    if images.len() > PARTS_PER_MESSAGE - 2 {
        return Err(Failure::limit("images", PARTS_PER_MESSAGE - 2, "pictures").into());
    }
    let texts = [Some(&body.message), body.context.as_ref()]
        .into_iter()
        .flatten()
        .filter(|text| !text.is_empty());
    let mut parts: Vec<Part> = texts
        .map(|text| Part::Text(pb::TextPart { text: text.clone() }))
        .collect();
    for (index, uri) in images.iter().enumerate() {
        let field = format!("images[{index}]");
        let refused =
            || Problem::invalid(&*field, "must be an http(s) URL, or a data: URI of image/…");
        let media_type = media_type(uri).ok_or_else(refused)?;
        let picture = pb::MediaPart {
            uri: uri.clone(),
            media_type,
            size_bytes: 0,
            tokens: 0,
        };
        // Checked here, because later errors cannot name the picture's index.
        message::parse_media(&field, picture.clone())?;
        parts.push(Part::Media(picture));
    }
    let parts = parts
        .into_iter()
        .map(|part| pb::Part { part: Some(part) })
        .collect();
    Ok(pb::NewMessage {
        role: pb::Role::User.into(),
        parts,
        ..pb::NewMessage::default()
    })
}

/// The media type of a picture: from its data: URI, or from the file extension in its URL; JPEG if
/// the extension is missing or unknown. None: neither a data: URI of a picture nor an http(s) URL.
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
    let ending = url
        .path()
        .rsplit_once('.')
        .map(|(_, ending)| ending.to_ascii_lowercase())
        .unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_goes_on_if_its_relay_ends() {
        let ask = ChatBody::default().into_request((String::new(), String::new()), Vec::new());
        let ask = ask.expect("is valid");
        assert_eq!(ask.on_disconnect(), pb::OnDisconnect::Finish);
    }

    #[test]
    fn the_media_type_of_a_picture_comes_from_its_uri() {
        let type_of = |uri| media_type(uri);
        assert_eq!(
            type_of("data:image/png;base64,AA=="),
            Some("image/png".into())
        );
        assert_eq!(
            type_of("https://cdn.example/a.WEBP?x=1.gif"),
            Some("image/webp".into())
        );
        assert_eq!(type_of("https://cdn.example/a"), Some("image/jpeg".into()));
        for broken in [
            "",
            "a.png",
            "data:text/html,x",
            "data:image/png;base64",
            "file:///etc/passwd",
            "javascript:x",
        ] {
            assert_eq!(type_of(broken), None, "{broken}");
        }
    }
}
