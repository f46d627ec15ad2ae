//! Makes an earlier answer to a question stand again: withdraws what stands after the question,
//! which becomes an alternative, and restores the messages of the chosen one, in one transaction.

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::{self, Digest},
    message::MessageId,
    tokens::Tokens,
};

use super::{
    ChangeAsk, ChangeConditions, MessageChange, MessageChangeKind, Selection, ToolPairs,
    alternatives::{
        QuestionVersion, StoredAlternative, count_all, count_withdrawn, read_alternative,
        read_question, record, set_chosen,
    },
    list_alternatives::{StandingMessage, read_standing_messages},
    restore::{move_back, refuse_erased},
    selection::runs_of,
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
};

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
    /// an alternative; with a request id only once. If it stands already, only other answers beside
    /// it are withdrawn. `counts` as in [`Store::restore_messages`].
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
        let chosen = (ask.number, &alternative);
        return stand_alone(change, (caller, id), question, chosen, policy_defaults).await;
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

/// Withdraws the answers that stand beside the chosen one, which stands already, as an alternative.
/// The continuation of the chosen one stays.
async fn stand_alone(
    mut change: ChangeTransaction<'_>,
    (caller, id): (Caller, ConversationId),
    question: QuestionVersion,
    (number, chosen): (i32, &StoredAlternative),
    policy_defaults: &PolicyDefaults,
) -> Result<MessageChange, StoreError> {
    let standing = read_standing_messages(change.db(), (caller, id), question.id).await?;
    let others: Vec<MessageId> = split_answers(&standing)
        .filter(|answer| !answer.iter().any(|message| chosen.has(message.id)))
        .flatten()
        .map(|message| message.id)
        .collect();
    if others.is_empty() {
        return change.finish_without_change().await;
    }
    change.set_kind(MessageChangeKind::Withdrawn);
    let (runs, withdrawal) = (runs_of(others.iter().copied()), change.next_change_id());
    let moved = move_out(&mut change, (caller, id), others).await?;
    record(change.db(), (caller, id), question, &runs, withdrawal).await?;
    let chosen = Some((number, withdrawal));
    set_chosen(change.db(), (caller, id), question.id, chosen).await?;
    change.finish(moved, policy_defaults).await
}

/// The answers among the messages that stand after one question. Each after the first begins with a
/// message with which an answer begins, and that does not follow results of tools. Other messages,
/// such as those that an application has appended to an answer, belong to the answer before them.
fn split_answers(standing: &[StandingMessage]) -> impl Iterator<Item = &[StandingMessage]> {
    standing.chunk_by(|before, next| !(before.is_assistants && next.begins_answer))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_goes_on_after_results_of_tools_and_with_messages_that_begin_none() {
        let (of_turn, of_application, results) = ((true, true), (true, false), (false, false));
        let standing = [
            (2, of_turn),
            (3, results),
            (4, of_turn),
            (7, of_turn),
            (8, of_application),
        ];
        let standing = standing.map(|(id, (is_assistants, begins_answer))| StandingMessage {
            id: MessageId(id),
            is_assistants,
            begins_answer,
        });
        let answers: Vec<Vec<i64>> = split_answers(&standing)
            .map(|answer| answer.iter().map(|message| message.id.0).collect())
            .collect();
        assert_eq!(answers, [vec![2, 3, 4], vec![7, 8]]);
        assert_eq!(split_answers(&[]).count(), 0);
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
