//! Decides which messages of a request are new to its conversation. The messages before them must
//! be the end of what is stored. A client may leave out the beginning, as many do when a history
//! has become long.

use anneal_proto::v1 as pb;

use super::shown_message::Shown;

/// A message of the request or of the conversation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HistoryMessage {
    pub(super) role: pb::Role,
    pub(super) shown: Vec<Shown>,
}

/// A message that stands in the conversation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StoredMessage {
    pub(super) message: HistoryMessage,
    /// The request id of the turn whose prompt begins with the message. None: none of this API's.
    pub(super) turn: Option<String>,
}

/// The treatment of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// The messages of the request from this one on are new.
    Append { first_new: usize },
    /// The last messages of the request are stored as the prompt of this turn, which is repeated.
    Repeat {
        turn: String,
        /// How many messages of the conversation are the prompt, counted from here.
        prompt: std::ops::Range<usize>,
    },
    /// The messages are not those of the conversation's end, but an earlier request with the same
    /// key may have stored them.
    Find,
    /// All messages are stored. The last one is of the user, and is answered anew.
    AnswerAnew,
}

/// Why a request cannot be served in its conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Divergence {
    /// The messages of the request are not those of the conversation.
    OtherMessages,
    /// All messages of the request are stored, and other messages come after them.
    GoneOn,
    /// The last messages are results of tools, which are stored and cannot be answered again.
    ResultsStored,
    /// The key was used for other messages.
    KeyReused,
}

/// Decides what is done. `stored` are the newest messages of the conversation, oldest first: all of
/// them, or more than the request has. `key` is the turn that the request names.
pub(super) fn plan(
    request: &[HistoryMessage],
    stored: &[StoredMessage],
    key: Option<&str>,
) -> Result<Plan, Divergence> {
    let asked: Vec<Shown> = flatten(request.iter());
    if let Some(key) = key
        && let Some(plan) = plan_repetition(&asked, stored, key)
    {
        return plan;
    }
    if stored.is_empty() {
        return Ok(Plan::Append { first_new: 0 });
    }
    let before_answer = stored.len() - count_answers(stored);
    let is_user = request
        .last()
        .is_some_and(|last| last.role == pb::Role::User);
    let anew = if is_user {
        Ok(Plan::AnswerAnew)
    } else {
        Err(Divergence::ResultsStored)
    };
    let question = flatten(messages_of(&stored[..before_answer]));
    if before_answer < stored.len() && question == asked {
        return anew;
    }
    let overlap = longest_overlap(&flatten(messages_of(stored)), &asked);
    if overlap == asked.len() {
        return find_unanswered(stored).map_or(anew, Ok);
    }
    if overlap > 0 {
        let first_new = message_at(request, overlap).ok_or(Divergence::OtherMessages)?;
        return Ok(Plan::Append { first_new });
    }
    if before_answer < stored.len() && longest_overlap(&question, &asked) == asked.len() {
        return anew;
    }
    Err(if contains(&flatten(messages_of(stored)), &asked) {
        Divergence::GoneOn
    } else {
        Divergence::OtherMessages
    })
}

/// The plan for a request whose key an earlier one has used. None: none of these messages has it.
fn plan_repetition(
    asked: &[Shown],
    stored: &[StoredMessage],
    key: &str,
) -> Option<Result<Plan, Divergence>> {
    let first = stored
        .iter()
        .position(|stored| stored.turn.as_deref() == Some(key))?;
    let length = stored[first..]
        .iter()
        .take_while(|stored| stored.message.role != pb::Role::Assistant)
        .count();
    let prompt = first..first + length;
    let known = flatten(messages_of(&stored[..prompt.end]));
    Some(if longest_overlap(&known, asked) == asked.len() {
        let turn = key.to_owned();
        Ok(Plan::Repeat { turn, prompt })
    } else {
        Err(Divergence::KeyReused)
    })
}

/// The turn at the end of the conversation whose prompt was not answered. None: no turn of this API
/// has stored the last messages.
fn find_unanswered(stored: &[StoredMessage]) -> Option<Plan> {
    let tail = stored
        .iter()
        .rev()
        .take_while(|stored| stored.message.role != pb::Role::Assistant)
        .count();
    let tail = stored.len() - tail;
    let place = stored[tail..]
        .iter()
        .rposition(|stored| stored.turn.is_some())?;
    let turn = stored[tail + place].turn.clone()?;
    Some(Plan::Repeat {
        turn,
        prompt: tail + place..stored.len(),
    })
}

