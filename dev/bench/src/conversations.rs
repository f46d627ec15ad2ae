//! The conversations of a load: which conversations are appended to, over which connections, and
//! with which messages.

use std::{pin::Pin, sync::Arc};

use anneal_proto::{convert::message::text_message, v1 as pb};
use tokio::task::JoinSet;
use tonic::Status;
use uuid::Uuid;

use crate::{
    connection::Channel,
    stack::{BenchStack, user},
};

/// Conversations that grow, and connections to the server. None of the conversations is ever
/// compacted: a checkpoint would disturb the measurement.
#[derive(Clone)]
pub(crate) struct Conversations {
    channels: Arc<[Channel]>,
    conversation_ids: Arc<[String]>,
}

/// How many separators are inserted concurrently.
const SEPARATORS_AT_ONCE: usize = 64;

/// An append in progress.
type Call = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;

/// A stored message.
pub(crate) struct StoredMessage {
    pub(crate) conversation_id: String,
    pub(crate) message_id: i64,
}

impl Conversations {
    /// Creates this many conversations, which are reached over this many connections.
    pub(crate) async fn create(
        stack: &BenchStack,
        conversations: u64,
        connections: usize,
    ) -> anyhow::Result<Self> {
        let mut channels = Vec::new();
        for _ in 0..connections {
            channels.push(stack.channel().await?);
        }
        Self::create_over(stack, conversations, channels).await
    }

    /// Creates this many conversations, a multiple of the number of connections. Each one belongs to
    /// the tenant of the connection over which it is reached.
    pub(crate) async fn create_over(
        stack: &BenchStack,
        conversations: u64,
        channels: Vec<Channel>,
    ) -> anyhow::Result<Self> {
        let mut conversation_ids = Vec::new();
        for channel in channels.iter().cycle().take(conversations as usize) {
            conversation_ids.push(
                stack
                    .create_conversation(channel, Some(never_compacted()))
                    .await?,
            );
        }
        Ok(Self {
            channels: channels.into(),
            conversation_ids: conversation_ids.into(),
        })
    }

    /// The same conversations, reached over other connections.
    pub(crate) fn over(&self, channels: Vec<Channel>) -> Self {
        Self {
            channels: channels.into(),
            conversation_ids: Arc::clone(&self.conversation_ids),
        }
    }

    /// Appends one message of 400 bytes to the conversation with this number (modulo the number of
    /// conversations).
    pub(crate) async fn append(&self, number: u64) -> Result<StoredMessage, Status> {
        let conversation_id = self.id(number).to_owned();
        let stored = append(self.channel(number), &conversation_id, vec![user(text())]).await?;
        Ok(StoredMessage {
            conversation_id,
            message_id: stored
                .messages
                .first()
                .map_or(0, |message| message.message_id),
        })
    }

    /// Appends this many messages to each conversation: sequentially within a conversation,
    /// concurrently across conversations.
    pub(crate) async fn append_to_each(&self, messages: usize) -> anyhow::Result<()> {
        let mut callers = JoinSet::new();
        for (number, conversation_id) in self.conversation_ids.iter().enumerate() {
            let (channel, conversation_id) =
                (self.channel(number as u64).clone(), conversation_id.clone());
            callers.spawn(
                async move { append_one_by_one(&channel, &conversation_id, messages).await },
            );
        }
        while let Some(done) = callers.join_next().await {
            done??;
        }
        Ok(())
    }

    /// Inserts a separator at the end of each conversation, so that its tail is empty, as after a
    /// checkpoint.
    pub(crate) async fn insert_separators(&self) -> anyhow::Result<()> {
        let mut callers = JoinSet::new();
        for (number, conversation_id) in self.conversation_ids.iter().enumerate() {
            let mut client = BenchStack::message_client(self.channel(number as u64));
            let ask = pb::InsertSeparatorRequest {
                conversation_id: conversation_id.clone(),
                ..Default::default()
            };
            callers.spawn(async move { client.insert_separator(ask).await });
            if callers.len() == SEPARATORS_AT_ONCE {
                callers.join_next().await.transpose()?.transpose()?;
            }
        }
        while let Some(done) = callers.join_next().await {
            done??;
        }
        Ok(())
    }

    /// Returns the append as a function that a load can call.
    pub(crate) fn append_call(&self) -> impl Fn(u64) -> Call + Clone + Send + 'static {
        let conversations = self.clone();
        move |number| {
            let conversations = conversations.clone();
            Box::pin(async move { conversations.append(number).await.map(drop) })
        }
    }

    /// The id of the conversation with this number (modulo the number of conversations).
    pub(crate) fn id(&self, number: u64) -> &str {
        &self.conversation_ids[number as usize % self.conversation_ids.len()]
    }

    /// The connection for the call with this number.
    pub(crate) fn channel(&self, number: u64) -> &Channel {
        &self.channels[number as usize % self.channels.len()]
    }
}

/// The policy of a conversation that is never compacted.
pub(crate) fn never_compacted() -> pb::Policy {
    pb::Policy {
        max_message_count: Some(0),
        ..Default::default()
    }
}

/// A text of 400 bytes.
pub(crate) fn text() -> String {
    let mut text = "The quick brown fox jumps over the lazy dog. ".repeat(9);
    text.truncate(400);
    text
}

/// This many messages of 400 bytes, the first of a user, the next of an assistant, and so on.
pub(crate) fn dialogue(messages: usize) -> Vec<pb::NewMessage> {
    let roles = [pb::Role::User, pb::Role::Assistant].into_iter().cycle();
    roles
        .take(messages)
        .map(|role| text_message(role, text()))
        .collect()
}

/// Appends messages with a new request id.
pub(crate) async fn append(
    channel: &Channel,
    conversation_id: &str,
    messages: Vec<pb::NewMessage>,
) -> Result<pb::AppendMessagesResponse, Status> {
    let ask = pb::AppendMessagesRequest {
        conversation_id: conversation_id.to_owned(),
        request_id: Uuid::new_v4().to_string(),
        messages,
        ..Default::default()
    };
    Ok(BenchStack::message_client(channel)
        .append_messages(ask)
        .await?
        .into_inner())
}

/// Appends this many messages of 400 bytes to a conversation, one after the other.
pub(crate) async fn append_one_by_one(
    channel: &Channel,
    conversation_id: &str,
    messages: usize,
) -> Result<(), Status> {
    for _ in 0..messages {
        append(channel, conversation_id, vec![user(text())]).await?;
    }
    Ok(())
}
