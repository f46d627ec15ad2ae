//! A conversation in a test: appends, reads, contexts, checks.

use std::{future::IntoFuture, pin::Pin, time::Duration};

use anneal_core::limits::DEADLINE_MAX_SECONDS;
use pb::part::Part;
use tonic::{Request, Status};

use crate::{TestApp, message, pb, prose, result, status_details, text};

/// A user message of one text.
pub fn user(content: &str) -> pb::NewMessage {
    text(pb::Role::User, content)
}

/// An assistant message of one text.
pub fn assistant(content: &str) -> pb::NewMessage {
    text(pb::Role::Assistant, content)
}

/// An assistant message with one tool call.
pub fn call(id: &str, input: &str) -> pb::NewMessage {
    let part = pb::ToolUsePart {
        id: id.into(),
        name: "look".into(),
        input: input.into(),
    };
    message(pb::Role::Assistant, vec![Part::ToolUse(part)])
}

/// A user message with one picture.
pub fn media(uri: &str) -> pb::NewMessage {
    let part = pb::MediaPart {
        uri: uri.into(),
        media_type: "image/png".into(),
        size_bytes: 0,
        tokens: 0,
    };
    message(pb::Role::User, vec![Part::Media(part)])
}

/// A conversation of an app.
#[derive(Clone)]
pub struct TestConversation<'a> {
    /// The app whose server is called.
    pub app: &'a TestApp,
    /// The conversation's id.
    pub id: String,
}

impl TestApp {
    /// Creates an empty conversation.
    pub async fn conversation(&self) -> TestConversation<'_> {
        self.conversation_with(pb::CreateConversationRequest::default())
            .await
    }

    /// Creates an empty conversation with this policy.
    pub async fn conversation_with_policy(&self, policy: pb::Policy) -> TestConversation<'_> {
        self.conversation_with(pb::CreateConversationRequest {
            policy: Some(policy),
            ..Default::default()
        })
        .await
    }

    /// Creates a conversation with this request.
    pub async fn conversation_with(
        &self,
        ask: pb::CreateConversationRequest,
    ) -> TestConversation<'_> {
        let made = self
            .conversations()
            .create_conversation(ask)
            .await
            .expect("the conversation is created")
            .into_inner();
        TestConversation::new(self, made.conversation_id)
    }

    /// Creates a conversation of twelve turns, each with a tool result of about 1,100 tokens, and
    /// runs all due jobs, so that all messages are counted.
    pub async fn conversation_with_tools(&self) -> TestConversation<'_> {
        let conversation = self
            .conversation_with_policy(pb::Policy {
                max_message_count: Some(0),
                ..Default::default()
            })
            .await;
        for n in 0..12 {
            let id = format!("c{n}");
            let (asked, found) = (user(&prose(n * 60, 2)), result(&id, &prose(n * 60, 50)));
            conversation
                .append_all(vec![asked, call(&id, "{}"), found, assistant("Found.")])
                .await;
        }
        self.run_jobs_until_idle().await;
        conversation
    }

    /// The existing conversation with this id.
    pub fn conversation_by_id(&self, id: &str) -> TestConversation<'_> {
        TestConversation::new(self, id.to_owned())
    }
}

impl<'a> TestConversation<'a> {
    pub(crate) fn new(app: &'a TestApp, id: String) -> Self {
        Self { app, id }
    }

