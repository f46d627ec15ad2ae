//! Edits of stored messages in tests, their versions, and what lists show of what no longer stands.

use std::{future::IntoFuture, pin::Pin};

use tonic::Status;

use crate::{TestApp, TestConversation, pb};

/// An edit to be sent. `.await` sends it and panics if it fails. [`EditRequest::send`] returns a
/// result instead.
pub struct EditRequest<'a> {
    app: &'a TestApp,
    ask: pb::EditMessageRequest,
}

impl<'a> TestConversation<'a> {
    /// Replaces the content of a message.
    pub fn edit(&self, message_id: i64, message: pb::NewMessage) -> EditRequest<'a> {
        EditRequest {
            app: self.app,
            ask: pb::EditMessageRequest {
                conversation_id: self.id.clone(),
                message_id,
                message: Some(message),
                ..Default::default()
            },
        }
    }

    /// One version of a message.
    pub async fn message_version(
        &self,
        message_id: i64,
        version: i32,
    ) -> Result<pb::Message, Status> {
        let ask = pb::GetMessageRequest {
            conversation_id: self.id.clone(),
            message_id,
            version,
            ..Default::default()
        };
        let answer = self.app.messages().get_message(ask).await?.into_inner();
        Ok(answer.message.expect("a message"))
    }

    /// The versions of a message, newest first, on one page.
    pub async fn versions(&self, message_id: i64) -> Vec<pb::MessageVersion> {
        let ask = pb::ListMessageVersionsRequest {
            conversation_id: self.id.clone(),
            message_id,
            page_size: 500,
            ..Default::default()
        };
        let mut messages = self.app.messages();
        let listed = messages.list_message_versions(ask).await;
        listed.expect("the list is returned").into_inner().versions
    }

    /// The first 500 messages, withdrawn ones included.
    pub async fn messages_with_withdrawn(&self) -> Vec<pb::Message> {
        let ask = pb::ListMessagesRequest {
            conversation_id: self.id.clone(),
            page_size: 500,
            include_withdrawn: true,
            ..Default::default()
        };
        let listed = self.app.messages().list_messages(ask).await;
        listed.expect("the list is returned").into_inner().messages
    }

    /// The newest 500 checkpoints, newest boundary first, including those that no longer hold.
    pub async fn checkpoints_with_void(&self) -> Vec<pb::Checkpoint> {
        let ask = pb::ListCheckpointsRequest {
            conversation_id: self.id.clone(),
            page_size: 500,
            include_void: true,
            ..Default::default()
        };
        let listed = self.app.contexts().list_checkpoints(ask).await;
        listed
            .expect("the list is returned")
            .into_inner()
            .checkpoints
    }
}

impl EditRequest<'_> {
    /// Sets the request id.
    #[must_use]
    pub fn request_id(mut self, id: &str) -> Self {
        id.clone_into(&mut self.ask.request_id);
        self
    }

    /// Edits the message only if this is the newest message.
    #[must_use]
    pub fn expecting(mut self, last_message_id: i64) -> Self {
        self.ask.expected_last_message_id = Some(last_message_id);
        self
    }

    /// Edits the message only if the conversation still has this etag.
    #[must_use]
    pub fn etag(mut self, etag: &str) -> Self {
        etag.clone_into(&mut self.ask.etag);
        self
    }

    /// Edits the message only if this version of it stands.
    #[must_use]
    pub fn expecting_version(mut self, version: i32) -> Self {
        self.ask.expected_version = Some(version);
        self
    }

    /// Leaves the message's labels as they are.
    #[must_use]
    pub fn keep_metadata(mut self) -> Self {
        self.ask.keep_metadata = true;
        self
    }

    /// Sends the edit.
    pub async fn send(self) -> Result<pb::MessageChange, Status> {
        let answer = self.app.messages().edit_message(self.ask).await?;
        Ok(answer.into_inner())
    }
}

impl<'a> IntoFuture for EditRequest<'a> {
    type Output = pb::MessageChange;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.send().await.expect("the edit succeeds") })
    }
}
