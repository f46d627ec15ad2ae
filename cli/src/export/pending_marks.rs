//! Writes the marks of a conversation, which are its checkpoints and separators, between the right
//! messages.

use std::collections::VecDeque;

use anneal_formats::{Summary, Writer};
use anneal_proto::v1 as pb;

use super::{checkpoints::Checkpoints, convert::micros};

/// The marks (checkpoints and separators) that are not written yet, oldest first.
pub(super) struct PendingMarks<'a> {
    /// The id of the message written last.
    pub(super) last_message_id: i64,
    pub(super) separators: VecDeque<pb::Separator>,
    checkpoints: Checkpoints<'a>,
    /// The separators that were written: for each, the id of the message before it.
    written_separators: Vec<i64>,
}

impl<'a> PendingMarks<'a> {
    /// Starts before the first message.
    pub(super) fn new(checkpoints: Checkpoints<'a>) -> Self {
        Self {
            last_message_id: 0,
            separators: VecDeque::new(),
            checkpoints,
            written_separators: Vec::new(),
        }
    }

    /// Writes the marks that belong before the next message, which was stored at `next_us`
    /// (microseconds since 1970). None: there is no next message.
    ///
    /// A checkpoint is written where it was made: after the messages that were stored at that time.
    /// A checkpoint that starts at a separator which no longer exists is invalid, and is left out.
    pub(super) async fn write_due(
        &mut self,
        writer: &mut Writer,
        next_us: Option<i64>,
    ) -> anyhow::Result<()> {
        loop {
            let separator = self
                .separators
                .front()
                .filter(|separator| separator.after_message_id <= self.last_message_id);
            let checkpoint = self.checkpoints.front().filter(|checkpoint| {
                checkpoint.last_message_id <= self.last_message_id
                    && next_us.is_none_or(|next| checkpoint.created_us <= next)
            });
            let separator_first = match (separator, checkpoint) {
                (None, None) => return Ok(()),
                (Some(separator), Some(checkpoint)) => {
                    micros(separator.created_time) <= checkpoint.created_us
                }
                (separator, _) => separator.is_some(),
            };
            if separator_first {
                if let Some(separator) = self.separators.pop_front() {
                    self.written_separators.push(separator.after_message_id);
                    writer.write_separator()?;
                }
            } else if let Some(checkpoint) = checkpoint {
                // The checkpoint starts at the separator after this message; 0: at no separator.
                let before_start = checkpoint.first_message_id - 1;
                if before_start != 0 && !self.written_separators.contains(&before_start) {
                    self.checkpoints.skip();
                } else if let Some(checkpoint) = self.checkpoints.pop().await? {
                    writer.write_summary(&summary(checkpoint))?;
                }
            }
        }
    }
}

fn summary(checkpoint: pb::Checkpoint) -> Summary {
    Summary {
        covers: checkpoint.last_message_id.unsigned_abs(),
        text: checkpoint.summary,
        model: checkpoint.model,
        tokens_before: Some(checkpoint.tokens_before),
        tokens_after: Some(checkpoint.tokens_after),
    }
}
