//! Answers that were withdrawn because their question was answered anew. An alternative is the set
//! of messages that one withdrawal took; nothing is copied. Choosing one withdraws what stands after
//! the question, and restores these messages, in one transaction.

use std::collections::BTreeMap;

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::{self, Digest},
    limits::CHANGE_MESSAGES,
    message::MessageId,
    tokens::Tokens,
};

use super::{
    ChangeAsk, ChangeConditions, MessageChange, MessageChangeKind, Selection, ToolPairs,
    restore::{move_back, refuse_erased},
    selection::{IdRange, columns, from_columns, runs_of},
    targets::{Targets, select_targets},
    transaction::{Begun, ChangeTransaction, Moved},
    withdraw::move_out,
};
use crate::{
    Store,
    connection::BoundedConnection,
    error::{Entity, StoreError},
    idempotency::IdempotentRequest,
    policy_defaults::PolicyDefaults,
    rows::Micros,
};

/// Most alternatives of a question that are listed: the newest ones.
const MOST_LISTED: i64 = 100;

/// Most bytes of an answer's text that are listed, and most characters that are read.
const EXCERPT_BYTES: usize = 1_024;

/// A question, and the version of its last message that is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QuestionVersion {
    /// Its last message.
    pub(super) id: MessageId,
    pub(super) version: i32,
}

/// One answer to a question that was answered several times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alternative {
    /// 1, 2, 3 … in the order of answering.
    pub number: i32,
    /// The last message of the question.
    pub question: MessageId,
    /// The version of that message that it answers.
    pub question_version: i32,
    /// Its messages, in order.
    pub messages: Vec<IdRange>,
    /// Whether it stands.
    pub current: bool,
    /// Whether it was stopped before its end.
    pub stopped: bool,
    /// The model that answered. Empty: it was not recorded.
    pub model: String,
    /// When its first message of the assistant was stored. None: it has none.
    pub created: Option<Micros>,
    /// The beginning of the text of that message.
    pub text: String,
}

/// An answer that is to stand again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChooseAsk {
    /// The last message of the question.
    pub question: MessageId,
    /// The answer's number.
    pub number: i32,
    /// The state of the conversation that is expected.
    pub conditions: ChangeConditions,
    /// The caller's request id. None: a repetition is executed again.
    pub request_id: Option<String>,
}

impl ChooseAsk {
    fn request(&self) -> IdempotentRequest<'_> {
        IdempotentRequest {
            method: "choose_alternative",
            id: self.request_id.as_deref(),
            digest: self.digest(),
        }
    }

    /// The conditions are no part of it, as in other changes.
    fn digest(&self) -> Digest {
        let number = self.number.to_be_bytes();
        digest::of_fields([self.question.0.to_be_bytes().as_slice(), &number])
    }
}

impl Store {
    /// Makes an alternative stand again, in place of what stands after its question, which becomes
    /// an alternative; with a request id only once. Changes nothing if it stands already. `counts`
    /// as in [`Store::restore_messages`].
    ///
    /// Fails with [`StoreError::NotFound`] if the question has no such answer, with
    /// [`StoreError::VersionMismatch`] if the question was edited since, and with
    /// [`StoreError::MessageErased`] if a part of the answer is erased.
    pub async fn choose_alternative(
        &self,
        caller: Caller,
        id: ConversationId,
        ask: &ChooseAsk,
        counts: &[(MessageId, Tokens)],
    ) -> Result<MessageChange, StoreError> {
        let policy_defaults = self.policy_defaults.get();
        let mut db = self.writes.checkout(caller).await?;
        let chosen = choose_once(&mut db, (caller, id), (ask, counts), &policy_defaults).await;
        db.settle(chosen).await
    }

