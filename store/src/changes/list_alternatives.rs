//! Lists the answers to a question that was answered several times.

use std::collections::BTreeMap;

use anneal_core::{
    caller::{Caller, ConversationId},
    limits::{CHANGE_MESSAGES, ID_BYTES},
    message::MessageId,
};

use super::{
    alternatives::read_question,
    selection::{IdRange, columns, from_columns, runs_of},
};
use crate::{Store, connection::BoundedConnection, error::StoreError, rows::Micros};

/// Most alternatives of a question that are listed: the newest ones.
const MOST_LISTED: i64 = 100;

/// Most bytes of an answer's text that are listed, and most characters that are read.
const EXCERPT_BYTES: usize = 1_024;

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

impl Store {
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
    let question_row = read_question(&mut *db, (caller, id), question).await?;
    let question_row = question_row.filter(|row| !row.is_withdrawn);
    let standing = match &question_row {
        Some(_) => read_standing_answer(&mut *db, (caller, id), question).await?,
        None => None,
    };
    let stored = rows.iter().filter_map(|row| row.answer_id);
    let answer_ids: Vec<i64> = stored
        .chain(standing.as_ref().map(|answer| answer.answer_id))
        .collect();
    let excerpts = read_excerpts(db, (caller, id), &answer_ids).await?;
    let current = question_row.zip(standing).map(|(question, answer)| {
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
    let messages = read_standing_messages(db, (caller, id), question).await?;
    let answer = messages.iter().find(|message| message.is_assistants);
    Ok(answer.map(|answer| StandingAnswer {
        runs: runs_of(messages.iter().map(|message| message.id)),
        answer_id: answer.id.0,
    }))
}

/// A message that stands after a question.
pub(super) struct StandingMessage {
    pub(super) id: MessageId,
    /// Whether it is of the assistant. Otherwise it has results of tools, or instructions.
    pub(super) is_assistants: bool,
    /// Whether it is of the assistant, and a turn has stored it or an alternative begins with it.
    pub(super) begins_answer: bool,
}

/// Reads the messages that stand after a question and before the next message of the user, in
/// order, as many as a change may have.
pub(super) async fn read_standing_messages(
    db: &mut BoundedConnection,
    (caller, id): (Caller, ConversationId),
    question: MessageId,
) -> Result<Vec<StandingMessage>, StoreError> {
    let rows = sqlx::query_file!(
        "sql/standing_answer.sql",
        caller.tenant().0,
        id.0,
        question.0,
        CHANGE_MESSAGES as i64,
        ID_BYTES as i32,
    )
    .fetch_all(db)
    .await?;
    let messages = rows.into_iter().map(|row| StandingMessage {
        id: MessageId(row.message_id),
        is_assistants: row.is_assistants,
        begins_answer: row.begins_answer,
    });
    Ok(messages.collect())
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
