//! Creates conversations that are large in one dimension, for example in their number of messages.

use anneal_testkit::{AuthorizedChannel, pb, text, user};
use futures::stream;
use pb::{
    append_large_message_request::{Frame, Header},
    context_service_client::ContextServiceClient,
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};

/// Creates the conversations over this channel.
pub(crate) struct Grower {
    pub(crate) channel: AuthorizedChannel,
}

/// A dimension of size. A large conversation has ten times as much of it as a small one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Dimension {
    /// Messages of one letter.
    Messages,
    /// Bytes of one message, below 32 MiB. For larger allocations the system's allocator takes
    /// fresh pages each time, which cost more than pages that it has kept.
    Bytes,
    /// Messages of about 600,000 bytes.
    LongMessages,
    /// Parts, 250 in a message.
    Parts,
    /// Nesting of lists in the input of a tool call and in its result.
    Depth,
    /// Imported checkpoints, one for each message but the last.
    Checkpoints,
    /// Separators, one after each message but the last.
    Separators,
    /// Recorded versions of the prefix of its contexts, each with another system prompt.
    Prefixes,
    /// Reports of a provider's usage.
    Reports,
}

impl Dimension {
    pub(crate) const ALL: [Self; 9] = [
        Self::Messages,
        Self::Bytes,
        Self::LongMessages,
        Self::Parts,
        Self::Depth,
        Self::Checkpoints,
        Self::Separators,
        Self::Prefixes,
        Self::Reports,
    ];

    /// Amount of this dimension in a small conversation.
    pub(crate) const fn small(self) -> usize {
        match self {
            Self::Messages => 5_000,
            Self::Bytes => 600_000,
            Self::LongMessages => 8,
            Self::Parts => 2_500,
            Self::Depth => 20_000,
            Self::Checkpoints | Self::Separators => 60,
            Self::Prefixes => 30,
            Self::Reports => 100,
        }
    }
}

impl Grower {
    /// Creates a conversation with this amount of the dimension.
    pub(crate) async fn grow(&self, dimension: Dimension, amount: usize) -> String {
        let ask = pb::CreateConversationRequest {
            agent_id: "a".into(),
            ..Default::default()
        };
        let made = ConversationServiceClient::new(self.channel.clone())
            .create_conversation(ask)
            .await;
        let id = made.expect("is created").into_inner().conversation_id;
        match dimension {
            Dimension::Messages => self.append_all(&id, vec![user("x"); amount]).await,
            Dimension::Bytes => self.append_large(&id, amount).await,
            Dimension::LongMessages => {
                for _ in 0..amount {
                    self.append_all(&id, vec![user(&"a word, and more. ".repeat(33_000))])
                        .await;
                }
            }
            Dimension::Parts => {
                let parts = vec![user("x").parts[0].clone(); 250];
                let message = pb::NewMessage { parts, ..user("x") };
                self.append_all(&id, vec![message; amount / 250]).await;
            }
            Dimension::Depth => {
                let nested = format!("{}{}", "[".repeat(amount), "]".repeat(amount));
                let exchange = [
                    anneal_testkit::call("c", &nested),
                    anneal_testkit::result("c", &nested),
                ];
                self.append_all(&id, [&[user("look")][..], &exchange].concat())
                    .await;
            }
            Dimension::Checkpoints => {
                self.append_all(&id, vec![user(&"a word ".repeat(20)); amount + 1])
                    .await;
                for last_message_id in 1..=amount as i64 {
                    self.import_checkpoint(&id, last_message_id).await;
                }
            }
            Dimension::Separators => {
                for _ in 0..amount {
                    self.append_all(&id, vec![user("x")]).await;
                    let ask = pb::InsertSeparatorRequest {
                        conversation_id: id.clone(),
                        ..Default::default()
                    };
                    MessageServiceClient::new(self.channel.clone())
                        .insert_separator(ask)
                        .await
                        .expect("is inserted");
                }
                self.append_all(&id, vec![user("x")]).await;
            }
            Dimension::Prefixes => {
                self.append_all(&id, vec![user("x")]).await;
                for number in 0..amount {
                    let system_prompt = Some(format!("version {number}"));
                    let ask = pb::BuildContextRequest {
                        conversation_id: id.clone(),
                        system_prompt,
                        ..Default::default()
                    };
                    ContextServiceClient::new(self.channel.clone())
                        .build_context(ask)
                        .await
                        .expect("is built");
                }
            }
            Dimension::Reports => {
                self.append_all(&id, vec![user("x")]).await;
                for number in 0..amount {
                    let ask = pb::ReportUsageRequest {
                        conversation_id: id.clone(),
                        request_id: format!("call {number}"),
                        model: "m".into(),
                        input_tokens: 10,
                        ..Default::default()
                    };
                    ContextServiceClient::new(self.channel.clone())
                        .report_usage(ask)
                        .await
                        .expect("is sent");
                }
            }
        }
        id
    }

    async fn append_all(&self, id: &str, messages: Vec<pb::NewMessage>) {
        let mut client = MessageServiceClient::new(self.channel.clone());
        for messages in messages.chunks(100) {
            let (conversation_id, messages) = (id.to_owned(), messages.to_vec());
            let ask = pb::AppendMessagesRequest {
                conversation_id,
                messages,
                ..Default::default()
            };
            client.append_messages(ask).await.expect("is stored");
        }
    }

    async fn append_large(&self, id: &str, bytes: usize) {
        let message = Some(text(pb::Role::User, ""));
        let header = Header {
            conversation_id: id.to_owned(),
            message,
            ..Default::default()
        };
        // A chunk of 594,000 bytes for every 600,000 bytes.
        let chunk = "a word, and more. ".repeat(33_000).into_bytes();
        let chunks = std::iter::repeat_n(Frame::Chunk(chunk), bytes / 600_000);
        let frames = std::iter::once(Frame::Header(header)).chain(chunks);
        let frames = frames.map(|frame| pb::AppendLargeMessageRequest { frame: Some(frame) });
        let frames = stream::iter(frames.collect::<Vec<_>>());
        MessageServiceClient::new(self.channel.clone())
            .append_large_message(frames)
            .await
            .expect("is stored");
    }

    async fn import_checkpoint(&self, id: &str, last_message_id: i64) {
        let (conversation_id, summary) = (id.to_owned(), "so far".into());
        let ask = pb::ImportCheckpointRequest {
            conversation_id,
            last_message_id,
            summary,
            ..Default::default()
        };
        ContextServiceClient::new(self.channel.clone())
            .import_checkpoint(ask)
            .await
            .expect("is stored");
    }
}
