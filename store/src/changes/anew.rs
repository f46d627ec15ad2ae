//! Begins to answer a question anew: what stands after the question is withdrawn, and becomes an
//! alternative. The question may be edited in the same transaction. A turn does so under its lease,
//! before it reads anything, so that this change alone does not end the turn.

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::{self, Digest},
    job::JobKind,
    limits::MESSAGES_PER_APPEND,
    message::{Message, MessageId, Role},
};

use super::{
    ChangeAsk, ChangeConditions, MessageChangeKind, MessageEdit, Selection, ToolPairs,
    alternatives::{self, QuestionVersion},
    edit::{EditPlan, apply_edit, plan_edit},
    fence::hold_lease,
    selection::{IdRange, runs_of},
    targets::Targets,
    transaction::{ChangeTransaction, Moved},
    withdraw::move_out,
};
use crate::{
    Store,
    connection::BoundedConnection,
    error::{Entity, StoreError},
    idempotency::{self, EarlierRequest, IdempotentRequest},
    messages::{AppendedMessage, message_columns::MessageColumns},
    model_calls::ModelLease,
    policy_defaults::PolicyDefaults,
    rows::{role_code, tokens},
};

/// The method of the request's row. Its answer is the last message of the question.
const METHOD: &str = "chat_anew";
/// The method of a second row of the request. Its answer is the number of the change.
const NUMBER_METHOD: &str = "chat_anew_number";

/// The question that is answered anew.
#[derive(Debug, Clone)]
pub enum AnewQuestion {
    /// The newest one: the last message of the user that stands, with the user's messages just
    /// before it.
    Newest,
    /// A message of the user, after this edit of it.
    Edited(Box<MessageEdit>),
}

/// A question to answer anew.
#[derive(Debug, Clone)]
pub struct AnewAsk {
    /// The question.
    pub question: AnewQuestion,
    /// The request id of the turn.
    pub request_id: String,
    /// [`AnewAsk::digest`] of the question.
    pub digest: Digest,
    /// The state of the conversation that is expected.
    pub conditions: ChangeConditions,
}

/// A question that is answered anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anew {
    /// The last messages of the question, in order.
    pub question: Vec<AppendedMessage>,
    /// The number of the change, which no other turn of the conversation has.
    pub change_id: i64,
    /// How many answers to the question are withdrawn.
    pub alternatives: i32,
    /// Whether an earlier call with the same request id has begun it.
    pub replayed: bool,
    /// The jobs that are due because of it.
    pub caused: Vec<JobKind>,
}

impl AnewAsk {
    /// Digest of what is asked for: the newest question, or the new content of a message.
    pub fn digest(edited: Option<(MessageId, &Message)>) -> Digest {
        let Some((id, message)) = edited else {
            return digest::of_fields([b"newest".as_slice()]);
        };
        let content = MessageColumns::of(message).content;
        let content = digest::of_append(
            std::slice::from_ref(message),
            std::slice::from_ref(&content),
        );
        digest::of_fields([b"edited".as_slice(), &id.0.to_be_bytes(), &content])
    }
}

/// The request of a turn that answers a question anew.
const fn anew_request(request_id: &str, digest: Digest) -> IdempotentRequest<'_> {
    IdempotentRequest {
        method: METHOD,
        id: Some(request_id),
        digest,
    }
}

/// The second row of the request. Its digest tells nothing of the question.
fn number_request(request_id: &str) -> IdempotentRequest<'_> {
    IdempotentRequest {
        method: NUMBER_METHOD,
        id: Some(request_id),
        digest: digest::of_fields([NUMBER_METHOD.as_bytes()]),
    }
}

