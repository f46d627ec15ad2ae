//! Checkpoints of a conversation: where they stand is held, what they say is asked for when it is written.

use std::collections::VecDeque;

use anneal_proto::v1 as pb;

use super::read::micros;
use crate::client::{Client, patiently, refusal};

/// Checkpoints of a page: a summary may have 1 MiB.
const PAGE: i32 = 8;

/// Where a checkpoint stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    pub(super) created_us: i64,
    pub(super) first_message_id: i64,
    pub(super) last_message_id: i64,
    /// The page that it was found in.
    page: usize,
}

/// The checkpoints that are not written yet, in the order in which they were made.
pub(super) struct Checkpoints<'a> {
    client: &'a Client,
    conversation: &'a str,
    /// What each page is asked for with.
    tokens: Vec<String>,
    marks: VecDeque<Mark>,
    /// The page that was asked for last.
    held: Vec<pb::Checkpoint>,
}

impl<'a> Checkpoints<'a> {
    /// Of this conversation.
    pub(super) async fn of(client: &'a Client, conversation: &'a str) -> anyhow::Result<Self> {
        let (tokens, held) = (vec![String::new()], Vec::new());
        let mut checkpoints = Self { client, conversation, tokens, marks: VecDeque::new(), held };
        let mut marks = Vec::new();
        loop {
            let page = checkpoints.tokens.len() - 1;
            let found = checkpoints.page(&checkpoints.tokens[page]).await?;
            marks.extend(found.checkpoints.iter().map(|checkpoint| Mark {
                created_us: micros(checkpoint.created_time),
                first_message_id: checkpoint.first_message_id,
                last_message_id: checkpoint.last_message_id,
                page,
            }));
            checkpoints.held = found.checkpoints;
            if found.next_page_token.is_empty() {
                break;
            }
            checkpoints.tokens.push(found.next_page_token);
        }
        marks.sort_by_key(|mark| (mark.created_us, mark.last_message_id));
        checkpoints.marks = marks.into();
        Ok(checkpoints)
    }

    /// The next one.
    pub(super) fn front(&self) -> Option<Mark> {
        self.marks.front().copied()
    }

    /// Passes over the next one.
    pub(super) fn skip(&mut self) {
        self.marks.pop_front();
    }

    /// Takes the next one, with what it says.
    pub(super) async fn pop(&mut self) -> anyhow::Result<Option<pb::Checkpoint>> {
        let Some(mark) = self.marks.pop_front() else { return Ok(None) };
        let is_it = |checkpoint: &pb::Checkpoint| {
            (checkpoint.first_message_id, checkpoint.last_message_id) == (mark.first_message_id, mark.last_message_id)
        };
        let mut token = Some(self.tokens[mark.page].clone());
        loop {
            if let Some(place) = self.held.iter().position(is_it) {
                return Ok(Some(self.held[place].clone()));
            }
            // Newer checkpoints of the meantime stand before those of the first page.
            let Some(next) = token.take() else { anyhow::bail!("a checkpoint has gone while it was exported") };
            let found = self.page(&next).await?;
            self.held = found.checkpoints;
            token = (!found.next_page_token.is_empty()).then_some(found.next_page_token);
        }
    }

    async fn page(&self, page_token: &str) -> anyhow::Result<pb::ListCheckpointsResponse> {
        let ask = pb::ListCheckpointsRequest {
            conversation_id: self.conversation.to_owned(),
            page_size: PAGE,
            page_token: page_token.to_owned(),
        };
        let found = patiently(async || self.client.contexts().list_checkpoints(ask.clone()).await).await;
        found.map_err(|status| refusal(&status))
    }
}
