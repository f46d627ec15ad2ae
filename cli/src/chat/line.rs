//! What a line means: words for the model, or a command.

use anneal_core::limits::{FOCUS_BYTES, TITLE_BYTES};

use crate::paint::harmless;

/// A line that was typed, pasted or read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Blanks.
    Nothing,
    /// Words for the model.
    Say(String),
    /// A command.
    Order(Order),
    /// No command: why, and what to type instead.
    Wrong(String),
}

/// A command with its arguments.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// A new conversation, with this title; empty: without one.
    New(String),
    /// To the conversation whose title or id begins so.
    Switch(String),
    /// All conversations.
    List,
    /// How full the context is.
    Context,
    /// A checkpoint now, with this focus.
    Compact(String),
    /// A separator.
    Separate,
    /// A message as it was said.
    Show(i64),
    /// Another title.
    Rename(String),
    /// The turn that failed, once more.
    Retry,
    /// All commands.
    Help,
    /// The end.
    Quit,
}

/// A command for people: its name, its arguments, what it does.
pub(super) struct Command {
    pub(super) name: &'static str,
    pub(super) arguments: &'static str,
    pub(super) does: &'static str,
}

/// Every command, as /help shows it.
pub(super) const COMMANDS: [Command; 11] = [
    command("/new", "[NAME]", "a new conversation; it begins with what you say next"),
    command("/switch", "PREFIX", "to the conversation whose title or id begins so; Tab completes titles"),
    command("/list", "", "the conversations, newest first"),
    command("/context", "", "how full the context is, and what happens next"),
    command("/compact", "[FOCUS]", "summarise the older part now; keep above all what FOCUS says"),
    command("/sep", "", "a separator: from here on, nothing before it is sent"),
    command("/show", "ID", "a message as it was said, also where the context shows a summary"),
    command("/rename", "TITLE", "another title for this conversation"),
    command("/retry", "", "ask again after a failure; nothing is stored twice"),
    command("/help", "", "these commands"),
    command("/quit", "", "leave, as Ctrl-D does"),
];

const fn command(name: &'static str, arguments: &'static str, does: &'static str) -> Command {
    Command { name, arguments, does }
}

/// What the line means. Words keep their shape; only blanks at the end go.
pub(super) fn parse(text: &str) -> Line {
    let text = text.trim_start_matches('\n').trim_end();
    if text.is_empty() {
        return Line::Nothing;
    }
    match text.strip_prefix('/') {
        Some(rest) if rest.starts_with('/') => Line::Say(rest.to_owned()),
        Some(_) => order(text).map_or_else(Line::Wrong, Line::Order),
        None => Line::Say(text.to_owned()),
    }
}

fn order(text: &str) -> Result<Order, String> {
    let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim();
    Ok(match name.to_ascii_lowercase().as_str() {
        "/new" => Order::New(title(rest)?),
        "/switch" => {
            Order::Switch(needed(rest, "/switch PREFIX: the beginning of a title or an id; /list shows them")?)
        }
        "/list" => Order::List,
        "/context" => Order::Context,
        "/compact" => Order::Compact(within("a focus", rest.to_owned(), FOCUS_BYTES)?),
        "/sep" => Order::Separate,
        "/show" => Order::Show(message_id(rest)?),
        "/rename" => Order::Rename(title(&needed(rest, "/rename TITLE: the new title")?)?),
        "/retry" => Order::Retry,
        "/help" | "/?" => Order::Help,
        "/quit" | "/exit" => Order::Quit,
        _ => return Err(unknown(name)),
    })
}

/// A title on one line, within its limit.
pub(super) fn title(text: &str) -> Result<String, String> {
    within("a title", text.split_whitespace().collect::<Vec<_>>().join(" "), TITLE_BYTES)
}

fn within(what: &str, text: String, most: usize) -> Result<String, String> {
    if text.len() > most {
        Err(format!("{what} has at most {most} bytes, this one has {}", text.len()))
    } else {
        Ok(text)
    }
}

fn needed(text: &str, usage: &str) -> Result<String, String> {
    if text.is_empty() { Err(usage.to_owned()) } else { Ok(text.to_owned()) }
}

