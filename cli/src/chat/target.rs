//! The conversation to which messages go, and the search for conversations.

use std::time::SystemTime;

use anneal_core::limits::TITLE_BYTES;
use anneal_proto::v1 as pb;
use tonic::{Code, Status};
use uuid::Uuid;

use super::errors::ChatError;
use crate::{
    client::Client,
    columns::grouped,
    conversation_rows,
    find_by_prefix::{
        self, Choice, MAX_SEARCH_PAGES, MatchedField, SEARCH_PAGE, SHORT_ID_CHARACTERS,
    },
    sanitize::sanitize,
    terminal_size,
};

/// How far a search went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SearchExtent {
    /// A conversation matched, or all conversations were examined.
    Complete,
    /// No conversation matched, and there are older ones that were not examined.
    OnlyNewest,
}

/// The owner of the conversations; the model and the system prompt for new conversations and for
/// each turn.
pub(super) struct ConversationOwner {
    pub(super) agent: String,
    pub(super) user: String,
    /// The name of the model in the server's settings; empty: the server chooses.
    pub(super) model: String,
    /// The models that are tried after it, in order.
    pub(super) fallback_models: Vec<String>,
    pub(super) system: Option<String>,
}

/// The conversation to which messages go.
pub(super) enum Target {
    /// A new conversation. The first message creates it, so that no empty conversations remain.
    New {
        title: String,
        /// The request id of the creation, the same for every attempt.
        request_id: String,
    },
    Existing(ConversationRef),
}

/// A conversation that exists.
pub(super) struct ConversationRef {
    pub(super) id: String,
    pub(super) title: String,
}

impl Target {
    /// A conversation that the next message creates.
    pub(super) fn new(title: String) -> Self {
        Self::New {
            title,
            request_id: Uuid::new_v4().to_string(),
        }
    }

    pub(super) fn existing(conversation: &pb::Conversation) -> Self {
        Self::Existing(ConversationRef {
            id: conversation.conversation_id.clone(),
            title: conversation.title.clone(),
        })
    }

    /// The id of the conversation; an error if it does not exist yet.
    pub(super) fn id(&self) -> Result<String, ChatError> {
        match self {
            Self::Existing(existing) => Ok(existing.id.clone()),
            Self::New { .. } => Err(
                "this conversation does not exist yet: your first message creates it"
                    .to_owned()
                    .into(),
            ),
        }
    }

    /// The name that the input line shows (the editor's prompt): the title, else the start of the
    /// id, else `new`.
    pub(super) fn name(&self) -> String {
        let title = match self {
            Self::Existing(existing) => &existing.title,
            Self::New { title, .. } => title,
        };
        match (title.as_str(), self) {
            ("", Self::New { .. }) => "new".to_owned(),
            ("", Self::Existing(existing)) => {
                existing.id.chars().take(SHORT_ID_CHARACTERS).collect()
            }
            (title, _) => sanitize(title),
        }
    }
}

impl ConversationOwner {
    /// The owner's active conversation with the newest activity.
    pub(super) async fn newest(&self, client: &Client) -> Result<Option<pb::Conversation>, Status> {
        let ask = pb::ListConversationsRequest {
            page_size: 1,
            status: pb::ConversationStatus::Active.into(),
            ..self.list_request()
        };
        Ok(client
            .conversations()
            .list_conversations(ask)
            .await?
            .into_inner()
            .conversations
            .pop())
    }

    /// Up to `most` of the owner's newest conversations, and whether there are more. If `most` is
    /// 0, the server's default applies.
    pub(super) async fn newest_page(
        &self,
        client: &Client,
        most: i32,
    ) -> Result<(Vec<pb::Conversation>, bool), Status> {
        let ask = pb::ListConversationsRequest {
            page_size: most,
            ..self.list_request()
        };
        let page = client
            .conversations()
            .list_conversations(ask)
            .await?
            .into_inner();
        Ok((page.conversations, !page.next_page_token.is_empty()))
    }

