//! The messages that a call changes.

use std::collections::BTreeSet;

use anneal_core::{
    caller::{Caller, ConversationId},
    limits::{CHANGE_MESSAGES, TOOL_PAIR_WINDOW},
    message::{MessageId, ToolMark},
    tool_pairs,
};
use futures::TryStreamExt as _;

use super::{
    ToolPairs,
    selection::{IdRange, columns},
};
use crate::{
    connection::BoundedConnection,
    error::StoreError,
    messages::read_budget::{ROW_BYTES, YIELD_BYTES},
};

/// Most bytes of tool calls and results among which the other halves of pairs are looked for.
/// Messages of agents have about a hundred bytes of them, and 12,000 of them are looked through for
/// the largest change.
const OUTLINE_BYTES: usize = 16 * 1024 * 1024;

/// Which messages a change is about. It skips the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Targets {
    /// Messages that stand.
    Standing,
    /// Withdrawn messages.
    Withdrawn,
}

/// One message of a selection.
pub(super) struct Target {
    pub(super) id: MessageId,
    /// Whether it has tool calls or results. None: it is withdrawn, and its content was erased.
    pub(super) has_tools: Option<bool>,
}

/// Reads the messages of these runs that a change is about, in order. Fails if there are too many.
pub(super) async fn select_targets(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    runs: &[IdRange],
    which: Targets,
) -> Result<Vec<Target>, StoreError> {
    let (firsts, lasts) = columns(runs);
    let rows = sqlx::query_file!(
        "sql/select_change_targets.sql",
        caller.tenant().0,
        id.0,
        &firsts,
        &lasts,
        which == Targets::Withdrawn,
        CHANGE_MESSAGES as i64 + 1,
    )
    .fetch_all(db)
    .await?;
    if rows.len() > CHANGE_MESSAGES {
        return Err(StoreError::TooManyMessages);
    }
    let targets = rows.into_iter().map(|row| Target {
        id: MessageId(row.message_id),
        has_tools: row.has_tools,
    });
    Ok(targets.collect())
}

/// The ids of the targets and, if pairs are changed together, of the messages that have the other
/// halves of their tool pairs. These are looked for among [`TOOL_PAIR_WINDOW`] messages before and
/// after each target, and only among messages that the change is about. Fails if there are too
/// many.
pub(super) async fn with_tool_pairs(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    targets: &[Target],
    (pairs, which): (ToolPairs, Targets),
) -> Result<BTreeSet<MessageId>, StoreError> {
    let selected: BTreeSet<MessageId> = targets.iter().map(|target| target.id).collect();
    let with_tools = targets
        .iter()
        .filter(|target| target.has_tools == Some(true));
    let windows = windows(with_tools.map(|target| target.id));
    if pairs == ToolPairs::Apart || windows.is_empty() {
        return Ok(selected);
    }
    let marks = read_outlines(db, caller, id, &windows, which).await?;
    let all = tool_pairs::closure(&marks, &selected);
    if all.len() > CHANGE_MESSAGES {
        return Err(StoreError::TooManyMessages);
    }
    Ok(all)
}

/// The messages around each of these, which are in order. Windows that overlap become one.
fn windows(ids: impl Iterator<Item = MessageId>) -> Vec<IdRange> {
    let mut windows: Vec<IdRange> = Vec::new();
    for id in ids {
        let window = IdRange {
            first: MessageId(id.0.saturating_sub(TOOL_PAIR_WINDOW)),
            last: MessageId(id.0.saturating_add(TOOL_PAIR_WINDOW)),
        };
        match windows.last_mut() {
            Some(before) if before.last >= window.first => before.last = window.last,
            _ => windows.push(window),
        }
    }
    windows
}

/// Reads the tool calls and results of the messages in these windows. Parses each row when it
/// arrives, and yields in between.
pub(super) async fn read_outlines(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    windows: &[IdRange],
    which: Targets,
) -> Result<Vec<(MessageId, Vec<ToolMark>)>, StoreError> {
    let (firsts, lasts) = columns(windows);
    let mut rows = sqlx::query_file!(
        "sql/tool_outlines.sql",
        caller.tenant().0,
        id.0,
        &firsts,
        &lasts,
        which == Targets::Withdrawn,
    )
    .fetch(db);
    let mut marks = Vec::new();
    let (mut bytes, mut bytes_since_yield) = (0, 0);
    while let Some(row) = rows.try_next().await? {
        let row_bytes = ROW_BYTES as usize + row.outline.len();
        bytes += row_bytes;
        if bytes > OUTLINE_BYTES {
            return Err(StoreError::TooManyMessages);
        }
        let outline = serde_json::from_str(&row.outline)
            .map_err(|_| StoreError::Unreadable("tool outline"))?;
        marks.push((MessageId(row.message_id), outline));
        bytes_since_yield += row_bytes;
        if bytes_since_yield >= YIELD_BYTES {
            bytes_since_yield = 0;
            tokio::task::yield_now().await;
        }
    }
    Ok(marks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_that_overlap_become_one() {
        let ids = [5, 1_900, 9_000].map(MessageId);
        let found: Vec<(i64, i64)> = windows(ids.into_iter())
            .iter()
            .map(|window| (window.first.0, window.last.0))
            .collect();
        assert_eq!(found, [(-995, 2_900), (8_000, 10_000)]);
    }
}
