//! Which message of a file became which stored message.

/// The ids of the stored messages of a conversation, by their positions in the file. Ids are 1, 2,
/// 3 …, so it is enough to know how many messages of the file are not stored.
#[derive(Debug, Clone, Default)]
pub(super) struct StoredIds {
    /// Number of messages of the file so far.
    position: u64,
    /// How many messages of the file are not stored, by position.
    missing_counts: Vec<MissingCount>,
}

/// The number of missing messages from a position in the file on, up to the next `MissingCount`.
#[derive(Debug, Clone, Copy)]
struct MissingCount {
    /// Number of messages of the file up to this position.
    position: u64,
    /// Messages of the file up to this position minus stored messages.
    missing: i64,
}

impl StoredIds {
    /// Number of messages of the file so far.
    pub(super) const fn position(&self) -> u64 {
        self.position
    }

    /// Advances to the next message of the file, which is stored as `stored_count` messages (0 or
    /// 1).
    pub(super) fn advance(&mut self, stored_count: i64) {
        self.position += 1;
        self.add_missing(1 - stored_count);
    }

    /// Adds to the number of messages that are in the file but not stored.
    pub(super) fn add_missing(&mut self, messages: i64) {
        if messages != 0 {
            let missing = self.missing_counts.last().map_or(0, |last| last.missing);
            self.missing_counts.push(MissingCount {
                position: self.position,
                missing: missing + messages,
            });
        }
    }

    /// The id of the newest stored message among the first `messages` messages of the file; 0 if
    /// none of them is stored.
    pub(super) fn last_stored(&self, messages: u64) -> i64 {
        let index = self
            .missing_counts
            .partition_point(|count| count.position <= messages);
        let missing = index
            .checked_sub(1)
            .map_or(0, |last| self.missing_counts[last].missing);
        messages as i64 - missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_positions_without_the_messages_that_are_not_stored() {
        let mut ids = StoredIds::default();
        for stored_count in [0, 1, 1, 0, 1] {
            ids.advance(stored_count);
        }
        // The last message has another stored message, with its later parts.
        ids.add_missing(-1);
        assert_eq!(ids.position(), 5);
        let last_stored = (0..=5).map(|messages| ids.last_stored(messages));
        assert_eq!(last_stored.collect::<Vec<_>>(), [0, 0, 1, 2, 2, 4]);
    }
}
