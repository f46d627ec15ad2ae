//! The states that clients know of the messages of a conversation: which version stands, or that
//! it is withdrawn or erased. A change whose acknowledgement a client waits for may or may not have been
//! made, so a message may have several states at once. A reader may see each state that a message
//! had since the reader began.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Mutex,
};

use pb::part::Part;

use super::findings::lock;
use crate::pb;

/// A state of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageState {
    /// This version of it stands, counted from 0.
    Stands(usize),
    /// It is withdrawn; its content is kept.
    Withdrawn,
    /// Its content is erased.
    Erased,
}

/// A kind of change that a client makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeKind {
    Withdraw,
    Rewind,
    Restore,
    Edit,
    Erase,
    Fork,
}

impl ChangeKind {
    /// All kinds. The clients of a campaign begin with one of them each.
    pub(super) const ALL: [Self; 6] = [
        Self::Withdraw,
        Self::Rewind,
        Self::Restore,
        Self::Edit,
        Self::Erase,
        Self::Fork,
    ];

    /// The name under which the change is counted.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Withdraw => "withdrawals",
            Self::Rewind => "rewinds",
            Self::Restore => "restores",
            Self::Edit => "edits",
            Self::Erase => "erasures",
            Self::Fork => "forks",
        }
    }
}

/// A change of messages that a client asks for.
#[derive(Debug)]
pub(super) enum Change {
    /// These messages are withdrawn.
    Withdraw(Vec<i64>),
    /// All messages after this one are withdrawn.
    Rewind(i64),
    /// These messages are restored.
    Restore(Vec<i64>),
    /// The content of this message is replaced.
    Edit(i64, Box<pb::NewMessage>),
    /// These messages are erased.
    Erase(Vec<i64>),
}

/// How a listed message compares with the versions that clients know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    /// It is a version that may stand.
    Stands,
    /// It is a version that was withdrawn, replaced or erased before.
    StoodBefore,
    /// It is no version of the message.
    Differs,
    /// No client knows the message yet.
    Unknown,
}

/// A moment in the history of a conversation's messages.
#[derive(Debug, Default)]
pub(super) struct Moment(BTreeMap<i64, usize>);

/// The states of a message, in order.
struct StateLog {
    /// The versions of its content. None: the append that sent it is not acknowledged yet.
    versions: Vec<Option<pb::NewMessage>>,
    states: Vec<MessageState>,
    /// Index of the newest state that was acknowledged. Later ones may have been reached.
    confirmed: usize,
}

impl StateLog {
    /// The log of a message in this state.
    fn new(state: MessageState) -> Self {
        Self {
            versions: vec![None],
            states: vec![state],
            confirmed: 0,
        }
    }

    /// The acknowledged state.
    fn confirmed_state(&self) -> MessageState {
        self.states[self.confirmed]
    }

    /// The newest version, counted from 0.
    fn newest_version(&self) -> usize {
        self.versions.len() - 1
    }

    /// Adds a state that the message may reach.
    fn may_become(&mut self, state: MessageState) {
        if ![state, MessageState::Erased].contains(&self.confirmed_state()) {
            self.states.push(state);
        }
    }

    /// Records that the message has reached this state.
    fn become_now(&mut self, state: MessageState) {
        if self.states[self.states.len() - 1] != state {
            self.states.push(state);
        }
        self.confirmed = self.states.len() - 1;
    }

    /// Removes the states that the message has not reached.
    fn cancel(&mut self) {
        self.states.truncate(self.confirmed + 1);
        let stood = self.states.iter().map(|state| match state {
            MessageState::Stands(version) => *version,
            MessageState::Withdrawn | MessageState::Erased => 0,
        });
        let newest = stood.max().unwrap_or_default();
        self.versions.truncate(newest + 1);
    }
}

/// The states of the messages of a conversation.
#[derive(Default)]
pub(super) struct MessageStates(Mutex<States>);

#[derive(Default)]
struct States {
    logs: BTreeMap<i64, StateLog>,
    /// The change that is under way.
    pending: Option<Pending>,
    /// The message and the version that contain a mark.
    owners: HashMap<String, (i64, usize)>,
}

/// A change that is under way.
enum Pending {
    /// Of messages that were known when it began. They are in this state after it.
    Named,
    /// All messages after this one are withdrawn, also those that are not known yet.
    Rewind(i64),
}

