//! Parses a line: a message for the model, or a command.

use anneal_core::limits::{FOCUS_BYTES, TITLE_BYTES};

use crate::sanitize::sanitize;

/// A line that was typed, pasted or read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Only blanks.
    Empty,
    /// A message for the model.
    Message(String),
    Command(ChatCommand),
    /// An invalid command; the text says what to type instead.
    Invalid(String),
}

/// A command with its arguments.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChatCommand {
    /// Start a conversation with this title; empty: no title.
    New(String),
    /// Switch to the conversation whose title or id has this prefix.
    Switch(String),
    /// List the conversations.
    List,
    /// Show how full the context is.
    Context,
    /// Make a checkpoint with this focus; empty: no focus.
    Compact(String),
    /// Insert a separator.
    Separate,
    /// Show the original message with this id.
    Show(i64),
    /// Change the title.
    Rename(String),
    /// Withdraw the newest question and what followed it.
    Undo,
    /// Restore what was undone.
    Redo,
    /// Replace the newest question by this text, withdraw what followed it, and answer.
    Edit(String),
    /// Send the unanswered message again, or ask for another answer.
    Retry,
    /// List the answers to the newest question.
    Alternatives,
    /// Make the answer with this number stand.
    Choose(i32),
    /// Continue in a fork of the conversation.
    Fork {
        /// The last message that the fork takes over; 0: the newest.
        message_id: i64,
        /// The title of the fork; empty: that of this conversation.
        title: String,
    },
    /// List the commands.
    Help,
    /// Leave the chat.
    Quit,
}

/// The help for a command.
pub(super) struct CommandHelp {
    pub(super) name: &'static str,
    pub(super) arguments: &'static str,
    pub(super) description: &'static str,
}

/// All commands, in the order of /help.
pub(super) const COMMANDS: [CommandHelp; 17] = [
    command_help(
        "/new",
        "[TITLE]",
        "start a conversation with this title; your next message creates it",
    ),
    command_help(
        "/switch",
        "PREFIX",
        "switch to the conversation whose title or id starts with PREFIX; Tab completes titles",
    ),
    command_help("/list", "", "list the conversations, newest first"),
    command_help(
        "/context",
        "",
        "show how full the context is, and when a checkpoint is due",
    ),
    command_help(
        "/compact",
        "[FOCUS]",
        "summarize the older messages now; FOCUS says what the summary must keep",
    ),
    command_help(
        "/sep",
        "",
        "insert a separator: messages before it are no longer sent to the model",
    ),
    command_help(
        "/show",
        "ID",
        "show the original of a message, even if the context has its summary",
    ),
    command_help("/rename", "TITLE", "change the title of this conversation"),
    command_help(
        "/undo",
        "",
        "withdraw your newest message and what followed it",
    ),
    command_help("/redo", "", "restore what /undo has withdrawn"),
    command_help(
        "/edit",
        "TEXT",
        "replace your newest message by TEXT, withdraw what followed it, and get an answer",
    ),
    command_help(
        "/retry",
        "",
        "send the unanswered message again, without storing it twice; or get another answer",
    ),
    command_help(
        "/alternatives",
        "",
        "list the answers to your newest message",
    ),
    command_help("/choose", "N", "take answer N to your newest message"),
    command_help(
        "/fork",
        "[ID] [TITLE]",
        "continue in a copy of this conversation that ends with message ID, or with the newest one",
    ),
    command_help("/help", "", "list these commands"),
    command_help("/quit", "", "leave the chat, as Ctrl-D does"),
];

const fn command_help(
    name: &'static str,
    arguments: &'static str,
    description: &'static str,
) -> CommandHelp {
    CommandHelp {
        name,
        arguments,
        description,
    }
}

/// Parses a line. A message keeps its indentation and inner lines. Line ends before it and blanks
/// after it are removed.
pub(super) fn parse(text: &str) -> Line {
    let text = text.trim_start_matches('\n').trim_end();
    if text.is_empty() {
        return Line::Empty;
    }
    match text.strip_prefix('/') {
        Some(rest) if rest.starts_with('/') => Line::Message(rest.to_owned()),
        Some(_) => parse_command(text).map_or_else(Line::Invalid, Line::Command),
        None => Line::Message(text.to_owned()),
    }
}

