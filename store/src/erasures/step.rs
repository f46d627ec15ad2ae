//! The steps of the erasures of users and of tenants. Each deletes some conversations in one
//! transaction. An erasure ends when none is left: so it also reaches conversations that were made
//! meanwhile, such as forks.

use std::time::Duration;

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    digest::SetDigest,
};
use uuid::Uuid;

use super::{
    begin::ErasureSubject,
    deletion::Deletion,
    measure::measure_conversations,
    receipt::{ErasureKind, set_digest},
    row_counts::RowCounts,
};
use crate::{
    Store,
    connection::{BoundedConnection, row_security::Scope, set_statement_timeout},
    conversations::subtract_usage,
    error::StoreError,
    failpoint,
    rows::{Micros, json},
};

/// Most conversations that one step deletes.
const STEP_CONVERSATIONS: usize = 50;
/// Most messages that one step deletes, unless its first conversation alone has more.
const STEP_MESSAGES: i64 = 5_000;
/// Bytes of content after which a step deletes no further conversation. PostgreSQL deletes some
/// 300 MB of large messages in a second.
const STEP_BYTES: i64 = 256 << 20;
/// The time that one step may take. A conversation is deleted in one transaction, so this bounds
/// its size: at the rate above, 180 GB.
const STEP_DEADLINE: Duration = Duration::from_mins(10);
/// The time after which the first step no longer counts what is there, and goes on without.
const MEASURE_DEADLINE: Duration = Duration::from_mins(1);
/// Most erasures that one round looks at. Those that have made a step, or could not, come last in
/// the next round.
const OPEN_ERASURES: i64 = 16;

/// The outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErasureStep {
    /// There is no erasure to work on.
    Idle,
    /// No erasure can go on now: other workers work on them, other transactions use the
    /// conversations, or their steps have failed.
    Busy,
    /// So many conversations were deleted.
    Deleted(u64),
    /// This erasure has ended.
    Ended(Uuid),
}

/// A round through the open erasures, up to the first of which a step was made.
#[derive(Debug)]
pub struct ErasureRound {
    /// The step.
    pub step: ErasureStep,
    /// The erasures whose steps have failed before, and why. They are tried again after all others.
    /// The last one may be an erasure that could not be put behind the others: it ends the round.
    pub failures: Vec<(Uuid, StoreError)>,
}

impl Store {
    /// Makes one step of the erasure whose last step was made or tried longest ago. Goes on with
    /// the next one if that is not possible. Fails if the open erasures cannot be read.
    pub async fn run_erasure_step(&self) -> Result<ErasureRound, StoreError> {
        let open = self.find_open_erasures().await?;
        let mut round = ErasureRound {
            step: if open.is_empty() {
                ErasureStep::Idle
            } else {
                ErasureStep::Busy
            },
            failures: Vec::new(),
        };
        for (tenant, id) in open {
            match self.step_erasure(tenant, id).await {
                Ok(ErasureStep::Busy) => {}
                Ok(step) => return Ok(ErasureRound { step, ..round }),
                Err(error) => round.failures.push((id, error)),
            }
            // The failed step was rolled back, so that this erasure would be the first again.
            if let Err(error) = self.put_back_erasure(tenant, id).await {
                round.failures.push((id, error));
                break;
            }
        }
        Ok(round)
    }

    /// Erasures that have not ended, of all tenants.
    async fn find_open_erasures(&self) -> Result<Vec<(TenantId, Uuid)>, StoreError> {
        let mut db = self.jobs.checkout(Scope::Queue).await?;
        let rows = sqlx::query_file!("sql/find_open_erasures.sql", OPEN_ERASURES)
            .fetch_all(&mut *db)
            .await?;
        db.release().await?;
        let open = rows
            .into_iter()
            .map(|row| (TenantId(row.tenant_id), row.erasure_id));
        Ok(open.collect())
    }

    /// Makes a step of this erasure.
    async fn step_erasure(&self, tenant: TenantId, id: Uuid) -> Result<ErasureStep, StoreError> {
        let jobs = self.jobs.clone().with_deadline(STEP_DEADLINE);
        let mut db = jobs.checkout(tenant).await?;
        let step = make_step(&mut db, Caller::of(tenant), id).await;
        db.settle(step).await
    }

