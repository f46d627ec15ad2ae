//! Compares the stored messages of a conversation with those of the file.

use std::collections::VecDeque;

use anneal_formats::Format;
use anneal_proto::v1 as pb;
use tonic::Status;
use tonic_types::StatusExt as _;

use super::{append, tool_retention::ToolRetention};
use crate::{
    client::{Client, failed_call, retry},
    message_pages::{MessagePages, is_too_large},
};

/// The stored messages, oldest first, withdrawn ones included. One page is in memory.
pub(super) struct StoredMessages {
    pages: MessagePages,
    /// The messages of the current page that are not compared yet.
    page: VecDeque<pb::Message>,
}

impl StoredMessages {
    /// Starts at the first message of the conversation.
    pub(super) fn of(client: &Client, conversation: &str) -> Self {
        Self {
            pages: MessagePages::of(client, conversation).with_withdrawn(),
            page: VecDeque::new(),
        }
    }

    /// The next message. An error if there is none.
    pub(super) async fn next(&mut self) -> anyhow::Result<pb::Message> {
        while self.page.is_empty() {
            match self
                .pages
                .next_or_without_parts()
                .await
                .map_err(|status| failed_call(&status))?
            {
                Some(page) => self.page = page.messages.into(),
                None => anyhow::bail!(
                    "the conversation has fewer messages than expected: it was deleted meanwhile"
                ),
            }
        }
        Ok(self.page.pop_front().unwrap_or_default())
    }

    /// Puts a message back as the next one.
    pub(super) fn put_back(&mut self, stored: pb::Message) {
        self.page.push_front(stored);
    }
}

/// Reads an edited message as it was stored at first: that is the message of the file. If it is too
/// large for an answer, it comes without its parts. None: that version is not kept any more.
pub(super) async fn first_version(
    client: &Client,
    conversation: &str,
    message_id: i64,
) -> anyhow::Result<Option<pb::Message>> {
    let get = async |range: Option<pb::ByteRange>| {
        let ask = pb::GetMessageRequest {
            conversation_id: conversation.to_owned(),
            message_id,
            range,
            version: 1,
            ..Default::default()
        };
        retry(async || client.messages().get_message(ask.clone()).await).await
    };
    let found = match get(None).await {
        Err(status) if is_too_large(&status) => {
            let shortest = pb::ByteRange {
                offset: 0,
                length: 1,
            };
            get(Some(shortest)).await
        }
        found => found,
    };
    match found {
        Ok(found) => Ok(Some(found.message.unwrap_or_default())),
        Err(status) if is_version_gone(&status) => Ok(None),
        Err(status) => Err(failed_call(&status)),
    }
}

/// Whether a call was refused because the version is not kept any more.
fn is_version_gone(status: &Status) -> bool {
    let details = status.get_error_details();
    let info = details.error_info();
    info.is_some_and(|info| info.reason == "VERSION_NOT_FOUND")
}

/// How a stored message compares to a message of the file.
#[derive(Debug)]
pub(super) enum Comparison {
    /// Both have the same content.
    Same,
    /// Both have the same role, and the content with which the stored one was imported is gone. It
    /// may have been that of the file's message, or its beginning.
    SameRole,
    /// The stored message is the beginning of the file's message. Holds the rest as a message of
    /// its own.
    Beginning(pb::NewMessage),
    /// The stored message is the file's message without its tool calls and results.
    WithoutTools,
    /// The message of the file has only tool calls or results. It is not stored; the stored message
    /// belongs to a later one.
    OnlyTools,
    /// The contents differ.
    Other,
}

impl Comparison {
    /// Compares a stored message with a message of the file.
    pub(super) fn of(
        stored: &pb::Message,
        in_file: &pb::NewMessage,
        format: Format,
        tool_retention: &ToolRetention,
    ) -> Self {
        if stored.erased {
            return Self::of_role(stored, in_file, tool_retention);
        }
        if is_same(stored, in_file) {
            return Self::Same;
        }
        let is_beginning = stored.role == in_file.role && in_file.parts.starts_with(&stored.parts);
        if is_beginning && let Some(rest) = append::added_parts(in_file, stored.parts.len(), format)
        {
            return Self::Beginning(rest);
        }
        if !append::has_tools(&in_file.parts) {
            return Self::Other;
        }
        match append::without_tools(in_file) {
            None => Self::OnlyTools,
            Some(kept) if is_same(stored, &kept) => Self::WithoutTools,
            Some(_) => Self::Other,
        }
    }

    /// Compares a stored message of which only the role is left as it was imported.
    pub(super) fn of_role(
        stored: &pb::Message,
        in_file: &pb::NewMessage,
        tool_retention: &ToolRetention,
    ) -> Self {
        let has_role = stored.role == in_file.role;
        let has_tools = append::has_tools(&in_file.parts);
        let drops_tools = matches!(tool_retention, ToolRetention::Dropped);
        if has_role && !(has_tools && drops_tools) {
            return Self::SameRole;
        }
        if has_tools && append::without_tools(in_file).is_none() {
            return Self::OnlyTools;
        }
        if has_role {
            Self::WithoutTools
        } else {
            Self::Other
        }
    }
}

/// Whether the messages have equal content. A stored message that was fetched without parts is
/// compared by its size.
fn is_same(stored: &pb::Message, in_file: &pb::NewMessage) -> bool {
    let same = match stored.parts.as_slice() {
        [] => stored.text_bytes == append::text_bytes(in_file),
        parts => parts == in_file.parts,
    };
    same && stored.role == in_file.role
}