fn message_id(text: &str) -> Result<i64, String> {
    let number = text.trim_start_matches('#').parse().ok().filter(|id| *id > 0);
    number
        .ok_or_else(|| "/show ID: the number of a message, from 1; /context names those that are summarised".to_owned())
}

/// What to type instead of a command that is none.
fn unknown(name: &str) -> String {
    let close = COMMANDS.iter().map(|command| command.name).filter(|known| is_close(name, known));
    let close: Vec<&str> = close.collect();
    let instead = match close.as_slice() {
        [] => "/help lists the commands".to_owned(),
        names => format!("did you mean {}?", names.join(" or ")),
    };
    let shown = harmless(&name.chars().take(40).collect::<String>());
    format!("no command is called {shown}; {instead} (to say something that starts with a slash, type two)")
}

/// Whether somebody who typed the first may have meant the second: a beginning of it, or two mistakes away at most.
fn is_close(typed: &str, known: &str) -> bool {
    let typed = typed.to_lowercase();
    (typed.len() > 1 && known.starts_with(&typed)) || (typed.len() <= 12 && mistakes(&typed, known) <= 2)
}

/// Letters to put in, leave out or change to get from one word to the other.
fn mistakes(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (above, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = above + 1;
        for (column, known) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *known);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        match parse(text) {
            Line::Wrong(why) => why,
            other => panic!("{text} is understood: {other:?}"),
        }
    }

    #[test]
    fn commands_are_understood_with_their_arguments() {
        let orders = [
            ("/new", Order::New(String::new())),
            ("/new my  project ", Order::New("my project".into())),
            ("/switch My-p", Order::Switch("My-p".into())),
            ("/LIST", Order::List),
            ("/compact the harbour\nand the ferry", Order::Compact("the harbour\nand the ferry".into())),
            ("/show #12", Order::Show(12)),
            ("/rename 港口", Order::Rename("港口".into())),
            ("/sep", Order::Separate),
            ("/exit", Order::Quit),
        ];
        for (text, order) in orders {
            assert_eq!(parse(text), Line::Order(order), "{text}");
        }
        for command in COMMANDS {
            assert!(!wrong_name(command.name), "{} is in the list", command.name);
        }
    }

    fn wrong_name(name: &str) -> bool {
        matches!(parse(name), Line::Wrong(why) if why.starts_with("no command"))
    }

    #[test]
    fn words_keep_their_lines_and_their_indentation() {
        assert_eq!(parse("  fn a() {\n\n  }\n\n"), Line::Say("  fn a() {\n\n  }".into()));
        assert_eq!(parse(" \n\t "), Line::Nothing);
        assert_eq!(parse(" /help"), Line::Say(" /help".into()));
    }

    #[test]
    fn two_slashes_say_one() {
        assert_eq!(parse("//etc/hosts is a file"), Line::Say("/etc/hosts is a file".into()));
        assert_eq!(parse("//"), Line::Say("/".into()));
    }

    #[test]
    fn a_command_that_is_none_is_told_what_was_meant() {
        assert!(wrong("/lst").contains("did you mean /list?"), "{}", wrong("/lst"));
        assert!(wrong("/co").contains("did you mean /context or /compact"), "{}", wrong("/co"));
        assert!(wrong("/comapct").contains("/compact?"));
        assert!(wrong("/usr/bin/env").contains("/help lists"), "{}", wrong("/usr/bin/env"));
        assert!(wrong("/").contains("/help lists"));
        let hostile = wrong("/\u{1b}]0;owned\u{7}\u{202e}");
        assert!(hostile.starts_with("no command is called /\u{fffd}]0;owned\u{fffd}<U+202E>;"), "{hostile:?}");
    }

    #[test]
    fn arguments_that_miss_or_make_no_sense_are_said() {
        assert!(wrong("/switch").starts_with("/switch PREFIX"));
        assert!(wrong("/rename ").starts_with("/rename TITLE"));
        for id in ["/show", "/show it", "/show 0", "/show -1"] {
            assert!(wrong(id).starts_with("/show ID"), "{id}");
        }
        assert!(wrong(&format!("/new {}", "é".repeat(257))).contains("at most 512 bytes"));
    }
}
