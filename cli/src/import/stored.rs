//! What of a file's conversation is stored already, message by message.

use std::collections::VecDeque;

use anneal_formats::Format;
use anneal_proto::v1 as pb;

use super::wire;
use crate::{
    client::{Client, refusal},
    pages::Pages,
};

/// The stored messages, oldest first; a page is held.
pub(super) struct Stored {
    pages: Pages,
    /// Messages of the newest page that the file has not come to yet.
    page: VecDeque<pb::Message>,
}

impl Stored {
    /// Of this conversation, from its first message on.
    pub(super) fn of(client: &Client, conversation: &str) -> Self {
        Self { pages: Pages::of(client, conversation), page: VecDeque::new() }
    }

    /// The next one.
    pub(super) async fn next(&mut self) -> anyhow::Result<pb::Message> {
        while self.page.is_empty() {
            match self.pages.next_or_figures().await.map_err(|status| refusal(&status))? {
                Some(page) => self.page = page.messages.into(),
                None => anyhow::bail!("the conversation was deleted meanwhile"),
            }
        }
        Ok(self.page.pop_front().unwrap_or_default())
    }

    /// It is still to come.
    pub(super) fn put_back(&mut self, stored: pb::Message) {
        self.page.push_front(stored);
    }
}

/// What a stored message is to the file's.
#[derive(Debug)]
pub(super) enum Likeness {
    /// It says the same.
    Same,
    /// The file has got more records of it since it was stored: what they say, as a message of its own.
    Beginning(pb::NewMessage),
    /// It says the same but for calls and results of tools.
    WithoutTools,
    /// Nothing of the file's message is stored, which holds nothing but calls or results of tools.
    OnlyTools,
    /// It says something else.
    Other,
}

impl Likeness {
    /// Of these two.
    pub(super) fn of(stored: &pb::Message, wanted: &pb::NewMessage, format: Format) -> Self {
        if same(stored, wanted) {
            return Self::Same;
        }
        let begins = stored.role == wanted.role && wanted.parts.starts_with(&stored.parts);
        if begins && let Some(rest) = wire::grown(wanted, stored.parts.len(), format) {
            return Self::Beginning(rest);
        }
        if !wire::has_tools(&wanted.parts) {
            return Self::Other;
        }
        match wire::without_tools(wanted) {
            None => Self::OnlyTools,
            Some(kept) if same(stored, &kept) => Self::WithoutTools,
            Some(_) => Self::Other,
        }
    }
}

/// Whether a stored message is one of the file's. One that came without its parts is compared by its size.
fn same(stored: &pb::Message, wanted: &pb::NewMessage) -> bool {
    let same = match stored.parts.as_slice() {
        [] => stored.text_bytes == wire::text_bytes(wanted),
        parts => parts == wanted.parts,
    };
    same && stored.role == wanted.role
}
