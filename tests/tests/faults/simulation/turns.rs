//! Turns with a scripted model: a new question, the newest one answered anew, or an edited one; and
//! what each must do. A turn may be stopped, or ended by a change of messages.

use std::collections::{BTreeMap, BTreeSet};

use anneal_core::message::{MessageId, Role};
use anneal_testkit::{
    Gate, TestConversation, TurnOutcome, TurnRequest, assistant, pb, sentence, status_details,
};
use pb::{
    CancelOutcome,
    chat_response::{Done, Event},
};

use crate::simulation::{
    alternatives::ExpectedAlternative,
    conversation::{SimulatedConversation, Violation},
    messages::{ExpectedMessage, ExpectedVersion, State},
    policies_and_messages::{MarkedMessage, new_question},
    stored_rows,
    turn_script::TurnScript,
};

/// The question of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnPrompt {
    /// A new message of the user, of this size (0 to 2).
    New(u8),
    /// The newest question.
    Newest,
    /// A message, with a new text. The first number chooses the message, the second is the size.
    Edited(u8, u8),
}

/// How a turn ends, if it is not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnEnd {
    /// The model answers.
    Answered,
    /// The turn is stopped after the first piece of its answer, which is kept.
    Kept,
    /// The turn is stopped after the first piece of its answer, which is dropped.
    Dropped,
    /// The question is withdrawn by another call after the first piece of the answer.
    Changed,
}

/// A turn, as it is requested.
#[derive(Debug, Clone, PartialEq)]
enum Turn {
    New(MarkedMessage),
    Newest,
    Edited(i64, MarkedMessage),
}

impl Turn {
    /// The request id of every turn of this kind that has one.
    const fn request_id(&self) -> &'static str {
        match self {
            Self::New(_) => "a question",
            Self::Newest => "the newest question",
            Self::Edited(..) => "an edited question",
        }
    }

    /// The event of an answer to such a turn.
    const fn event(&self) -> &'static str {
        match self {
            Self::New(_) => "questions answered",
            Self::Newest => "questions answered anew",
            Self::Edited(..) => "edited questions answered",
        }
    }
}

/// A turn with a request id that has ended.
#[derive(Debug, Clone)]
struct MadeTurn {
    turn: Turn,
    /// The last message of its question.
    question: i64,
    /// The message of its answer. None: its answer was dropped.
    answer: Option<i64>,
    stopped: bool,
}

/// The turns that have ended, and the answers that they have replaced.
pub(crate) struct ExpectedTurns {
    pub(crate) script: TurnScript,
    /// The alternatives of each question, the first one first.
    pub(crate) alternatives: BTreeMap<MessageId, Vec<ExpectedAlternative>>,
    /// The turn that was made with each request id.
    made: BTreeMap<&'static str, MadeTurn>,
}

impl ExpectedTurns {
    pub(crate) fn new(script: &TurnScript) -> Self {
        Self {
            script: script.clone(),
            alternatives: BTreeMap::new(),
            made: BTreeMap::new(),
        }
    }

    /// Forgets everything, because the conversation is deleted.
    pub(crate) fn clear(&mut self) {
        self.alternatives.clear();
        self.made.clear();
    }
}

/// A turn that has come to its end, and the answer of the call that stopped it.
struct PlayedTurn {
    outcome: TurnOutcome,
    cancelled: Option<pb::CancelTurnResponse>,
}

