//! Lists of conversations. Each kind of list has its own statement and its own index. The order of
//! the index is nearly that of the list, so the statement reads little more than the page, unless
//! a status or a title is asked for that few conversations have.

use anneal_core::caller::{Bound, Caller, ConversationId};

use super::conversation::{Conversation, ConversationRow, ConversationStatus};
use crate::{Store, error::StoreError, rows::Micros};

/// The longest lag, in seconds, of the column `listed_ts` behind the last activity with which lists
/// are right. The indexes of the lists are ordered by `listed_ts`, and an append changes it, and so
/// the indexes, only after [`LISTING_STEP_SECONDS`]. In return, a list reads some conversations
/// beyond its page: those that were active within this time of the page's end.
const LISTED_LAG_SECONDS: i32 = 120;

/// Seconds after which an append changes `listed_ts`. They are fewer than [`LISTED_LAG_SECONDS`],
/// because servers of version 0.2 may run beside this one during an upgrade, and their lists are
/// right with a lag of up to 20 seconds only
/// (`docs/decisions/0030-lists-reach-two-minutes-back.md`).
pub(crate) const LISTING_STEP_SECONDS: i32 = 20;

/// Among how many of the newest conversations pinned ones are looked for. There is no index of
/// pinned conversations: one on `ai_conversation` would be built under a lock for which appends
/// wait.
const PINNED_SCAN: i64 = 10_000;

/// Most pinned conversations that are listed.
const PINNED_LIMIT: i64 = 50;

/// Which conversations to list; None means any.
#[derive(Debug, Clone, Default)]
pub struct ConversationFilter {
    /// Only conversations of this agent.
    pub agent_id: Option<String>,
    /// Only conversations of this user.
    pub user_id: Option<String>,
    /// Only conversations with this status.
    pub status: Option<ConversationStatus>,
    /// Only conversations whose title starts with this text.
    pub title_prefix: Option<String>,
    /// Only conversations whose title contains this text, in upper or lower case.
    pub title_contains: Option<String>,
    /// Only conversations after this position: last activity and id of the previous page's last
    /// entry.
    pub after: Option<(Micros, ConversationId)>,
    /// Most entries of the page, up to 500.
    pub limit: i64,
}

/// A page of conversations, newest first (by activity, forks by creation), without their system
/// prompts.
#[derive(Debug, Clone)]
pub struct ConversationPage {
    /// The entries of the page.
    pub conversations: Vec<Conversation>,
    /// Whether more entries follow.
    pub more: bool,
}

impl ConversationPage {
    /// The page of the first `limit` rows. More rows mean that more entries follow.
    pub(crate) fn of(rows: Vec<ConversationRow>, limit: i64) -> Result<Self, StoreError> {
        let more = rows.len() as i64 > limit;
        let rows = rows.into_iter().take(limit.max(0) as usize);
        Ok(Self {
            conversations: rows.map(Conversation::try_from).collect::<Result<_, _>>()?,
            more,
        })
    }
}

impl Store {
    /// Lists conversations, newest activity first. To a bound caller, only its own are visible. The
    /// list of a bound user or agent is read by that id, so that the statement has an index for it.
    pub async fn list_conversations(
        &self,
        caller: Caller,
        filter: &ConversationFilter,
    ) -> Result<ConversationPage, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        // The statements differ in the ids that follow the tenant: `$whose`.
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
                    filter.title_contains,
                )
                .fetch_all(&mut *db)
                .await?
            };
        }
        let (bound_user, bound_agent) = match caller.bound() {
            Some(Bound::User(user)) => (Some(user.as_str()), None),
            Some(Bound::Agent(agent)) => (None, Some(agent.as_str())),
            Some(Bound::Conversation(_)) | None => (None, None),
        };
        let user = filter.user_id.as_deref().or(bound_user);
        let agent = filter.agent_id.as_deref().or(bound_agent);
        let rows = match (user, agent) {
            (None, None) => page!("sql/list_conversations.sql"),
            (None, Some(agent)) => page!("sql/list_conversations_of_agent.sql", agent),
            (Some(user), None) => page!("sql/list_conversations_of_user.sql", user),
            (Some(user), Some(agent)) => {
                page!("sql/list_conversations_of_user_and_agent.sql", user, agent)
            }
        };
        db.release().await?;
        ConversationPage::of(rows, filter.limit)
    }

    /// Lists the pinned conversations among the newest [`PINNED_SCAN`] of the tenant, or of the
    /// user that the filter names: at most [`PINNED_LIMIT`], newest activity first. The filter's
    /// position and limit do not count.
    pub async fn list_pinned_conversations(
        &self,
        caller: Caller,
        filter: &ConversationFilter,
    ) -> Result<ConversationPage, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        macro_rules! pinned {
            ($file:literal $(, $whose:expr)*) => {
                sqlx::query_file_as!(
                    ConversationRow,
                    $file,
                    caller.tenant().0,
                    $($whose,)*
                    filter.agent_id,
                    filter.status.map(ConversationStatus::code),
                    filter.title_prefix,
                    filter.title_contains,
                    PINNED_SCAN,
                    PINNED_LIMIT,
                )
                .fetch_all(&mut *db)
                .await?
            };
        }
        let rows = match &filter.user_id {
            None => pinned!("sql/list_pinned_conversations.sql"),
            Some(user) => pinned!("sql/list_pinned_conversations_of_user.sql", user),
        };
        db.release().await?;
        ConversationPage::of(rows, PINNED_LIMIT)
    }
}