    /// Lets other erasures have their turn before this one.
    async fn put_back_erasure(&self, tenant: TenantId, id: Uuid) -> Result<(), StoreError> {
        let mut db = self.jobs.checkout(tenant).await?;
        sqlx::query_file!("sql/put_back_erasure.sql", tenant.0, id)
            .execute(&mut *db)
            .await?;
        db.release().await
    }
}

/// An erasure that this transaction has locked.
struct LockedErasure {
    id: Uuid,
    subject: ErasureSubject,
    /// Whether nothing was deleted or counted before.
    is_first_step: bool,
    rows: RowCounts,
    ids_digest: SetDigest,
}

async fn make_step(
    db: &mut BoundedConnection,
    caller: Caller,
    id: Uuid,
) -> Result<ErasureStep, StoreError> {
    let mut tx = db.begin().await?;
    let Some(mut erasure) = lock_erasure(&mut tx, caller, id).await? else {
        tx.commit().await?;
        return Ok(ErasureStep::Busy);
    };
    failpoint!("erasure.locked");
    set_statement_timeout(&mut tx, STEP_DEADLINE).await?;
    let deletion = delete_messages(&mut tx, caller, erasure.subject.user()).await?;
    if deletion.ids().is_empty() {
        if has_conversations(&mut tx, caller, erasure.subject.user()).await? {
            tx.commit().await?;
            return Ok(ErasureStep::Busy);
        }
        end_erasure(&mut tx, caller, erasure).await?;
        failpoint!("erasure.ended");
        tx.commit().await?;
        return Ok(ErasureStep::Ended(id));
    }
    let expected = if erasure.is_first_step {
        measure_in_time(&mut tx, caller, erasure.subject.user()).await?
    } else {
        None
    };
    let deleted = deletion.finish(&mut tx, caller).await?;
    failpoint!("erasure.deleted");
    for id in &deleted.ids {
        erasure.ids_digest.add(id.0.as_bytes());
    }
    erasure.rows.add_all(&deleted.rows);
    sqlx::query_file!(
        "sql/record_erasure_step.sql",
        caller.tenant().0,
        erasure.id,
        deleted.ids.len() as i64,
        deleted.messages,
        json(&erasure.rows.0),
        erasure.ids_digest.0.as_slice(),
        expected.map(|(conversations, _)| conversations),
        expected.map(|(_, messages)| messages),
    )
    .execute(&mut *tx)
    .await?;
    failpoint!("erasure.recorded");
    subtract_usage(&mut tx, caller, deleted.freed).await?;
    tx.commit().await?;
    failpoint!("erasure.committed");
    Ok(ErasureStep::Deleted(deleted.ids.len() as u64))
}

/// Locks an erasure. None: it has ended, or another worker makes a step of it.
async fn lock_erasure(
    db: &mut BoundedConnection,
    caller: Caller,
    id: Uuid,
) -> Result<Option<LockedErasure>, StoreError> {
    let row = sqlx::query_file!("sql/lock_erasure.sql", caller.tenant().0, id)
        .fetch_optional(db)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let subject = match (ErasureKind::from_code(row.kind), row.user_id) {
        (Some(ErasureKind::User), Some(user)) => ErasureSubject::User(user),
        (Some(ErasureKind::Tenant), None) => ErasureSubject::Tenant,
        _ => return Err(StoreError::Unreadable("erasure")),
    };
    Ok(Some(LockedErasure {
        id,
        subject,
        is_first_step: row.is_first_step,
        rows: RowCounts::parse(&row.rows_erased)?,
        ids_digest: set_digest(&row.ids_digest)?,
    }))
}

/// Deletes the messages of the next conversations of a user, or of the tenant: of at least one, if
/// there is one that no other transaction uses. One conversation is locked after the other, so that
/// no call waits for a conversation that another step deletes.
async fn delete_messages(
    db: &mut BoundedConnection,
    caller: Caller,
    user: Option<&str>,
) -> Result<Deletion, StoreError> {
    let (mut deletion, mut listed) = (Deletion::default(), None);
    while let Some(next) =
        lock_next_conversation(db, caller, user, (deletion.ids(), listed)).await?
    {
        let sum = deletion.messages() + next.messages;
        if !deletion.ids().is_empty() && sum > STEP_MESSAGES {
            break;
        }
        listed = Some(next.listed);
        deletion.add(db, caller, next.id).await?;
        if is_full(deletion.ids().len(), deletion.bytes()) {
            break;
        }
    }
    Ok(deletion)
}

