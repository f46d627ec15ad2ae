//! A conversation in a test: says things, reads them back, builds contexts.

use std::{future::IntoFuture, pin::Pin, time::Duration};

use anneal_core::limits::DEADLINE_MOST_SECONDS;
use pb::part::Part;
use tonic::{Request, Status};

use crate::{House, message, pb, text};

/// A user's text.
pub fn user(said: &str) -> pb::NewMessage {
    text(pb::Role::User, said)
}

/// The model's text.
pub fn assistant(said: &str) -> pb::NewMessage {
    text(pb::Role::Assistant, said)
}

/// The model calls a tool.
pub fn call(id: &str, input: &str) -> pb::NewMessage {
    let part = pb::ToolUsePart { id: id.into(), name: "look".into(), input: input.into() };
    message(pb::Role::Assistant, vec![Part::ToolUse(part)])
}

/// A user's picture.
pub fn media(uri: &str) -> pb::NewMessage {
    let part = pb::MediaPart { uri: uri.into(), media_type: "image/png".into(), size_bytes: 0, tokens: 0 };
    message(pb::Role::User, vec![Part::Media(part)])
}

/// A conversation of a house.
#[derive(Clone)]
pub struct Talk<'a> {
    /// Its house.
    pub house: &'a House,
    /// Its id.
    pub id: String,
}

impl House {
    /// The conversation under this id.
    pub fn talk_of(&self, id: &str) -> Talk<'_> {
        Talk::new(self, id.to_owned())
    }
}

impl<'a> Talk<'a> {
    pub(crate) fn new(house: &'a House, id: String) -> Self {
        Self { house, id }
    }

    /// Appends a user's text; see [`Append`] for what else can be said.
    pub fn append(&self, said: &str) -> Append<'a> {
        self.append_all(vec![user(said)])
    }

    /// Appends messages.
    pub fn append_all(&self, messages: Vec<pb::NewMessage>) -> Append<'a> {
        let ask = pb::AppendMessagesRequest { conversation_id: self.id.clone(), messages, ..Default::default() };
        Append { house: self.house, ask }
    }

    /// One turn: a user's text and the model's.
    pub async fn turn(&self, asked: &str, answered: &str) -> pb::AppendMessagesResponse {
        self.append_all(vec![user(asked), assistant(answered)]).await
    }

    /// `count` short turns.
    pub async fn turns(&self, count: usize) {
        for _ in 0..count {
            self.turn("go on", "done").await;
        }
    }

    /// Every message, in order.
    pub async fn messages(&self) -> Vec<pb::Message> {
        let mut messages = Vec::new();
        let mut page_token = String::new();
        loop {
            let ask = pb::ListMessagesRequest {
                conversation_id: self.id.clone(),
                page_size: 500,
                page_token,
                ..Default::default()
            };
            let page = self.house.messages().list_messages(patient(ask)).await.expect("lists").into_inner();
            messages.extend(page.messages);
            if page.next_page_token.is_empty() {
                return messages;
            }
            page_token = page.next_page_token;
        }
    }

    /// What is stored: role and text, message by message.
    pub async fn said(&self) -> Vec<(pb::Role, String)> {
        self.messages().await.iter().map(|message| (message.role(), parts_text(&message.parts))).collect()
    }

    /// The conversation's row.
    pub async fn conversation(&self) -> pb::Conversation {
        let ask = pb::GetConversationRequest { conversation_id: self.id.clone() };
        self.house.conversations().get_conversation(ask).await.expect("is there").into_inner()
    }

    /// The context, as it is.
    pub async fn context(&self) -> Built {
        self.build(pb::BuildContextRequest::default()).await.expect("builds")
    }

    /// The context within a budget.
    pub async fn context_within(&self, budget: u64) -> Result<Built, Status> {
        self.build(pb::BuildContextRequest { budget_tokens: Some(budget), ..Default::default() }).await
    }

    /// The context as asked for; the conversation's id is filled in.
    pub async fn build(&self, ask: pb::BuildContextRequest) -> Result<Built, Status> {
        let ask = pb::BuildContextRequest { conversation_id: self.id.clone(), ..ask };
        Ok(Built(self.house.contexts().build_context(ask).await?.into_inner()))
    }

    /// Checkpoints, newest boundary first.
    pub async fn checkpoints(&self) -> Vec<pb::Checkpoint> {
        let ask = pb::ListCheckpointsRequest { conversation_id: self.id.clone(), page_size: 500, ..Default::default() };
        self.house.contexts().list_checkpoints(ask).await.expect("lists").into_inner().checkpoints
    }

    /// Puts a separator at the end.
    pub async fn separate(&self) -> pb::Separator {
        let ask = pb::InsertSeparatorRequest { conversation_id: self.id.clone(), ..Default::default() };
        self.house.messages().insert_separator(ask).await.expect("separates").into_inner()
    }

    /// Takes a separator away; returns the boundary after that.
    pub async fn join(&self, after_message_id: i64) -> i64 {
        let ask = pb::DeleteSeparatorRequest {
            conversation_id: self.id.clone(),
            after_message_id,
            request_id: String::new(),
        };
        self.house.messages().delete_separator(ask).await.expect("joins").into_inner().boundary_message_id
    }

    /// Asserts that every promise is kept on this conversation's rows.
    pub async fn verify(&self) -> pb::VerifyConversationResponse {
        let ask = pb::VerifyConversationRequest { conversation_id: self.id.clone() };
        let verified = self.house.operators().verify_conversation(patient(ask)).await.expect("verifies").into_inner();
        assert!(verified.violations.is_empty(), "broken promises: {:#?}", verified.violations);
        verified
    }
}

