//! Whether a summary that another system has made may stand for the beginning of a tail.

use crate::{
    cut::{TailItem, free_places},
    message::MessageId,
    tokens::Tokens,
};

/// A summary from elsewhere, and what stands before the tail now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adoption {
    /// The last message that it stands for.
    pub last: MessageId,
    /// Its tokens, counted as those of the tail are.
    pub summary: Tokens,
    /// The present boundary.
    pub boundary: MessageId,
    /// Tokens of the summary that holds now; zero for none.
    pub previous: Tokens,
}

/// What contexts hold around the summary that has taken its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adopted {
    /// Tokens of the previous summary and the tail before.
    pub before: Tokens,
    /// Tokens of the messages that stay.
    pub stays: Tokens,
}

/// Why a summary from elsewhere cannot stand for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unsound {
    /// There is no such message.
    #[error("message {last} is beyond the newest one, {newest}")]
    BeyondNewest {
        /// The last message that it would stand for.
        last: MessageId,
        /// The newest message.
        newest: MessageId,
    },
    /// It would not move the boundary.
    #[error("message {last} is not newer than the present boundary, {boundary}")]
    NotNewer {
        /// The last message that it would stand for.
        last: MessageId,
        /// The present boundary.
        boundary: MessageId,
    },
    /// A call would be summarised, and its result would stay.
    #[error("a tool call up to message {last} has its result after it, or still waits for it")]
    PartsToolCall {
        /// The last message that it would stand for.
        last: MessageId,
    },
    /// It would make contexts no smaller.
    #[error("the summary counts {summary} tokens, what it replaces {replaced}")]
    NotShorter {
        /// Its tokens.
        summary: Tokens,
        /// Tokens of the previous summary and the messages.
        replaced: Tokens,
    },
}

/// What comes of a summary from elsewhere, or why it is refused. The tail is everything after the present boundary.
pub fn adopt(tail: &[TailItem], ask: Adoption) -> Result<Adopted, Unsound> {
    let last = ask.last;
    let newest = tail.last().map_or(ask.boundary, |item| item.id);
    if last > newest {
        return Err(Unsound::BeyondNewest { last, newest });
    }
    if last <= ask.boundary {
        return Err(Unsound::NotNewer { last, boundary: ask.boundary });
    }
    let place = tail.partition_point(|item| item.id <= last);
    if !free_places(tail)[place] {
        return Err(Unsound::PartsToolCall { last });
    }
    let sum = |items: &[TailItem]| items.iter().map(|item| item.tokens).sum::<Tokens>();
    let (goes, stays) = (sum(&tail[..place]), sum(&tail[place..]));
    let replaced = ask.previous + goes;
    if ask.summary >= replaced {
        return Err(Unsound::NotShorter { summary: ask.summary, replaced });
    }
    Ok(Adopted { before: replaced + stays, stays })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Role, ToolMark};

    fn item(id: i64, outline: Vec<ToolMark>) -> TailItem {
        let (role, tokens) = (Role::Assistant, Tokens::new(100));
        TailItem { id: MessageId(id), role, turn: 1, tokens, bytes: 400, outline }
    }

    /// Messages 6 to 9 after a boundary at 5; 7 calls, 8 answers.
    fn tail() -> Vec<TailItem> {
        let call = ToolMark::Call { id: "c".into(), name: "look".into() };
        let result = ToolMark::Result { id: "c".into(), is_error: false };
        vec![item(6, vec![]), item(7, vec![call]), item(8, vec![result]), item(9, vec![])]
    }

    fn asked(last: i64, summary: u64) -> Result<Adopted, Unsound> {
        let boundary = MessageId(5);
        let ask =
            Adoption { last: MessageId(last), summary: Tokens::new(summary), boundary, previous: Tokens::new(10) };
        adopt(&tail(), ask)
    }

    #[test]
    fn a_summary_takes_the_place_of_the_one_before_and_of_its_messages() {
        let adopted = |before, stays| Ok(Adopted { before: Tokens::new(before), stays: Tokens::new(stays) });
        assert_eq!(asked(8, 50), adopted(410, 100));
        assert_eq!(asked(9, 50), adopted(410, 0), "everything may go");
    }

    #[test]
    fn it_stands_for_messages_that_are_there_and_have_no_summary_yet() {
        let (last, newest) = (MessageId(10), MessageId(9));
        assert_eq!(asked(10, 50), Err(Unsound::BeyondNewest { last, newest }));
        let boundary = MessageId(5);
        assert_eq!(asked(5, 50), Err(Unsound::NotNewer { last: boundary, boundary }));
    }

    #[test]
    fn it_parts_no_call_from_its_result() {
        assert_eq!(asked(7, 50), Err(Unsound::PartsToolCall { last: MessageId(7) }));
        let waiting = &tail()[..2];
        let ask =
            Adoption { last: MessageId(7), summary: Tokens::ZERO, boundary: MessageId(5), previous: Tokens::ZERO };
        assert_eq!(
            adopt(waiting, ask),
            Err(Unsound::PartsToolCall { last: MessageId(7) }),
            "the result may still come"
        );
    }

    #[test]
    fn as_many_tokens_as_it_replaces_are_too_many_and_one_less_is_not() {
        let replaced = Tokens::new(110);
        assert_eq!(asked(6, 110), Err(Unsound::NotShorter { summary: replaced, replaced }));
        assert!(asked(6, 109).is_ok());
    }
}
