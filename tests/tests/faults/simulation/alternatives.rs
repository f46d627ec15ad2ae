//! Answers that were withdrawn because their question was answered anew; and the operation that
//! chooses one of them.

use std::collections::BTreeSet;

use anneal_core::message::{MessageId, Role};
use anneal_store::Alternative;
use anneal_testkit::{Built, pb, status_details};
use pb::part::Part;

use crate::simulation::{
    conversation::{CALLER, SimulatedConversation, Violation},
    messages::State,
};

/// An answer that was withdrawn. Its number is its place among those of its question, from 1.
#[derive(Debug, Clone)]
pub(crate) struct ExpectedAlternative {
    /// The version of the question that it answers.
    question_version: i32,
    /// The messages that its last withdrawal has taken.
    messages: BTreeSet<MessageId>,
    /// Whether it was chosen since.
    is_chosen: bool,
}

/// The effect of a choice.
#[derive(Debug)]
struct Choice {
    /// The messages that stand again. None: the answer stood already, beside others.
    restored: BTreeSet<MessageId>,
    /// The messages that stood after the question, and are withdrawn.
    withdrawn: BTreeSet<MessageId>,
}

impl Choice {
    /// The messages that its answer names.
    fn changed(&self) -> &BTreeSet<MessageId> {
        if self.restored.is_empty() {
            &self.withdrawn
        } else {
            &self.restored
        }
    }
}