/// Whether a step with so many conversations, whose content had so many bytes, deletes no further
/// one.
const fn is_full(conversations: usize, bytes: i64) -> bool {
    conversations >= STEP_CONVERSATIONS || bytes >= STEP_BYTES
}

/// A conversation that is locked for deletion.
struct LockedConversation {
    id: ConversationId,
    /// The number of its messages.
    messages: i64,
    /// Its place in the order of the index.
    listed: Micros,
}

/// Locks a conversation for deletion that no other transaction uses and that is none of `taken`.
/// `listed`: the place of the last one of these, after which the next one comes. None: there is
/// none.
async fn lock_next_conversation(
    db: &mut BoundedConnection,
    caller: Caller,
    user: Option<&str>,
    (taken, listed): (&[ConversationId], Option<Micros>),
) -> Result<Option<LockedConversation>, StoreError> {
    let tenant = caller.tenant().0;
    let taken: Vec<Uuid> = taken.iter().map(|id| id.0).collect();
    let listed = listed.map(|listed| listed.0);
    let next = match user {
        Some(user) => sqlx::query_file!(
            "sql/lock_conversation_to_erase_of_user.sql",
            tenant,
            user,
            &taken,
            listed,
        )
        .fetch_optional(db)
        .await?
        .map(|row| (row.conversation_id, row.last_message_id, row.listed_us)),
        None => sqlx::query_file!("sql/lock_conversation_to_erase.sql", tenant, &taken, listed)
            .fetch_optional(db)
            .await?
            .map(|row| (row.conversation_id, row.last_message_id, row.listed_us)),
    };
    Ok(next.map(|(id, messages, listed)| LockedConversation {
        id: ConversationId(id),
        messages,
        listed: Micros(listed),
    }))
}

/// Whether the user, or the tenant, has a conversation.
async fn has_conversations(
    db: &mut BoundedConnection,
    caller: Caller,
    user: Option<&str>,
) -> Result<bool, StoreError> {
    let tenant = caller.tenant().0;
    let exists = match user {
        Some(user) => {
            sqlx::query_file_scalar!("sql/has_conversations_of_user.sql", tenant, user)
                .fetch_one(db)
                .await?
        }
        None => {
            sqlx::query_file_scalar!("sql/has_conversations.sql", tenant)
                .fetch_one(db)
                .await?
        }
    };
    Ok(exists)
}

/// Counts the conversations that are there, and their messages. None: that takes longer than
/// [`MEASURE_DEADLINE`].
async fn measure_in_time(
    db: &mut BoundedConnection,
    caller: Caller,
    user: Option<&str>,
) -> Result<Option<(i64, i64)>, StoreError> {
    // A savepoint, whose rollback sets the timeout back. Nothing is written in it.
    let mut savepoint = db.begin().await?;
    set_statement_timeout(&mut savepoint, MEASURE_DEADLINE).await?;
    let measured = match measure_conversations(&mut savepoint, caller, user).await {
        Ok(measured) => Some(measured),
        Err(StoreError::StatementTimeout(_)) => None,
        Err(error) => return Err(error),
    };
    savepoint.rollback().await?;
    Ok(measured)
}

/// Ends an erasure of which nothing is left. That of a tenant also deletes what was learnt of the
/// models that the tenant's callers have named. What its calls have cost and which of them have
/// failed stays: these are figures without content, and the operator's limits go by them.
async fn end_erasure(
    db: &mut BoundedConnection,
    caller: Caller,
    mut erasure: LockedErasure,
) -> Result<(), StoreError> {
    let tenant = caller.tenant().0;
    if erasure.subject == ErasureSubject::Tenant {
        let models = sqlx::query!("delete from ai_model where tenant_id = $1", tenant)
            .execute(&mut *db)
            .await?;
        let rows = i64::try_from(models.rows_affected()).unwrap_or(i64::MAX);
        erasure.rows.add("ai_model", rows);
        // Sessions of the page name subjects of tokens. They are no content, so no receipt counts
        // them.
        sqlx::query!("delete from web_session where tenant_id = $1", tenant)
            .execute(&mut *db)
            .await?;
    }
    sqlx::query_file!(
        "sql/end_erasure.sql",
        tenant,
        erasure.id,
        json(&erasure.rows.0),
    )
    .execute(db)
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_ends_with_its_fiftieth_conversation_or_with_256_mib() {
        assert!(!is_full(49, STEP_BYTES - 1));
        assert!(is_full(50, 0));
        assert!(is_full(1, 256 * 1_024 * 1_024));
    }
}
