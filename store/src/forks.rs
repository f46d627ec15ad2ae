//! Forks: conversations that begin with copies of another one's messages. A fork is made in one
//! transaction, from one snapshot of its source. No append to the source waits for it.

use std::collections::BTreeMap;

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::{self, Digest},
    job::JobKind,
    limits::FORK_MESSAGES,
    message::MessageId,
};

use crate::{
    Store,
    changes::title,
    connection::BoundedConnection,
    conversations::{
        Conversation, ConversationPage, ConversationRow,
        insert::{id_of_request, read_create_digest},
        keep_conversation, lift_binding, select_conversation,
    },
    error::{Entity, StoreError, violated},
    failpoint,
    queue::enqueue_jobs,
    rows::{Micros, json},
    tenants::TenantUsage,
};

/// A fork that a caller asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkAsk {
    /// The conversation to fork.
    pub source: ConversationId,
    /// The newest message that the fork takes over. None: the source's newest.
    pub message: Option<MessageId>,
    /// The fork's title. None: that of the source.
    pub title: Option<String>,
    /// The fork's labels. None: those of the source.
    pub metadata: Option<BTreeMap<String, String>>,
    /// The caller's request id. None: a repetition makes another fork.
    pub request_id: Option<String>,
}

impl ForkAsk {
    /// Digest of what is asked for. A request that a client repeats after an upgrade must have the
    /// same digest, so the names and forms of fields here never change, and fields that are None
    /// are no part of it.
    fn digest(&self) -> Digest {
        let message = self.message.map(|message| message.0.to_be_bytes());
        let metadata = self.metadata.as_ref().map(json);
        let fields = [
            ("source", Some(self.source.0.as_bytes().as_slice())),
            ("message", message.as_ref().map(<[u8; 8]>::as_slice)),
            ("title", self.title.as_deref().map(str::as_bytes)),
            ("metadata", metadata.as_deref().map(str::as_bytes)),
        ];
        let given = fields
            .iter()
            .filter_map(|(name, value)| value.map(|value| [name.as_bytes(), value]));
        digest::of_fields(given.flatten())
    }

    /// The id of the fork: with a request id always the same.
    fn fork_id(&self, caller: Caller) -> ConversationId {
        ConversationId(id_of_request(caller, self.request_id.as_deref()))
    }
}

/// A fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forked {
    /// The fork.
    pub conversation: Conversation,
    /// How much it has added to what its tenant has stored: the copied messages that are counted.
    pub added: TenantUsage,
    /// Whether an earlier call with the same request id has made it.
    pub replayed: bool,
}

impl Store {
    /// Forks a conversation: creates one that begins with copies of its messages, up to the one
    /// that is asked for. With a request id, a repetition of the call returns the same fork. Fails
    /// with [`StoreError::TooManyMessages`] if it would have more than [`FORK_MESSAGES`] messages.
    pub async fn fork_conversation(
        &self,
        caller: Caller,
        ask: &ForkAsk,
    ) -> Result<Forked, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let forked = find_or_make(&mut db, caller, ask).await;
        db.settle(forked).await
    }

    /// Finds the fork that an earlier call with the same request id has made. Fails with
    /// [`StoreError::RequestIdCreated`] if that call asked for something else.
    pub async fn find_fork(
        &self,
        caller: Caller,
        ask: &ForkAsk,
    ) -> Result<Option<Conversation>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let found = find_earlier(&mut db, caller, ask, ask.fork_id(caller)).await;
        db.settle(found).await
    }

    /// Measures what a fork of a conversation up to this message would take over. None: up to its
    /// newest message. Nothing, if there is no such conversation.
    pub async fn measure_fork(
        &self,
        caller: Caller,
        source: ConversationId,
        message: Option<MessageId>,
    ) -> Result<TenantUsage, StoreError> {
        let most = FORK_MESSAGES as i64;
        let mut db = self.reads.checkout(caller).await?;
        let row = sqlx::query!(
            r#"select count(*) as "messages!",
                   coalesce(sum(coalesce(content_bytes, octet_length(content::text))), 0)::bigint as "bytes!"
               from ai_message where tenant_id = $1 and conversation_id = $2 and message_id <= $3"#,
            caller.tenant().0,
            source.0,
            message.map_or(most, |message| message.0.min(most)),
        )
        .fetch_one(&mut *db)
        .await?;
        db.release().await?;
        Ok(TenantUsage::of(row.messages, row.bytes))
    }

    /// Lists the forks of a conversation, newest first, without their system prompts. The page
    /// starts after the fork with this time of creation and this id. The conversation may be
    /// deleted since.
    pub async fn list_forks(
        &self,
        caller: Caller,
        source: ConversationId,
        after: Option<(Micros, ConversationId)>,
        limit: i64,
    ) -> Result<ConversationPage, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let rows = sqlx::query_file_as!(
            ConversationRow,
            "sql/list_forks.sql",
            caller.tenant().0,
            source.0,
            after.map(|(created, _)| created.0),
            after.map(|(_, id)| id.0),
            limit + 1,
        )
        .fetch_all(&mut *db)
        .await?;
        db.release().await?;
        ConversationPage::of(rows, limit)
    }
}

async fn find_or_make(
    db: &mut BoundedConnection,
    caller: Caller,
    ask: &ForkAsk,
) -> Result<Forked, StoreError> {
    let id = ask.fork_id(caller);
    if let Some(earlier) = find_earlier(&mut *db, caller, ask, id).await? {
        return Ok(replay_of(earlier));
    }
    if let Some(forked) = make(&mut *db, caller, ask, id).await? {
        return Ok(forked);
    }
    // Another call has made it meanwhile. If it is missing all the same, it was deleted since.
    let earlier = find_earlier(db, caller, ask, id).await?;
    earlier
        .map(replay_of)
        .ok_or(StoreError::NotFound(Entity::Conversation))
}

