//! The list of conversations, and the question before a deletion.

use askama::Template;

use crate::{
    format::{self, Time, Tokens},
    layout::Page,
    render::renders,
};

renders!(ConversationsPage, Rows, DeletePage);

/// The list of conversations.
#[derive(Debug, Clone, Template)]
#[template(path = "conversations/page.html")]
pub struct ConversationsPage {
    /// The frame.
    pub page: Page,
    /// What is listed.
    pub filter: Filter,
    /// Pinned conversations; they stand above the rest.
    pub pinned: Vec<Row>,
    /// The newest conversations.
    pub rows: Rows,
    /// Agents that the filter offers.
    pub agents_hint: Vec<String>,
    /// The id of the request for a new conversation, so that it is made once.
    pub request_id: String,
    /// The server calls a model: a conversation can be begun here.
    pub calls_models: bool,
}

/// The filter of the list.
#[derive(Debug, Clone)]
pub struct Filter {
    /// Part of the title; empty: any.
    pub text: String,
    /// The agent; empty: any.
    pub agent: String,
    /// The user; empty: any.
    pub user: String,
    /// `active` or `archived`; empty: both.
    pub status: String,
    /// The credential is bound to the user.
    pub user_is_fixed: bool,
    /// The credential is bound to the agent.
    pub agent_is_fixed: bool,
}

impl Filter {
    /// Whether something is filtered.
    fn is_set(&self) -> bool {
        [&self.text, &self.agent, &self.user, &self.status]
            .iter()
            .any(|field| !field.is_empty())
    }
}

/// Conversations of one page of the list. Alone, it is the fragment of a later page.
#[derive(Debug, Clone, Template)]
#[template(path = "conversations/rows.html")]
pub struct Rows {
    /// Newest first.
    pub rows: Vec<Row>,
    /// The next page; empty: this is the last one.
    pub next_url: String,
}

/// A conversation in the list.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its id.
    pub id: String,
    /// Its title; empty: none.
    pub title: String,
    /// Its agent.
    pub agent: String,
    /// Its user; empty: none.
    pub user: String,
    /// When it was last written to.
    pub last_activity: Time,
    /// Number of its messages.
    pub messages: i64,
    /// How many of them are withdrawn.
    pub withdrawn: i64,
    /// Tokens of its messages.
    pub tokens: Tokens,
    /// It is archived.
    pub archived: bool,
    /// It is pinned.
    pub pinned: bool,
    /// The conversation that it was copied from; empty: none.
    pub fork_of: String,
}

/// The question before a conversation is deleted.
#[derive(Debug, Clone, Template)]
#[template(path = "conversations/delete.html")]
pub struct DeletePage {
    /// The frame.
    pub page: Page,
    /// The conversation.
    pub row: Row,
    /// Its messages, withdrawn ones included.
    pub messages: i64,
    /// Its checkpoints, which are deleted too.
    pub checkpoints: Count,
    /// Its copies, which stay.
    pub forks: Count,
    /// The state that is deleted.
    pub etag: String,
}

/// A number of things that were counted up to a limit.
#[derive(Debug, Clone, Copy)]
pub struct Count {
    /// How many were counted.
    pub value: u64,
    /// There are more.
    pub has_more: bool,
}

impl Count {
    /// The number with the word for one of them, or for several.
    fn of(self, one: &str, several: &str) -> String {
        let counted = format::counted(self.value, one, several);
        if self.has_more {
            format!("at least {counted}")
        } else {
            counted
        }
    }
}
