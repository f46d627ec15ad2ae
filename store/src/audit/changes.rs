//! Checks what changes of messages have left: nothing of a withdrawn or an erased message stands
//! (promise 16), and what stands was made after the last change of what it was made from (17).

use anneal_core::caller::{Caller, ConversationId};

use super::{
    checked_rows::{CheckedMessage, Extent, MESSAGES_PER_STEP, Made, StandingCheckpoint},
    report::VerifyReport,
};
use crate::{changes::MessageChangeKind, connection::BoundedConnection, error::StoreError};

/// Most changes that one statement reads. Each may have 10,000 runs of messages.
const CHANGES_PER_STEP: i64 = 100;

/// Most checkpoints without effect that a check of everything reads.
const MOST_VOID: i64 = 100_000;

/// Most of them that an audit reads: those set aside last.
const MOST_VOID_OF_AUDIT: i64 = 100;

/// A checkpoint that no longer holds, and that still has content.
struct VoidContent {
    change_id: i64,
    first: i64,
    last: i64,
}

/// A change of messages.
struct Change {
    id: i64,
    kind: MessageChangeKind,
    /// The changed messages as runs of ids, in order: the first of each run.
    first_ids: Vec<i64>,
    /// The last of each run.
    last_ids: Vec<i64>,
    created_us: i64,
}

impl Change {
    /// Whether a summary was stored before the change. If it has no number, the times decide.
    const fn is_after(&self, made: Made) -> bool {
        if made.change_id > 0 {
            made.change_id < self.id
        } else {
            made.created_us < self.created_us
        }
    }

    /// Whether it changed a message from `first` to `last`.
    fn meets(&self, first: i64, last: i64) -> bool {
        let next = self.last_ids.partition_point(|end| *end < first);
        self.first_ids.get(next).is_some_and(|start| *start <= last)
    }
}

/// The rows that changes are compared with. A row is taken out once a violation of it is reported.
struct Comparison<'a> {
    messages: &'a [CheckedMessage],
    /// The kind of the newest change of each message. None: none was read.
    newest: Vec<Option<MessageChangeKind>>,
    checkpoints: Vec<StandingCheckpoint>,
    void: Vec<VoidContent>,
}

/// Checks the changes of messages, the content that no longer stands, and the checkpoints that do
/// not hold, against the messages and the checkpoints that stand.
pub(super) async fn check_changes(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    extent: Extent,
    (messages, checkpoints): (&[CheckedMessage], Vec<StandingCheckpoint>),
    report: &mut VerifyReport,
) -> Result<(), StoreError> {
    let mut comparison = Comparison {
        messages,
        newest: vec![None; messages.len()],
        checkpoints,
        void: read_void_content(db, caller, id, extent).await?,
    };
    let mut before = i64::MAX;
    loop {
        let rows = sqlx::query_file!(
            "sql/verify_changes.sql",
            caller.tenant().0,
            id.0,
            before,
            CHANGES_PER_STEP
        )
        .fetch_all(&mut *db)
        .await?;
        let last_step = (rows.len() as i64) < CHANGES_PER_STEP || extent != Extent::Whole;
        for row in rows {
            before = row.change_id;
            if row.void_rows != i64::from(row.void_checkpoints) {
                let description = format!(
                    "change {} has set {} checkpoints aside, {} are stored",
                    row.change_id, row.void_checkpoints, row.void_rows
                );
                report.add_violation(0, 0, description);
            }
            if !row.changes_content {
                // Checkpoints and summaries hold no labels.
                continue;
            }
            let change = Change {
                id: row.change_id,
                kind: MessageChangeKind::from_code(row.kind)?,
                first_ids: row.first_ids,
                last_ids: row.last_ids,
                created_us: row.created_us,
            };
            comparison.check_messages(&change, report);
            comparison.check_summaries(&change, report);
            // Each change may have 10,000 runs and be compared with 100,000 checkpoints: yield to
            // other tasks in between.
            tokio::task::yield_now().await;
        }
        if last_step {
            break;
        }
    }
    check_versions(db, (caller, id), extent, &comparison, report).await
}

