//! Lists of conversations. Each kind of list has its own statement and its own index. The order of
//! the index is nearly that of the list, so the statement reads little more than the page, unless
//! a status or the beginning of a title is asked for that few conversations have. Texts in titles
//! are looked for among a limited number of conversations.

use anneal_core::caller::{Bound, Caller, ConversationId};

use super::conversation::{Conversation, ConversationRow, ConversationStatus};
use crate::{Store, connection::BoundedConnection, error::StoreError, rows::Micros};

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
    /// Whether entries that were last active before this time may follow, though none was looked
    /// for among them. None: the page is complete.
    pub continues_before: Option<Micros>,
}

impl ConversationPage {
    /// The page of the first `limit` rows. More rows mean that more entries follow.
    pub(crate) fn of(rows: Vec<ConversationRow>, limit: i64) -> Result<Self, StoreError> {
        let more = rows.len() as i64 > limit;
        let rows = rows.into_iter().take(limit.max(0) as usize);
        Ok(Self {
            conversations: rows.map(Conversation::try_from).collect::<Result<_, _>>()?,
            more,
            continues_before: None,
        })
    }
}

/// The owner of the conversations that a list has. Each kind has its own statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose<'a> {
    /// The tenant's.
    Tenant,
    /// Those of this user.
    User(&'a str),
    /// Those of this agent.
    Agent(&'a str),
    /// Those of this user with this agent.
    UserAndAgent(&'a str, &'a str),
    /// The one that the caller is bound to.
    Bound(ConversationId),
}

impl<'a> Whose<'a> {
    /// The owner of the conversations that this caller gets. To a bound caller only its own are visible, so they are
    /// read by its user, agent or conversation: without that, the statement would read the others,
    /// too, which the policies leave out. None: the filter asks for others.
    fn of(caller: &'a Caller, filter: &'a ConversationFilter) -> Option<Self> {
        let (bound_user, bound_agent) = match caller.bound() {
            Some(Bound::Conversation(id)) => return Some(Self::Bound(*id)),
            Some(Bound::User(user)) => (Some(user.as_str()), None),
            Some(Bound::Agent(agent)) => (None, Some(agent.as_str())),
            None => (None, None),
        };
        let user = narrow(filter.user_id.as_deref(), bound_user).ok()?;
        let agent = narrow(filter.agent_id.as_deref(), bound_agent).ok()?;
        Some(match (user, agent) {
            (None, None) => Self::Tenant,
            (Some(user), None) => Self::User(user),
            (None, Some(agent)) => Self::Agent(agent),
            (Some(user), Some(agent)) => Self::UserAndAgent(user, agent),
        })
    }
}

/// The filter and the binding name different ids, so that nothing can be listed.
struct Contradiction;

/// The id that both the filter and the binding allow; None: any.
fn narrow<'a>(
    filter: Option<&'a str>,
    bound: Option<&'a str>,
) -> Result<Option<&'a str>, Contradiction> {
    match (filter, bound) {
        (Some(filter), Some(bound)) if filter != bound => Err(Contradiction),
        (filter, bound) => Ok(filter.or(bound)),
    }
}

impl Store {
    /// Lists conversations, newest activity first. Titles that contain a text are looked for among
    /// the next 10,000 conversations.
    pub async fn list_conversations(
        &self,
        caller: Caller,
        filter: &ConversationFilter,
    ) -> Result<ConversationPage, StoreError> {
        let Some(whose) = Whose::of(&caller, filter) else {
            return ConversationPage::of(Vec::new(), filter.limit);
        };
        let mut db = self.reads.checkout(caller).await?;
        let (rows, oldest) = match &filter.title_contains {
            Some(text) => search_titles(&mut db, caller, whose, (filter, text)).await?,
            None => (list_page(&mut db, caller, whose, filter).await?, None),
        };
        db.release().await?;
        let page = ConversationPage::of(rows, filter.limit)?;
        Ok(ConversationPage {
            continues_before: oldest.filter(|_| !page.more),
            ..page
        })
    }

    /// Lists the pinned conversations among the newest 10,000 of the tenant, or of the user
    /// or the agent that the filter or the caller's binding names: at most 50, newest
    /// activity first. The filter's position and limit do not count.
    pub async fn list_pinned_conversations(
        &self,
        caller: Caller,
        filter: &ConversationFilter,
    ) -> Result<ConversationPage, StoreError> {
        let filter = &ConversationFilter {
            after: None,
            ..filter.clone()
        };
        let Some(whose) = Whose::of(&caller, filter) else {
            return ConversationPage::of(Vec::new(), PINNED_LIMIT);
        };
        let mut db = self.reads.checkout(caller).await?;
        macro_rules! pinned {
            ($file:literal $(, $whose:expr)*) => {
                sqlx::query_file_as!(
                    ConversationRow,
                    $file,
                    caller.tenant().0,
                    $($whose,)*
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
        let rows = match whose {
            Whose::Tenant => pinned!("sql/list_pinned_conversations.sql"),
            Whose::Agent(agent) => pinned!("sql/list_pinned_conversations_of_agent.sql", agent),
            Whose::User(user) => {
                pinned!(
                    "sql/list_pinned_conversations_of_user.sql",
                    user,
                    None::<&str>
                )
            }
            Whose::UserAndAgent(user, agent) => {
                pinned!(
                    "sql/list_pinned_conversations_of_user.sql",
                    user,
                    Some(agent)
                )
            }
            Whose::Bound(id) => {
                find_bound_conversation(&mut db, caller, id, filter, Some(true)).await?
            }
        };
        db.release().await?;
        ConversationPage::of(rows, PINNED_LIMIT)
    }
}

/// Lists conversations without looking for a text in their titles.
async fn list_page(
    db: &mut BoundedConnection,
    caller: Caller,
    whose: Whose<'_>,
    filter: &ConversationFilter,
) -> Result<Vec<ConversationRow>, StoreError> {
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
            )
            .fetch_all(db)
            .await?
        };
    }
    Ok(match whose {
        Whose::Tenant => page!("sql/list_conversations.sql"),
        Whose::Agent(agent) => page!("sql/list_conversations_of_agent.sql", agent),
        Whose::User(user) => page!("sql/list_conversations_of_user.sql", user),
        Whose::UserAndAgent(user, agent) => {
            page!("sql/list_conversations_of_user_and_agent.sql", user, agent)
        }
        Whose::Bound(id) => find_bound_conversation(db, caller, id, filter, None).await?,
    })
}

