//! Counts the rows of an older system's tables by kind, and finds those that cannot be moved.

use anneal_core::limits::{ID_BYTES, MESSAGE_BYTES, METADATA_BYTES, TITLE_BYTES};
use sqlx::FromRow;

use super::Shape;
use crate::{connection::BoundedConnection, error::MigrationsError};

/// How many rows of the older tables are moved, and how many are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LegacyCounts {
    /// Conversations that are moved.
    pub conversations: i64,
    /// Moved conversations that the older system had archived.
    pub archived: i64,
    /// Moved conversations with an unknown row status. The move archives them, and keeps the status
    /// as a label.
    pub unknown_status: i64,
    /// Moved conversations whose titles are too long. The titles are shortened; the full title is
    /// kept as a label.
    pub titles_shortened: i64,
    /// Users' messages that are moved.
    pub user_messages: i64,
    /// The model's messages that are moved.
    pub assistant_messages: i64,
    /// The application's messages that are moved.
    pub system_messages: i64,
    /// Moved messages without content. They are kept as empty texts.
    pub empty_messages: i64,
    /// Users' separators, which are moved, `separators_joined` included.
    pub separators: i64,
    /// Users' separators at the position of an earlier one. The two become one.
    pub separators_joined: i64,
    /// Separators of the system, which are deleted.
    pub system_separators: i64,
    /// Summaries stored among the messages, which are deleted.
    pub summaries: i64,
    /// Checkpoints, which are deleted, because the messages that they summarize are stored in
    /// another form.
    pub checkpoints: i64,
    /// Summaries of large messages, which are deleted and made again.
    pub summary_caches: i64,
    /// Messages and users' separators of conversations that no longer exist. They are deleted.
    pub orphans: i64,
    /// Conversations and messages whose metadata exceeds the limits of labels. The metadata is left
    /// out; only the row's old ids become labels.
    pub labels_left_out: i64,
    /// Sentences that say why rows cannot be moved; empty if all rows can be moved.
    pub obstacles: Vec<String>,
}

impl LegacyCounts {
    /// Number of messages that are moved.
    pub const fn messages(&self) -> i64 {
        self.user_messages + self.assistant_messages + self.system_messages
    }

    /// Fails if there are rows that cannot be moved.
    pub fn check(&self) -> Result<(), MigrationsError> {
        if self.obstacles.is_empty() {
            return Ok(());
        }
        Err(MigrationsError::Unmovable(self.obstacles.join("; ")))
    }

    fn add_obstacle(&mut self, rows: i64, what: &str, first: Option<i64>) {
        if rows > 0 {
            let first = first.map_or_else(String::new, |id| format!(" (the first has id {id})"));
            self.obstacles.push(format!("{rows} {what}{first}"));
        }
    }

    fn add(&mut self, row: &MessageCounts) {
        match (row.fate.as_str(), row.role.as_str()) {
            ("message", "USER") => self.user_messages = row.rows,
            ("message", "ASSISTANT") => self.assistant_messages = row.rows,
            ("message", _) => self.system_messages = row.rows,
            ("separator", _) => self.separators = row.rows,
            ("system_separator", _) => self.system_separators = row.rows,
            ("summary", _) => self.summaries = row.rows,
            ("orphan", _) => self.orphans = row.rows,
            ("unknown_type", _) => {
                self.add_obstacle(
                    row.rows,
                    "rows of ai_message have a type that is not known",
                    row.first,
                );
            }
            _ => self.add_obstacle(
                row.rows,
                "messages have a role that is not known",
                row.first,
            ),
        }
        if row.fate == "message" {
            self.empty_messages += row.empty;
            self.add_obstacle(
                row.too_long,
                "messages are longer than 64 MiB",
                row.first_too_long,
            );
        }
        if matches!(row.fate.as_str(), "message" | "separator") {
            self.add_obstacle(
                row.timeless,
                "rows of ai_message have no time that can be read",
                row.first_timeless,
            );
        }
    }
}