impl MessageStates {
    /// Adds the messages of an acknowledged append.
    pub(super) fn add(&self, ids: &[i64], messages: &[pb::NewMessage]) {
        let mut states = lock(&self.0);
        let states = &mut *states;
        let marks: Vec<BTreeSet<String>> = messages
            .iter()
            .map(|message| marks_in(&text_of(&message.parts)))
            .collect();
        for (place, (id, message)) in ids.iter().zip(messages).enumerate() {
            let log = states.logs.entry(*id).or_insert_with(|| {
                let mut log = StateLog::new(MessageState::Stands(0));
                if let Some(Pending::Rewind(after)) = states.pending
                    && *id > after
                {
                    log.may_become(MessageState::Withdrawn);
                }
                log
            });
            log.versions[0] = Some(message.clone());
            // A call and its result contain the same mark, which tells nothing of either.
            let is_shared = |mark: &String| {
                let others = marks.iter().enumerate();
                others
                    .filter(|(other, _)| *other != place)
                    .any(|(_, others)| others.contains(mark))
            };
            for mark in marks[place].iter().filter(|mark| !is_shared(mark)) {
                states.owners.insert(mark.clone(), (*id, 0));
            }
        }
    }

    /// Adds a message of a fork whose content was not taken over.
    pub(super) fn add_erased(&self, id: i64) {
        let log = StateLog::new(MessageState::Erased);
        lock(&self.0).logs.insert(id, log);
    }

    /// Records that a change begins: the messages may be changed from now on. There is no other
    /// change under way.
    pub(super) fn begin(&self, change: &Change) {
        let mut states = lock(&self.0);
        let states = &mut *states;
        states.pending = Some(Pending::Named);
        match change {
            Change::Withdraw(ids) => states.may_become(ids, |_| MessageState::Withdrawn),
            Change::Restore(ids) => states.may_become(ids, MessageState::Stands),
            Change::Erase(ids) => states.may_become(ids, |_| MessageState::Erased),
            Change::Rewind(after) => {
                states.pending = Some(Pending::Rewind(*after));
                for (_, log) in states.logs.range_mut(after + 1..) {
                    log.may_become(MessageState::Withdrawn);
                }
            }
            Change::Edit(id, new) => {
                if let Some(log) = states.logs.get_mut(id) {
                    log.versions.push(Some((**new).clone()));
                    let version = log.newest_version();
                    log.may_become(MessageState::Stands(version));
                    for mark in marks_in(&text_of(&new.parts)) {
                        states.owners.insert(mark, (*id, version));
                    }
                }
            }
        }
    }

    /// Records that the change was acknowledged, and that it has changed these messages.
    pub(super) fn confirm(&self, change: &Change, changed: &[i64]) {
        let mut states = lock(&self.0);
        states.pending = None;
        for id in changed {
            let log = states
                .logs
                .entry(*id)
                .or_insert_with(|| StateLog::new(MessageState::Stands(0)));
            log.become_now(match change {
                Change::Withdraw(_) | Change::Rewind(_) => MessageState::Withdrawn,
                Change::Erase(_) => MessageState::Erased,
                Change::Restore(_) | Change::Edit(..) => MessageState::Stands(log.newest_version()),
            });
        }
        states.logs.values_mut().for_each(StateLog::cancel);
    }

    /// Records that the change was refused.
    pub(super) fn cancel(&self) {
        let mut states = lock(&self.0);
        states.pending = None;
        states.logs.values_mut().for_each(StateLog::cancel);
    }

    /// The acknowledged state of a message; None if no client knows it.
    pub(super) fn confirmed(&self, id: i64) -> Option<MessageState> {
        lock(&self.0).logs.get(&id).map(StateLog::confirmed_state)
    }

    /// The known messages after this one that stand.
    pub(super) fn standing_after(&self, after: i64) -> Vec<i64> {
        let states = lock(&self.0);
        let later = states.logs.range(after + 1..);
        later
            .filter(|(_, log)| matches!(log.confirmed_state(), MessageState::Stands(_)))
            .map(|(id, _)| *id)
            .collect()
    }

    /// The number of versions of a message that clients know.
    pub(super) fn version_count(&self, id: i64) -> usize {
        lock(&self.0)
            .logs
            .get(&id)
            .map_or(0, |log| log.versions.len())
    }

    /// Whether a message has had one state only, as far as clients know.
    pub(super) fn is_unchanged(&self, id: i64) -> bool {
        lock(&self.0)
            .logs
            .get(&id)
            .is_none_or(|log| log.states.len() == 1)
    }

    /// Whether one of these messages is erased, or may be.
    pub(super) fn may_be_erased(&self, ids: &[i64]) -> bool {
        let states = lock(&self.0);
        let logs = ids.iter().filter_map(|id| states.logs.get(id));
        logs.flat_map(|log| &log.states)
            .any(|state| *state == MessageState::Erased)
    }

    /// This moment.
    pub(super) fn now(&self) -> Moment {
        let states = lock(&self.0);
        let confirmed = states.logs.iter().map(|(id, log)| (*id, log.confirmed));
        Moment(confirmed.collect())
    }