impl Store {
    /// Withdraws what stands after a question, as an alternative, and edits the question first if
    /// that is asked for. `lease` is that of the turn that answers, which must have read nothing
    /// yet. None, and nothing is changed, if the turn no longer has it. A repeated call with the
    /// same request id changes nothing.
    ///
    /// Fails with [`StoreError::NotFound`] if no message of the user stands after the last
    /// separator, and with [`StoreError::BeforeSeparator`] if the message to edit stands before it.
    pub async fn begin_answer_anew(
        &self,
        caller: Caller,
        id: ConversationId,
        ask: &AnewAsk,
        lease: &ModelLease,
    ) -> Result<Option<Anew>, StoreError> {
        let policy_defaults = self.policy_defaults.get();
        let mut db = self.writes.checkout(caller).await?;
        let begun = begin_once(&mut db, (caller, id), (ask, lease), &policy_defaults).await;
        match db.settle(begun).await {
            Ok(anew) => Ok(Some(anew)),
            Err(StoreError::LeaseLost) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Finds the question that an earlier call of [`Store::begin_answer_anew`] with this request id
    /// has begun to answer. Fails if that call has asked for something else.
    pub async fn find_anew(
        &self,
        caller: Caller,
        id: ConversationId,
        request_id: &str,
        digest: Digest,
    ) -> Result<Option<Anew>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let found = find_earlier(&mut db, (caller, id), &anew_request(request_id, digest)).await;
        db.settle(found).await
    }
}

async fn begin_once(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    (ask, lease): (&AnewAsk, &ModelLease),
    policy_defaults: &PolicyDefaults,
) -> Result<Anew, StoreError> {
    let request = anew_request(&ask.request_id, ask.digest);
    // The transaction records no request: the rows of this one have other answers.
    let unrecorded = IdempotentRequest {
        id: None,
        ..request
    };
    let kind = MessageChangeKind::Withdrawn;
    let mut change = ChangeTransaction::open(db, (caller, id), (kind, &unrecorded)).await?;
    if let Some(earlier) = find_earlier(change.db(), (caller, id), &request).await? {
        change.commit(0).await?;
        return Ok(earlier);
    }
    refuse_id_of_append(change.db(), (caller, id), &ask.request_id).await?;
    change.check(ask.conditions)?;
    change.spare(lease.id());
    let (question, edit) = find_question(&mut change, (caller, id), &ask.question).await?;
    let moved = move_content(&mut change, (caller, id), question, edit).await?;
    let (number, caused, usage_bytes_change) = if let Some((moved, standing)) = moved {
        let done = change.follow(&moved, &standing, policy_defaults).await?;
        (done.id, done.caused, moved.usage_bytes_change)
    } else {
        hold_lease(change.db(), caller, id, lease.id()).await?;
        (change.take_number().await?, Vec::new(), 0)
    };
    let (db, numbered) = (change.db(), number_request(&ask.request_id));
    idempotency::put_request(db, caller, id, &request, Some(question.id.0)).await?;
    idempotency::put_request(db, caller, id, &numbered, Some(number)).await?;
    let anew = Anew {
        question: read_question(db, (caller, id), question.id).await?,
        change_id: number,
        alternatives: alternatives::count_withdrawn(db, (caller, id), question.id).await?,
        replayed: false,
        caused,
    };
    change.commit(usage_bytes_change).await?;
    Ok(anew)
}

/// Finds the question, and what is to be edited of it. Fails if it cannot be answered anew.
async fn find_question<'a>(
    change: &mut ChangeTransaction<'_>,
    (caller, id): (Caller, ConversationId),
    question: &'a AnewQuestion,
) -> Result<(QuestionVersion, Option<(&'a MessageEdit, EditPlan)>), StoreError> {
    let edit = match question {
        AnewQuestion::Newest => {
            return Ok((find_newest(change.db(), (caller, id)).await?, None));
        }
        AnewQuestion::Edited(edit) => edit,
    };
    let plan = plan_edit(change.db(), (caller, id), edit).await?;
    refuse_before_separator(change.db(), (caller, id), edit.message).await?;
    let question = QuestionVersion {
        id: edit.message,
        version: plan.version,
    };
    let edit = (!plan.changes_nothing()).then_some((&**edit, plan));
    Ok((question, edit))
}

/// Withdraws what stands after the question, and edits the question. Returns what was moved, and
/// the messages from which something may be derived that no longer holds, as runs. None: nothing
/// stands after the question, and it is not edited.
async fn move_content(
    change: &mut ChangeTransaction<'_>,
    (caller, id): (Caller, ConversationId),
    question: QuestionVersion,
    edit: Option<(&MessageEdit, EditPlan)>,
) -> Result<Option<(Moved, Vec<IdRange>)>, StoreError> {
    // A call before the question keeps no result after it: the context says so to the model.
    let after = ChangeAsk {
        selection: Selection::After(question.id),
        pairs: ToolPairs::Apart,
        conditions: ChangeConditions::default(),
        request_id: None,
    };
    let targets = change.select_targets(&after, Targets::Standing).await?;
    let ids: Vec<MessageId> = targets.iter().map(|target| target.id).collect();
    let runs = runs_of(ids.iter().copied());
    let mut moved = None;
    if !ids.is_empty() {
        let withdrawal = change.next_change_id();
        moved = Some(move_out(change, (caller, id), ids.clone()).await?);
        alternatives::record(change.db(), (caller, id), question, &runs, withdrawal).await?;
    }
    // A checkpoint that holds the question would leave it out of the context.
    let is_summarized =
        !ids.is_empty() && is_in_checkpoint(change.db(), (caller, id), question.id).await?;
    let is_edited = edit.is_some();
    if let Some((edit, plan)) = edit {
        if moved.is_some() {
            change.record_withdrawal(&runs).await?;
        }
        change.set_kind(MessageChangeKind::Edited);
        let edited = apply_edit(change, (caller, id), edit, &plan).await?;
        moved = Some(match &moved {
            Some(withdrawn) => edited.after(withdrawn),
            None => edited,
        });
    }
    let first = (is_edited || is_summarized).then_some(question.id);
    let standing = runs_of(first.into_iter().chain(ids));
    Ok(moved.map(|moved| (moved, standing)))
}

/// Whether the range of a checkpoint holds this message; also of one before the newest, to which
/// the boundary falls back when the newest no longer holds.
async fn is_in_checkpoint(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    message: MessageId,
) -> Result<bool, StoreError> {
    let is_held = sqlx::query_scalar!(
        r#"select exists (
               select from ai_conversation_checkpoint
               where tenant_id = $1 and conversation_id = $2
                   and first_message_id <= $3 and last_message_id >= $3
           ) as "is_held!""#,
        caller.tenant().0,
        id.0,
        message.0,
    )
    .fetch_one(db)
    .await?;
    Ok(is_held)
}

