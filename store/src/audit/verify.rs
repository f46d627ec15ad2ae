//! Checks the rows of one conversation against the promises that docs/operations.md numbers. The
//! database computes the digests of content, so content is not transferred.

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::SourceDigest,
    message::{MessageId, Role},
    turn,
};

use super::{
    changes::check_changes,
    checked_rows::{CheckedMessage, Extent, MESSAGES_PER_STEP, Made, StandingCheckpoint},
    orphans::check_deletion,
    report::VerifyReport,
};
use crate::{
    Store,
    connection::BoundedConnection,
    error::{Entity, StoreError},
    rows,
};

/// The figures that the conversation's own row holds.
struct Head {
    last_message_id: i64,
    counted_message_id: i64,
    token_total: i64,
    turn: i32,
    withdrawn: i64,
    /// Whether the row and `ai_fork` name the same source.
    source_agrees: bool,
}

/// The turns of messages that stand, counted while the messages are read in order.
struct Turns {
    /// The turn of the newest message read so far. None: the first one decides, because earlier
    /// messages are not read.
    turn: Option<i32>,
    previous_role: Option<Role>,
}

impl Turns {
    /// The turns of a conversation whose messages after `first_after` are read.
    fn starting_after(first_after: i64) -> Self {
        Self {
            turn: (first_after == 0).then_some(0),
            previous_role: None,
        }
    }

    /// The turn that the next message belongs to. `stored` is the turn that is stored with it.
    fn next(&mut self, role: Role, stored: i32) -> i32 {
        let turn = self.turn.map_or(stored, |turn| {
            turn + i32::from(turn::starts(role, self.previous_role))
        });
        (self.turn, self.previous_role) = (Some(turn), Some(role));
        turn
    }
}

impl Store {
    /// Checks one conversation in one snapshot. The promises, by number: 3 order, 6 checkpoints,
    /// 7 coverage, 12 content, 15 deletion, 16 nothing of withdrawn and erased messages, 17 nothing
    /// older than a change of what it was made from, 0 figures. Fails if the conversation does not
    /// exist and no table has rows of it.
    pub async fn verify(
        &self,
        caller: Caller,
        id: ConversationId,
    ) -> Result<VerifyReport, StoreError> {
        let mut db = self.reads.checkout_snapshot(caller).await?;
        let report = match check_conversation(&mut db, caller, id, Extent::Whole).await {
            Err(StoreError::NotFound(_)) => check_deletion(&mut db, caller, id).await,
            report => report,
        };
        db.settle(report).await
    }
}

/// Checks the messages of this extent, the checkpoints, and what changes of messages have left.
/// Leaves out the checks that need earlier messages.
pub(super) async fn check_conversation(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    extent: Extent,
) -> Result<VerifyReport, StoreError> {
    let head = sqlx::query_as!(
        Head,
        r#"select last_message_id, counted_message_id, token_total, turn,
               coalesce(withdrawn_messages, 0) as "withdrawn!",
               forked_from_id is not distinct from
                   (select source_id from ai_fork where tenant_id = $1 and conversation_id = $2) as "source_agrees!"
           from ai_conversation where tenant_id = $1 and conversation_id = $2"#,
        caller.tenant().0,
        id.0,
    )
    .fetch_optional(&mut *db)
    .await?
    .ok_or(StoreError::NotFound(Entity::Conversation))?;
    let mut report = VerifyReport::default();
    let after = extent.after();
    let messages = check_messages(db, caller, id, (&head, after), &mut report).await?;
    let checkpoints = check_checkpoints(db, caller, id, (&messages, after), &mut report).await?;
    check_changes(
        db,
        (caller, id),
        extent,
        (&messages, checkpoints),
        &mut report,
    )
    .await?;
    Ok(report)
}

/// Checks the messages after `first_after` against each other and against the conversation's row.
/// Returns what the checks of checkpoints and of changes need of them.
async fn check_messages(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    (head, first_after): (&Head, i64),
    report: &mut VerifyReport,
) -> Result<Vec<CheckedMessage>, StoreError> {
    let mut read: Vec<CheckedMessage> = Vec::new();
    let (mut turns, mut total, mut withdrawn) = (Turns::starting_after(first_after), 0_i64, 0_i64);
    let newest_of = |read: &[CheckedMessage]| read.last().map_or(first_after, |newest| newest.id);
    loop {
        let after = newest_of(&read);
        let rows = sqlx::query_file!(
            "sql/verify_messages.sql",
            caller.tenant().0,
            id.0,
            after,
            MESSAGES_PER_STEP
        )
        .fetch_all(&mut *db)
        .await?;
        let last_step = (rows.len() as i64) < MESSAGES_PER_STEP;
        for row in rows {
            let expected = newest_of(&read) + 1;
            if row.message_id != expected {
                report.add_violation(3, row.message_id, format!("message {expected} is missing"));
            }
            if row.withdrawn {
                withdrawn += 1;
                if !row.is_empty {
                    report.add_violation(16, row.message_id, "withdrawn, but not empty".into());
                }
            } else {
                let turn = turns.next(rows::role(row.role)?, row.turn);
                if row.turn != turn {
                    report.add_violation(
                        3,
                        row.message_id,
                        format!("stored in turn {}, belongs to {turn}", row.turn),
                    );
                }
            }
            if !row.digest_matches {
                report.add_violation(
                    12,
                    row.message_id,
                    "content does not match its digest".into(),
                );
            }
            if row.counted != (row.message_id <= head.counted_message_id) {
                report.add_violation(
                    0,
                    row.message_id,
                    "token count and counted_message_id disagree".into(),
                );
            }
            total += row.tokens;
            let summary = Made {
                change_id: row.summary_change_id,
                created_us: row.summary_us,
            };
            read.push(CheckedMessage {
                id: row.message_id,
                digest: row.content_digest,
                is_withdrawn: row.withdrawn,
                summary: row.has_summary.then_some(summary),
            });
        }
        if last_step {
            break;
        }
    }
    report.messages = read.len() as i64;
    let newest = newest_of(&read);
    if newest != head.last_message_id {
        report.add_violation(
            3,
            newest,
            format!(
                "newest message is {newest}, the conversation says {}",
                head.last_message_id
            ),
        );
    }
    let is_whole = first_after == 0;
    check_figures(
        head,
        turns.turn,
        is_whole.then_some((total, withdrawn)),
        report,
    );
    Ok(read)
}

