//! Changes of stored messages in tests: withdraw, rewind, restore, erase.

use std::{future::IntoFuture, pin::Pin};

use tonic::Status;

use crate::{TestApp, TestConversation, pb};

/// A change to be sent. `.await` sends it and panics if it fails. [`ChangeRequest::send`] returns a
/// result instead.
pub struct ChangeRequest<'a> {
    app: &'a TestApp,
    ask: Ask,
}

/// The request of a change.
enum Ask {
    Withdraw(pb::WithdrawMessagesRequest),
    Rewind(pb::RewindRequest),
    Restore(pb::RestoreMessagesRequest),
    Erase(pb::EraseMessagesRequest),
}

/// Sets a field that the requests of all changes have.
macro_rules! set {
    ($request:ident, $field:ident, $value:expr) => {
        match &mut $request.ask {
            Ask::Withdraw(ask) => ask.$field = $value,
            Ask::Rewind(ask) => ask.$field = $value,
            Ask::Restore(ask) => ask.$field = $value,
            Ask::Erase(ask) => ask.$field = $value,
        }
    };
}

impl<'a> TestConversation<'a> {
    /// Withdraws these messages.
    pub fn withdraw(&self, message_ids: &[i64]) -> ChangeRequest<'a> {
        self.change(Ask::Withdraw(pb::WithdrawMessagesRequest {
            conversation_id: self.id.clone(),
            message_ids: message_ids.to_vec(),
            ..Default::default()
        }))
    }

    /// Withdraws the messages from one id to another.
    pub fn withdraw_range(&self, first: i64, last: i64) -> ChangeRequest<'a> {
        self.change(Ask::Withdraw(pb::WithdrawMessagesRequest {
            conversation_id: self.id.clone(),
            range: Some(id_range(first, last)),
            ..Default::default()
        }))
    }

    /// Withdraws every message after this one.
    pub fn rewind(&self, after_message_id: i64) -> ChangeRequest<'a> {
        self.change(Ask::Rewind(pb::RewindRequest {
            conversation_id: self.id.clone(),
            after_message_id,
            ..Default::default()
        }))
    }

    /// Restores these messages.
    pub fn restore(&self, message_ids: &[i64]) -> ChangeRequest<'a> {
        self.change(Ask::Restore(pb::RestoreMessagesRequest {
            conversation_id: self.id.clone(),
            message_ids: message_ids.to_vec(),
            ..Default::default()
        }))
    }

    /// Restores the messages from one id to another.
    pub fn restore_range(&self, first: i64, last: i64) -> ChangeRequest<'a> {
        self.change(Ask::Restore(pb::RestoreMessagesRequest {
            conversation_id: self.id.clone(),
            range: Some(id_range(first, last)),
            ..Default::default()
        }))
    }

    /// Erases these messages.
    pub fn erase(&self, message_ids: &[i64]) -> ChangeRequest<'a> {
        self.change(Ask::Erase(pb::EraseMessagesRequest {
            conversation_id: self.id.clone(),
            message_ids: message_ids.to_vec(),
            ..Default::default()
        }))
    }

    fn change(&self, ask: Ask) -> ChangeRequest<'a> {
        ChangeRequest { app: self.app, ask }
    }
}

/// The messages from one id to another.
pub const fn id_range(first_message_id: i64, last_message_id: i64) -> pb::IdRange {
    pb::IdRange {
        first_message_id,
        last_message_id,
    }
}

impl ChangeRequest<'_> {
    /// Sets the request id.
    #[must_use]
    pub fn request_id(mut self, id: &str) -> Self {
        set!(self, request_id, id.to_owned());
        self
    }

    /// Changes messages only if this is the newest message.
    #[must_use]
    pub fn expecting(mut self, last_message_id: i64) -> Self {
        set!(self, expected_last_message_id, Some(last_message_id));
        self
    }

    /// Changes messages only if the conversation still has this etag.
    #[must_use]
    pub fn etag(mut self, etag: &str) -> Self {
        set!(self, etag, etag.to_owned());
        self
    }

    /// Changes exactly the named messages. Otherwise calls and results go together.
    #[must_use]
    pub fn keep_tool_pairs_apart(mut self) -> Self {
        match &mut self.ask {
            Ask::Withdraw(ask) => ask.keep_tool_pairs_apart = true,
            Ask::Rewind(ask) => ask.keep_tool_pairs_apart = true,
            Ask::Restore(ask) => ask.keep_tool_pairs_apart = true,
            Ask::Erase(_) => panic!("messages are erased apart in any case"),
        }
        self
    }

    /// Sends the change.
    pub async fn send(self) -> Result<pb::MessageChange, Status> {
        let mut messages = self.app.messages();
        let answer = match self.ask {
            Ask::Withdraw(ask) => messages.withdraw_messages(ask).await?,
            Ask::Rewind(ask) => messages.rewind(ask).await?,
            Ask::Restore(ask) => messages.restore_messages(ask).await?,
            Ask::Erase(ask) => messages.erase_messages(ask).await?,
        };
        Ok(answer.into_inner())
    }
}

impl<'a> IntoFuture for ChangeRequest<'a> {
    type Output = pb::MessageChange;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.send().await.expect("the change succeeds") })
    }
}