    /// The messages of an alternative. None: the question has no such alternative.
    pub async fn find_alternative(
        &self,
        caller: Caller,
        id: ConversationId,
        question: MessageId,
        number: i32,
    ) -> Result<Option<Vec<IdRange>>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let found = read_alternative(&mut db, (caller, id), question, number).await;
        let found = db.settle(found).await?;
        Ok(found.map(|alternative| alternative.runs))
    }

    /// Lists the answers to the question that a message is, or belongs to the answer of: the newest
    /// hundred that are withdrawn, in order, and then the one that stands. Empty: there is no such
    /// question, or it has no answer.
    pub async fn list_alternatives(
        &self,
        caller: Caller,
        id: ConversationId,
        message: MessageId,
    ) -> Result<Vec<Alternative>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let listed = list(&mut db, (caller, id), message).await;
        db.settle(listed).await
    }
}

/// Records the messages that the change `withdrawal` has taken as an alternative. If the alternative
/// that was chosen last is among them, it gets them. Otherwise they get the next number.
pub(super) async fn record(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    question: QuestionVersion,
    runs: &[IdRange],
    withdrawal: i64,
) -> Result<(), StoreError> {
    let chosen = sqlx::query!(
        "select number, first_ids, last_ids from ai_alternative
         where tenant_id = $1 and conversation_id = $2 and question_id = $3 and chosen_change_id is not null
         order by number desc limit 1",
        caller.tenant().0,
        id.0,
        question.id.0,
    )
    .fetch_optional(&mut *db)
    .await?;
    set_chosen(&mut *db, (caller, id), question.id, None).await?;
    let (firsts, lasts) = columns(runs);
    let again = chosen.filter(|row| meets(&from_columns(&row.first_ids, &row.last_ids), runs));
    if let Some(row) = again {
        sqlx::query!(
            "update ai_alternative set first_ids = $5, last_ids = $6, change_id = $7
             where tenant_id = $1 and conversation_id = $2 and question_id = $3 and number = $4",
            caller.tenant().0,
            id.0,
            question.id.0,
            row.number,
            &firsts,
            &lasts,
            withdrawal,
        )
        .execute(db)
        .await?;
        return Ok(());
    }
    sqlx::query!(
        "insert into ai_alternative
             (tenant_id, conversation_id, question_id, number, question_version, first_ids, last_ids, change_id)
         select $1::uuid, $2::uuid, $3::bigint, coalesce(max(number), 0) + 1, $4::integer, $5::bigint[], $6::bigint[], $7::bigint
         from ai_alternative where tenant_id = $1 and conversation_id = $2 and question_id = $3",
        caller.tenant().0,
        id.0,
        question.id.0,
        question.version,
        &firsts,
        &lasts,
        withdrawal,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Records which alternative of a question stands, and which change has restored it. None: none.
async fn set_chosen(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    question: MessageId,
    chosen: Option<(i32, i64)>,
) -> Result<(), StoreError> {
    let (number, change_id) = chosen.unzip();
    sqlx::query!(
        "update ai_alternative set chosen_change_id = case when number = $4::integer then $5::bigint end
         where tenant_id = $1 and conversation_id = $2 and question_id = $3
             and (number = $4 or chosen_change_id is not null)",
        caller.tenant().0,
        id.0,
        question.0,
        number,
        change_id,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// The number of withdrawn answers to a question.
pub(super) async fn count_withdrawn(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    question: MessageId,
) -> Result<i32, StoreError> {
    let count = sqlx::query_scalar!(
        r#"select count(*)::integer as "count!" from ai_alternative
           where tenant_id = $1 and conversation_id = $2 and question_id = $3 and chosen_change_id is null"#,
        caller.tenant().0,
        id.0,
        question.0,
    )
    .fetch_one(db)
    .await?;
    Ok(count)
}

/// Whether a message is in both lists of runs, which are in order.
fn meets(some: &[IdRange], others: &[IdRange]) -> bool {
    some.iter().any(|run| {
        let next = others.partition_point(|other| other.last < run.first);
        others
            .get(next)
            .is_some_and(|other| other.first <= run.last)
    })
}

async fn choose_once(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    (ask, counts): (&ChooseAsk, &[(MessageId, Tokens)]),
    policy_defaults: &PolicyDefaults,
) -> Result<MessageChange, StoreError> {
    let request = ask.request();
    let kind = MessageChangeKind::Restored;
    let begun =
        ChangeTransaction::begin(db, (caller, id), (kind, &request), ask.conditions).await?;
    let mut change = match begun {
        Begun::Replayed(earlier) => return Ok(earlier),
        Begun::New(change) => change,
    };
    let question = read_standing_question(change.db(), (caller, id), ask.question).await?;
    let after = ChangeAsk {
        selection: Selection::After(question.id),
        pairs: ToolPairs::Apart,
        conditions: ChangeConditions::default(),
        request_id: None,
    };
    let standing = change.select_targets(&after, Targets::Standing).await?;
    let alternative = read_alternative(change.db(), (caller, id), question.id, ask.number).await?;
    let Some(alternative) = alternative else {
        let numbered = count_all(change.db(), (caller, id), question.id).await?;
        let withdrawn = count_withdrawn(change.db(), (caller, id), question.id).await?;
        // An answer that stands and was never withdrawn has the next number.
        if ask.number == numbered + 1 && withdrawn == numbered && !standing.is_empty() {
            return change.finish_without_change().await;
        }
        return Err(StoreError::NotFound(Entity::Alternative));
    };
    if alternative.question_version != question.version {
        return Err(StoreError::VersionMismatch {
            expected: alternative.question_version,
            actual: question.version,
        });
    }
    let which = Targets::Withdrawn;
    let withdrawn = select_targets(change.db(), caller, id, &alternative.runs, which).await?;
    refuse_erased(&withdrawn)?;
    if withdrawn.is_empty() {
        return change.finish_without_change().await;
    }
    let others: Vec<MessageId> = standing
        .iter()
        .map(|target| target.id)
        .filter(|id| !alternative.has(*id))
        .collect();
    let taken = take_out(&mut change, (caller, id), question, &others).await?;
    let ids: Vec<MessageId> = withdrawn.iter().map(|target| target.id).collect();
    let restored = move_back(&mut change, (caller, id), (ids.clone(), counts)).await?;
    let chosen = Some((ask.number, change.next_change_id()));
    set_chosen(change.db(), (caller, id), question.id, chosen).await?;
    let moved = match &taken {
        Some(taken) => restored.after(taken),
        None => restored,
    };
    let mut all = [ids, others].concat();
    all.sort_unstable();
    let done = change
        .follow(&moved, &runs_of(all), policy_defaults)
        .await?;
    change.commit(moved.usage_bytes_change).await?;
    Ok(done)
}

/// Withdraws what stands after the question, as a change of its own and as an alternative. None:
/// there is nothing to withdraw.
async fn take_out(
    change: &mut ChangeTransaction<'_>,
    (caller, id): (Caller, ConversationId),
    question: QuestionVersion,
    ids: &[MessageId],
) -> Result<Option<Moved>, StoreError> {
    if ids.is_empty() {
        return Ok(None);
    }
    let (runs, withdrawal) = (runs_of(ids.iter().copied()), change.next_change_id());
    let taken = move_out(change, (caller, id), ids.to_vec()).await?;
    record(change.db(), (caller, id), question, &runs, withdrawal).await?;
    change.record_withdrawal(&runs).await?;
    Ok(Some(taken))
}

/// A stored alternative.
struct StoredAlternative {
    question_version: i32,
    runs: Vec<IdRange>,
}

impl StoredAlternative {
    /// Whether this is one of its messages.
    fn has(&self, message: MessageId) -> bool {
        let run = IdRange {
            first: message,
            last: message,
        };
        meets(&[run], &self.runs)
    }
}

async fn read_alternative(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    question: MessageId,
    number: i32,
) -> Result<Option<StoredAlternative>, StoreError> {
    let row = sqlx::query!(
        "select question_version, first_ids, last_ids from ai_alternative
         where tenant_id = $1 and conversation_id = $2 and question_id = $3 and number = $4",
        caller.tenant().0,
        id.0,
        question.0,
        number,
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| StoredAlternative {
        question_version: row.question_version,
        runs: from_columns(&row.first_ids, &row.last_ids),
    }))
}

/// The number of all alternatives of a question, which is the greatest number of one.
async fn count_all(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    question: MessageId,
) -> Result<i32, StoreError> {
    let count = sqlx::query_scalar!(
        r#"select count(*)::integer as "count!" from ai_alternative
           where tenant_id = $1 and conversation_id = $2 and question_id = $3"#,
        caller.tenant().0,
        id.0,
        question.0,
    )
    .fetch_one(db)
    .await?;
    Ok(count)
}

/// The version of a question. Fails if the message does not exist, or is withdrawn.
async fn read_standing_question(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    question: MessageId,
) -> Result<QuestionVersion, StoreError> {
    let row = read_question(db, (caller, id), question)
        .await?
        .ok_or(StoreError::UnknownMessage(question))?;
    if row.is_withdrawn {
        return Err(StoreError::MessageWithdrawn(question));
    }
    Ok(QuestionVersion {
        id: question,
        version: row.version,
    })
}

/// The last message of a question.
struct QuestionRow {
    version: i32,
    is_withdrawn: bool,
}

async fn read_question(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    question: MessageId,
) -> Result<Option<QuestionRow>, StoreError> {
    let row = sqlx::query_as!(
        QuestionRow,
        r#"select coalesce(version, 1) as "version!", withdrawn_ts is not null as "is_withdrawn!" from ai_message
           where tenant_id = $1 and conversation_id = $2 and message_id = $3"#,
        caller.tenant().0,
        id.0,
        question.0,
    )
    .fetch_optional(db)
    .await?;
    Ok(row)
}

/// An alternative with its first message of the assistant, which its listing describes.
struct ListedRow {
    number: i32,
    question_version: i32,
    first_ids: Vec<i64>,
    last_ids: Vec<i64>,
    answer_id: Option<i64>,
    stands: bool,
}

/// The answer that stands after a question, up to the next message of the user.
struct StandingAnswer {
    runs: Vec<IdRange>,
    /// Its first message of the assistant.
    answer_id: i64,
}

/// The beginning of an answer, and how it was made.
struct Excerpt {
    message_id: i64,
    stopped: bool,
    created_us: i64,
    model: Option<String>,
    text: Option<String>,
}

async fn list(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    message: MessageId,
) -> Result<Vec<Alternative>, StoreError> {
    let question = sqlx::query_file_scalar!(
        "sql/question_of_message.sql",
        caller.tenant().0,
        id.0,
        message.0,
    )
    .fetch_optional(&mut *db)
    .await?
    .flatten();
    let Some(question) = question.map(MessageId) else {
        return Ok(Vec::new());
    };
    let mut rows = sqlx::query_file_as!(
        ListedRow,
        "sql/list_alternatives.sql",
        caller.tenant().0,
        id.0,
        question.0,
        MOST_LISTED,
    )
    .fetch_all(&mut *db)
    .await?;
    let next_number = rows.first().map_or(1, |newest| newest.number + 1);
    // Newest first, so that the limit leaves out the oldest.
    rows.reverse();
    let version = read_question(&mut *db, (caller, id), question).await?;
    let version = version.filter(|row| !row.is_withdrawn);
    let standing = match &version {
        Some(_) => read_standing_answer(&mut *db, (caller, id), question).await?,
        None => None,
    };
    let stored = rows.iter().filter_map(|row| row.answer_id);
    let answer_ids: Vec<i64> = stored
        .chain(standing.as_ref().map(|answer| answer.answer_id))
        .collect();
    let excerpts = read_excerpts(db, (caller, id), &answer_ids).await?;
    let current = version.zip(standing).map(|(question, answer)| {
        let found = rows
            .iter()
            .position(|row| row.stands && row.answer_id == Some(answer.answer_id));
        let row = found.map(|index| rows.remove(index));
        let (first_ids, last_ids) = columns(&answer.runs);
        ListedRow {
            number: row.as_ref().map_or(next_number, |row| row.number),
            question_version: row.map_or(question.version, |row| row.question_version),
            first_ids,
            last_ids,
            answer_id: Some(answer.answer_id),
            stands: true,
        }
    });
    let (standing, withdrawn): (Vec<ListedRow>, Vec<ListedRow>) =
        rows.into_iter().partition(|row| row.stands);
    let listed = withdrawn.into_iter().chain(standing).chain(current);
    Ok(listed
        .map(|row| describe(question, &row, &excerpts))
        .collect())
}

/// An alternative as it is listed.
fn describe(
    question: MessageId,
    row: &ListedRow,
    excerpts: &BTreeMap<i64, Excerpt>,
) -> Alternative {
    let excerpt = row.answer_id.and_then(|id| excerpts.get(&id));
    let text = excerpt
        .and_then(|excerpt| excerpt.text.as_deref())
        .unwrap_or_default();
    Alternative {
        number: row.number,
        question,
        question_version: row.question_version,
        messages: from_columns(&row.first_ids, &row.last_ids),
        current: row.stands,
        stopped: excerpt.is_some_and(|excerpt| excerpt.stopped),
        model: excerpt
            .and_then(|excerpt| excerpt.model.clone())
            .unwrap_or_default(),
        created: excerpt.map(|excerpt| Micros(excerpt.created_us)),
        text: text[..text.floor_char_boundary(EXCERPT_BYTES)].to_owned(),
    }
}

/// Finds the answer that stands after a question, which stands. None: no message of the assistant
/// stands before the next one of the user.
async fn read_standing_answer(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    question: MessageId,
) -> Result<Option<StandingAnswer>, StoreError> {
    let rows = sqlx::query_file!(
        "sql/standing_answer.sql",
        caller.tenant().0,
        id.0,
        question.0,
        CHANGE_MESSAGES as i64,
    )
    .fetch_all(db)
    .await?;
    let answer = rows.iter().find(|row| row.is_assistants);
    Ok(answer.map(|answer| StandingAnswer {
        runs: runs_of(rows.iter().map(|row| MessageId(row.message_id))),
        answer_id: answer.message_id,
    }))
}

/// Reads the beginnings of these messages, by id.
async fn read_excerpts(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    messages: &[i64],
) -> Result<BTreeMap<i64, Excerpt>, StoreError> {
    let rows = sqlx::query_file_as!(
        Excerpt,
        "sql/answer_excerpts.sql",
        caller.tenant().0,
        id.0,
        messages,
        EXCERPT_BYTES as i32,
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(|row| (row.message_id, row)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs<const N: usize>(runs: [(i64, i64); N]) -> Vec<IdRange> {
        runs.map(|(first, last)| IdRange {
            first: MessageId(first),
            last: MessageId(last),
        })
        .to_vec()
    }

    #[test]
    fn runs_meet_if_they_have_a_message_in_common() {
        let some = runs([(2, 3), (8, 9)]);
        for others in [runs([(3, 3)]), runs([(1, 1), (9, 12)]), runs([(1, 20)])] {
            assert!(meets(&some, &others), "{others:?}");
        }
        for others in [runs([]), runs([(1, 1)]), runs([(4, 7), (10, 11)])] {
            assert!(!meets(&some, &others), "{others:?}");
        }
    }

    #[test]
    fn another_question_and_another_number_have_other_digests() {
        let ask = |question, number| ChooseAsk {
            question: MessageId(question),
            number,
            conditions: ChangeConditions::default(),
            request_id: None,
        };
        assert_ne!(ask(1, 2).digest(), ask(1, 3).digest());
        assert_ne!(ask(1, 2).digest(), ask(2, 2).digest());
        let repeated = ChooseAsk {
            conditions: ChangeConditions {
                expected_last: Some(MessageId(9)),
                revision: None,
            },
            ..ask(1, 2)
        };
        assert_eq!(repeated.digest(), ask(1, 2).digest());
    }
}