impl SimulatedConversation<'_> {
    /// Records messages that were withdrawn as an answer to the version of the question that
    /// stands. If messages of earlier answers are among them, the one that was chosen last gets
    /// them, else the newest.
    pub(crate) fn record_alternative(
        &mut self,
        question: MessageId,
        messages: BTreeSet<MessageId>,
    ) {
        let question_version = self.message(question.0).versions.len() as i32;
        let alternatives = self.turns.alternatives.entry(question).or_default();
        let again = alternatives
            .iter_mut()
            .filter(|alternative| !alternative.messages.is_disjoint(&messages))
            .max_by_key(|alternative| alternative.is_chosen);
        let is_again = again.is_some();
        if let Some(again) = again {
            again.messages.clone_from(&messages);
        }
        for alternative in alternatives.iter_mut() {
            alternative.is_chosen = false;
        }
        if !is_again {
            alternatives.push(ExpectedAlternative {
                question_version,
                messages,
                is_chosen: false,
            });
        }
    }

    fn alternatives(&self, question: MessageId) -> &[ExpectedAlternative] {
        let alternatives = self.turns.alternatives.get(&question);
        alternatives.map(Vec::as_slice).unwrap_or_default()
    }

    /// The number of answers to a question that are withdrawn.
    pub(crate) fn withdrawn_alternatives(&self, question: MessageId) -> i32 {
        let alternatives = self.alternatives(question).iter();
        alternatives
            .filter(|alternative| !alternative.is_chosen)
            .count() as i32
    }

    /// Performs `Operation::Choose`. There is a message.
    pub(crate) async fn choose(&mut self, which: u8, number: u8) -> Result<(), Violation> {
        let questions: Vec<MessageId> = self.turns.alternatives.keys().copied().collect();
        let question = if questions.is_empty() {
            MessageId(self.message_at(which))
        } else {
            questions[usize::from(which) % questions.len()]
        };
        // Up to two numbers that no alternative has.
        let numbers = self.alternatives(question).len() + 2;
        let number = (usize::from(number) % numbers + 1) as i32;
        let expected = self.outcome_of_choice(question, number);
        let conversation = self.app.conversation_by_id(&self.id.to_string());
        let answer = conversation.choose(question.0, number).await;
        match (expected, answer) {
            (Err(reason), Err(status)) if status_details(&status).reason == reason => {
                self.record_event(reason);
                return Ok(());
            }
            (Ok(None), Ok(answer)) if answer.change_id == 0 && answer.changed.is_empty() => {
                self.record_event("choices of nothing");
            }
            (Ok(Some(choice)), Ok(answer)) if ids(&answer) == *choice.changed() => {
                self.apply_choice((question, number), choice).await?;
            }
            (expected, answer) => {
                return Err(format!(
                    "the choice of answer {number} to {question} was expected to be {expected:?}, and is {answer:?}"
                ));
            }
        }
        self.check_alternatives(question).await
    }

    /// The effect of a choice, or the reason with which it must be refused. None: the answer
    /// stands, and no other beside it.
    fn outcome_of_choice(
        &self,
        question: MessageId,
        number: i32,
    ) -> Result<Option<Choice>, &'static str> {
        let stored = self.message(question.0);
        if !stored.stands() {
            return Err("MESSAGE_WITHDRAWN");
        }
        let after = self.in_state(State::Standing).filter(|id| *id > question);
        let standing: BTreeSet<MessageId> = after.collect();
        let alternatives = self.alternatives(question);
        let Some(alternative) = alternatives.get(number as usize - 1) else {
            // An answer that stands and was never withdrawn has the next number.
            let is_standing = number as usize == alternatives.len() + 1
                && alternatives.iter().all(|one| !one.is_chosen)
                && !standing.is_empty();
            return if is_standing {
                Ok(None)
            } else {
                Err("MESSAGE_NOT_FOUND")
            };
        };
        if alternative.question_version != stored.versions.len() as i32 {
            return Err("VERSION_MISMATCH");
        }
        let in_state = |state: State| -> BTreeSet<MessageId> {
            let messages = alternative.messages.iter().copied();
            messages
                .filter(|id| self.message(id.0).state == state)
                .collect()
        };
        if !in_state(State::Erased).is_empty() {
            return Err("MESSAGE_ERASED");
        }
        let restored = in_state(State::Withdrawn);
        let withdrawn = if restored.is_empty() {
            self.answers_beside(question, &alternative.messages)
        } else {
            &standing - &alternative.messages
        };
        let is_change = !(restored.is_empty() && withdrawn.is_empty());
        Ok(is_change.then_some(Choice {
            restored,
            withdrawn,
        }))
    }

    /// The messages of the answers to a question that stand beside the answer of these messages.
    /// Another answer begins with a message of the assistant that is the answer of a turn, or the
    /// first of an alternative, and that does not follow results of tools.
    fn answers_beside(
        &self,
        question: MessageId,
        answer: &BTreeSet<MessageId>,
    ) -> BTreeSet<MessageId> {
        let role = |id: MessageId| self.message(id.0).role;
        let after = self.in_state(State::Standing).filter(|id| *id > question);
        let standing: Vec<MessageId> = after.take_while(|id| role(*id) != Role::User).collect();
        let alternatives = self.alternatives(question);
        let begins_alternative = |id: MessageId| {
            let mut alternatives = alternatives.iter();
            alternatives.any(|one| one.messages.first() == Some(&id))
        };
        let begins_answer = |id: MessageId| {
            let is_begin = self.message(id.0).is_answer || begins_alternative(id);
            role(id) == Role::Assistant && is_begin
        };
        let goes_on = |before: &MessageId, next: &MessageId| {
            role(*before) != Role::Assistant || !begins_answer(*next)
        };
        standing
            .chunk_by(goes_on)
            .filter(|messages| messages.iter().all(|id| !answer.contains(id)))
            .flatten()
            .copied()
            .collect()
    }

    /// Applies a choice to the expected messages, and checks the next context.
    async fn apply_choice(
        &mut self,
        (question, number): (MessageId, i32),
        choice: Choice,
    ) -> Result<(), Violation> {
        self.withdraw_answer(question, choice.withdrawn);
        for id in &choice.restored {
            self.messages[id.0 as usize - 1].state = State::Standing;
        }
        let alternatives = self.turns.alternatives.get_mut(&question);
        for (place, alternative) in (1..).zip(alternatives.into_iter().flatten()) {
            alternative.is_chosen = place == number;
        }
        self.changes += 1;
        self.must_verify = true;
        self.record_event("answers chosen");
        self.check_chosen(&choice.restored).await
    }

    /// Checks that a context has the answer that was chosen, and none of the others.
    async fn check_chosen(&self, chosen: &BTreeSet<MessageId>) -> Result<(), Violation> {
        let ask = pb::BuildContextRequest {
            dry_run: true,
            ..Default::default()
        };
        let built = Built(self.build_context(ask).await?);
        self.check_marks("the context after a choice", &built.0)?;
        let text = format!("{:?}", built.0.messages);
        for id in chosen.iter().map(|id| id.0) {
            let version = self.message(id).newest();
            let mut parts = version.message.parts.iter();
            let is_text = parts.all(|part| matches!(part.part, Some(Part::Text(_))));
            let is_sent = id > built.0.boundary_message_id
                && built.representation(id).0 == pb::Representation::Original;
            if is_text && is_sent && !text.contains(&version.mark) {
                return Err(format!(
                    "message {id} of the chosen answer is not in the context {text}"
                ));
            }
        }
        Ok(())
    }

    /// Checks that all answers to a question are listed, each with its messages and the version of
    /// the question that it answers.
    pub(crate) async fn check_alternatives(&self, question: MessageId) -> Result<(), Violation> {
        let listed = self
            .app
            .store
            .list_alternatives(CALLER, self.id, question)
            .await
            .map_err(|error| format!("no alternatives of {question}: {error}"))?;
        let expected = self.alternatives(question);
        let is_complete = (1..).zip(expected).all(|(number, expected)| {
            let mut of_number = listed.iter().filter(|one| one.number == number);
            let found = of_number.next().filter(|_| of_number.next().is_none());
            found.is_some_and(|one| {
                let messages = one.messages.iter();
                let ids: BTreeSet<MessageId> = messages
                    .flat_map(|run| run.first.0..=run.last.0)
                    .map(MessageId)
                    .collect();
                // The messages of the answer that stands are those that stand.
                let is_same = one.current || ids == expected.messages;
                is_same && one.question_version == expected.question_version
            })
        });
        // An answer that was never withdrawn is listed as well.
        let is_new = |one: &Alternative| one.current && one.number as usize == expected.len() + 1;
        let more = listed
            .iter()
            .filter(|one| one.number as usize > expected.len());
        if is_complete && more.clone().all(is_new) && more.count() <= 1 {
            return Ok(());
        }
        Err(format!(
            "the answers to {question} are listed as {listed:?}, expected {expected:?}"
        ))
    }
}

/// The messages that a change has changed.
fn ids(change: &pb::MessageChange) -> BTreeSet<MessageId> {
    let changed = change.changed.iter();
    changed
        .flat_map(|range| range.first_message_id..=range.last_message_id)
        .map(MessageId)
        .collect()
}
