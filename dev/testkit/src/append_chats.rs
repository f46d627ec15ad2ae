//! Real conversations, appended to an app in large batches. Jobs run between the batches.

use futures::StreamExt as _;
use pb::{append_large_message_request as large, part::Part};
use prost::Message as _;

use crate::{Chat, TestApp, TestConversation, pb, text, with_longest_deadline};

/// Maximum number of messages in one AppendMessages request.
const BATCH_MESSAGES: usize = 100;
/// Maximum size of one AppendMessages request in bytes. The service accepts 4 MiB.
const BATCH_BYTES: usize = 2 * 1024 * 1024;
/// Messages of this size or more, in bytes, are streamed with AppendLargeMessage.
const STREAMED_BYTES: usize = 256 * 1024;
/// Number of conversations that append at the same time.
const AT_ONCE: usize = 4;

/// A conversation that was appended, and those of its messages that the service stored.
pub struct AppendedChat<'a> {
    /// The conversation.
    pub conversation: TestConversation<'a>,
    /// The name of the chat in its file.
    pub name: String,
    /// Its system prompt.
    pub system_prompt: String,
    /// The messages that were stored. Tool messages are missing if the settings leave them out.
    pub stored_messages: Vec<pb::NewMessage>,
}

impl TestApp {
    /// Appends these conversations under a policy, one batch of each per round. Jobs run until idle
    /// after each round.
    pub async fn append_chats(&self, chats: &[Chat], policy: &pb::Policy) -> Vec<AppendedChat<'_>> {
        let mut made = Vec::with_capacity(chats.len());
        for chat in chats {
            let ask = pb::CreateConversationRequest {
                system_prompt: chat.system_prompt.clone(),
                policy: Some(policy.clone()),
                ..Default::default()
            };
            let conversation = self.conversation_with(ask).await;
            let (name, system_prompt) = (chat.name.clone(), chat.system_prompt.clone());
            made.push((
                AppendedChat {
                    conversation,
                    name,
                    system_prompt,
                    stored_messages: Vec::new(),
                },
                batches(&chat.messages),
            ));
        }
        let mut round = 0;
        while made.iter().any(|(_, batches)| batches.len() > round) {
            let appends = made
                .iter_mut()
                .filter_map(|(chat, batches)| Some(chat.append_batch(batches.get(round)?)));
            futures::stream::iter(appends)
                .buffer_unordered(AT_ONCE)
                .collect::<Vec<()>>()
                .await;
            self.run_jobs_until_idle().await;
            round += 1;
        }
        made.into_iter().map(|(chat, _)| chat).collect()
    }
}

/// The batches of a conversation. A large message is a batch of its own.
fn batches(messages: &[pb::NewMessage]) -> Vec<Vec<pb::NewMessage>> {
    let mut batches: Vec<Vec<pb::NewMessage>> = Vec::new();
    let mut bytes = 0;
    for message in messages {
        let message_bytes = message.encoded_len();
        match batches.last_mut() {
            Some(batch)
                if batch.len() < BATCH_MESSAGES
                    && bytes + message_bytes <= BATCH_BYTES
                    && message_bytes < STREAMED_BYTES =>
            {
                bytes += message_bytes;
                batch.push(message.clone());
            }
            _ => {
                // A streamed message is the only one of its batch: no other fits after it.
                bytes = if message_bytes < STREAMED_BYTES {
                    message_bytes
                } else {
                    BATCH_BYTES
                };
                batches.push(vec![message.clone()]);
            }
        }
    }
    batches
}

impl AppendedChat<'_> {
    async fn append_batch(&mut self, batch: &[pb::NewMessage]) {
        if let [message] = batch
            && message.encoded_len() >= STREAMED_BYTES
        {
            let [
                pb::Part {
                    part: Some(Part::Text(part)),
                },
            ] = message.parts.as_slice()
            else {
                panic!("a message that is streamed must be one text")
            };
            self.conversation.stream(message.role(), &part.text).await;
            self.stored_messages.push(message.clone());
            return;
        }
        let skipped = self.conversation.append_all(batch.to_vec()).await.skipped;
        let stored = batch
            .iter()
            .enumerate()
            .filter(|(place, _)| !skipped.contains(&(*place as i32)));
        self.stored_messages
            .extend(stored.map(|(_, message)| message.clone()));
    }
}

impl TestConversation<'_> {
    /// Streams a message of one text in chunks of an odd size, so that some chunks split a
    /// character. Returns the message's id.
    pub async fn stream(&self, role: pb::Role, content: &str) -> i64 {
        let header = large::Header {
            conversation_id: self.id.clone(),
            message: Some(text(role, "")),
            ..Default::default()
        };
        let chunks = content
            .as_bytes()
            .chunks(100_003)
            .map(|chunk| large::Frame::Chunk(chunk.to_vec()));
        let frames: Vec<_> = std::iter::once(large::Frame::Header(header))
            .chain(chunks)
            .map(|frame| pb::AppendLargeMessageRequest { frame: Some(frame) })
            .collect();
        let ask = with_longest_deadline(futures::stream::iter(frames));
        let answer = self
            .app
            .messages()
            .append_large_message(ask)
            .await
            .expect("the append succeeds");
        answer.into_inner().messages[0].message_id
    }
}