/// The last message of the user that stands after the last separator.
async fn find_newest(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
) -> Result<QuestionVersion, StoreError> {
    let row = sqlx::query!(
        r#"select message_id, coalesce(version, 1) as "version!" from ai_message
           where tenant_id = $1 and conversation_id = $2 and role = $3 and withdrawn_ts is null
               and message_id > (
                   select coalesce(max(after_message_id), 0) from ai_separator where tenant_id = $1 and conversation_id = $2
               )
           order by message_id desc limit 1"#,
        caller.tenant().0,
        id.0,
        role_code(Role::User),
    )
    .fetch_optional(db)
    .await?
    .ok_or(StoreError::NotFound(Entity::Message))?;
    Ok(QuestionVersion {
        id: MessageId(row.message_id),
        version: row.version,
    })
}

/// Fails if a separator stands after this message: contexts do not contain it.
async fn refuse_before_separator(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    message: MessageId,
) -> Result<(), StoreError> {
    let is_before = sqlx::query_scalar!(
        r#"select exists (
               select from ai_separator
               where tenant_id = $1 and conversation_id = $2 and after_message_id >= $3
           ) as "is_before!""#,
        caller.tenant().0,
        id.0,
        message.0,
    )
    .fetch_one(db)
    .await?;
    if is_before {
        return Err(StoreError::BeforeSeparator(message));
    }
    Ok(())
}

/// Fails if an append has this request id: the turns of both would have one answer.
async fn refuse_id_of_append(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    request_id: &str,
) -> Result<(), StoreError> {
    let is_used = sqlx::query_scalar!(
        r#"select exists (
               select from ai_message
               where tenant_id = $1 and conversation_id = $2 and request_id = $3
           ) as "is_used!""#,
        caller.tenant().0,
        id.0,
        request_id,
    )
    .fetch_one(db)
    .await?;
    if is_used {
        return Err(StoreError::RequestIdReused);
    }
    Ok(())
}

/// The question that an earlier call with this request has begun to answer.
async fn find_earlier(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    request: &IdempotentRequest<'_>,
) -> Result<Option<Anew>, StoreError> {
    let earlier = idempotency::find_request(db, caller, id, request).await?;
    let (EarlierRequest::Done(Some(question)), Some(request_id)) = (earlier, request.id) else {
        return Ok(None);
    };
    let numbered = number_request(request_id);
    let number = match idempotency::find_request(db, caller, id, &numbered).await? {
        EarlierRequest::Done(Some(number)) => number,
        EarlierRequest::Done(None) | EarlierRequest::None => 0,
    };
    let question = MessageId(question);
    Ok(Some(Anew {
        question: read_question(db, (caller, id), question).await?,
        change_id: number,
        alternatives: alternatives::count_withdrawn(db, (caller, id), question).await?,
        replayed: true,
        caused: Vec::new(),
    }))
}

/// The question whose last message this is: the message, in whatever state, and the messages of the
/// user that stand just before it, the last 100 in order.
async fn read_question(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    last: MessageId,
) -> Result<Vec<AppendedMessage>, StoreError> {
    let rows = sqlx::query_file!(
        "sql/question_messages.sql",
        caller.tenant().0,
        id.0,
        last.0,
        MESSAGES_PER_APPEND as i64,
    )
    .fetch_all(db)
    .await?;
    let messages = rows.into_iter().rev().map(|row| AppendedMessage {
        id: MessageId(row.message_id),
        turn: row.turn,
        tokens: tokens(row.tokens),
        is_counted: row.is_counted,
        withdrawn: row.is_withdrawn,
    });
    Ok(messages.collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use anneal_core::message::Part;

    use super::*;

    fn message(text: &str) -> Message {
        Message {
            role: Role::User,
            parts: vec![Part::Text { text: text.into() }],
            metadata: BTreeMap::new(),
        }
    }

    #[test]
    fn another_question_another_message_and_another_text_have_other_digests() {
        let digest = |id, text: &str| AnewAsk::digest(Some((MessageId(id), &message(text))));
        let digests = [
            AnewAsk::digest(None),
            digest(1, "a"),
            digest(2, "a"),
            digest(1, "b"),
        ];
        for (index, digest) in digests.iter().enumerate() {
            assert!(!digests[..index].contains(digest), "the one at {index}");
        }
        assert_eq!(digest(1, "a"), digests[1]);
    }
}