fn replay_of(conversation: Conversation) -> Forked {
    Forked {
        conversation,
        added: TenantUsage::default(),
        replayed: true,
    }
}

async fn find_earlier(
    db: &mut BoundedConnection,
    caller: Caller,
    ask: &ForkAsk,
    id: ConversationId,
) -> Result<Option<Conversation>, StoreError> {
    if ask.request_id.is_none() {
        return Ok(None);
    }
    match read_create_digest(&mut *db, caller, id.0).await? {
        None => Ok(None),
        Some(stored) if stored == ask.digest() => {
            select_conversation(db, caller, id).await.map(Some)
        }
        Some(_) => Err(StoreError::RequestIdCreated(id)),
    }
}

/// Makes the fork. None: another call has made it meanwhile.
async fn make(
    db: &mut BoundedConnection,
    caller: Caller,
    ask: &ForkAsk,
    id: ConversationId,
) -> Result<Option<Forked>, StoreError> {
    let mut tx = db.begin().await?;
    let newest = keep_conversation(&mut tx, caller, ask.source).await?;
    // The statement that copies the rows returns them, and policies would have to see the fork. It
    // gets the user and the agent of its source, so the caller sees it afterwards.
    lift_binding(&mut tx, caller).await?;
    failpoint!("fork.locked");
    let last = ask.message.unwrap_or(newest);
    if last > newest {
        return Err(StoreError::UnknownMessage(last));
    }
    if last.0 > FORK_MESSAGES as i64 {
        return Err(StoreError::TooManyMessages);
    }
    if !claim_id(&mut tx, caller, ask.source, id).await? {
        tx.rollback().await?;
        return Ok(None);
    }
    failpoint!("fork.claimed");
    let digest = ask.request_id.as_ref().map(|_| ask.digest());
    let copied = match sqlx::query_file!(
        "sql/fork_conversation.sql",
        caller.tenant().0,
        ask.source.0,
        last.0,
        id.0,
        ask.title,
        ask.metadata.as_ref().map(json),
        digest.as_ref().map(<[u8; 32]>::as_slice),
    )
    .fetch_one(&mut *tx)
    .await
    {
        Ok(copied) => copied,
        // A call that creates a conversation has used the request id meanwhile.
        Err(error) if is_taken(&error) => return Err(StoreError::RequestIdCreated(id)),
        Err(error) => return Err(error.into()),
    };
    failpoint!("fork.copied");
    if !copied.title_given {
        correct_title(&mut tx, caller, id, &copied.title).await?;
    }
    if copied.messages > 0 {
        // It also evaluates the triggers.
        let due = [JobKind::CountTokens];
        let traceparent = anneal_trace::current_traceparent();
        enqueue_jobs(&mut tx, caller, id, &due, traceparent.as_deref()).await?;
    }
    let conversation = select_conversation(&mut tx, caller, id).await?;
    // Last, because other transactions of the tenant take the same row.
    if copied.counted > 0 {
        sqlx::query_file!(
            "sql/subtract_tenant_usage.sql",
            caller.tenant().0,
            -copied.counted,
            -copied.counted_bytes,
        )
        .execute(&mut *tx)
        .await?;
    }
    tx.commit().await?;
    failpoint!("fork.committed");
    Ok(Some(Forked {
        conversation,
        added: TenantUsage::of(copied.counted, copied.counted_bytes),
        replayed: false,
    }))
}

/// Stores which conversation this one is a fork of. Returns false if another call has done so: it
/// waits for the end of that call before anything is copied.
async fn claim_id(
    db: &mut BoundedConnection,
    caller: Caller,
    source: ConversationId,
    id: ConversationId,
) -> Result<bool, StoreError> {
    let inserted = sqlx::query!(
        "insert into ai_fork (tenant_id, conversation_id, source_id) values ($1, $2, $3)
         on conflict (conversation_id) do nothing",
        caller.tenant().0,
        id.0,
        source.0,
    )
    .execute(db)
    .await?;
    Ok(inserted.rows_affected() == 1)
}

/// Whether a conversation with the fork's id exists. It may have messages already.
fn is_taken(error: &sqlx::Error) -> bool {
    let keys = ["ai_conversation_pkey", "ai_message_pkey"];
    violated(error).is_some_and(|constraint| keys.contains(&constraint))
}

/// Makes the title from the copied messages: the source's may be from a later one.
async fn correct_title(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    title_of_source: &str,
) -> Result<(), StoreError> {
    let title = title::of_standing_messages(&mut *db, caller, id).await?;
    if title != title_of_source {
        sqlx::query!(
            "update ai_conversation set title = $3 where tenant_id = $1 and conversation_id = $2",
            caller.tenant().0,
            id.0,
            title,
        )
        .execute(db)
        .await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_fork_repeated_after_an_upgrade_has_the_same_digest() {
        let ask = ForkAsk {
            source: ConversationId(Uuid::from_u128(1)),
            message: Some(MessageId(258)),
            title: Some("New".into()),
            metadata: Some(BTreeMap::from([("k".into(), "v".into())])),
            request_id: Some("r".into()),
        };
        let source = Uuid::from_u128(1);
        let fields: [&[u8]; 8] = [
            b"source",
            source.as_bytes(),
            b"message",
            &[0, 0, 0, 0, 0, 0, 1, 2],
            b"title",
            b"New",
            b"metadata",
            br#"{"k":"v"}"#,
        ];
        assert_eq!(ask.digest(), digest::of_fields(fields));
        let least = ForkAsk {
            message: None,
            title: None,
            metadata: None,
            ..ask
        };
        assert_eq!(least.digest(), digest::of_fields(fields[..2].to_vec()));
    }
}
