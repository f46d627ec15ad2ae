//! The promises, checked on one conversation's rows. Digests are computed in the database; content does not travel.

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::SourceDigest,
    message::MessageId,
    turn,
};
use sqlx::PgConnection;

use crate::{
    Store,
    error::{Entity, StoreError},
    rows,
};

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The promise's number in the contract; 0: figures that disagree.
    pub promise: i32,
    /// What is wrong; ids and figures, never content.
    pub description: String,
    /// The message concerned.
    pub message: MessageId,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verified {
    /// Empty: everything checked holds.
    pub violations: Vec<Violation>,
    /// Messages read.
    pub messages: i64,
    /// Checkpoints read.
    pub checkpoints: i64,
}

impl Verified {
    pub(crate) fn broken(&mut self, promise: i32, message: i64, description: String) {
        self.violations.push(Violation { promise, description, message: MessageId(message) });
    }
}

struct Head {
    last_message_id: i64,
    counted_message_id: i64,
    token_total: i64,
    turn: i32,
}

/// What the check keeps of a message.
struct Seen {
    id: i64,
    digest: Vec<u8>,
}

/// Messages read at once.
const STEP: i64 = 2_000;

impl Store {
    /// Checks one conversation in one snapshot: order (3), checkpoints (6), coverage (7), content (12), figures (0).
    pub async fn verify(&self, caller: Caller, id: ConversationId) -> Result<Verified, StoreError> {
        let mut db = self.reads.snapshot(caller).await?;
        let verified = checked(&mut db, caller, id, 0).await;
        db.settle(verified).await
    }
}

/// Checks the messages after `after` (0: all of them), and the checkpoints; what it takes all messages to know only where all
/// are read.
pub(crate) async fn checked(
    db: &mut PgConnection,
    caller: Caller,
    id: ConversationId,
    after: i64,
) -> Result<Verified, StoreError> {
    let head = sqlx::query_as!(
        Head,
        "select last_message_id, counted_message_id, token_total, turn from ai_conversation
         where tenant_id = $1 and conversation_id = $2",
        caller.tenant().0,
        id.0,
    )
    .fetch_optional(&mut *db)
    .await?
    .ok_or(StoreError::NotFound(Entity::Conversation))?;
    let mut verified = Verified::default();
    let seen = check_messages(db, caller, id, (&head, after), &mut verified).await?;
    check_checkpoints(db, caller, id, (&seen, after), &mut verified).await?;
    Ok(verified)
}

async fn check_messages(
    db: &mut PgConnection,
    caller: Caller,
    id: ConversationId,
    (head, first_after): (&Head, i64),
    verified: &mut Verified,
) -> Result<Vec<Seen>, StoreError> {
    let mut seen: Vec<Seen> = Vec::new();
    let (mut turn, mut before, mut total) = (0, None, 0_i64);
    let newest_of = |seen: &[Seen]| seen.last().map_or(first_after, |seen| seen.id);
    loop {
        let after = newest_of(&seen);
        let rows = sqlx::query_file!("sql/verify_messages.sql", caller.tenant().0, id.0, after, STEP)
            .fetch_all(&mut *db)
            .await?;
        let last_step = (rows.len() as i64) < STEP;
        for row in rows {
            let expected = newest_of(&seen) + 1;
            if row.message_id != expected {
                verified.broken(3, row.message_id, format!("message {expected} is missing"));
            }
            let role = rows::role(row.role)?;
            // In the middle of a conversation turns go on from where the first message says.
            let is_first_of_part = first_after > 0 && seen.is_empty();
            turn = if is_first_of_part { row.turn } else { turn + i32::from(turn::starts(role, before)) };
            before = Some(role);
            if row.turn != turn {
                verified.broken(3, row.message_id, format!("stored in turn {}, belongs to {turn}", row.turn));
            }
            if !row.content_holds {
                verified.broken(12, row.message_id, "content does not match its digest".into());
            }
            if row.counted != (row.message_id <= head.counted_message_id) {
                verified.broken(0, row.message_id, "counted mark and token count disagree".into());
            }
            total += row.tokens;
            seen.push(Seen { id: row.message_id, digest: row.content_digest });
        }
        if last_step {
            break;
        }
    }
    verified.messages = seen.len() as i64;
    let newest = newest_of(&seen);
    if newest != head.last_message_id {
        verified.broken(
            3,
            newest,
            format!("newest message is {newest}, the conversation says {}", head.last_message_id),
        );
    }
    if first_after == 0 && total != head.token_total {
        verified.broken(0, 0, format!("messages hold {total} tokens, the conversation says {}", head.token_total));
    }
    if turn != head.turn {
        verified.broken(0, 0, format!("newest turn is {turn}, the conversation says {}", head.turn));
    }
    Ok(seen)
}

/// Each checkpoint covers what it says it read, and follows an older one without a gap.
async fn check_checkpoints(
    db: &mut PgConnection,
    caller: Caller,
    id: ConversationId,
    (seen, after): (&[Seen], i64),
    verified: &mut Verified,
) -> Result<(), StoreError> {
    let rows = sqlx::query_file!("sql/verify_checkpoints.sql", caller.tenant().0, id.0).fetch_all(db).await?;
    verified.checkpoints = rows.len() as i64;
    for row in rows {
        let last = row.last_message_id;
        // In order of ids: a search, not a walk through all messages for each checkpoint.
        let from = seen.partition_point(|seen| seen.id < row.source_first_message_id);
        let read = seen[from..].iter().take_while(|seen| seen.id <= last);
        let read: Vec<&Seen> = read.collect();
        let mut digest = SourceDigest::default();
        // Checkpoints may each cover all messages: other calls get their turn between.
        for some in read.chunks(STEP as usize) {
            digest.add(some.iter().map(|seen| (MessageId(seen.id), seen.digest.as_slice())));
            tokio::task::yield_now().await;
        }
        let digest = digest.finish();
        if row.source_first_message_id > after && digest.as_slice() != row.source_digest {
            verified.broken(6, last, format!("checkpoint at {last} was not made from the messages that it covers"));
        }
        // A rebuilt one has read every message of its chain itself.
        let rebuilt = row.generation == 1 && row.source_first_message_id == row.first_message_id;
        let previous = row.previous_message_id.filter(|_| !rebuilt);
        let starts = previous.map_or(row.first_message_id, |previous| previous + 1);
        if starts != row.source_first_message_id {
            verified.broken(7, last, format!("checkpoint at {last} leaves messages before {starts} to nobody"));
        }
        if seen.last().map_or(after, |newest| newest.id) < last {
            verified.broken(7, last, format!("checkpoint at {last} lies beyond the newest message"));
        }
        let generation = previous.and(row.previous_generation).unwrap_or(0) + 1;
        if row.generation != generation {
            verified.broken(
                6,
                last,
                format!("checkpoint at {last} is of generation {}, not {generation}", row.generation),
            );
        }
        if row.siblings > 1 {
            verified.broken(6, last, format!("{} checkpoints follow the same one before {last}", row.siblings));
        }
    }
    Ok(())
}
