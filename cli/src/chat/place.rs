//! Where the chat is, and which other conversations there are.

use std::time::SystemTime;

use anneal_core::limits::TITLE_BYTES;
use anneal_proto::v1 as pb;
use tonic::{Code, Status};
use uuid::Uuid;

use super::{
    choice::{self, Choice},
    columns::grouped,
    list,
    trouble::Trouble,
};
use crate::{client::Client, paint::harmless};

/// Conversations that one call lists at most.
const PAGE: i32 = 500;
/// Pages that are gone through at most: the newest 10,000.
const PAGES: usize = 20;
/// Candidates that are shown where a prefix means several.
const CANDIDATES: usize = 10;

/// How far a search has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Nothing else is there that could be meant.
    All,
    /// There are older ones that were not looked at.
    Newest,
}

/// Whose conversations these are, and how new ones start.
pub(super) struct Owner {
    pub(super) agent: String,
    pub(super) user: String,
    /// The model by its name in the server's settings; empty: the server chooses.
    pub(super) model: String,
    pub(super) system: Option<String>,
}

/// Where words go.
pub(super) enum Place {
    /// To a new conversation: the first words make it, so that none is left behind empty.
    Unbegun {
        title: String,
        /// Makes it once, however often that is tried.
        request_id: String,
    },
    /// To this one.
    Begun(Here),
}

/// A conversation that exists.
pub(super) struct Here {
    pub(super) id: String,
    pub(super) title: String,
}

impl Place {
    /// A conversation that begins with the next words.
    pub(super) fn unbegun(title: String) -> Self {
        Self::Unbegun { title, request_id: Uuid::new_v4().to_string() }
    }

    pub(super) fn begun(conversation: &pb::Conversation) -> Self {
        Self::Begun(Here { id: conversation.conversation_id.clone(), title: conversation.title.clone() })
    }

    /// The conversation's id; refused where there is none yet.
    pub(super) fn id(&self) -> Result<String, Trouble> {
        match self {
            Self::Begun(here) => Ok(here.id.clone()),
            Self::Unbegun { .. } => {
                Err("nothing was said here yet: the conversation begins with your first words".to_owned().into())
            }
        }
    }

    /// What the prompt shows.
    pub(super) fn name(&self) -> String {
        let title = match self {
            Self::Begun(here) => &here.title,
            Self::Unbegun { title, .. } => title,
        };
        match (title.as_str(), self) {
            ("", Self::Unbegun { .. }) => "new".to_owned(),
            ("", Self::Begun(here)) => here.id.chars().take(8).collect(),
            (title, _) => harmless(title),
        }
    }
}

impl Owner {
    /// The conversation with the newest activity, of those in use.
    pub(super) async fn newest(&self, client: &Client) -> Result<Option<pb::Conversation>, Status> {
        let ask =
            pb::ListConversationsRequest { page_size: 1, status: pb::ConversationStatus::Active.into(), ..self.all() };
        Ok(client.conversations().list_conversations(ask).await?.into_inner().conversations.pop())
    }

    /// The newest so many, and whether there are more.
    pub(super) async fn newest_of(&self, client: &Client, most: i32) -> Result<(Vec<pb::Conversation>, bool), Status> {
        let ask = pb::ListConversationsRequest { page_size: most, ..self.all() };
        let page = client.conversations().list_conversations(ask).await?.into_inner();
        Ok((page.conversations, !page.next_page_token.is_empty()))
    }

    /// The one conversation that the prefix means; a whole id names anybody's.
    pub(super) async fn find(&self, client: &Client, prefix: &str) -> Result<pb::Conversation, Trouble> {
        if choice::is_whole_id(prefix) {
            let ask = pb::GetConversationRequest { conversation_id: prefix.to_lowercase() };
            return match client.conversations().get_conversation(ask).await {
                Ok(found) => Ok(found.into_inner()),
                Err(status) if status.code() == Code::NotFound => Err(none(prefix)),
                Err(status) => Err(status.into()),
            };
        }
        let (among, reach) = self.candidates(client, prefix).await?;
        match choice::choose(prefix, &among) {
            Choice::One(conversation) => Ok(conversation.clone()),
            Choice::None if reach == Reach::Newest => Err(none_of_the_newest(prefix)),
            Choice::None => Err(none(prefix)),
            Choice::Several(several) => Err(several_begin_so(prefix, &several)),
        }
    }

    /// Conversations that the prefix may mean: the newest page, and of older ones those whose titles begin exactly so. Only where
    /// none of these is meant the older ones are gone through, for ids and for titles in other letters.
    async fn candidates(&self, client: &Client, prefix: &str) -> Result<(Vec<pb::Conversation>, Reach), Status> {
        let (mut among, mut next) = self.page(client, "", String::new()).await?;
        if next.is_empty() {
            return Ok((among, Reach::All));
        }
        if prefix.len() <= TITLE_BYTES {
            let (exact, _) = self.page(client, prefix, String::new()).await?;
            let fresh = |found: &pb::Conversation| among.iter().all(|one| one.conversation_id != found.conversation_id);
            let older: Vec<_> = exact.into_iter().filter(fresh).collect();
            among.extend(older);
        }
        if choice::choose(prefix, &among) != Choice::None {
            return Ok((among, Reach::All));
        }
        for _ in 1..PAGES {
            let (older, after) = self.page(client, "", next).await?;
            among.extend(older);
            next = after;
            if next.is_empty() {
                return Ok((among, Reach::All));
            }
        }
        Ok((among, Reach::Newest))
    }

    /// A page of those whose titles begin so, and where the next one begins.
    async fn page(
        &self,
        client: &Client,
        title: &str,
        page_token: String,
    ) -> Result<(Vec<pb::Conversation>, String), Status> {
        let title_prefix = title.to_owned();
        let ask = pb::ListConversationsRequest { page_size: PAGE, page_token, title_prefix, ..self.all() };
        let page = client.conversations().list_conversations(ask).await?.into_inner();
        Ok((page.conversations, page.next_page_token))
    }

    fn all(&self) -> pb::ListConversationsRequest {
        pb::ListConversationsRequest { agent_id: self.agent.clone(), user_id: self.user.clone(), ..Default::default() }
    }

    /// Makes the conversation that the first words begin.
    pub(super) async fn begin(
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
        Ok(client.conversations().create_conversation(ask).await?.into_inner())
    }
}

fn none(prefix: &str) -> Trouble {
    format!("no title and no id begins with \"{}\"; /list shows what there is", harmless(prefix)).into()
}

fn none_of_the_newest(prefix: &str) -> Trouble {
    let looked = grouped(PAGES as u64 * u64::from(PAGE.unsigned_abs()));
    let prefix = harmless(prefix);
    format!("no title begins with exactly \"{prefix}\", and none of the newest {looked} in other letters or by its id")
        .into()
}

fn several_begin_so(prefix: &str, several: &[&pb::Conversation]) -> Trouble {
    let shown: Vec<pb::Conversation> = several.iter().take(CANDIDATES).map(|found| (*found).clone()).collect();
    let rows = list::rows(&shown, None, SystemTime::now(), super::screen::size().0);
    let more = match several.len().saturating_sub(CANDIDATES) {
        0 => String::new(),
        more => format!("  … and {more} more\n"),
    };
    format!("{} conversations begin with \"{}\":\n{rows}{more}", several.len(), harmless(prefix)).into()
}
