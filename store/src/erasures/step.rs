//! The steps of the erasures of users and of tenants. Each deletes some conversations in one
//! transaction. An erasure ends when none is left: so it also reaches conversations that were made
//! meanwhile, such as forks.

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    digest::SetDigest,
};
use uuid::Uuid;

use super::{
    begin::ErasureSubject,
    receipt::{ErasureKind, set_digest},
    row_counts::{RowCounts, count_rows},
};
use crate::{
    Store,
    connection::{BoundedConnection, row_security::Scope},
    conversations::{delete_rows_of, subtract_usage},
    error::StoreError,
    failpoint,
    rows::json,
};

/// Most conversations that one step deletes.
const STEP_CONVERSATIONS: i64 = 50;
/// Most messages that one step deletes, unless its first conversation alone has more.
const STEP_MESSAGES: i64 = 5_000;
/// Most erasures that one step looks at. Others are taken once these have made their steps.
const OPEN_ERASURES: i64 = 16;

/// What a step has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErasureStep {
    /// There is no erasure to work on.
    Idle,
    /// Other workers work on all erasures, or other transactions use the conversations.
    Busy,
    /// So many conversations were deleted.
    Deleted(u64),
    /// This erasure has ended.
    Ended(Uuid),
}

impl Store {
    /// Makes one step of the erasure whose last step was made longest ago.
    pub async fn run_erasure_step(&self) -> Result<ErasureStep, StoreError> {
        let open = self.find_open_erasures().await?;
        if open.is_empty() {
            return Ok(ErasureStep::Idle);
        }
        for (tenant, id) in open {
            let mut db = self.jobs.checkout(tenant).await?;
            let step = make_step(&mut db, Caller::of(tenant), id).await;
            match db.settle(step).await? {
                // Another worker has it, or its conversations are in use.
                ErasureStep::Busy => {}
                done => return Ok(done),
            }
        }
        Ok(ErasureStep::Busy)
    }

    /// Erasures that have not ended, of all tenants.
    async fn find_open_erasures(&self) -> Result<Vec<(TenantId, Uuid)>, StoreError> {
        let mut db = self.jobs.checkout(Scope::Queue).await?;
        let rows = sqlx::query!(
            "select tenant_id, erasure_id from ai_erasure where state = 0 order by stepped_ts limit $1",
            OPEN_ERASURES,
        )
        .fetch_all(&mut *db)
        .await?;
        db.release().await?;
        let open = rows
            .into_iter()
            .map(|row| (TenantId(row.tenant_id), row.erasure_id));
        Ok(open.collect())
    }
}

/// An erasure that this transaction has locked.
struct LockedErasure {
    id: Uuid,
    subject: ErasureSubject,
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
    let candidates = find_candidates(&mut tx, caller, erasure.subject.user()).await?;
    if candidates.is_empty() {
        end_erasure(&mut tx, caller, erasure).await?;
        failpoint!("erasure.ended");
        tx.commit().await?;
        return Ok(ErasureStep::Ended(id));
    }
    let ids = lock_candidates(&mut tx, caller, &candidates).await?;
    if ids.is_empty() {
        tx.commit().await?;
        return Ok(ErasureStep::Busy);
    }
    let rows = count_rows(&mut tx, caller, &ids).await?;
    let deleted = delete_rows_of(&mut tx, caller, &ids).await?;
    failpoint!("erasure.deleted");
    for id in &ids {
        erasure.ids_digest.add(id.0.as_bytes());
    }
    erasure.rows.add_all(&rows);
    sqlx::query!(
        "update ai_erasure
         set conversations = conversations + $3, messages = messages + $4, rows_erased = $5::text::jsonb, ids_digest = $6,
             stepped_ts = now()
         where tenant_id = $1 and erasure_id = $2",
        caller.tenant().0,
        erasure.id,
        ids.len() as i64,
        rows.of("ai_message"),
        json(&erasure.rows.0),
        erasure.ids_digest.0.as_slice(),
    )
    .execute(&mut *tx)
    .await?;
    failpoint!("erasure.recorded");
    subtract_usage(&mut tx, caller, deleted).await?;
    tx.commit().await?;
    failpoint!("erasure.committed");
    Ok(ErasureStep::Deleted(ids.len() as u64))
}

