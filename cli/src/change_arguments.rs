//! The arguments of the commands that withdraw and restore messages, and how commands name
//! messages.

use std::str::FromStr;

use anneal_core::limits::CHANGE_IDS;
use anneal_proto::v1 as pb;
use clap::Args;

use crate::server_arguments::ServerArguments;

/// The arguments of `withdraw` and `restore`.
#[derive(Debug, Args)]
pub(crate) struct ChangeArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// The conversation's id, or its unique beginning
    pub(crate) conversation: String,
    /// The messages: ids and ranges, for example 3 5-9
    #[arg(required = true, value_name = "MESSAGES", value_delimiter = ',')]
    pub(crate) messages: Vec<MessageIds>,
    /// Change exactly these messages [default: a tool call goes together with its results, and a
    /// result with its call]
    #[arg(long)]
    pub(crate) keep_tool_pairs_apart: bool,
    /// Print what was changed as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The arguments of `rewind`.
#[derive(Debug, Args)]
pub(crate) struct RewindArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// The conversation's id, or its unique beginning
    pub(crate) conversation: String,
    /// The last message that stays; 0: none stays
    #[arg(value_name = "MESSAGE", value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) after: i64,
    /// Withdraw exactly the messages after this one [default: a tool call before them goes together
    /// with its results]
    #[arg(long)]
    pub(crate) keep_tool_pairs_apart: bool,
    /// Print what was changed as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// One message, as `3`, or the messages from one id to another, as `5-9`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MessageIds {
    first: i64,
    last: i64,
}

/// The messages of a request: ids, or a range instead.
#[derive(Debug, PartialEq)]
pub(crate) struct NamedMessages {
    pub(crate) message_ids: Vec<i64>,
    pub(crate) range: Option<pb::IdRange>,
}

impl FromStr for MessageIds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let id = |text: &str| text.parse().ok().filter(|id: &i64| *id > 0);
        match (id(first), id(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self { first, last }),
            _ => Err("messages are numbered from 1; a range is written as 5-9".to_owned()),
        }
    }
}

impl NamedMessages {
    /// Messages without gaps become a range, which may be long. Others become a list of ids; an
    /// error if a request may not have as many.
    pub(crate) fn of(messages: &[MessageIds]) -> Result<Self, String> {
        let runs = merged(messages);
        if let [run] = runs.as_slice() {
            return Ok(Self {
                message_ids: Vec::new(),
                range: Some(pb::IdRange {
                    first_message_id: run.first,
                    last_message_id: run.last,
                }),
            });
        }
        let count = runs.iter().fold(0, |count: u64, run| {
            count.saturating_add(run.last.abs_diff(run.first) + 1)
        });
        if count > CHANGE_IDS as u64 {
            return Err(format!(
                "these are {count} messages; one call changes at most {CHANGE_IDS} messages, or one range without gaps"
            ));
        }
        Ok(Self {
            message_ids: runs.iter().flat_map(|run| run.first..=run.last).collect(),
            range: None,
        })
    }
}

/// The same messages in order, each once, in as few ranges as possible.
fn merged(messages: &[MessageIds]) -> Vec<MessageIds> {
    let mut sorted = messages.to_vec();
    sorted.sort_unstable();
    let mut runs: Vec<MessageIds> = Vec::new();
    for one in sorted {
        match runs.last_mut() {
            Some(run) if one.first <= run.last.saturating_add(1) => {
                run.last = run.last.max(one.last);
            }
            _ => runs.push(one),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(texts: &[&str]) -> Result<NamedMessages, String> {
        let messages = texts.iter().map(|text| text.parse::<MessageIds>());
        NamedMessages::of(&messages.collect::<Result<Vec<_>, _>>()?)
    }

    fn range(first_message_id: i64, last_message_id: i64) -> NamedMessages {
        NamedMessages {
            message_ids: Vec::new(),
            range: Some(pb::IdRange {
                first_message_id,
                last_message_id,
            }),
        }
    }

    #[test]
    fn messages_without_gaps_are_a_range_and_others_are_ids() {
        assert_eq!(named(&["3"]), Ok(range(3, 3)));
        assert_eq!(named(&["5-9", "4", "8-10"]), Ok(range(4, 10)));
        assert_eq!(named(&["1-9000"]), Ok(range(1, 9_000)));
        let ids = NamedMessages {
            message_ids: vec![1, 3, 5, 6, 7],
            range: None,
        };
        assert_eq!(named(&["5-7", "3", "1", "3"]), Ok(ids));
    }

    #[test]
    fn more_messages_with_gaps_than_a_request_may_name_are_an_error() {
        let ids = named(&["1-499", "501"]).expect("500 messages");
        assert_eq!(ids.message_ids.len(), CHANGE_IDS);
        let refused = named(&["1-500", "502"]).expect_err("501 messages");
        assert!(refused.contains("501 messages"), "{refused}");
        let refused = named(&["1", "3-9223372036854775807"]).expect_err("all messages but one");
        assert!(refused.contains("at most 500"), "{refused}");
    }

    #[test]
    fn other_texts_name_no_messages() {
        for text in [
            "",
            "0",
            "-1",
            "-",
            "5-",
            "5-4",
            "0-3",
            "x",
            "1-2-3",
            "9223372036854775808",
        ] {
            assert!(named(&[text]).is_err(), "{text}");
        }
    }
}