/// Checks the figures of the conversation's row. `turn` is the newest turn; None: no message that
/// stands was read, and earlier ones were not. `sums` are the tokens and the number of withdrawn
/// messages of the whole conversation; None: not all messages were read.
fn check_figures(
    head: &Head,
    turn: Option<i32>,
    sums: Option<(i64, i64)>,
    report: &mut VerifyReport,
) {
    let mut add = |description: String| report.add_violation(0, 0, description);
    if !head.source_agrees {
        add("the conversation and the list of forks name different sources".into());
    }
    if let Some((total, withdrawn)) = sums {
        if total != head.token_total {
            add(format!(
                "messages hold {total} tokens, the conversation says {}",
                head.token_total
            ));
        }
        if withdrawn != head.withdrawn {
            add(format!(
                "{withdrawn} messages are withdrawn, the conversation says {}",
                head.withdrawn
            ));
        }
    }
    if let Some(turn) = turn.filter(|turn| *turn != head.turn) {
        add(format!(
            "newest turn is {turn}, the conversation says {}",
            head.turn
        ));
    }
}

/// Checks of each checkpoint that its source digest is that of its source messages, that these
/// begin directly after the previous checkpoint, that its generation is the next one, and that it
/// does not end after the newest message. Checks also that no two checkpoints follow the same one.
/// Returns the checkpoints.
async fn check_checkpoints(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    (messages, after): (&[CheckedMessage], i64),
    report: &mut VerifyReport,
) -> Result<Vec<StandingCheckpoint>, StoreError> {
    let rows = sqlx::query_file!("sql/verify_checkpoints.sql", caller.tenant().0, id.0)
        .fetch_all(db)
        .await?;
    report.checkpoints = rows.len() as i64;
    let mut checkpoints = Vec::with_capacity(rows.len());
    for row in rows {
        let last = row.last_message_id;
        checkpoints.push(StandingCheckpoint {
            first: row.first_message_id,
            last,
            made: Made {
                change_id: row.change_id,
                created_us: row.created_us,
            },
        });
        // Messages are sorted by id: a binary search instead of a scan per checkpoint.
        let from = messages.partition_point(|message| message.id < row.source_first_message_id);
        let sources = messages[from..]
            .iter()
            .take_while(|message| message.id <= last);
        let sources: Vec<&CheckedMessage> = sources.collect();
        let mut digest = SourceDigest::default();
        // Each checkpoint may cover all messages: yield to other tasks in between.
        for chunk in sources.chunks(MESSAGES_PER_STEP as usize) {
            digest.add(
                chunk
                    .iter()
                    .map(|message| (MessageId(message.id), message.digest.as_slice())),
            );
            tokio::task::yield_now().await;
        }
        let digest = digest.finish();
        if row.source_first_message_id > after && digest.as_slice() != row.source_digest {
            report.add_violation(
                6,
                last,
                format!("checkpoint at {last} was not made from the messages that it covers"),
            );
        }
        // The summary of a rebuilt checkpoint was made from all messages of its chain, not from the
        // previous summary.
        let is_rebuilt = row.generation == 1 && row.source_first_message_id == row.first_message_id;
        let previous = row.previous_message_id.filter(|_| !is_rebuilt);
        let wanted = previous.map_or(row.first_message_id, |previous| previous + 1);
        if wanted != row.source_first_message_id {
            report.add_violation(
                7,
                last,
                format!(
                    "the sources of the checkpoint at {last} begin at message {}, not at {wanted}",
                    row.source_first_message_id
                ),
            );
        }
        if messages.last().map_or(after, |newest| newest.id) < last {
            report.add_violation(
                7,
                last,
                format!("checkpoint at {last} lies beyond the newest message"),
            );
        }
        let expected_generation = previous.and(row.previous_generation).unwrap_or(0) + 1;
        if row.generation != expected_generation {
            report.add_violation(
                6,
                last,
                format!(
                    "checkpoint at {last} is of generation {}, not {expected_generation}",
                    row.generation
                ),
            );
        }
        if row.siblings > 1 {
            report.add_violation(
                6,
                last,
                format!(
                    "{} checkpoints follow the same one before {last}",
                    row.siblings
                ),
            );
        }
    }
    Ok(checkpoints)
}