/// The counts of the message rows with one fate and role. A `first_` column is the lowest id among
/// the rows that the count before it counts.
#[derive(Debug, FromRow)]
struct MessageCounts {
    /// What the move does with such rows: the column `fate` of the view `legacy_message`.
    fate: String,
    role: String,
    rows: i64,
    empty: i64,
    too_long: i64,
    first_too_long: Option<i64>,
    /// Rows without a time that can be read.
    timeless: i64,
    first_timeless: Option<i64>,
    /// The lowest id among all these rows.
    first: Option<i64>,
}

/// The counts of conversations, and of irregular rows. A `first_` column is the lowest id among the
/// irregular rows that the count before it counts.
#[derive(Debug, FromRow)]
struct ConversationCounts {
    conversations: i64,
    archived: i64,
    unknown_status: i64,
    /// Conversations without a time that can be read.
    timeless: i64,
    first_timeless: Option<i64>,
    /// Conversations that have the id of another one.
    repeated: i64,
    /// Message rows that have the id of another one.
    repeated_messages: i64,
    titles_shortened: i64,
    /// Conversations whose `creator_id` is too long for the id of a user.
    long_creators: i64,
    first_long_creator: Option<i64>,
    /// Conversations whose title, uid or status is too long for a label.
    long_ids: i64,
    first_long_ids: Option<i64>,
    /// Message rows whose uid is too long for a label.
    long_message_ids: i64,
    first_long_message_ids: Option<i64>,
    labels_left_out: i64,
    message_labels_left_out: i64,
    separators_joined: i64,
}

/// Counts the rows of the older tables. Reads them through the views of `sql/legacy_views.sql`.
pub(super) async fn count(
    db: &mut BoundedConnection,
    shape: Shape,
) -> Result<LegacyCounts, MigrationsError> {
    let mut counts = count_conversations(db).await?;
    let rows: Vec<MessageCounts> =
        sqlx::query_as(include_str!("../../sql/legacy_message_counts.sql"))
            .bind(MESSAGE_BYTES as i64)
            .fetch_all(&mut *db)
            .await?;
    for row in &rows {
        counts.add(row);
    }
    if shape.checkpoints {
        counts.checkpoints = sqlx::query_scalar("select count(*) from ai_conversation_checkpoint")
            .fetch_one(&mut *db)
            .await?;
    }
    if shape.summary_caches {
        let query = "select count(*) from ai_message where summary_cache is not null";
        counts.summary_caches = sqlx::query_scalar(query).fetch_one(&mut *db).await?;
    }
    Ok(counts)
}

/// Counts conversations, and the irregular rows that a count by role and fate does not show.
async fn count_conversations(db: &mut BoundedConnection) -> Result<LegacyCounts, MigrationsError> {
    let all: ConversationCounts =
        sqlx::query_as(include_str!("../../sql/legacy_conversation_counts.sql"))
            .bind(TITLE_BYTES as i64)
            .bind(ID_BYTES as i64)
            .bind(METADATA_BYTES as i64)
            .fetch_one(db)
            .await?;
    let mut counts = LegacyCounts {
        conversations: all.conversations,
        archived: all.archived,
        unknown_status: all.unknown_status,
        titles_shortened: all.titles_shortened,
        separators_joined: all.separators_joined,
        labels_left_out: all.labels_left_out + all.message_labels_left_out,
        ..LegacyCounts::default()
    };
    counts.add_obstacle(
        all.timeless,
        "conversations have no time that can be read",
        all.first_timeless,
    );
    counts.add_obstacle(all.repeated, "conversations have the id of another", None);
    counts.add_obstacle(
        all.repeated_messages,
        "rows of ai_message have the id of another",
        None,
    );
    let what = "conversations have a creator_id of more than 128 bytes";
    counts.add_obstacle(all.long_creators, what, all.first_long_creator);
    let what = "conversations have a title, uid or status too long for a label (4 kB)";
    counts.add_obstacle(all.long_ids, what, all.first_long_ids);
    let what = "rows of ai_message have a uid too long for a label (4 kB)";
    counts.add_obstacle(all.long_message_ids, what, all.first_long_message_ids);
    Ok(counts)
}
