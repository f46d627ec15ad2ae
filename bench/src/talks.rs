//! Conversations under load: who is appended to, over which connections, what.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anneal_proto::v1 as pb;
use tonic::{Status, transport::Channel};

use crate::house::{House, user};

/// Conversations that grow, and connections to them. None of them is ever compacted: what is measured is appending.
#[derive(Clone)]
pub(crate) struct Talks {
    channels: Arc<[Channel]>,
    conversations: Arc<[String]>,
    /// Request ids given out.
    requests: Arc<AtomicU64>,
    text: Arc<str>,
}

/// An append under way.
type Call = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;

/// A stored message.
pub(crate) struct Stored {
    pub(crate) conversation_id: String,
    pub(crate) message_id: i64,
}

impl Talks {
    /// New conversations, reached over this many connections.
    pub(crate) async fn start(house: &House, conversations: u64, connections: usize) -> anyhow::Result<Self> {
        let mut channels = Vec::new();
        for _ in 0..connections {
            channels.push(house.channel().await?);
        }
        let policy = pb::Policy { max_message_count: Some(0), ..Default::default() };
        let mut made = Vec::new();
        for number in 0..conversations as usize {
            made.push(house.conversation(&channels[number % connections], Some(policy.clone())).await?);
        }
        Ok(Self {
            channels: channels.into(),
            conversations: made.into(),
            requests: Arc::default(),
            text: "The quick brown fox jumps over the lazy dog. ".repeat(9)[..400].into(),
        })
    }

    /// Appends one message of 400 bytes, with a request id that was never used, to the conversation of this number: the
    /// same again after as many numbers as there are conversations.
    pub(crate) async fn append(&self, number: u64) -> Result<Stored, Status> {
        let conversation_id = self.conversations[number as usize % self.conversations.len()].clone();
        let ask = pb::AppendMessagesRequest {
            conversation_id: conversation_id.clone(),
            request_id: self.requests.fetch_add(1, Ordering::Relaxed).to_string(),
            messages: vec![user((*self.text).to_owned())],
            ..Default::default()
        };
        let stored = House::messages(self.channel(number)).append_messages(ask).await?.into_inner();
        Ok(Stored { conversation_id, message_id: stored.messages.first().map_or(0, |message| message.message_id) })
    }

    /// The append as a load's call.
    pub(crate) fn appends(&self) -> impl Fn(u64) -> Call + Clone + Send + 'static {
        let talks = self.clone();
        move |number| {
            let talks = talks.clone();
            Box::pin(async move { talks.append(number).await.map(drop) })
        }
    }

    /// The connection of this number.
    pub(crate) fn channel(&self, number: u64) -> &Channel {
        &self.channels[number as usize % self.channels.len()]
    }
}
