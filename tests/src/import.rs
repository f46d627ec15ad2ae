//! Real conversations said to a house: in large batches, the jobs run in between.

use futures::StreamExt as _;
use pb::{append_large_message_request as large, part::Part};
use prost::Message as _;

use crate::{Chat, House, Talk, patient, pb, text};

/// Most messages of one append.
const BATCH: usize = 100;
/// Most bytes of one append; the service takes 4 MiB.
const BATCH_BYTES: usize = 2 * 1024 * 1024;
/// A message above this is streamed.
const STREAMED_BYTES: usize = 256 * 1024;
/// Conversations that speak at the same time.
const AT_ONCE: usize = 4;

/// A conversation that was said, and what of it the service keeps.
pub struct Imported<'a> {
    /// The conversation.
    pub talk: Talk<'a>,
    /// Where it comes from.
    pub name: String,
    /// Its system prompt.
    pub system_prompt: String,
    /// The messages that were kept: without tools where the settings say so.
    pub kept: Vec<pb::NewMessage>,
}

impl House {
    /// Says these conversations under a policy, one batch of each in turn; the jobs run until idle after each round.
    pub async fn import(&self, chats: &[Chat], policy: &pb::Policy) -> Vec<Imported<'_>> {
        let mut made = Vec::with_capacity(chats.len());
        for chat in chats {
            let ask = pb::CreateConversationRequest {
                system_prompt: chat.system_prompt.clone(),
                policy: Some(policy.clone()),
                ..Default::default()
            };
            let talk = self.conversation_with(ask).await;
            let (name, system_prompt) = (chat.name.clone(), chat.system_prompt.clone());
            made.push((Imported { talk, name, system_prompt, kept: Vec::new() }, batches(&chat.messages)));
        }
        let mut round = 0;
        while made.iter().any(|(_, batches)| batches.len() > round) {
            let saying = made.iter_mut().filter_map(|(talk, batches)| Some(talk.say(batches.get(round)?)));
            futures::stream::iter(saying).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
            self.run_jobs_until_idle().await;
            round += 1;
        }
        made.into_iter().map(|(talk, _)| talk).collect()
    }
}

/// What is said at once; a large message by itself.
fn batches(messages: &[pb::NewMessage]) -> Vec<Vec<pb::NewMessage>> {
    let mut batches: Vec<Vec<pb::NewMessage>> = Vec::new();
    let mut bytes = 0;
    for message in messages {
        let more = message.encoded_len();
        match batches.last_mut() {
            Some(batch) if batch.len() < BATCH && bytes + more <= BATCH_BYTES && more < STREAMED_BYTES => {
                bytes += more;
                batch.push(message.clone());
            }
            _ => {
                // Nothing joins a message that is streamed.
                bytes = if more < STREAMED_BYTES { more } else { BATCH_BYTES };
                batches.push(vec![message.clone()]);
            }
        }
    }
    batches
}

impl Imported<'_> {
    async fn say(&mut self, batch: &[pb::NewMessage]) {
        if let [message] = batch
            && message.encoded_len() >= STREAMED_BYTES
        {
            let [pb::Part { part: Some(Part::Text(said)) }] = message.parts.as_slice() else {
                panic!("a large message is one text")
            };
            self.talk.stream(message.role(), &said.text).await;
            self.kept.push(message.clone());
            return;
        }
        let skipped = self.talk.append_all(batch.to_vec()).await.skipped;
        let kept = batch.iter().enumerate().filter(|(place, _)| !skipped.contains(&(*place as i32)));
        self.kept.extend(kept.map(|(_, message)| message.clone()));
    }
}

impl Talk<'_> {
    /// Streams a message of one text, in pieces that do not care for characters; returns its id.
    pub async fn stream(&self, role: pb::Role, said: &str) -> i64 {
        let header =
            large::Header { conversation_id: self.id.clone(), message: Some(text(role, "")), ..Default::default() };
        let chunks = said.as_bytes().chunks(100_003).map(|chunk| large::Frame::Chunk(chunk.to_vec()));
        let frames: Vec<_> = std::iter::once(large::Frame::Header(header))
            .chain(chunks)
            .map(|frame| pb::AppendLargeMessageRequest { frame: Some(frame) })
            .collect();
        let ask = patient(futures::stream::iter(frames));
        let answer = self.house.messages().append_large_message(ask).await.expect("appends");
        answer.into_inner().messages[0].message_id
    }
}
