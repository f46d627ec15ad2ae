//! The checkpoints of a conversation. Their positions are in memory; a summary is fetched when it
//! is written.

use std::collections::VecDeque;

use anneal_proto::v1 as pb;

use super::convert::micros;
use crate::client::{Client, refusal, retry};

/// Checkpoints per page: a summary may have 1 MiB.
const PAGE: i32 = 8;

/// The position of a checkpoint.
#[derive(Debug, Clone, Copy)]
pub(super) struct CheckpointPosition {
    pub(super) created_us: i64,
    pub(super) first_message_id: i64,
    pub(super) last_message_id: i64,
    /// The page that it was on.
    page: usize,
}

/// The checkpoints that are not written yet, in order of creation.
pub(super) struct Checkpoints<'a> {
    client: &'a Client,
    conversation: &'a str,
    /// The token of each page.
    tokens: Vec<String>,
    marks: VecDeque<CheckpointPosition>,
    /// The page fetched last.
    page_cache: Vec<pb::Checkpoint>,
}

impl<'a> Checkpoints<'a> {
    /// Lists the checkpoints of a conversation.
    pub(super) async fn of(client: &'a Client, conversation: &'a str) -> anyhow::Result<Self> {
        let (tokens, page_cache) = (vec![String::new()], Vec::new());
        let mut checkpoints = Self {
            client,
            conversation,
            tokens,
            marks: VecDeque::new(),
            page_cache,
        };
        let mut marks = Vec::new();
        loop {
            let page = checkpoints.tokens.len() - 1;
            let found = checkpoints.fetch_page(&checkpoints.tokens[page]).await?;
            marks.extend(
                found
                    .checkpoints
                    .iter()
                    .map(|checkpoint| CheckpointPosition {
                        created_us: micros(checkpoint.created_time),
                        first_message_id: checkpoint.first_message_id,
                        last_message_id: checkpoint.last_message_id,
                        page,
                    }),
            );
            checkpoints.page_cache = found.checkpoints;
            if found.next_page_token.is_empty() {
                break;
            }
            checkpoints.tokens.push(found.next_page_token);
        }
        marks.sort_by_key(|mark| (mark.created_us, mark.last_message_id));
        checkpoints.marks = marks.into();
        Ok(checkpoints)
    }

    /// The next checkpoint.
    pub(super) fn front(&self) -> Option<CheckpointPosition> {
        self.marks.front().copied()
    }

    /// Skips the next checkpoint.
    pub(super) fn skip(&mut self) {
        self.marks.pop_front();
    }

    /// Takes the next checkpoint, with its summary.
    pub(super) async fn pop(&mut self) -> anyhow::Result<Option<pb::Checkpoint>> {
        let Some(mark) = self.marks.pop_front() else {
            return Ok(None);
        };
        let is_it = |checkpoint: &pb::Checkpoint| {
            (checkpoint.first_message_id, checkpoint.last_message_id)
                == (mark.first_message_id, mark.last_message_id)
        };
        let mut token = Some(self.tokens[mark.page].clone());
        loop {
            if let Some(place) = self.page_cache.iter().position(is_it) {
                return Ok(Some(self.page_cache[place].clone()));
            }
            // Checkpoints made in the meantime are listed first and shift the others to the next
            // page.
            let Some(next) = token.take() else {
                anyhow::bail!("a checkpoint has gone while it was exported")
            };
            let found = self.fetch_page(&next).await?;
            self.page_cache = found.checkpoints;
            token = (!found.next_page_token.is_empty()).then_some(found.next_page_token);
        }
    }

    async fn fetch_page(&self, page_token: &str) -> anyhow::Result<pb::ListCheckpointsResponse> {
        let ask = pb::ListCheckpointsRequest {
            conversation_id: self.conversation.to_owned(),
            page_size: PAGE,
            page_token: page_token.to_owned(),
        };
        let found =
            retry(async || self.client.contexts().list_checkpoints(ask.clone()).await).await;
        found.map_err(|status| refusal(&status))
    }
}