    /// Appends a user message. [`AppendRequest`] has further options.
    pub fn append(&self, content: &str) -> AppendRequest<'a> {
        self.append_all(vec![user(content)])
    }

    /// Appends messages.
    pub fn append_all(&self, messages: Vec<pb::NewMessage>) -> AppendRequest<'a> {
        let ask = pb::AppendMessagesRequest {
            conversation_id: self.id.clone(),
            messages,
            ..Default::default()
        };
        AppendRequest { app: self.app, ask }
    }

    /// Appends a turn: a user message and the model's answer.
    pub async fn turn(&self, asked: &str, answered: &str) -> pb::AppendMessagesResponse {
        self.append_all(vec![user(asked), assistant(answered)])
            .await
    }

    /// Appends `count` short turns.
    pub async fn turns(&self, count: usize) {
        for _ in 0..count {
            self.turn("go on", "done").await;
        }
    }

    /// All messages, in order.
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
            let page = self
                .app
                .messages()
                .list_messages(with_longest_deadline(ask))
                .await
                .expect("the list is returned")
                .into_inner();
            messages.extend(page.messages);
            if page.next_page_token.is_empty() {
                return messages;
            }
            page_token = page.next_page_token;
        }
    }

    /// Role and text of each stored message.
    pub async fn texts_by_role(&self) -> Vec<(pb::Role, String)> {
        self.messages()
            .await
            .iter()
            .map(|message| (message.role(), parts_text(&message.parts)))
            .collect()
    }

    /// GetConversation of this conversation.
    pub async fn conversation(&self) -> pb::Conversation {
        let ask = pb::GetConversationRequest {
            conversation_id: self.id.clone(),
        };
        self.app
            .conversations()
            .get_conversation(ask)
            .await
            .expect("the conversation exists")
            .into_inner()
    }

    /// BuildContext without options. If no message is behind the boundary, as a dry run: another
    /// call would be refused.
    pub async fn context(&self) -> Built {
        let built = match self.build(pb::BuildContextRequest::default()).await {
            Err(status) if status_details(&status).reason == "CONTEXT_EMPTY" => {
                let dry_run = pb::BuildContextRequest {
                    dry_run: true,
                    ..Default::default()
                };
                self.build(dry_run).await
            }
            built => built,
        };
        built.expect("the context is built")
    }

    /// BuildContext with a budget in tokens.
    pub async fn context_within(&self, budget: u64) -> Result<Built, Status> {
        self.build(pb::BuildContextRequest {
            budget_tokens: Some(budget),
            ..Default::default()
        })
        .await
    }

    /// BuildContext with this request; the conversation's id is filled in.
    pub async fn build(&self, ask: pb::BuildContextRequest) -> Result<Built, Status> {
        let ask = pb::BuildContextRequest {
            conversation_id: self.id.clone(),
            ..ask
        };
        Ok(Built(
            self.app.contexts().build_context(ask).await?.into_inner(),
        ))
    }

    /// The newest 500 checkpoints, newest boundary first.
    pub async fn checkpoints(&self) -> Vec<pb::Checkpoint> {
        let ask = pb::ListCheckpointsRequest {
            conversation_id: self.id.clone(),
            page_size: 500,
            ..Default::default()
        };
        self.app
            .contexts()
            .list_checkpoints(ask)
            .await
            .expect("the list is returned")
            .into_inner()
            .checkpoints
    }

    /// Inserts a separator after the newest message.
    pub async fn insert_separator(&self) -> pb::Separator {
        let ask = pb::InsertSeparatorRequest {
            conversation_id: self.id.clone(),
            ..Default::default()
        };
        self.app
            .messages()
            .insert_separator(ask)
            .await
            .expect("the separator is inserted")
            .into_inner()
    }

    /// Deletes a separator. Returns the id of the message after which contexts start then.
    pub async fn delete_separator(&self, after_message_id: i64) -> i64 {
        let ask = pb::DeleteSeparatorRequest {
            conversation_id: self.id.clone(),
            after_message_id,
            request_id: String::new(),
        };
        self.app
            .messages()
            .delete_separator(ask)
            .await
            .expect("the separator is deleted")
            .into_inner()
            .boundary_message_id
    }

    /// Calls VerifyConversation and asserts that it finds no violation.
    pub async fn verify(&self) -> pb::VerifyConversationResponse {
        let ask = pb::VerifyConversationRequest {
            conversation_id: self.id.clone(),
        };
        let verified = self
            .app
            .operators()
            .verify_conversation(with_longest_deadline(ask))
            .await
            .expect("the verification succeeds")
            .into_inner();
        assert!(
            verified.violations.is_empty(),
            "VerifyConversation reports violations: {:#?}",
            verified.violations
        );
        verified
    }
}

