//! What stands between messages: checkpoints and separators.

use std::collections::VecDeque;

use anneal_formats::{Summary, Writer};
use anneal_proto::v1 as pb;

use super::{checkpoints::Checkpoints, read::micros};

/// What stands between messages and is not written yet, oldest first.
pub(super) struct Marks<'a> {
    /// The message that was written last.
    pub(super) after: i64,
    pub(super) separators: VecDeque<pb::Separator>,
    checkpoints: Checkpoints<'a>,
    /// Places of the separators that were written.
    written: Vec<i64>,
}

impl<'a> Marks<'a> {
    /// Before the first message, with these checkpoints to write.
    pub(super) fn new(checkpoints: Checkpoints<'a>) -> Self {
        Self { after: 0, separators: VecDeque::new(), checkpoints, written: Vec::new() }
    }

    /// Writes what belongs before the next message, which was stored at `next_us`; None: there is no next one.
    ///
    /// A summary stands where it was made: behind the messages that were stored then. One that was made under a separator
    /// which is gone holds no longer, and is left out.
    pub(super) async fn write(&mut self, writer: &mut Writer, next_us: Option<i64>) -> anyhow::Result<()> {
        loop {
            let separator = self.separators.front().filter(|separator| separator.after_message_id <= self.after);
            let checkpoint = self.checkpoints.front().filter(|checkpoint| {
                checkpoint.last_message_id <= self.after && next_us.is_none_or(|next| checkpoint.created_us <= next)
            });
            let separates = match (separator, checkpoint) {
                (None, None) => return Ok(()),
                (Some(separator), Some(checkpoint)) => micros(separator.created_time) <= checkpoint.created_us,
                (separator, _) => separator.is_some(),
            };
            if separates {
                if let Some(separator) = self.separators.pop_front() {
                    self.written.push(separator.after_message_id);
                    writer.separator()?;
                }
            } else if let Some(checkpoint) = checkpoint {
                let start = checkpoint.first_message_id - 1;
                if start != 0 && !self.written.contains(&start) {
                    self.checkpoints.skip();
                } else if let Some(checkpoint) = self.checkpoints.pop().await? {
                    writer.summary(&summary(checkpoint))?;
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