/// Locks an erasure. None: it has ended, or another worker makes a step of it.
async fn lock_erasure(
    db: &mut BoundedConnection,
    caller: Caller,
    id: Uuid,
) -> Result<Option<LockedErasure>, StoreError> {
    let row = sqlx::query!(
        r#"select kind, user_id, rows_erased::text as "rows_erased!", ids_digest from ai_erasure
           where tenant_id = $1 and erasure_id = $2 and state = 0 for update skip locked"#,
        caller.tenant().0,
        id,
    )
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
        rows: RowCounts::parse(&row.rows_erased)?,
        ids_digest: set_digest(&row.ids_digest)?,
    }))
}

/// The next conversations of a user, or of the tenant: up to [`STEP_CONVERSATIONS`] and
/// [`STEP_MESSAGES`], at least one if there is one.
async fn find_candidates(
    db: &mut BoundedConnection,
    caller: Caller,
    user: Option<&str>,
) -> Result<Vec<Uuid>, StoreError> {
    let tenant = caller.tenant().0;
    let found: Vec<(Uuid, i64)> = match user {
        Some(user) => sqlx::query!(
            "select conversation_id, last_message_id from ai_conversation
             where tenant_id = $1 and user_id = $2 order by listed_ts desc limit $3",
            tenant,
            user,
            STEP_CONVERSATIONS,
        )
        .fetch_all(db)
        .await?
        .into_iter()
        .map(|row| (row.conversation_id, row.last_message_id))
        .collect(),
        None => sqlx::query!(
            "select conversation_id, last_message_id from ai_conversation
             where tenant_id = $1 order by listed_ts desc limit $2",
            tenant,
            STEP_CONVERSATIONS,
        )
        .fetch_all(db)
        .await?
        .into_iter()
        .map(|row| (row.conversation_id, row.last_message_id))
        .collect(),
    };
    Ok(within_limit(found))
}

/// The first conversations whose messages are within the limit together; at least one.
fn within_limit(found: Vec<(Uuid, i64)>) -> Vec<Uuid> {
    let mut total = 0;
    let mut taken = Vec::with_capacity(found.len());
    for (id, messages) in found {
        total += messages;
        if total > STEP_MESSAGES && !taken.is_empty() {
            break;
        }
        taken.push(id);
    }
    taken
}

/// Locks those of the candidates that no other transaction uses, for deletion. Returns them in
/// order.
async fn lock_candidates(
    db: &mut BoundedConnection,
    caller: Caller,
    candidates: &[Uuid],
) -> Result<Vec<ConversationId>, StoreError> {
    let ids = sqlx::query_scalar!(
        "select conversation_id from ai_conversation
         where tenant_id = $1 and conversation_id = any ($2)
         order by conversation_id for update skip locked",
        caller.tenant().0,
        candidates,
    )
    .fetch_all(db)
    .await?;
    Ok(ids.into_iter().map(ConversationId).collect())
}

/// Ends an erasure of which nothing is left. That of a tenant also deletes what is stored of the
/// tenant's model calls.
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
        let spend = sqlx::query!("delete from ai_model_spend where tenant_id = $1", tenant)
            .execute(&mut *db)
            .await?;
        let breakers = sqlx::query!("delete from ai_tenant_breaker where tenant_id = $1", tenant)
            .execute(&mut *db)
            .await?;
        for (table, deleted) in [
            ("ai_model", models),
            ("ai_model_spend", spend),
            ("ai_tenant_breaker", breakers),
        ] {
            let rows = i64::try_from(deleted.rows_affected()).unwrap_or(i64::MAX);
            erasure.rows.add(table, rows);
        }
    }
    sqlx::query!(
        "update ai_erasure
         set state = 1, ended_ts = now(), stepped_ts = now(), user_id = null, rows_erased = $3::text::jsonb
         where tenant_id = $1 and erasure_id = $2",
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
    fn a_step_takes_conversations_up_to_its_limit_of_messages_and_at_least_one() {
        let taken = |messages: &[i64]| {
            let found = messages
                .iter()
                .enumerate()
                .map(|(index, messages)| (Uuid::from_u128(index as u128), *messages));
            within_limit(found.collect()).len()
        };
        assert_eq!(taken(&[]), 0);
        assert_eq!(taken(&[1_000_000, 1]), 1);
        assert_eq!(taken(&[2_000, 3_000, 1]), 2);
        assert_eq!(taken(&[2_000, 3_001, 1]), 1);
        assert_eq!(taken(&[0; 50]), 50);
    }
}