    /// Whether a list that began at this moment may lack the message.
    pub(super) fn may_be_absent(&self, id: i64, since: &Moment) -> bool {
        let states = lock(&self.0);
        match states.logs.get(&id) {
            Some(_) => states
                .since(id, since)
                .any(|state| !matches!(state, MessageState::Stands(_))),
            None => matches!(states.pending, Some(Pending::Rewind(after)) if id > after),
        }
    }

    /// Whether the message may have been in this state since the moment.
    pub(super) fn may_be(&self, id: i64, state: MessageState, since: &Moment) -> bool {
        lock(&self.0).since(id, since).any(|other| other == state)
    }

    /// Compares a message of a list that began at this moment.
    pub(super) fn compare(&self, listed: &pb::Message, since: &Moment) -> Comparison {
        let states = lock(&self.0);
        let id = listed.message_id;
        let Some(log) = states.logs.get(&id) else {
            return Comparison::Unknown;
        };
        let equal = |version: &Option<pb::NewMessage>| {
            let sent = version.as_ref();
            sent.is_some_and(|sent| matches_sent(listed, sent))
        };
        let version = log.versions.iter().position(equal);
        if version.is_none() && log.versions[0].is_some() {
            return Comparison::Differs;
        }
        let may_stand = states.stands(id, version.unwrap_or_default(), since);
        match (may_stand, version) {
            (true, Some(_)) => Comparison::Stands,
            (true, None) => Comparison::Unknown,
            (false, _) => Comparison::StoodBefore,
        }
    }

    /// Whether a withdrawn message is listed with the content that it had last.
    pub(super) fn is_newest_version(&self, listed: &pb::Message) -> bool {
        let states = lock(&self.0);
        let log = states.logs.get(&listed.message_id);
        log.and_then(|log| log.versions.last()?.as_ref())
            .is_none_or(|sent| matches_sent(listed, sent))
    }

    /// The first of these marks whose message does not contain it any more, or does not stand any
    /// more, since this moment.
    pub(super) fn find_stale_mark(
        &self,
        marks: &BTreeSet<String>,
        since: &Moment,
    ) -> Option<String> {
        let states = lock(&self.0);
        let is_stale = |mark: &&String| {
            let owner = states.owners.get(*mark);
            owner.is_some_and(|(id, version)| !states.stands(*id, *version, since))
        };
        marks.iter().find(is_stale).cloned()
    }

    /// The marks of all versions of erased messages.
    pub(super) fn erased_marks(&self) -> Vec<String> {
        let states = lock(&self.0);
        let is_erased = |id: &i64| {
            let log = states.logs.get(id);
            log.is_some_and(|log| log.confirmed_state() == MessageState::Erased)
        };
        let owners = states.owners.iter();
        owners
            .filter(|(_, (id, _))| is_erased(id))
            .map(|(mark, _)| mark.clone())
            .collect()
    }
}

impl States {
    /// Adds a state that these messages may reach. `next` has it, by the number of the newest
    /// version.
    fn may_become(&mut self, ids: &[i64], next: impl Fn(usize) -> MessageState) {
        for id in ids {
            if let Some(log) = self.logs.get_mut(id) {
                let version = log.newest_version();
                log.may_become(next(version));
            }
        }
    }

    /// The states of a message since this moment.
    fn since(&self, id: i64, moment: &Moment) -> impl Iterator<Item = MessageState> {
        let first = moment.0.get(&id).copied().unwrap_or_default();
        let log = self.logs.get(&id);
        log.into_iter()
            .flat_map(move |log| log.states.iter().skip(first).copied())
    }

    /// Whether this version of a message may have stood since the moment.
    fn stands(&self, id: i64, version: usize, since: &Moment) -> bool {
        self.since(id, since)
            .any(|state| state == MessageState::Stands(version))
    }
}

/// Whether a stored message equals the sent one.
pub(super) fn matches_sent(stored: &pb::Message, sent: &pb::NewMessage) -> bool {
    sent.role == stored.role && sent.parts == stored.parts && sent.metadata == stored.metadata
}

/// All texts of these parts, and the ids of tool calls.
pub(super) fn text_of(parts: &[pb::Part]) -> String {
    let texts = parts
        .iter()
        .filter_map(|part| part.part.as_ref())
        .map(|part| match part {
            Part::Text(text) => text.text.clone(),
            Part::Reasoning(reasoning) => reasoning.text.clone(),
            Part::ToolUse(call) => call.id.clone(),
            Part::ToolResult(result) => format!("{} {}", result.tool_use_id, result.text),
            Part::Media(_) => String::new(),
        });
    texts.collect::<Vec<String>>().join("\n")
}