    /// The conversation whose title or id has this prefix. A complete id finds a conversation of
    /// any owner.
    pub(super) async fn find(
        &self,
        client: &Client,
        prefix: &str,
    ) -> Result<pb::Conversation, ChatError> {
        if let Some(conversation_id) = find_by_prefix::complete_id(prefix) {
            let ask = pb::GetConversationRequest { conversation_id };
            return match client.conversations().get_conversation(ask).await {
                Ok(found) => Ok(found.into_inner()),
                Err(status) if status.code() == Code::NotFound => Err(not_found(prefix)),
                Err(status) => Err(status.into()),
            };
        }
        let (candidates, extent) = self.candidates(client, prefix).await?;
        match find_by_prefix::choose(prefix, MatchedField::TitleOrId, &candidates) {
            Choice::One(conversation) => Ok(conversation.clone()),
            Choice::None if extent == SearchExtent::OnlyNewest => Err(not_found_in_newest(prefix)),
            Choice::None => Err(not_found(prefix)),
            Choice::Several(several) => Err(ambiguous(prefix, &several)),
        }
    }

    /// Conversations that the prefix may mean: the newest page, and older ones whose titles begin
    /// exactly with the prefix. If none of these matches, older pages are added, up to
    /// `MAX_SEARCH_PAGES` in all. They may match by their ids, or by titles in other case.
    async fn candidates(
        &self,
        client: &Client,
        prefix: &str,
    ) -> Result<(Vec<pb::Conversation>, SearchExtent), Status> {
        let (mut candidates, mut page_token) = self.fetch_page(client, "", String::new()).await?;
        if page_token.is_empty() {
            return Ok((candidates, SearchExtent::Complete));
        }
        if prefix.len() <= TITLE_BYTES {
            let (exact, _) = self.fetch_page(client, prefix, String::new()).await?;
            let is_new = |found: &pb::Conversation| {
                candidates
                    .iter()
                    .all(|one| one.conversation_id != found.conversation_id)
            };
            let older: Vec<_> = exact.into_iter().filter(is_new).collect();
            candidates.extend(older);
        }
        if find_by_prefix::choose(prefix, MatchedField::TitleOrId, &candidates) != Choice::None {
            return Ok((candidates, SearchExtent::Complete));
        }
        for _ in 1..MAX_SEARCH_PAGES {
            let (older, next_token) = self.fetch_page(client, "", page_token).await?;
            candidates.extend(older);
            page_token = next_token;
            if page_token.is_empty() {
                return Ok((candidates, SearchExtent::Complete));
            }
        }
        Ok((candidates, SearchExtent::OnlyNewest))
    }

    /// A page of the conversations whose titles begin with `title_prefix`, and the token of the
    /// next page.
    async fn fetch_page(
        &self,
        client: &Client,
        title_prefix: &str,
        page_token: String,
    ) -> Result<(Vec<pb::Conversation>, String), Status> {
        let ask = pb::ListConversationsRequest {
            page_size: SEARCH_PAGE,
            page_token,
            title_prefix: title_prefix.to_owned(),
            ..self.list_request()
        };
        let page = client
            .conversations()
            .list_conversations(ask)
            .await?
            .into_inner();
        Ok((page.conversations, page.next_page_token))
    }

    fn list_request(&self) -> pb::ListConversationsRequest {
        pb::ListConversationsRequest {
            agent_id: self.agent.clone(),
            user_id: self.user.clone(),
            ..Default::default()
        }
    }

    /// Creates a conversation.
    pub(super) async fn create(
        &self,
        client: &Client,
        title: &str,
        request_id: &str,
    ) -> Result<pb::Conversation, Status> {
        let ask = pb::CreateConversationRequest {
            request_id: request_id.to_owned(),
            agent_id: self.agent.clone(),
            user_id: self.user.clone(),
            title: title.to_owned(),
            system_prompt: self.system.clone().unwrap_or_default(),
            model: self.model.clone(),
            ..Default::default()
        };
        Ok(client
            .conversations()
            .create_conversation(ask)
            .await?
            .into_inner())
    }
}

fn not_found(prefix: &str) -> ChatError {
    format!(
        "no title and no id begins with \"{}\"; /list shows the conversations",
        sanitize(prefix)
    )
    .into()
}

fn not_found_in_newest(prefix: &str) -> ChatError {
    let examined = grouped(find_by_prefix::MAX_SEARCHED);
    let prefix = sanitize(prefix);
    format!("no title begins exactly with \"{prefix}\"; of the newest {examined} conversations, no title begins with it in other case, and no id")
        .into()
}

fn ambiguous(prefix: &str, several: &[&pb::Conversation]) -> ChatError {
    let rows =
        conversation_rows::match_rows(several, SystemTime::now(), terminal_size::size().columns);
    format!(
        "{} conversations begin with \"{}\":\n{rows}",
        several.len(),
        sanitize(prefix)
    )
    .into()
}
