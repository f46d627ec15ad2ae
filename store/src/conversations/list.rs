//! Lists of conversations. Each kind of list has its own statement, so that every plan PostgreSQL
//! can choose walks the index whose order is nearly the list's, and reads little more than the
//! page.

use anneal_core::caller::{Caller, ConversationId};

use super::conversation::{Conversation, ConversationRow, ConversationStatus};
use crate::{Store, error::StoreError, rows::Micros};

/// Seconds by which `listed_ts`, the time that lists are ordered by in the index, may lag behind
/// the last activity. Appends write the lists' indexes only when `listed_ts` moves. A list reads,
/// beside its page, the conversations that were active within this time of the page's end.
pub(crate) const LISTED_LAG_SECONDS: i32 = 20;

/// Which conversations to list; None means any.
#[derive(Debug, Clone, Default)]
pub struct ConversationFilter {
    /// Only of this agent.
    pub agent_id: Option<String>,
    /// Only of this user.
    pub user_id: Option<String>,
    /// Only with this status.
    pub status: Option<ConversationStatus>,
    /// Only with titles that start with this text.
    pub title_prefix: Option<String>,
    /// Only after this position: activity and id of the last entry.
    pub after: Option<(Micros, ConversationId)>,
    /// Most entries, up to 500.
    pub limit: i64,
}

/// Conversations, newest activity first, without their system prompts.
#[derive(Debug, Clone)]
pub struct ConversationPage {
    /// The entries of the page.
    pub conversations: Vec<Conversation>,
    /// Whether more entries follow.
    pub more: bool,
}

impl Store {
    /// Lists conversations, newest activity first.
    pub async fn list_conversations(
        &self,
        caller: Caller,
        filter: &ConversationFilter,
    ) -> Result<ConversationPage, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        macro_rules! page {
            ($file:literal $(, $whose:expr)*) => {
                sqlx::query_file_as!(
                    ConversationRow,
                    $file,
                    caller.tenant().0,
                    $($whose,)*
                    filter.status.map(ConversationStatus::code),
                    filter.title_prefix,
                    filter.after.map(|(activity, _)| activity.0),
                    filter.after.map(|(_, id)| id.0),
                    filter.limit + 1,
                    LISTED_LAG_SECONDS,
                )
                .fetch_all(&mut *db)
                .await?
            };
        }
        let rows = match (&filter.user_id, &filter.agent_id) {
            (None, None) => page!("sql/list_conversations.sql"),
            (None, Some(agent)) => page!("sql/list_conversations_of_agent.sql", agent),
            (Some(user), None) => page!("sql/list_conversations_of_user.sql", user),
            (Some(user), Some(agent)) => {
                page!("sql/list_conversations_of_user_and_agent.sql", user, agent)
            }
        };
        db.release().await?;
        let more = rows.len() as i64 > filter.limit;
        let rows = rows.into_iter().take(filter.limit.max(0) as usize);
        Ok(ConversationPage {
            conversations: rows.map(Conversation::try_from).collect::<Result<_, _>>()?,
            more,
        })
    }
}