/// How many messages of the assistant the conversation ends with.
fn count_answers(stored: &[StoredMessage]) -> usize {
    let from_end = stored.iter().rev();
    from_end
        .take_while(|stored| stored.message.role == pb::Role::Assistant)
        .count()
}

fn messages_of(stored: &[StoredMessage]) -> impl Iterator<Item = &HistoryMessage> {
    stored.iter().map(|stored| &stored.message)
}

fn flatten<'m>(messages: impl Iterator<Item = &'m HistoryMessage>) -> Vec<Shown> {
    messages.flat_map(|message| message.shown.clone()).collect()
}

/// The message before which this many things are shown. None: no message begins there.
fn message_at(messages: &[HistoryMessage], shown: usize) -> Option<usize> {
    let mut before = 0;
    for (index, message) in messages.iter().enumerate() {
        if before >= shown {
            return (before == shown).then_some(index);
        }
        before += message.shown.len();
    }
    None
}

/// The length of the longest beginning of `asked` with which `stored` ends.
fn longest_overlap(stored: &[Shown], asked: &[Shown]) -> usize {
    let borders = borders(asked);
    let mut matched = 0;
    for shown in stored {
        matched = advance(asked, &borders, matched, *shown);
    }
    matched
}

/// Whether `asked` is a part of `stored`.
fn contains(stored: &[Shown], asked: &[Shown]) -> bool {
    let borders = borders(asked);
    let mut matched = 0;
    stored.iter().any(|shown| {
        matched = advance(asked, &borders, matched, *shown);
        matched == asked.len()
    })
}

/// For each beginning of `asked`, from the one of length 1 on: the length of its longest proper end
/// that is also a beginning (the table of the Knuth-Morris-Pratt search).
fn borders(asked: &[Shown]) -> Vec<usize> {
    let mut borders = vec![0; asked.len().min(1)];
    let mut matched = 0;
    for shown in asked.iter().skip(1) {
        matched = advance(asked, &borders, matched, *shown);
        borders.push(matched);
    }
    borders
}

/// How much of `asked` is matched after this one, if `matched` was before.
fn advance(asked: &[Shown], borders: &[usize], mut matched: usize, shown: Shown) -> usize {
    loop {
        if asked.get(matched) == Some(&shown) {
            return matched + 1;
        }
        if matched == 0 {
            return 0;
        }
        matched = borders[matched - 1];
    }
}

#[cfg(test)]
mod tests {
    use anneal_proto::convert::message::text_message;

    use super::*;
    use crate::http::openai::chat_completions::shown_message::shown_in;

    /// A message of the user (`u…`), of the assistant (`a…`) or of a tool (`t…`).
    fn message(name: &str) -> HistoryMessage {
        let role = match name.chars().next() {
            Some('a') => pb::Role::Assistant,
            Some('t') => pb::Role::Tool,
            _ => pb::Role::User,
        };
        // A result is compared like a text here.
        let shown_as = if role == pb::Role::Tool {
            pb::Role::User
        } else {
            role
        };
        let shown = shown_in(shown_as, &text_message(role, name).parts);
        HistoryMessage { role, shown }
    }

    fn request(names: &str) -> Vec<HistoryMessage> {
        names.split_whitespace().map(message).collect()
    }

    /// Messages; a name may be followed by the turn whose prompt begins with it: `u1=r1`.
    fn stored(names: &str) -> Vec<StoredMessage> {
        let messages = names.split_whitespace().map(|name| {
            let (name, turn) = match name.split_once('=') {
                Some((name, turn)) => (name, Some(turn.to_owned())),
                None => (name, None),
            };
            StoredMessage {
                message: message(name),
                turn,
            }
        });
        messages.collect()
    }

    fn planned(asked: &str, known: &str, key: Option<&str>) -> Result<Plan, Divergence> {
        plan(&request(asked), &stored(known), key)
    }

    #[track_caller]
    fn assert_new(asked: &str, known: &str, first_new: usize) {
        assert_eq!(planned(asked, known, None), Ok(Plan::Append { first_new }));
    }

    #[test]
    fn what_follows_the_stored_messages_is_new() {
        assert_new("u1", "", 0);
        assert_new("u1 a1 u2", "", 0);
        assert_new("u1 a1 u2", "u1 a1", 2);
        assert_new("u1 a1 t1 t2", "u1 a1", 2);
        assert_new("u1 u2", "u1", 1);
        assert_new("u1 a1 u1 a1 u2", "u1 a1 u1 a1", 4);
    }