/// Lists conversations whose titles contain the text. Titles have no index for that: looks at the
/// next 10,000 conversations, and at some within the lag of `listed_ts`. Returns also the time
/// before which it has not looked; None: it has looked at all.
async fn search_titles(
    db: &mut BoundedConnection,
    caller: Caller,
    whose: Whose<'_>,
    (filter, text): (&ConversationFilter, &str),
) -> Result<(Vec<ConversationRow>, Option<Micros>), StoreError> {
    let (activity, id) = filter.after.unzip();
    macro_rules! search {
        ($end:literal, $page:literal $(, $whose:expr)*) => {{
            let oldest = sqlx::query_file_scalar!(
                $end,
                caller.tenant().0,
                $($whose,)*
                activity.map(|activity| activity.0),
                id.map(|id| id.0),
            )
            .fetch_optional(&mut *db)
            .await?;
            let rows = sqlx::query_file_as!(
                ConversationRow,
                $page,
                caller.tenant().0,
                $($whose,)*
                filter.status.map(ConversationStatus::code),
                filter.title_prefix,
                activity.map(|activity| activity.0),
                id.map(|id| id.0),
                filter.limit + 1,
                LISTED_LAG_SECONDS,
                text,
                oldest,
            )
            .fetch_all(db)
            .await?;
            (rows, oldest.map(Micros))
        }};
    }
    Ok(match whose {
        Whose::Tenant => search!("sql/find_title_scan_end.sql", "sql/search_titles.sql"),
        Whose::Agent(agent) => search!(
            "sql/find_title_scan_end_of_agent.sql",
            "sql/search_titles_of_agent.sql",
            agent
        ),
        Whose::User(user) => search!(
            "sql/find_title_scan_end_of_user.sql",
            "sql/search_titles_of_user.sql",
            user
        ),
        Whose::UserAndAgent(user, agent) => search!(
            "sql/find_title_scan_end_of_user_and_agent.sql",
            "sql/search_titles_of_user_and_agent.sql",
            user,
            agent
        ),
        Whose::Bound(id) => {
            let rows = find_bound_conversation(db, caller, id, filter, None).await?;
            (rows, None)
        }
    })
}

/// Finds the conversation that the caller is bound to, if the list of this filter has it. `pinned`:
/// whether it must be pinned or must not; None: either.
async fn find_bound_conversation(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    filter: &ConversationFilter,
    pinned: Option<bool>,
) -> Result<Vec<ConversationRow>, StoreError> {
    let rows = sqlx::query_file_as!(
        ConversationRow,
        "sql/list_bound_conversation.sql",
        caller.tenant().0,
        id.0,
        filter.user_id,
        filter.agent_id,
        filter.status.map(ConversationStatus::code),
        filter.title_prefix,
        filter.title_contains,
        pinned,
        filter.after.map(|(activity, _)| activity.0),
        filter.after.map(|(_, id)| id.0),
    )
    .fetch_all(db)
    .await?;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use anneal_core::caller::{BoundId, TenantId};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_bound_caller_gets_its_own_by_an_id_and_nothing_of_others() {
        let id = |text| BoundId::new(text).expect("an id");
        let of = |bound: Option<Bound>, user: &str, agent: &str| {
            let caller = Caller::of(TenantId::DEFAULT);
            let caller = bound.map_or(caller, |bound| caller.bound_to(bound));
            let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            let filter = ConversationFilter {
                user_id: some(user),
                agent_id: some(agent),
                ..ConversationFilter::default()
            };
            Whose::of(&caller, &filter).map(|whose| format!("{whose:?}"))
        };
        let some = |whose: Whose<'_>| Some(format!("{whose:?}"));
        let anna = Some(Bound::User(id("anna")));
        let desk = Some(Bound::Agent(id("desk")));
        assert_eq!(of(None, "", ""), some(Whose::Tenant));
        assert_eq!(of(None, "anna", ""), some(Whose::User("anna")));
        for user in ["", "anna"] {
            assert_eq!(of(anna, user, ""), some(Whose::User("anna")));
            let both = Whose::UserAndAgent("anna", "desk");
            assert_eq!(of(anna, user, "desk"), some(both));
        }
        assert_eq!(of(desk, "", ""), some(Whose::Agent("desk")));
        assert_eq!(of(anna, "bert", ""), None);
        assert_eq!(of(desk, "", "other"), None);
        let own = ConversationId(Uuid::from_u128(7));
        assert_eq!(
            of(Some(Bound::Conversation(own)), "bert", ""),
            some(Whose::Bound(own))
        );
    }
}
