//! Begins the erasure of a user or of a tenant, once per request id. Workers do the rest.

use std::collections::BTreeMap;

use anneal_core::{
    caller::Caller,
    digest::{self, Digest, SetDigest},
};

use super::{
    list::select_erasure,
    receipt::{Erasure, ErasureKind, ErasureState, erasure_id, user_digest},
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
        let (conversations, messages) = measure_subject(&mut db, caller, &ask.subject).await?;
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
            expected_conversations: conversations,
            expected_messages: messages,
            conversations: 0,
            messages: 0,
            rows: BTreeMap::new(),
            ids_digest: SetDigest::default(),
        })
    }

    /// Begins an erasure; with a request id only once. A repetition returns the erasure as it is
    /// now.
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
    let (tenant, subject) = (caller.tenant().0, &ask.subject);
    let id = erasure_id(caller, subject.method(), ask.request_id.as_deref());
    let request_digest = digest::of_fields([
        subject.method().as_bytes(),
        subject.user().unwrap_or_default().as_bytes(),
    ]);
    let (conversations, messages) = measure_subject(&mut *db, caller, subject).await?;
    let (subject_digest, ids_digest) = (subject.digest(caller), SetDigest::default());
    sqlx::query!(
        "insert into ai_erasure (tenant_id, erasure_id, kind, state, request_digest, requested_by, user_id, subject_digest,
             expected_conversations, expected_messages, ids_digest)
         values ($1, $2, $3, 0, $4, $5, $6, $7, $8, $9, $10)
         on conflict (erasure_id) do nothing",
        tenant,
        id,
        subject.kind().code(),
        request_digest.as_slice(),
        ask.requested_by,
        subject.user(),
        subject_digest.as_ref().map(Digest::as_slice),
        conversations,
        messages,
        ids_digest.0.as_slice(),
    )
    .execute(&mut *db)
    .await?;
    failpoint!("erasure.begun");
    let stored = select_erasure(db, caller, id)
        .await?
        .ok_or(StoreError::NotFound(Entity::Erasure))?;
    if stored.request_digest != request_digest {
        return Err(StoreError::RequestIdReused);
    }
    stored.try_into()
}

/// The conversations that an erasure would delete, and their messages.
async fn measure_subject(
    db: &mut BoundedConnection,
    caller: Caller,
    subject: &ErasureSubject,
) -> Result<(i64, i64), StoreError> {
    let tenant = caller.tenant().0;
    let expected = match subject {
        ErasureSubject::User(user) => {
            let row = sqlx::query!(
                r#"select count(*) as "conversations!", coalesce(sum(last_message_id), 0)::bigint as "messages!"
                   from ai_conversation where tenant_id = $1 and user_id = $2"#,
                tenant,
                user,
            )
            .fetch_one(db)
            .await?;
            (row.conversations, row.messages)
        }
        ErasureSubject::Tenant => {
            let row = sqlx::query!(
                r#"select count(*) as "conversations!", coalesce(sum(last_message_id), 0)::bigint as "messages!"
                   from ai_conversation where tenant_id = $1"#,
                tenant,
            )
            .fetch_one(db)
            .await?;
            (row.conversations, row.messages)
        }
    };
    Ok(expected)
}
