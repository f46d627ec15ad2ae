//! The operations that change messages: withdraw, rewind, restore, edit and erase them; and what
//! each must do.

use std::collections::BTreeSet;

use anneal_core::{message::MessageId, tool_pairs};
use anneal_testkit::{pb, status_details};
use tonic::Status;

use crate::simulation::{
    conversation::{SimulatedConversation, Violation},
    messages::{ExpectedVersion, State},
    operations::ChangeOperation,
    policies_and_messages::{MarkedMessage, edited_message},
    stored_rows,
};

/// The request id of every change that has one. It is used by each method for itself.
const REQUEST_ID: &str = "c";

/// A change, as it is requested.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    /// Withdraws these messages.
    Withdraw(Named, Pairs),
    /// Withdraws the messages after this one.
    Rewind(i64, Pairs),
    /// Restores these messages.
    Restore(Named, Pairs),
    /// Edits this message.
    Edit(i64, MarkedMessage, Option<i32>),
    /// Erases these messages.
    Erase(Named),
}

/// The messages that a request names. One is named by its id, several as a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Named {
    first: i64,
    last: i64,
}

impl Named {
    fn has(self, id: MessageId) -> bool {
        (self.first..=self.last).contains(&id.0)
    }
}

/// Whether tool calls and their results are changed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pairs {
    Together,
    Apart,
}

/// A change with a request id that was made.
#[derive(Clone)]
pub(crate) struct MadeChange {
    change: Change,
    change_id: i64,
}

impl Change {
    /// The event of this change. Each method has its own, and its own request ids.
    const fn event(&self) -> &'static str {
        match self {
            Self::Withdraw(..) => "messages withdrawn",
            Self::Rewind(..) => "rewinds",
            Self::Restore(..) => "messages restored",
            Self::Edit(..) => "messages edited",
            Self::Erase(_) => "messages erased",
        }
    }
}