fn parse_command(text: &str) -> Result<ChatCommand, String> {
    let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim();
    Ok(match name.to_ascii_lowercase().as_str() {
        "/new" => ChatCommand::New(title(rest)?),
        "/switch" => ChatCommand::Switch(required(
            rest,
            "/switch PREFIX: the beginning of a title or an id; /list shows them",
        )?),
        "/list" => ChatCommand::List,
        "/context" => ChatCommand::Context,
        "/compact" => ChatCommand::Compact(check_length("a focus", rest.to_owned(), FOCUS_BYTES)?),
        "/sep" => ChatCommand::Separate,
        "/show" => ChatCommand::Show(message_id(rest)?),
        "/rename" => ChatCommand::Rename(title(&required(rest, "/rename TITLE: the new title")?)?),
        "/undo" => ChatCommand::Undo,
        "/redo" => ChatCommand::Redo,
        "/edit" => ChatCommand::Edit(required(
            rest,
            "/edit TEXT: the new text of your newest message",
        )?),
        "/retry" => ChatCommand::Retry,
        "/alternatives" => ChatCommand::Alternatives,
        "/choose" => ChatCommand::Choose(answer_number(rest)?),
        "/fork" => fork(rest)?,
        "/help" | "/?" => ChatCommand::Help,
        "/quit" | "/exit" => ChatCommand::Quit,
        _ => return Err(unknown_command(name)),
    })
}

/// The text as a title, on one line. An error if it is longer than a title may be.
pub(super) fn title(text: &str) -> Result<String, String> {
    check_length(
        "a title",
        text.split_whitespace().collect::<Vec<_>>().join(" "),
        TITLE_BYTES,
    )
}

fn check_length(what: &str, text: String, most: usize) -> Result<String, String> {
    if text.len() > most {
        Err(format!(
            "{what} has at most {most} bytes, this one has {}",
            text.len()
        ))
    } else {
        Ok(text)
    }
}

fn required(text: &str, usage: &str) -> Result<String, String> {
    if text.is_empty() {
        Err(usage.to_owned())
    } else {
        Ok(text.to_owned())
    }
}

fn message_id(text: &str) -> Result<i64, String> {
    number(text).ok_or_else(|| {
        "/show ID: the number of a message, from 1; /context names those that are sent as summaries"
            .to_owned()
    })
}

/// The number of a message: `12` or `#12`.
fn number(text: &str) -> Option<i64> {
    text.trim_start_matches('#')
        .parse()
        .ok()
        .filter(|id| *id > 0)
}

fn answer_number(text: &str) -> Result<i32, String> {
    let number = number(text).and_then(|number| i32::try_from(number).ok());
    number.ok_or_else(|| "/choose N: the number of an answer; /alternatives lists them".to_owned())
}

/// A number at the beginning is that of a message, the rest is the title.
fn fork(text: &str) -> Result<ChatCommand, String> {
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let (message_id, title_text) = match number(first) {
        Some(message_id) => (message_id, rest),
        None => (0, text),
    };
    Ok(ChatCommand::Fork {
        message_id,
        title: title(title_text)?,
    })
}

/// The error for an unknown command, with similar commands.
fn unknown_command(name: &str) -> String {
    let similar = COMMANDS
        .iter()
        .map(|command| command.name)
        .filter(|known| is_similar(name, known));
    let similar: Vec<&str> = similar.collect();
    let instead = match similar.as_slice() {
        [] => "/help lists the commands".to_owned(),
        names => format!("did you mean {}?", names.join(" or ")),
    };
    let shown = sanitize(&name.chars().take(40).collect::<String>());
    format!(
        "no command is called {shown}; {instead} (for a message that starts with a slash, type two)"
    )
}

/// Whether the known command is similar to the typed text: the known command begins with the text,
/// or at most two edits of a short text (up to 12 bytes) lead to the known command.
fn is_similar(typed: &str, known: &str) -> bool {
    let typed = typed.to_lowercase();
    (typed.len() > 1 && known.starts_with(&typed))
        || (typed.len() <= 12 && edit_distance(&typed, known) <= 2)
}