/// A request with the longest deadline that the service allows.
pub fn with_longest_deadline<T>(ask: T) -> Request<T> {
    let mut ask = Request::new(ask);
    ask.set_timeout(Duration::from_secs(DEADLINE_MAX_SECONDS));
    ask
}

/// An append to be sent. `.await` sends it and panics if it fails. [`AppendRequest::send`]
/// returns a result instead.
pub struct AppendRequest<'a> {
    app: &'a TestApp,
    ask: pb::AppendMessagesRequest,
}

impl AppendRequest<'_> {
    /// Sets the request id.
    #[must_use]
    pub fn request_id(mut self, id: &str) -> Self {
        self.ask.request_id = id.into();
        self
    }

    /// Appends only if this is the newest message.
    #[must_use]
    pub fn expecting(mut self, last_message_id: i64) -> Self {
        self.ask.expected_last_message_id = Some(last_message_id);
        self
    }

    /// Sends the append.
    pub async fn send(self) -> Result<pb::AppendMessagesResponse, Status> {
        Ok(self
            .app
            .messages()
            .append_messages(self.ask)
            .await?
            .into_inner())
    }
}

impl<'a> IntoFuture for AppendRequest<'a> {
    type Output = pb::AppendMessagesResponse;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.send().await.expect("the append succeeds") })
    }
}

/// A built context.
#[derive(Debug, Clone)]
pub struct Built(pub pb::BuildContextResponse);

/// Two contexts are equal if all their fields are equal except those about the previous call and
/// its cache, which the comparison resets.
impl PartialEq for Built {
    fn eq(&self, other: &Self) -> bool {
        let without_cache_fields = |built: &Self| pb::BuildContextResponse {
            prefix_stable_until: 0,
            cache_break: None,
            expected_cached_tokens: 0,
            ..built.0.clone()
        };
        without_cache_fields(self) == without_cache_fields(other)
    }
}

impl Built {
    /// Role and text of each message of the context.
    pub fn texts_by_role(&self) -> Vec<(pb::Role, String)> {
        self.0
            .messages
            .iter()
            .map(|message| (message.role(), parts_text(&message.parts)))
            .collect()
    }

    /// All texts of the context, joined.
    pub fn text(&self) -> String {
        self.texts_by_role()
            .into_iter()
            .map(|(_, text)| text)
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// How a message is represented, and why.
    pub fn representation(&self, message_id: i64) -> (pb::Representation, pb::Reason) {
        let entry = self.entry(message_id);
        (entry.representation(), entry.reason())
    }

    /// A message's entry in the manifest.
    pub fn entry(&self, message_id: i64) -> &pb::ManifestEntry {
        let covers = |entry: &&pb::ManifestEntry| {
            (entry.first_message_id..=entry.last_message_id).contains(&message_id)
        };
        self.0
            .manifest
            .iter()
            .find(covers)
            .expect("the manifest covers every message")
    }

    /// Asserts that the manifest covers each id from 1 to the newest message once, in order.
    pub fn assert_covers(&self, last_message_id: i64) {
        let mut next = 1;
        for entry in &self.0.manifest {
            assert_eq!(
                entry.first_message_id, next,
                "the manifest has a gap or an overlap: {:?}",
                self.0.manifest
            );
            assert!(entry.last_message_id >= entry.first_message_id);
            next = entry.last_message_id + 1;
        }
        assert_eq!(next, last_message_id + 1, "the manifest ends early");
        assert_eq!(self.0.last_message_id, last_message_id);
    }
}

/// The texts of parts, tool inputs included, joined by blank lines.
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
