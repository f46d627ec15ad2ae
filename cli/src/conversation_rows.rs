//! Conversations as rows of a table, or one conversation as its title and figures.

use std::{
    fmt::Write as _,
    time::{SystemTime, UNIX_EPOCH},
};

use anneal_proto::v1 as pb;

use crate::{
    columns::{ago, clipped, fitted, grouped},
    find_by_prefix::{SHORT_ID_CHARACTERS, unique_prefix_length},
    sanitize::sanitize,
    text_format::pluralize,
};

/// Columns that a row takes without its title, its id, and the word `archived`. The longest age is
/// `10 minutes ago`.
const FIGURE_COLUMNS: usize = 47;
/// Fewest columns of a title in a row.
const MIN_TITLE_COLUMNS: usize = 12;
/// Most columns of a title.
const MAX_TITLE_COLUMNS: usize = 48;
/// Columns of agent and user, with the blank after them.
const OWNER_COLUMNS: usize = 24;
/// Fewest columns of rows that show agent and user.
const MIN_COLUMNS_WITH_OWNER: usize = 100;
/// Most conversations listed if a prefix is ambiguous.
const MAX_LISTED_MATCHES: usize = 10;

/// Whether rows show the agent and the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnerColumn {
    Hidden,
    /// After the title, in rows of at least [`MIN_COLUMNS_WITH_OWNER`] columns.
    IfWide,
}

/// A line per conversation: a mark for the current one, id, title, agent and user, messages,
/// tokens, last activity.
pub(crate) fn rows(
    conversations: &[pb::Conversation],
    current: Option<&str>,
    owner_column: OwnerColumn,
    now: SystemTime,
    columns: usize,
) -> String {
    let owner_columns = match owner_column {
        OwnerColumn::IfWide if columns >= MIN_COLUMNS_WITH_OWNER => OWNER_COLUMNS,
        _ => 0,
    };
    let id_length = unique_prefix_length(conversations);
    let width = columns
        .saturating_sub(FIGURE_COLUMNS + id_length + owner_columns)
        .clamp(MIN_TITLE_COLUMNS, MAX_TITLE_COLUMNS);
    let mut rows = String::new();
    for conversation in conversations {
        let mark = if current == Some(conversation.conversation_id.as_str()) {
            '*'
        } else {
            ' '
        };
        let id: String = conversation
            .conversation_id
            .chars()
            .take(id_length)
            .collect();
        let title = fitted(&sanitize(title_or_placeholder(conversation)), width);
        let owner = match owner_columns {
            0 => String::new(),
            columns => {
                let owner = format!("{}/{}", conversation.agent_id, conversation.user_id);
                format!(" {}", fitted(&sanitize(&owner), columns - 1))
            }
        };
        let messages = grouped(conversation.message_count.unsigned_abs());
        let tokens = grouped(conversation.token_total.unwrap_or_default().tokens);
        let archived = match conversation.status() {
            pb::ConversationStatus::Archived => ", archived",
            _ => "",
        };
        let last = last_activity(conversation, now);
        let _ = writeln!(
            rows,
            "{mark} {id}  {title}{owner} {messages:>6} msgs {tokens:>10} tok  {last}{archived}"
        );
    }
    rows
}

/// The rows of the conversations that an ambiguous prefix may mean, and how many more there are.
pub(crate) fn match_rows(matches: &[&pb::Conversation], now: SystemTime, columns: usize) -> String {
    let shown: Vec<pb::Conversation> = matches
        .iter()
        .take(MAX_LISTED_MATCHES)
        .map(|found| (*found).clone())
        .collect();
    let mut rows = rows(&shown, None, OwnerColumn::Hidden, now, columns);
    if matches.len() > MAX_LISTED_MATCHES {
        let _ = writeln!(rows, "  … and {} more", matches.len() - MAX_LISTED_MATCHES);
    }
    rows
}

/// One conversation as two texts. The first is its title. The second has the start of its id, its
/// messages, tokens and last activity.
pub(crate) fn title_and_figures(
    conversation: &pb::Conversation,
    now: SystemTime,
) -> (String, String) {
    let title = clipped(
        &sanitize(title_or_placeholder(conversation)),
        MAX_TITLE_COLUMNS,
    );
    let id: String = conversation
        .conversation_id
        .chars()
        .take(SHORT_ID_CHARACTERS)
        .collect();
    let tokens = grouped(conversation.token_total.unwrap_or_default().tokens);
    let messages = pluralize(conversation.message_count as usize, "message");
    (
        title,
        format!(
            "{id}, {messages}, {tokens} tokens, {}",
            last_activity(conversation, now)
        ),
    )
}

fn title_or_placeholder(conversation: &pb::Conversation) -> &str {
    if conversation.title.is_empty() {
        "(no title)"
    } else {
        &conversation.title
    }
}

/// The time since the last activity, by the clock of this machine. Only for display.
fn last_activity(conversation: &pb::Conversation, now: SystemTime) -> String {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let then = conversation.last_activity_time.unwrap_or_default().seconds;
    ago(now.saturating_sub(then.max(0).unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use unicode_width::UnicodeWidthStr as _;

    use super::*;

    #[test]
    fn rows_align_for_titles_in_any_script_and_are_sanitized() {
        let titled = |id: &str, title: &str| pb::Conversation {
            conversation_id: format!("{id}-0000-4000-8000-000000000000"),
            title: title.into(),
            message_count: 12,
            ..Default::default()
        };
        let now = UNIX_EPOCH + Duration::from_hours(50);
        let with_longest_age = pb::Conversation {
            last_activity_time: Some((now - Duration::from_mins(10)).into()),
            ..titled("00000004", "Ten minutes")
        };
        let all = [
            titled("00000001", "The ferry"),
            titled(
                "00000002",
                "港口的渡轮几点开?从这里到那里要多久呢,还有别的船吗",
            ),
            titled("00000003", "\u{1b}[2Jgone\u{202e}"),
            with_longest_age,
        ];
        let rows = rows(
            &all,
            Some(&all[1].conversation_id),
            OwnerColumn::IfWide,
            now,
            80,
        );
        let figure_columns: Vec<usize> = rows
            .lines()
            .map(|line| line.find("12 msgs").map_or(0, |at| line[..at].width()))
            .collect();
        assert!(
            figure_columns[0] > 0
                && figure_columns
                    .iter()
                    .all(|column| *column == figure_columns[0]),
            "{rows}"
        );
        assert!(rows.lines().all(|line| line.width() <= 80), "{rows}");
        assert!(rows.contains("10 minutes ago"), "{rows}");
        assert!(
            rows.lines()
                .nth(1)
                .is_some_and(|line| line.starts_with("* 00000002")),
            "{rows}"
        );
        assert!(
            !rows.contains('\u{1b}') && !rows.contains('\u{202e}') && rows.contains("2 days ago"),
            "{rows}"
        );
    }

    #[test]
    fn only_wide_rows_show_agent_and_user() {
        let conversation = pb::Conversation {
            conversation_id: "00000001-0000-4000-8000-000000000000".into(),
            title: "The ferry".into(),
            agent_id: "terminal".into(),
            user_id: "ann".into(),
            ..Default::default()
        };
        let row = |columns| {
            rows(
                std::slice::from_ref(&conversation),
                None,
                OwnerColumn::IfWide,
                UNIX_EPOCH,
                columns,
            )
        };
        assert!(row(120).contains("terminal/ann"), "{}", row(120));
        assert!(!row(80).contains("terminal/ann"), "{}", row(80));
        assert!(row(100).trim_end().width() <= 100, "{}", row(100));
    }
}