/// The Levenshtein distance of two words.
fn edit_distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    // `row[n]`: the distance between the letters of `one` so far and the first n letters of
    // `other`. `diagonal`: `row[column]` before the current letter of `one`.
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, known) in other.iter().enumerate() {
            let substituted = diagonal + usize::from(letter != *known);
            diagonal = row[column + 1];
            row[column + 1] = substituted.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalid(text: &str) -> String {
        match parse(text) {
            Line::Invalid(why) => why,
            other => panic!("{text} is understood: {other:?}"),
        }
    }

    #[test]
    fn commands_are_understood_with_their_arguments() {
        let commands = [
            ("/new", ChatCommand::New(String::new())),
            ("/new my  project ", ChatCommand::New("my project".into())),
            ("/switch My-p", ChatCommand::Switch("My-p".into())),
            ("/LIST", ChatCommand::List),
            (
                "/compact the harbor\nand the ferry",
                ChatCommand::Compact("the harbor\nand the ferry".into()),
            ),
            ("/show #12", ChatCommand::Show(12)),
            ("/rename 港口", ChatCommand::Rename("港口".into())),
            ("/sep", ChatCommand::Separate),
            ("/undo", ChatCommand::Undo),
            (
                "/edit when\n  does it leave? ",
                ChatCommand::Edit("when\n  does it leave?".into()),
            ),
            ("/alternatives", ChatCommand::Alternatives),
            ("/choose 2", ChatCommand::Choose(2)),
            ("/exit", ChatCommand::Quit),
        ];
        for (text, command) in commands {
            assert_eq!(parse(text), Line::Command(command), "{text}");
        }
        for command in COMMANDS {
            assert!(
                !is_unknown_command(command.name),
                "{} is in the list",
                command.name
            );
        }
    }

    #[test]
    fn a_fork_may_have_a_message_and_a_title() {
        for (text, message_id, title) in [
            ("/fork", 0, ""),
            ("/fork #12", 12, ""),
            ("/fork 12 the other  ferry", 12, "the other ferry"),
            ("/fork the 12 ferries", 0, "the 12 ferries"),
            ("/fork -1", 0, "-1"),
        ] {
            let title = title.to_owned();
            assert_eq!(
                parse(text),
                Line::Command(ChatCommand::Fork { message_id, title }),
                "{text}"
            );
        }
    }

    fn is_unknown_command(name: &str) -> bool {
        matches!(parse(name), Line::Invalid(why) if why.starts_with("no command"))
    }

    #[test]
    fn messages_keep_their_lines_and_their_indentation() {
        assert_eq!(
            parse("  fn a() {\n\n  }\n\n"),
            Line::Message("  fn a() {\n\n  }".into())
        );
        assert_eq!(parse(" \n\t "), Line::Empty);
        assert_eq!(parse(" /help"), Line::Message(" /help".into()));
    }

    #[test]
    fn two_slashes_start_a_message_with_one_slash() {
        assert_eq!(
            parse("//etc/hosts is a file"),
            Line::Message("/etc/hosts is a file".into())
        );
        assert_eq!(parse("//"), Line::Message("/".into()));
    }

    #[test]
    fn an_unknown_command_gets_suggestions() {
        assert!(
            invalid("/lst").contains("did you mean /list?"),
            "{}",
            invalid("/lst")
        );
        assert!(
            invalid("/co").contains("did you mean /context or /compact"),
            "{}",
            invalid("/co")
        );
        assert!(invalid("/comapct").contains("/compact?"));
        assert!(
            invalid("/usr/bin/env").contains("/help lists"),
            "{}",
            invalid("/usr/bin/env")
        );
        assert!(invalid("/").contains("/help lists"));
        let hostile = invalid("/\u{1b}]0;owned\u{7}\u{202e}");
        assert!(
            hostile.starts_with("no command is called /\u{fffd}]0;owned\u{fffd}<U+202E>;"),
            "{hostile:?}"
        );
    }

    #[test]
    fn missing_and_invalid_arguments_are_errors() {
        assert!(invalid("/switch").starts_with("/switch PREFIX"));
        assert!(invalid("/rename ").starts_with("/rename TITLE"));
        assert!(invalid("/edit").starts_with("/edit TEXT"));
        for id in ["/show", "/show it", "/show 0", "/show -1"] {
            assert!(invalid(id).starts_with("/show ID"), "{id}");
        }
        // An é has 2 bytes, so this title has 514.
        assert!(invalid(&format!("/new {}", "é".repeat(257))).contains("at most 512 bytes"));
    }
}