    #[test]
    fn the_beginning_may_be_left_out() {
        assert_new("a2 u3", "u1 a1 u2 a2", 1);
        assert_new("u2 a2 u3", "u1 a1 u2 a2", 2);
        assert_new("u1 a1 u3", "u1 a1 u1 a1", 2);
    }

    #[test]
    fn messages_that_differ_are_refused() {
        for (asked, known) in [
            ("u2", "u1 a1"),
            ("u1 a9 u2", "u1 a1"),
            ("u9 a1 u2", "u1 a1"),
            ("u1 a1 u2 a9 u3", "u1 a1 u2 a2"),
        ] {
            let refused = Err(Divergence::OtherMessages);
            assert_eq!(planned(asked, known, None), refused, "{asked}");
        }
        for (asked, known) in [("u1", "u1 a1 u2 a2"), ("u1 a1 u2", "u1 a1 u2 a2 u3 a3")] {
            assert_eq!(planned(asked, known, None), Err(Divergence::GoneOn));
        }
    }

    #[test]
    fn a_question_whose_answer_the_client_does_not_have_is_answered_anew() {
        for (asked, known) in [
            ("u1", "u1 a1"),
            ("u1", "u1 a1 a2"),
            ("u1 a1 u2", "u1 a1 u2 a2"),
            ("u2", "u1 a1 u2 a2"),
            // The whole history, not an end of it and a new message.
            ("u1 a1 u1", "u1 a1 u1 a1"),
        ] {
            let plan = planned(asked, known, None);
            assert_eq!(plan, Ok(Plan::AnswerAnew), "{asked}");
        }
        let results = planned("u1 a1 t1", "u1 a1 t1 a2", None);
        assert_eq!(results, Err(Divergence::ResultsStored));
    }

    #[test]
    fn a_prompt_without_an_answer_is_repeated_under_its_id() {
        let repeated = |turn: &str, prompt| {
            let turn = turn.to_owned();
            Ok(Plan::Repeat { turn, prompt })
        };
        assert_eq!(planned("u1", "u1=r1", None), repeated("r1", 0..1));
        assert_eq!(
            planned("u1 a1 t1 t2", "u1=r1 a1 t1=r2 t2", None),
            repeated("r2", 2..4)
        );
        // Another API has stored it.
        assert_eq!(planned("u1", "u1", None), Ok(Plan::AnswerAnew));
        assert_eq!(
            planned("u1 a1 t1", "u1 a1 t1", None),
            Err(Divergence::ResultsStored)
        );
    }

    #[test]
    fn a_key_finds_its_turn_whatever_came_after_it() {
        let known = "u1=r1 a1 u2=r2 a2 u3 a3";
        let repeated = planned("u1 a1 u2", known, Some("r2"));
        let (turn, prompt) = ("r2".to_owned(), 2..3);
        assert_eq!(repeated, Ok(Plan::Repeat { turn, prompt }));
        let other = planned("u1 a1 u9", known, Some("r2"));
        assert_eq!(other, Err(Divergence::KeyReused));
        let new = planned("u3 a3 u4", known, Some("r4"));
        assert_eq!(new, Ok(Plan::Append { first_new: 2 }));
    }

    #[test]
    fn a_message_of_which_only_a_part_is_stored_is_another_one() {
        let both = HistoryMessage {
            role: pb::Role::Assistant,
            shown: [message("a1").shown, message("a2").shown].concat(),
        };
        let asked = [vec![message("u1"), both], request("u2")].concat();
        let apart = stored("u1 a1 a2");
        assert_eq!(
            plan(&asked, &apart, None),
            Ok(Plan::Append { first_new: 2 })
        );
        assert_eq!(
            plan(&asked, &stored("u1 a1"), None),
            Err(Divergence::OtherMessages)
        );
    }

    #[test]
    fn an_overlap_is_the_longest_one() {
        for (stored_names, asked, expected) in [
            ("", "u1", 0),
            ("u1 u1 u1", "u1 u1 u2", 2),
            ("u1 u2 u1 u2 u1", "u1 u2 u1 u3", 3),
            ("u1 u2", "u2 u1", 1),
            ("u1 u2", "u1", 0),
        ] {
            let shown = |names: &str| flatten(request(names).iter());
            let overlap = longest_overlap(&shown(stored_names), &shown(asked));
            assert_eq!(overlap, expected, "{stored_names} | {asked}");
        }
    }
}