/// The marks in a text (`Client::mark`): `mk`, then three numbers with an `x` between them.
pub(super) fn marks_in(text: &str) -> BTreeSet<String> {
    let candidates = text.match_indices("mk").map(|(start, _)| {
        let rest = &text[start + 2..];
        let is_part = |byte: &u8| byte.is_ascii_digit() || *byte == b'x';
        &rest[..rest.bytes().take_while(is_part).count()]
    });
    candidates
        .filter(|numbers| {
            let numbers: Vec<&str> = numbers.split('x').collect();
            numbers.len() == 3 && numbers.iter().all(|number| !number.is_empty())
        })
        .map(|numbers| format!("mk{numbers}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{call, result, user};

    /// The message of a list.
    fn listed(message_id: i64, new: &pb::NewMessage) -> pb::Message {
        pb::Message {
            message_id,
            role: new.role,
            parts: new.parts.clone(),
            ..Default::default()
        }
    }

    #[test]
    fn a_withdrawn_message_may_be_listed_only_until_the_acknowledgement() {
        let (states, sent) = (MessageStates::default(), user("mk1x1x0"));
        states.add(&[1], std::slice::from_ref(&sent));
        let message = listed(1, &sent);
        let before = states.now();
        let withdrawal = Change::Withdraw(vec![1]);
        states.begin(&withdrawal);
        let during = states.now();
        assert_eq!(states.compare(&message, &before), Comparison::Stands);
        assert!(states.may_be_absent(1, &before));
        states.confirm(&withdrawal, &[1]);
        assert_eq!(states.compare(&message, &during), Comparison::Stands);
        let after = states.now();
        assert_eq!(states.compare(&message, &after), Comparison::StoodBefore);
        let marks = marks_in("of mk1x1x0.");
        assert_eq!(states.find_stale_mark(&marks, &during), None);
        assert_eq!(
            states.find_stale_mark(&marks, &after),
            Some("mk1x1x0".to_owned())
        );
    }

    #[test]
    fn a_refused_change_leaves_everything_as_it_was() {
        let (states, sent) = (MessageStates::default(), user("mk1x1x0"));
        states.add(&[1], std::slice::from_ref(&sent));
        states.begin(&Change::Edit(1, Box::new(user("mk1x2x0"))));
        states.cancel();
        let now = states.now();
        assert_eq!(states.version_count(1), 1);
        assert!(states.is_unchanged(1) && !states.may_be_absent(1, &now));
        let edited = listed(1, &user("mk1x2x0"));
        assert_eq!(states.compare(&edited, &now), Comparison::Differs);
    }

    #[test]
    fn a_rewind_withdraws_messages_that_are_acknowledged_later() {
        let (states, sent) = (MessageStates::default(), user("mk1x1x0"));
        let rewind = Change::Rewind(4);
        states.begin(&rewind);
        assert!(states.may_be_absent(5, &states.now()));
        states.confirm(&rewind, &[5]);
        let now = states.now();
        states.add(&[5], std::slice::from_ref(&sent));
        assert_eq!(
            states.compare(&listed(5, &sent), &now),
            Comparison::StoodBefore
        );
        assert!(!states.may_be_absent(6, &now));
    }

    #[test]
    fn a_restored_message_has_the_version_that_it_had_last() {
        let (states, edited) = (MessageStates::default(), user("mk1x2x0"));
        states.add(&[1], &[user("mk1x1x0")]);
        for change in [
            Change::Edit(1, Box::new(edited.clone())),
            Change::Withdraw(vec![1]),
            Change::Restore(vec![1]),
        ] {
            states.begin(&change);
            states.confirm(&change, &[1]);
        }
        assert_eq!(states.confirmed(1), Some(MessageState::Stands(1)));
        let now = states.now();
        assert_eq!(
            states.compare(&listed(1, &edited), &now),
            Comparison::Stands
        );
        assert_eq!(
            states.find_stale_mark(&marks_in("mk1x1x0 mk1x2x0"), &now),
            Some("mk1x1x0".to_owned())
        );
    }

    #[test]
    fn a_mark_of_two_messages_belongs_to_neither() {
        let states = MessageStates::default();
        let pair = [call("mk1x4x0", "{}"), result("mk1x4x0", "note mk1x4x1.")];
        states.add(&[1, 2], &pair);
        let erasure = Change::Erase(vec![1, 2]);
        states.begin(&erasure);
        states.confirm(&erasure, &[1, 2]);
        assert_eq!(states.erased_marks(), ["mk1x4x1"]);
    }

    #[test]
    fn marks_are_found_among_other_words() {
        let found = marks_in("mk1x22x3, \"mk4x5x6\" mk7x8 mk9x9xmk and mkx1x2x3");
        assert_eq!(Vec::from_iter(found), ["mk1x22x3", "mk4x5x6"]);
    }
}
