//! The checkpoints of a conversation. The positions of all are in memory, the summaries of one page
//! only. A page is fetched again when a checkpoint of it is about to be written.

use std::collections::VecDeque;

use anneal_proto::v1 as pb;

use super::convert::micros;
use crate::client::{Client, failed_call, retry};

/// Checkpoints per page. A small number, because a summary may have 1 MiB.
const PAGE_SIZE: i32 = 8;

/// The position of a checkpoint.
#[derive(Debug, Clone, Copy)]
pub(super) struct CheckpointPosition {
    pub(super) created_us: i64,
    pub(super) first_message_id: i64,
    pub(super) last_message_id: i64,
    /// Index of the page on which it was listed.
    page: usize,
}

/// The checkpoints that are not written yet, in order of creation.
pub(super) struct Checkpoints<'a> {
    client: &'a Client,
    conversation: &'a str,
    /// The page token of each page; empty for the first.
    page_tokens: Vec<String>,
    positions: VecDeque<CheckpointPosition>,
    /// The page fetched last.
    page_cache: Vec<pb::Checkpoint>,
}

impl<'a> Checkpoints<'a> {
    /// Lists the checkpoints of a conversation.
    pub(super) async fn list(client: &'a Client, conversation: &'a str) -> anyhow::Result<Self> {
        let (page_tokens, page_cache) = (vec![String::new()], Vec::new());
        let mut checkpoints = Self {
            client,
            conversation,
            page_tokens,
            positions: VecDeque::new(),
            page_cache,
        };
        let mut positions = Vec::new();
        loop {
            let page = checkpoints.page_tokens.len() - 1;
            let found = checkpoints
                .fetch_page(&checkpoints.page_tokens[page])
                .await?;
            positions.extend(
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
            checkpoints.page_tokens.push(found.next_page_token);
        }
        positions.sort_by_key(|position| (position.created_us, position.last_message_id));
        checkpoints.positions = positions.into();
        Ok(checkpoints)
    }

    /// The position of the next checkpoint.
    pub(super) fn front(&self) -> Option<CheckpointPosition> {
        self.positions.front().copied()
    }

    /// Skips the next checkpoint.
    pub(super) fn skip(&mut self) {
        self.positions.pop_front();
    }

    /// Takes the next checkpoint, with its summary. Fetches its page unless that is in memory.
    pub(super) async fn pop(&mut self) -> anyhow::Result<Option<pb::Checkpoint>> {
        let Some(position) = self.positions.pop_front() else {
            return Ok(None);
        };
        let is_wanted = |checkpoint: &pb::Checkpoint| {
            (checkpoint.first_message_id, checkpoint.last_message_id)
                == (position.first_message_id, position.last_message_id)
        };
        let mut token = Some(self.page_tokens[position.page].clone());
        loop {
            if let Some(index) = self.page_cache.iter().position(is_wanted) {
                return Ok(Some(self.page_cache[index].clone()));
            }
            // Checkpoints made in the meantime are listed first and shift the others to the next
            // page.
            let Some(next) = token.take() else {
                anyhow::bail!("a checkpoint disappeared during the export")
            };
            let found = self.fetch_page(&next).await?;
            self.page_cache = found.checkpoints;
            token = (!found.next_page_token.is_empty()).then_some(found.next_page_token);
        }
    }

    async fn fetch_page(&self, page_token: &str) -> anyhow::Result<pb::ListCheckpointsResponse> {
        let ask = pb::ListCheckpointsRequest {
            conversation_id: self.conversation.to_owned(),
            page_size: PAGE_SIZE,
            page_token: page_token.to_owned(),
            ..Default::default()
        };
        let found =
            retry(async || self.client.contexts().list_checkpoints(ask.clone()).await).await;
        found.map_err(|status| failed_call(&status))
    }
}
