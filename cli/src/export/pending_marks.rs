//! Writes the marks of a conversation, which are its checkpoints and separators, between the right
//! messages.

use std::{collections::VecDeque, ops::Range};

use anneal_formats::{StoredMessage, Summary, Writer};
use anneal_proto::v1 as pb;

use super::{
    checkpoints::{CheckpointPosition, Checkpoints},
    convert::micros,
};

/// The marks (checkpoints and separators) that are not written yet, oldest first.
pub(super) struct PendingMarks<'a> {
    pub(super) separators: VecDeque<pb::Separator>,
    checkpoints: Checkpoints<'a>,
    /// The separators that were written: for each, the id of the message before it.
    written_separators: Vec<i64>,
    messages: WrittenMessages,
}

impl<'a> PendingMarks<'a> {
    /// Starts before the first message.
    pub(super) fn new(checkpoints: Checkpoints<'a>) -> Self {
        Self {
            separators: VecDeque::new(),
            checkpoints,
            written_separators: Vec::new(),
            messages: WrittenMessages::default(),
        }
    }

    /// Writes the marks that belong before the next message, which the caller writes afterwards.
    /// None: there is no next message.
    ///
    /// A checkpoint is written where it was made: after the messages that were stored at that time.
    /// A checkpoint that starts at a separator which no longer exists is invalid, and is left out.
    pub(super) async fn write_due(
        &mut self,
        writer: &mut Writer,
        next: Option<&StoredMessage>,
    ) -> anyhow::Result<()> {
        self.messages
            .advance_to(next.map_or(i64::MAX, |next| next.id));
        let is_due = |checkpoint: &CheckpointPosition| {
            next.is_none_or(|next| {
                checkpoint.last_message_id < next.id && checkpoint.created_us <= next.created_us
            })
        };
        loop {
            let separator = self
                .separators
                .front()
                .filter(|separator| next.is_none_or(|next| separator.after_message_id < next.id));
            let checkpoint = self.checkpoints.front().filter(is_due);
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
                    let covers = self.messages.count_through(checkpoint.last_message_id);
                    writer.write_summary(&summary(checkpoint, covers))?;
                }
            }
        }
    }
}

/// Which messages are written. Withdrawn messages are not: their ids are gaps.
#[derive(Debug, Default)]
struct WrittenMessages {
    /// The id of the message that was written last, or is about to be written.
    last_id: i64,
    /// The ids between written messages, in order.
    gaps: Vec<Gap>,
}

#[derive(Debug)]
struct Gap {
    ids: Range<i64>,
    /// Number of written messages before it.
    written_before: i64,
}

impl WrittenMessages {
    /// Notes that the next message to be written has this id.
    fn advance_to(&mut self, id: i64) {
        if self.last_id + 1 < id {
            self.gaps.push(Gap {
                ids: self.last_id + 1..id,
                written_before: self.count_through(self.last_id),
            });
        }
        self.last_id = id;
    }

    /// Number of written messages up to this id.
    fn count_through(&self, id: i64) -> i64 {
        let begun = self.gaps.partition_point(|gap| gap.ids.start <= id);
        self.gaps[..begun]
            .last()
            .map_or(id, |gap| gap.written_before + (id - gap.ids.end + 1).max(0))
    }
}

fn summary(checkpoint: pb::Checkpoint, covers: i64) -> Summary {
    Summary {
        covers: covers.unsigned_abs(),
        created_us: Some(micros(checkpoint.created_time)),
        text: checkpoint.summary,
        model: checkpoint.model,
        tokens_before: Some(checkpoint.tokens_before),
        tokens_after: Some(checkpoint.tokens_after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_up_to_an_id_are_counted_without_withdrawn_ones() {
        let mut written = WrittenMessages::default();
        for id in [2, 3, 6, i64::MAX] {
            written.advance_to(id);
        }
        let counts = [0, 1, 2, 3, 4, 5, 6, 7].map(|id| written.count_through(id));
        assert_eq!(counts, [0, 0, 1, 2, 2, 2, 3, 3]);
    }
}