impl Comparison<'_> {
    /// Checks those messages of the change that no later change has changed: a message stands if it
    /// was restored or edited, and its summary is newer than that.
    fn check_messages(&mut self, change: &Change, report: &mut VerifyReport) {
        let stands = match change.kind {
            MessageChangeKind::Restored | MessageChangeKind::Edited => true,
            MessageChangeKind::Withdrawn | MessageChangeKind::Erased => false,
        };
        for (first, last) in change.first_ids.iter().zip(&change.last_ids) {
            let from = self.messages.partition_point(|message| message.id < *first);
            let run = self.messages[from..]
                .iter()
                .take_while(|message| message.id <= *last);
            for (newest, message) in self.newest[from..].iter_mut().zip(run) {
                if newest.is_some() {
                    continue;
                }
                *newest = Some(change.kind);
                match (stands, message.is_withdrawn) {
                    (false, false) => {
                        let description =
                            format!("stands, but change {} has taken it out", change.id);
                        report.add_violation(16, message.id, description);
                    }
                    (true, true) => {
                        let description = format!(
                            "does not stand, but change {} has left it standing",
                            change.id
                        );
                        report.add_violation(0, message.id, description);
                    }
                    _ => {}
                }
                let summary = message.summary.filter(|_| stands);
                if summary.is_some_and(|made| change.is_after(made)) {
                    let description = format!("its summary is older than change {}", change.id);
                    report.add_violation(17, message.id, description);
                }
            }
        }
    }

    /// Checks the checkpoints whose range holds a message of the change: those that stand are newer
    /// than the change, and nothing is left of those that an erasure found set aside.
    fn check_summaries(&mut self, change: &Change, report: &mut VerifyReport) {
        if change.kind == MessageChangeKind::Erased {
            // Messages that stood were withdrawn first, as a change of its own. A checkpoint that was
            // made after that held nothing of it, and stands.
            self.void.retain(|void| {
                let has_erased =
                    void.change_id <= change.id && change.meets(void.first, void.last);
                if has_erased {
                    let description = format!(
                        "the checkpoint at {} that change {} has set aside has content, but change {} has erased a message in its range",
                        void.last, void.change_id, change.id
                    );
                    report.add_violation(16, void.last, description);
                }
                !has_erased
            });
            return;
        }
        self.checkpoints.retain(|checkpoint| {
            let is_stale = change.is_after(checkpoint.made)
                && change.meets(checkpoint.first, checkpoint.last);
            if is_stale {
                let description = format!(
                    "the checkpoint at {} stands, but is older than change {} of a message in its range",
                    checkpoint.last, change.id
                );
                report.add_violation(17, checkpoint.last, description);
            }
            !is_stale
        });
    }

    /// Whether the newest change of this message that was read is its erasure.
    fn is_erased(&self, message: i64) -> bool {
        let found = self
            .messages
            .binary_search_by_key(&message, |message| message.id);
        found.is_ok_and(|index| self.newest[index] == Some(MessageChangeKind::Erased))
    }
}

/// Reads the checkpoints that no longer hold and still have content.
async fn read_void_content(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    extent: Extent,
) -> Result<Vec<VoidContent>, StoreError> {
    let most = match extent {
        Extent::Whole => MOST_VOID,
        Extent::Newest(_) => MOST_VOID_OF_AUDIT,
    };
    let rows = sqlx::query_file!(
        "sql/verify_void_checkpoints.sql",
        caller.tenant().0,
        id.0,
        most
    )
    .fetch_all(db)
    .await?;
    let with_content = rows.into_iter().filter(|row| row.has_content);
    Ok(with_content
        .map(|row| VoidContent {
            change_id: row.void_change_id,
            first: row.first_message_id,
            last: row.last_message_id,
        })
        .collect())
}

/// Checks the content that no longer stands: it is not of an erased message, it precedes what the
/// message's row has, and it matches its digest. An audit reads one page, and no content.
async fn check_versions(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    extent: Extent,
    comparison: &Comparison<'_>,
    report: &mut VerifyReport,
) -> Result<(), StoreError> {
    let (mut message, mut version) = (extent.after(), i32::MAX);
    loop {
        let rows = sqlx::query_file!(
            "sql/verify_versions.sql",
            caller.tenant().0,
            id.0,
            message,
            version,
            MESSAGES_PER_STEP,
            extent == Extent::Whole,
        )
        .fetch_all(&mut *db)
        .await?;
        let last_step = (rows.len() as i64) < MESSAGES_PER_STEP || extent != Extent::Whole;
        for row in rows {
            (message, version) = (row.message_id, row.version);
            if comparison.is_erased(message) {
                let description = format!("was erased, but version {version} of it is stored");
                report.add_violation(16, message, description);
            }
            if row.is_too_new {
                let description = format!(
                    "version {version} is stored as one that no longer stands, but its row has an earlier one"
                );
                report.add_violation(0, message, description);
            }
            if !row.digest_matches {
                let description = format!("version {version} does not match its digest");
                report.add_violation(12, message, description);
            }
        }
        if last_step {
            return Ok(());
        }
    }
}