impl SimulatedConversation<'_> {
    /// Performs `Operation::Turn`.
    pub(crate) async fn run_turn(
        &mut self,
        prompt: TurnPrompt,
        end: TurnEnd,
        has_request: bool,
    ) -> Result<(), Violation> {
        let turn = self.turn_of(prompt);
        let made = self.turns.made.get(turn.request_id()).cloned();
        if let Some(made) = made.filter(|_| has_request) {
            return self.repeat_turn(&made, &turn).await;
        }
        let boundary = stored_rows::read_and_check(self).await?.boundary;
        let expected = self.outcome_of_turn(&turn, boundary);
        // A turn that fails after it has begun would go on with its request id.
        let can_repeat = end != TurnEnd::Changed && expected != Err("CONTEXT_EMPTY");
        let request_id = (has_request && can_repeat).then(|| turn.request_id());
        let mark = self.next_mark();
        let number = self.messages.len();
        let pieces = [
            format!("{mark} {}", sentence(number)),
            format!(" {}", sentence(number + 1)),
        ];
        let gate = self.turns.script.set_answer(&pieces);
        let question = expected.unwrap_or(0);
        let played = self
            .play((&turn, request_id), (end, question), &gate)
            .await?;
        let status = match (expected, &played.outcome.end) {
            (Ok(_), _) => None,
            (Err(reason), Err(status)) if status_details(status).reason == reason => Some(reason),
            (Err(reason), end) => {
                return Err(format!("{turn:?} was to be refused with {reason}: {end:?}"));
            }
        };
        if let Some(reason) = status {
            self.record_event(reason);
            return Ok(());
        }
        self.apply_question(&turn, question);
        self.check_question(question, &played.outcome)?;
        let kept = match end {
            TurnEnd::Answered => Some(pieces.concat()),
            TurnEnd::Kept => Some(pieces[0].clone()),
            TurnEnd::Dropped | TurnEnd::Changed => None,
        };
        let answer = kept.map(|text| {
            let message = assistant(&text);
            self.messages
                .push(ExpectedMessage::answer(MarkedMessage { message, mark }));
            self.last_message_id().0
        });
        self.check_end((end, question, answer), &played)?;
        self.record_event(match end {
            TurnEnd::Answered => turn.event(),
            TurnEnd::Kept => "answers stopped and kept",
            TurnEnd::Dropped => "answers stopped and dropped",
            TurnEnd::Changed => "turns ended by a change",
        });
        if request_id.is_some() {
            let made = MadeTurn {
                question,
                answer,
                stopped: end != TurnEnd::Answered,
                turn,
            };
            self.turns.made.insert(made.turn.request_id(), made);
        }
        self.check_alternatives(MessageId(question)).await
    }

    /// The request of an operation.
    fn turn_of(&mut self, prompt: TurnPrompt) -> Turn {
        let number = self.messages.len();
        match prompt {
            TurnPrompt::New(size) => Turn::New(new_question(size, number, self.next_mark())),
            TurnPrompt::Newest => Turn::Newest,
            TurnPrompt::Edited(which, size) => {
                let new = new_question(size, number, self.next_mark());
                Turn::Edited(self.message_at(which), new)
            }
        }
    }

    /// The last message of the question that a turn must answer, or the reason with which it must
    /// be refused. Contexts start after message `boundary`.
    fn outcome_of_turn(&self, turn: &Turn, boundary: i64) -> Result<i64, &'static str> {
        let separator = self.separators.last().map_or(0, |after| after.0);
        match turn {
            Turn::New(_) => Ok(self.last_message_id().0 + 1),
            Turn::Newest => {
                let by_user = self.standing().filter(|(id, version)| {
                    *id > separator && version.message.role() == pb::Role::User
                });
                let (question, _) = by_user.last().ok_or("MESSAGE_NOT_FOUND")?;
                // Nothing is withdrawn, so a checkpoint that holds the question still holds.
                if question <= boundary && !self.has_standing_after(question) {
                    return Err("CONTEXT_EMPTY");
                }
                Ok(question)
            }
            Turn::Edited(message, _) => {
                let stored = self.message(*message);
                if !stored.stands() {
                    return Err("MESSAGE_WITHDRAWN");
                }
                if stored.role != Role::User || separator >= *message {
                    return Err("INVALID_FIELD");
                }
                Ok(*message)
            }
        }
    }

    fn request(&self, turn: &Turn, request_id: Option<&str>) -> TurnRequest<'_> {
        let conversation = self.conversation();
        let request = match turn {
            Turn::New(new) => conversation.chat_all(vec![new.message.clone()]),
            Turn::Newest => conversation.regenerate(),
            Turn::Edited(message, new) => {
                let mut request = conversation.chat_all(vec![new.message.clone()]);
                request.ask.edit_message_id = Some(*message);
                request
            }
        };
        request.request_id(request_id.unwrap_or_default())
    }

    fn conversation(&self) -> TestConversation<'_> {
        self.app.conversation_by_id(&self.id.to_string())
    }

    /// Runs a turn, and ends it as `end` says. Without an end of its own, the model answers.
    async fn play(
        &self,
        (turn, request_id): (&Turn, Option<&str>),
        (end, question): (TurnEnd, i64),
        gate: &Gate,
    ) -> Result<PlayedTurn, Violation> {
        let without_stop = |outcome| PlayedTurn {
            outcome,
            cancelled: None,
        };
        if end == TurnEnd::Answered {
            gate.open_for_ever();
        }
        let request = self.request(turn, request_id);
        if end == TurnEnd::Answered {
            return Ok(without_stop(request.run().await));
        }
        let refused = |events, status| {
            without_stop(TurnOutcome {
                events,
                end: Err(status),
            })
        };
        let mut stream = match request.open().await {
            Ok(stream) => stream,
            Err(status) => return Ok(refused(Vec::new(), status)),
        };
        let mut events = Vec::new();
        while !matches!(events.last(), Some(Event::TextDelta(_))) {
            match stream.message().await {
                Ok(Some(response)) => events.extend(response.event),
                Ok(None) => return Err(format!("a turn has no end: {events:?}")),
                Err(status) => return Ok(refused(events, status)),
            }
        }
        let mut cancelled = None;
        if end == TurnEnd::Changed {
            let withdrawal = self.conversation().withdraw(&[question]);
            let withdrawn = withdrawal.keep_tool_pairs_apart().send().await;
            withdrawn.map_err(|status| format!("message {question} is not withdrawn: {status}"))?;
            gate.open_for_ever();
        } else {
            let keep = Some(end == TurnEnd::Kept);
            let stop = self.conversation();
            cancelled = Some(stop.cancel_turn(request_id.unwrap_or_default(), keep).await);
        }
        let rest = TurnOutcome::read(stream).await;
        gate.open_for_ever();
        events.extend(rest.events);
        Ok(PlayedTurn {
            outcome: TurnOutcome {
                events,
                end: rest.end,
            },
            cancelled,
        })
    }

    /// Applies to the expected messages what a turn does before it calls the model.
    fn apply_question(&mut self, turn: &Turn, question: i64) {
        if let Turn::New(new) = turn {
            self.messages.push(ExpectedMessage::new(new.clone()));
            return;
        }
        let after = self
            .in_state(State::Standing)
            .filter(|id| id.0 > question)
            .collect();
        let is_withdrawal = self.withdraw_answer(MessageId(question), after);
        if let Turn::Edited(message, new) = turn {
            let edited = &mut self.messages[*message as usize - 1];
            edited.versions.push(ExpectedVersion::new(new.clone()));
        }
        if is_withdrawal || matches!(turn, Turn::Edited(..)) {
            self.changes += 1;
            self.must_verify = true;
        }
    }

    /// Withdraws these messages, as an alternative. False: there are none.
    pub(crate) fn withdraw_answer(
        &mut self,
        question: MessageId,
        messages: BTreeSet<MessageId>,
    ) -> bool {
        if messages.is_empty() {
            return false;
        }
        for id in &messages {
            self.messages[id.0 as usize - 1].state = State::Withdrawn;
        }
        self.record_alternative(question, messages);
        true
    }

    /// Checks the start of a turn, and that the model was asked this question, and was sent nothing
    /// that does not stand.
    fn check_question(&self, question: i64, outcome: &TurnOutcome) -> Result<(), Violation> {
        let withdrawn = self.withdrawn_alternatives(MessageId(question));
        let is_start = matches!(outcome.events.first(), Some(Event::Started(started))
            if started.message_ids.last() == Some(&question) && started.alternatives == withdrawn);
        if !is_start {
            return Err(format!(
                "a turn that answers message {question} with {withdrawn} alternatives is {outcome:?}"
            ));
        }
        let asked = self.turns.script.asked();
        self.check_marks("a call of the model", &asked)?;
        if asked.contains(&self.message(question).newest().mark) {
            return Ok(());
        }
        Err(format!(
            "the model was not asked message {question}: {asked}"
        ))
    }

    /// Checks how a turn has ended, and applies the change that has ended it.
    fn check_end(
        &mut self,
        (end, question, answer): (TurnEnd, i64, Option<i64>),
        played: &PlayedTurn,
    ) -> Result<(), Violation> {
        let answer_id = answer.unwrap_or(0);
        let is_expected = match (end, &played.outcome.end) {
            (TurnEnd::Changed, Err(status)) => {
                self.messages[question as usize - 1].state = State::Withdrawn;
                self.changes += 1;
                self.must_verify = true;
                status_details(status).reason == "MODEL_UNAVAILABLE"
            }
            (TurnEnd::Changed, Ok(_)) | (_, Err(_)) => false,
            (_, Ok(done)) => {
                let stopped = end != TurnEnd::Answered;
                (done.answer_message_id, done.stopped, done.replayed) == (answer_id, stopped, false)
            }
        };
        let outcome = match end {
            TurnEnd::Answered | TurnEnd::Changed => None,
            TurnEnd::Kept => Some((CancelOutcome::Kept, answer_id)),
            TurnEnd::Dropped => Some((CancelOutcome::Dropped, answer_id)),
        };
        let cancelled = played
            .cancelled
            .as_ref()
            .map(|cancelled| (cancelled.outcome(), cancelled.answer_message_id));
        if is_expected && cancelled == outcome {
            return Ok(());
        }
        Err(format!(
            "a turn that was to be {end:?} with the answer {answer_id} is {:?}, and stopped as {cancelled:?}",
            played.outcome
        ))
    }

    /// Sends a turn whose request id was used before: it must be refused, unless it is the same.
    /// Then repeats the earlier one: the model is not called, and the answer is the earlier one, if
    /// it still stands and its question does.
    async fn repeat_turn(&mut self, made: &MadeTurn, turn: &Turn) -> Result<(), Violation> {
        let calls = self.turns.script.calls();
        let request_id = Some(made.turn.request_id());
        // Once the question is erased, nothing tells its messages from others.
        let is_forgotten = self.message(made.question).state == State::Erased;
        if *turn != made.turn {
            let refused = self.request(turn, request_id).run().await;
            match refused.end {
                Err(status) if status_details(&status).reason == "REQUEST_ID_REUSED" => {
                    self.record_event("request ids of turns reused");
                }
                Err(_) if is_forgotten => {}
                end => return Err(format!("{turn:?} after {made:?} ends with {end:?}")),
            }
        }
        let stands = |id: i64| self.message(id).stands();
        let both_stand = stands(made.question) && made.answer.is_none_or(stands);
        let is_replay = |done: &Done| {
            let replayed = (done.answer_message_id, done.stopped, done.replayed);
            replayed == (made.answer.unwrap_or(0), made.stopped, true)
        };
        let is_gone = |reason: &str| {
            ["MESSAGE_WITHDRAWN", "MESSAGE_ERASED"].contains(&reason)
                || (is_forgotten && reason == "REQUEST_ID_REUSED")
        };
        let outcome = self.request(&made.turn, request_id).run().await;
        let is_expected = match &outcome.end {
            Ok(done) => both_stand && is_replay(done),
            Err(status) => !both_stand && is_gone(&status_details(status).reason),
        };
        if !is_expected || self.turns.script.calls() != calls {
            let calls = self.turns.script.calls() - calls;
            return Err(format!(
                "the repetition of {made:?} has made {calls} calls, and is {outcome:?}"
            ));
        }
        if both_stand {
            self.record_event("turns repeated");
        }
        Ok(())
    }
}
