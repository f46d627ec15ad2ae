//! Reads erasures.

use anneal_core::caller::Caller;
use uuid::Uuid;

use super::receipt::{Erasure, ErasureRow, user_digest};
use crate::{
    Store,
    connection::BoundedConnection,
    error::{Entity, StoreError},
    rows::Micros,
};

/// Where a page of erasures starts: after the erasure that was asked for at this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErasurePosition {
    /// When it was asked for.
    pub requested: Micros,
    /// Its id.
    pub id: Uuid,
}

/// A page of erasures, the newest first.
#[derive(Debug, Clone)]
pub struct ErasurePage {
    /// The entries of the page.
    pub erasures: Vec<Erasure>,
    /// Where the next page starts; None: this is the last one.
    pub next: Option<ErasurePosition>,
}

impl Store {
    /// Returns an erasure.
    pub async fn get_erasure(&self, caller: Caller, id: Uuid) -> Result<Erasure, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let erasure = select_erasure(&mut db, caller, id).await?;
        db.release().await?;
        erasure
            .ok_or(StoreError::NotFound(Entity::Erasure))?
            .try_into()
    }

    /// Lists the tenant's erasures, or those of a user; the newest first, at most `limit`.
    pub async fn list_erasures(
        &self,
        caller: Caller,
        user_id: Option<&str>,
        after: Option<ErasurePosition>,
        limit: i64,
    ) -> Result<ErasurePage, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let tenant = caller.tenant().0;
        let requested = after.map(|after| after.requested.0);
        let after = after.map(|after| after.id);
        let mut rows = match user_id {
            None => {
                sqlx::query_file_as!(
                    ErasureRow,
                    "sql/list_erasures.sql",
                    tenant,
                    requested,
                    after,
                    limit + 1,
                )
                .fetch_all(&mut *db)
                .await?
            }
            Some(user_id) => {
                let subject_digest = user_digest(caller, user_id);
                sqlx::query_file_as!(
                    ErasureRow,
                    "sql/list_erasures_of_user.sql",
                    tenant,
                    subject_digest.as_slice(),
                    requested,
                    after,
                    limit + 1,
                )
                .fetch_all(&mut *db)
                .await?
            }
        };
        db.release().await?;
        let has_more = rows.len() as i64 > limit;
        rows.truncate(limit.max(0) as usize);
        let next = rows
            .last()
            .filter(|_| has_more)
            .map(|last| ErasurePosition {
                requested: Micros(last.requested_us),
                id: last.erasure_id,
            });
        Ok(ErasurePage {
            erasures: rows
                .into_iter()
                .map(Erasure::try_from)
                .collect::<Result<_, _>>()?,
            next,
        })
    }
}

/// Reads an erasure; None: the tenant has no such erasure.
pub(super) async fn select_erasure(
    db: &mut BoundedConnection,
    caller: Caller,
    id: Uuid,
) -> Result<Option<ErasureRow>, StoreError> {
    let row = sqlx::query_file_as!(ErasureRow, "sql/get_erasure.sql", caller.tenant().0, id)
        .fetch_optional(db)
        .await?;
    Ok(row)
}
