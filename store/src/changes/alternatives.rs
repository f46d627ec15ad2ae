//! Answers that were withdrawn because their question was answered anew. An alternative is the set
//! of messages that one withdrawal took; nothing is copied.

use anneal_core::{
    caller::{Caller, ConversationId},
    message::MessageId,
};

use super::selection::{IdRange, columns, from_columns};
use crate::{Store, connection::BoundedConnection, error::StoreError};

/// A question, and the version of its last message that is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QuestionVersion {
    /// Its last message.
    pub(super) id: MessageId,
    pub(super) version: i32,
}

/// A stored alternative.
pub(super) struct StoredAlternative {
    pub(super) question_version: i32,
    /// Its messages, in order.
    pub(super) runs: Vec<IdRange>,
}

impl StoredAlternative {
    /// Whether this is one of its messages.
    pub(super) fn has(&self, message: MessageId) -> bool {
        let run = IdRange {
            first: message,
            last: message,
        };
        meets(&[run], &self.runs)
    }
}

impl Store {
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
}

/// Records the messages that the change `withdrawal` has taken as an alternative. If messages of an
/// alternative are among them, because it was chosen or restored, it gets them: of several ones the
/// chosen one, else the newest. Otherwise they get the next number.
pub(super) async fn record(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    question: QuestionVersion,
    runs: &[IdRange],
    withdrawal: i64,
) -> Result<(), StoreError> {
    let (firsts, lasts) = columns(runs);
    let again = sqlx::query_scalar!(
        "select number from ai_alternative
         where tenant_id = $1 and conversation_id = $2 and question_id = $3 and exists (
             select from unnest(first_ids, last_ids) as own (first, last)
             join unnest($4::bigint[], $5::bigint[]) as taken (first, last)
               on taken.first <= own.last and taken.last >= own.first
         )
         order by chosen_change_id is null, number desc limit 1",
        caller.tenant().0,
        id.0,
        question.id.0,
        &firsts,
        &lasts,
    )
    .fetch_optional(&mut *db)
    .await?;
    set_chosen(&mut *db, (caller, id), question.id, None).await?;
    if let Some(number) = again {
        sqlx::query!(
            "update ai_alternative set first_ids = $5, last_ids = $6, change_id = $7
             where tenant_id = $1 and conversation_id = $2 and question_id = $3 and number = $4",
            caller.tenant().0,
            id.0,
            question.id.0,
            number,
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
pub(super) async fn set_chosen(
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

/// Reads an alternative. None: the question has none with this number.
pub(super) async fn read_alternative(
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
pub(super) async fn count_all(
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

/// The last message of a question.
pub(super) struct QuestionRow {
    pub(super) version: i32,
    pub(super) is_withdrawn: bool,
}

/// Reads the last message of a question. None: the conversation has no such message.
pub(super) async fn read_question(
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
}