/// What may take as long as the service allows.
pub fn patient<T>(ask: T) -> Request<T> {
    let mut ask = Request::new(ask);
    ask.set_timeout(Duration::from_secs(DEADLINE_MOST_SECONDS));
    ask
}

/// An append that is being said; await it to send it and unwrap the answer, or [`Append::send`] it.
pub struct Append<'a> {
    house: &'a House,
    ask: pb::AppendMessagesRequest,
}

impl Append<'_> {
    /// With this request id.
    #[must_use]
    pub fn request_id(mut self, id: &str) -> Self {
        self.ask.request_id = id.into();
        self
    }

    /// Only if this is the newest message.
    #[must_use]
    pub fn expecting(mut self, last_message_id: i64) -> Self {
        self.ask.expected_last_message_id = Some(last_message_id);
        self
    }

    /// Sends it.
    pub async fn send(self) -> Result<pb::AppendMessagesResponse, Status> {
        Ok(self.house.messages().append_messages(self.ask).await?.into_inner())
    }
}

impl<'a> IntoFuture for Append<'a> {
    type Output = pb::AppendMessagesResponse;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.send().await.expect("appends") })
    }
}

/// A context that was built.
#[derive(Debug, Clone)]
pub struct Built(pub pb::BuildContextResponse);

/// Alike is what sends the same: what is said of the call before, and of what its cache holds, may differ.
impl PartialEq for Built {
    fn eq(&self, other: &Self) -> bool {
        let sent = |built: &Self| pb::BuildContextResponse {
            prefix_stable_until: 0,
            cache_break: None,
            expected_cached_tokens: 0,
            ..built.0.clone()
        };
        sent(self) == sent(other)
    }
}

impl Built {
    /// What is said, message by message: role and texts.
    pub fn said(&self) -> Vec<(pb::Role, String)> {
        self.0.messages.iter().map(|message| (message.role(), parts_text(&message.parts))).collect()
    }

    /// All texts as one.
    pub fn text(&self) -> String {
        self.said().into_iter().map(|(_, text)| text).collect::<Vec<_>>().join("\n")
    }

    /// How a message is represented, and why.
    pub fn fate(&self, message_id: i64) -> (pb::Representation, pb::Reason) {
        let entry = self.entry(message_id);
        (entry.representation(), entry.reason())
    }

    /// A message's entry in the manifest.
    pub fn entry(&self, message_id: i64) -> &pb::ManifestEntry {
        let held = |entry: &&pb::ManifestEntry| (entry.first_message_id..=entry.last_message_id).contains(&message_id);
        self.0.manifest.iter().find(held).expect("the manifest covers every message")
    }

    /// Asserts that the manifest covers 1 to the newest message, each id once, in order.
    pub fn assert_covers(&self, last_message_id: i64) {
        let mut next = 1;
        for entry in &self.0.manifest {
            assert_eq!(entry.first_message_id, next, "the manifest has a gap or an overlap: {:?}", self.0.manifest);
            assert!(entry.last_message_id >= entry.first_message_id);
            next = entry.last_message_id + 1;
        }
        assert_eq!(next, last_message_id + 1, "the manifest ends early");
        assert_eq!(self.0.last_message_id, last_message_id);
    }
}

fn parts_text(parts: &[pb::Part]) -> String {
    let texts = parts.iter().filter_map(|part| match part.part.as_ref()? {
        Part::Text(part) => Some(part.text.as_str()),
        Part::ToolResult(part) => Some(part.text.as_str()),
        Part::ToolUse(part) => Some(part.input.as_str()),
        Part::Reasoning(part) => Some(part.text.as_str()),
        Part::Media(_) => None,
    });
    texts.collect::<Vec<_>>().join("\n\n")
}