impl SimulatedConversation<'_> {
    /// Performs `Operation::Change`.
    pub(crate) async fn change(
        &mut self,
        operation: ChangeOperation,
        has_request: bool,
    ) -> Result<(), Violation> {
        let change = self.change_of(operation);
        let request_id = if has_request { REQUEST_ID } else { "" };
        let earlier = self.made_changes.get(change.event()).cloned();
        if let Some(earlier) = earlier.filter(|_| has_request) {
            return self.repeat_change(&earlier, &change).await;
        }
        let expected = self.outcome_of(&change);
        let answer = self.send(&change, request_id).await;
        match (expected, answer) {
            (Err(reason), Err(status)) if status_details(&status).reason == reason => {
                self.record_event(reason);
                Ok(())
            }
            (Ok(changed), Ok(answer)) => {
                if has_request {
                    let made = MadeChange {
                        change: change.clone(),
                        change_id: answer.change_id,
                    };
                    self.made_changes.insert(change.event(), made);
                }
                self.record_change(change, &changed, &answer).await
            }
            (expected, answer) => Err(format!(
                "{change:?} was expected to be {expected:?}, and is {answer:?}"
            )),
        }
    }

    /// Performs `Operation::EditTwice`: of two edits at once that expect the same version, one is
    /// made.
    pub(crate) async fn edit_twice(&mut self, which: u8, size: u8) -> Result<(), Violation> {
        let message = self.message_at(which);
        let version = self.message(message).versions.len() as i32;
        let first = self.new_edit(message, size, Some(version));
        let second = self.new_edit(message, size, Some(version));
        let expected = self.outcome_of(&first);
        let answers = tokio::join!(self.send(&first, ""), self.send(&second, ""));
        let lost = |status: &Status| status_details(status).reason == "VERSION_MISMATCH";
        match (expected, answers) {
            (Err(reason), (Err(one), Err(other)))
                if [&one, &other].map(|status| status_details(status).reason) == [reason; 2] =>
            {
                Ok(())
            }
            (Ok(changed), (Ok(answer), Err(status))) if lost(&status) => {
                self.record_event("edits at once");
                self.record_change(first, &changed, &answer).await
            }
            (Ok(changed), (Err(status), Ok(answer))) if lost(&status) => {
                self.record_event("edits at once");
                self.record_change(second, &changed, &answer).await
            }
            (expected, answers) => Err(format!(
                "two edits of message {message} were expected to be {expected:?} and one lost, and are {answers:?}"
            )),
        }
    }

    /// The request of an operation. There is a message.
    fn change_of(&mut self, operation: ChangeOperation) -> Change {
        match operation {
            ChangeOperation::Withdraw(first, count, pairs) => {
                Change::Withdraw(self.named(first, count), pairs)
            }
            ChangeOperation::Rewind(back, pairs) => {
                let after = self.last_message_id().0 - i64::from(back);
                Change::Rewind(after.max(0), pairs)
            }
            ChangeOperation::Restore(first, count, pairs) => {
                Change::Restore(self.named(first, count), pairs)
            }
            ChangeOperation::Erase(first, count) => Change::Erase(self.named(first, count)),
            ChangeOperation::Edit(which, size, version) => {
                let message = self.message_at(which);
                let stored = self.message(message).versions.len() as i32;
                // Of four edits, one expects the version that is stored, and one another one.
                let expected_version = match version {
                    0 => Some(stored),
                    1 => Some(stored + 1),
                    _ => None,
                };
                self.new_edit(message, size, expected_version)
            }
        }
    }

    /// The id of the message with this index, modulo their number.
    pub(crate) fn message_at(&self, index: u8) -> i64 {
        i64::from(index) % self.last_message_id().0 + 1
    }

    fn named(&self, first: u8, count: u8) -> Named {
        let first = self.message_at(first);
        Named {
            first,
            last: (first + i64::from(count) - 1).min(self.last_message_id().0),
        }
    }

    fn new_edit(&mut self, message: i64, size: u8, expected_version: Option<i32>) -> Change {
        let mark = self.next_mark();
        let stored = self.message(message).newest();
        let new = edited_message(&stored.message, size, self.messages.len(), mark);
        Change::Edit(message, new, expected_version)
    }

    async fn send(&self, change: &Change, request_id: &str) -> Result<pb::MessageChange, Status> {
        let conversation = self.app.conversation_by_id(&self.id.to_string());
        let (request, pairs) = match change {
            Change::Withdraw(named, pairs) if named.first == named.last => {
                (conversation.withdraw(&[named.first]), *pairs)
            }
            Change::Withdraw(named, pairs) => {
                let request = conversation.withdraw_range(named.first, named.last);
                (request, *pairs)
            }
            Change::Rewind(after, pairs) => (conversation.rewind(*after), *pairs),
            Change::Restore(named, pairs) if named.first == named.last => {
                (conversation.restore(&[named.first]), *pairs)
            }
            Change::Restore(named, pairs) => {
                let request = conversation.restore_range(named.first, named.last);
                (request, *pairs)
            }
            Change::Erase(named) => {
                let ids: Vec<i64> = (named.first..=named.last).collect();
                (conversation.erase(&ids), Pairs::Together)
            }
            Change::Edit(message, new, expected_version) => {
                let mut request = conversation
                    .edit(*message, new.message.clone())
                    .request_id(request_id);
                if let Some(version) = expected_version {
                    request = request.expecting_version(*version);
                }
                return request.send().await;
            }
        };
        let request = match pairs {
            Pairs::Together => request,
            Pairs::Apart => request.keep_tool_pairs_apart(),
        };
        request.request_id(request_id).send().await
    }

    /// The messages that a change must change, or the reason with which it must be refused.
    fn outcome_of(&self, change: &Change) -> Result<BTreeSet<MessageId>, &'static str> {
        match change {
            Change::Withdraw(named, pairs) => Ok(self.select(State::Standing, *named, *pairs)),
            Change::Rewind(after, pairs) => {
                let named = Named {
                    first: after + 1,
                    last: i64::MAX,
                };
                Ok(self.select(State::Standing, named, *pairs))
            }
            Change::Restore(named, pairs) => {
                if self.in_state(State::Erased).any(|id| named.has(id)) {
                    return Err("MESSAGE_ERASED");
                }
                Ok(self.select(State::Withdrawn, *named, *pairs))
            }
            Change::Erase(named) => {
                let standing = self.select(State::Standing, *named, Pairs::Apart);
                let withdrawn = self.select(State::Withdrawn, *named, Pairs::Apart);
                Ok(&standing | &withdrawn)
            }
            Change::Edit(message, new, expected_version) => {
                self.outcome_of_edit(*message, &new.message, *expected_version)
            }
        }
    }

    fn outcome_of_edit(
        &self,
        id: i64,
        new: &pb::NewMessage,
        expected_version: Option<i32>,
    ) -> Result<BTreeSet<MessageId>, &'static str> {
        let stored = self.message(id);
        if !stored.stands() {
            return Err("MESSAGE_WITHDRAWN");
        }
        if expected_version.is_some_and(|expected| expected != stored.versions.len() as i32) {
            return Err("VERSION_MISMATCH");
        }
        let mut marks = self.tool_marks(State::Standing);
        marks.retain(|(earlier, _)| earlier.0 <= id);
        // Which calls the results answer is decided by the core, which has its own tests.
        if new.role() == pb::Role::Tool && !tool_pairs::last_has_its_calls(&marks) {
            return Err("TOOL_CALL_MISSING");
        }
        Ok([MessageId(id)].into())
    }

    /// The messages in this state.
    pub(crate) fn in_state(&self, state: State) -> impl Iterator<Item = MessageId> {
        let messages = (1..).map(MessageId).zip(&self.messages);
        messages
            .filter(move |(_, message)| message.state == state)
            .map(|(id, _)| id)
    }

    /// Those of the named messages that are in this state, and the other halves of their tool
    /// pairs. Which these are is decided by the core, which has its own tests.
    fn select(&self, state: State, named: Named, pairs: Pairs) -> BTreeSet<MessageId> {
        let selected = self.in_state(state).filter(|id| named.has(*id)).collect();
        match pairs {
            Pairs::Together => tool_pairs::closure(&self.tool_marks(state), &selected),
            Pairs::Apart => selected,
        }
    }

    /// Sends a change whose method was called with the request id before: it must be refused,
    /// unless it is the same. Then sends the earlier one again.
    async fn repeat_change(
        &mut self,
        earlier: &MadeChange,
        change: &Change,
    ) -> Result<(), Violation> {
        // Once a message is erased, nothing tells its edits from others.
        let is_forgotten = matches!(&earlier.change, Change::Edit(message, ..)
            if self.message(*message).state == State::Erased);
        let is_same = is_forgotten || *change == earlier.change;
        let is_replay =
            |answer: &pb::MessageChange| answer.replayed && answer.change_id == earlier.change_id;
        match self.send(change, REQUEST_ID).await {
            Ok(answer) if is_same && is_replay(&answer) => {}
            Err(status) if !is_same && status_details(&status).reason == "REQUEST_ID_REUSED" => {
                self.record_event("request ids of changes reused");
            }
            answer => {
                return Err(format!(
                    "{change:?} after {:?} is answered with {answer:?}",
                    earlier.change
                ));
            }
        }
        match self.send(&earlier.change, REQUEST_ID).await {
            Ok(answer) if is_replay(&answer) => {
                self.record_event("changes repeated");
                Ok(())
            }
            answer => Err(format!(
                "the repetition of {:?} is answered with {answer:?}",
                earlier.change
            )),
        }
    }

    /// Applies a change to the expected messages, and compares its answer with them and with the
    /// rows.
    async fn record_change(
        &mut self,
        change: Change,
        changed: &BTreeSet<MessageId>,
        answer: &pb::MessageChange,
    ) -> Result<(), Violation> {
        let answered: BTreeSet<MessageId> = answer
            .changed
            .iter()
            .flat_map(|range| range.first_message_id..=range.last_message_id)
            .map(MessageId)
            .collect();
        if answer.replayed || answered != *changed || (answer.change_id == 0) != changed.is_empty()
        {
            return Err(format!(
                "{change:?} was expected to change {changed:?}, and is answered with {answer:?}"
            ));
        }
        if changed.is_empty() {
            self.record_event("changes of nothing");
            return Ok(());
        }
        self.record_event(change.event());
        *self.tally.entry("checkpoints void").or_default() += answer.void_checkpoints.len() as u64;
        self.changes += 1;
        self.must_verify = true;
        let is_erasure = matches!(change, Change::Erase(_));
        let mut version = 0;
        let new_state = match change {
            Change::Withdraw(..) | Change::Rewind(..) => State::Withdrawn,
            Change::Restore(..) => State::Standing,
            Change::Erase(_) => State::Erased,
            Change::Edit(message, new, _) => {
                let edited = &mut self.messages[message as usize - 1];
                edited.versions.push(ExpectedVersion::new(new));
                version = edited.versions.len() as i32;
                State::Standing
            }
        };
        for id in changed {
            self.messages[id.0 as usize - 1].state = new_state;
        }
        let rows = stored_rows::read_and_check(self).await?;
        let total = answer
            .token_total
            .as_ref()
            .map(|total| total.tokens.cast_signed());
        let figures = (
            answer.boundary_message_id,
            answer.withdrawn_messages,
            total,
            answer.version,
        );
        let expected = (
            rows.boundary,
            rows.withdrawn,
            Some(rows.token_total),
            version,
        );
        if figures != expected || answer.erasure_id.is_empty() == is_erasure {
            return Err(format!(
                "the answer has boundary, withdrawn messages, tokens and version {figures:?}, the rows have {expected:?}: {answer:?}"
            ));
        }
        Ok(())
    }
}
