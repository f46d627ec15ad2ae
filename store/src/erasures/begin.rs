//! Begins the erasure of a user or of a tenant, once per request id. Workers do the rest.

use std::collections::BTreeMap;

use anneal_core::{
    caller::Caller,
    digest::{self, Digest, SetDigest},
};
use uuid::Uuid;

use super::{
    list::select_erasure,
    measure::measure_conversations,
    receipt::{Erasure, ErasureKind, ErasureRow, ErasureState, erasure_id, user_digest},
};
use crate::{
    Store,
    connection::BoundedConnection,
    error::{Entity, StoreError},
    failpoint,
};

/// Whose conversations are erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErasureSubject {
    /// Those of a user.
    User(String),
    /// All of the tenant.
    Tenant,
}

impl ErasureSubject {
    const fn kind(&self) -> ErasureKind {
        match self {
            Self::User(_) => ErasureKind::User,
            Self::Tenant => ErasureKind::Tenant,
        }
    }

    /// The name of the call that asks for it.
    const fn method(&self) -> &'static str {
        match self {
            Self::User(_) => "erase_user",
            Self::Tenant => "erase_tenant",
        }
    }

    /// The user; None: all users.
    pub(super) fn user(&self) -> Option<&str> {
        match self {
            Self::User(user) => Some(user),
            Self::Tenant => None,
        }
    }

    /// Digest by which the erasures of a user are found.
    fn digest(&self, caller: Caller) -> Option<Digest> {
        self.user().map(|user| user_digest(caller, user))
    }
}

/// An erasure that a caller asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasureAsk {
    /// Whose conversations are erased.
    pub subject: ErasureSubject,
    /// The caller's request id. None: a repetition begins another erasure.
    pub request_id: Option<String>,
    /// The caller's name in logs, for the receipt.
    pub requested_by: String,
}

impl Store {
    /// The name of the caller's tenant.
    pub async fn tenant_name(&self, caller: Caller) -> Result<String, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let name = sqlx::query_scalar!(
            "select name from tenant where tenant_id = $1",
            caller.tenant().0
        )
        .fetch_one(&mut *db)
        .await?;
        db.release().await?;
        Ok(name)
    }

    /// Counts what an erasure would delete now. Stores nothing.
    pub async fn plan_erasure(
        &self,
        caller: Caller,
        ask: &ErasureAsk,
    ) -> Result<Erasure, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let (conversations, messages) =
            measure_conversations(&mut db, caller, ask.subject.user()).await?;
        db.release().await?;
        Ok(Erasure {
            id: None,
            kind: ask.subject.kind(),
            state: ErasureState::Running,
            requested_by: ask.requested_by.clone(),
            requested: None,
            ended: None,
            conversation: None,
            subject_digest: ask.subject.digest(caller).map(|digest| digest.to_vec()),
            expected_conversations: Some(conversations),
            expected_messages: Some(messages),
            conversations: 0,
            messages: 0,
            rows: BTreeMap::new(),
            ids_digest: SetDigest::default(),
        })
    }

    /// Begins an erasure; with a request id only once. A repetition returns the erasure as it is
    /// now. Counts nothing: the first step does.
    pub async fn begin_erasure(
        &self,
        caller: Caller,
        ask: &ErasureAsk,
    ) -> Result<Erasure, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let erasure = begin_once(&mut db, caller, ask).await;
        db.settle(erasure).await
    }
}

async fn begin_once(
    db: &mut BoundedConnection,
    caller: Caller,
    ask: &ErasureAsk,
) -> Result<Erasure, StoreError> {
    let subject = &ask.subject;
    let id = erasure_id(caller, subject.method(), ask.request_id.as_deref());
    let request_digest = digest::of_fields([
        subject.method().as_bytes(),
        subject.user().unwrap_or_default().as_bytes(),
    ]);
    // First, because an insert would wait for the end of a step that has changed the row.
    let earlier = match ask.request_id {
        Some(_) => select_erasure(db, caller, id).await?,
        None => None,
    };
    let stored = match earlier {
        Some(earlier) => earlier,
        None => insert_erasure(db, caller, ask, (id, &request_digest)).await?,
    };
    if stored.request_digest != request_digest {
        return Err(StoreError::RequestIdReused);
    }
    stored.try_into()
}

/// Inserts the row of an erasure, unless another call with the same request id has inserted it
/// meanwhile. Returns the row.
async fn insert_erasure(
    db: &mut BoundedConnection,
    caller: Caller,
    ask: &ErasureAsk,
    (id, request_digest): (Uuid, &Digest),
) -> Result<ErasureRow, StoreError> {
    let (subject, ids_digest) = (&ask.subject, SetDigest::default());
    let subject_digest = subject.digest(caller);
    sqlx::query_file!(
        "sql/insert_erasure.sql",
        caller.tenant().0,
        id,
        subject.kind().code(),
        request_digest.as_slice(),
        ask.requested_by,
        subject.user(),
        subject_digest.as_ref().map(Digest::as_slice),
        ids_digest.0.as_slice(),
    )
    .execute(&mut *db)
    .await?;
    failpoint!("erasure.begun");
    select_erasure(db, caller, id)
        .await?
        .ok_or(StoreError::NotFound(Entity::Erasure))
}
