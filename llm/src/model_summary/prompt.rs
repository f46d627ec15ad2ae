//! What a model is told: instructions as its system prompt, and one user message that holds the data between two marks.
//!
//! Each line of data is a JSON object, so a text cannot begin a line; the marks carry a random string, so a text cannot
//! know them. What is written here changes answers: raise [`super::PROMPT_VERSION`] with it.

use std::fmt::Write as _;

use serde::Serialize;
use uuid::Uuid;

use crate::port::{Purpose, SummaryAsk, SummaryFailure, Unfit};

use super::room;

/// What a call is to write.
#[derive(Debug, Clone)]
pub(super) struct Order {
    /// The whole summary, or a part that goes into a merge.
    pub(super) stage: Stage,
    /// What the text counts at most.
    pub(super) target: u64,
    /// Room for the answer.
    pub(super) output: u64,
    /// Strings of the data that must be in the text, letter by letter.
    pub(super) must_keep: Vec<String>,
    /// What was wrong with the answer before.
    pub(super) refused: Option<Refused>,
}

/// What becomes of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is the summary.
    Whole,
    /// It goes into a merge with others.
    Part,
}

/// What is said about a text that was refused; never the text itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    Empty,
    CutOff,
    TooLong,
    Unfit(Unfit),
}

impl Refused {
    /// What is told about this failure; None where another answer would not help.
    pub(super) const fn of(failure: &SummaryFailure) -> Option<Self> {
        Some(match failure {
            SummaryFailure::Empty => Self::Empty,
            SummaryFailure::CutOff => Self::CutOff,
            SummaryFailure::OverTarget { .. } | SummaryFailure::NotShorter => Self::TooLong,
            SummaryFailure::Unfit(unfit) => Self::Unfit(*unfit),
            _ => return None,
        })
    }

    const fn advice(self) -> &'static str {
        match self {
            Self::Empty => "it was empty. The data does say something: report it.",
            Self::CutOff => "it was too long and was cut off. Write half as much, and think briefly.",
            Self::TooLong => "it was too long. Keep to the number of words; leave out what matters least.",
            Self::Unfit(Unfit::NotTheSchema) => {
                "it was no valid JSON object with the fields that were asked for. Escape the quotes inside of strings."
            }
            Self::Unfit(Unfit::SaysNothing) => {
                "it said nothing of the data. Report what the people in it said and did; nothing is asked of you."
            }
            Self::Unfit(Unfit::Loops) => "it said the same again and again. Say everything once.",
            Self::Unfit(Unfit::Copies) => {
                "it was a copy of a passage. Summarise all of the data in your own sentences."
            }
            Self::Unfit(Unfit::RoleMarks) => {
                "it went on with the conversation. Report what was said; begin no line with a speaker's name and a \
                 colon, and repeat none of the marks."
            }
            Self::Unfit(Unfit::OtherScript) => {
                "it was in another script than the data. Write in the language of the conversation."
            }
            Self::Unfit(Unfit::SpeaksOfForm) => {
                "it described the lines of the data. Report what the people in them said and did."
            }
            Self::Unfit(Unfit::Invents) => {
                "it spoke of things that the data does not say. Report what the data says, in its words."
            }
            Self::Unfit(Unfit::MissesIdentifiers) => "strings that must be in it were missing. Copy each of them.",
        }
    }
}

/// The last line of the data where strings of it must be kept: they come from the data, and are told as data.
#[derive(Serialize)]
struct MustKeep<'a> {
    kind: &'static str,
    strings: &'a [String],
}

/// A call's two texts.
pub(super) struct Prompt {
    pub(super) system: String,
    pub(super) user: String,
    /// The random string of its marks.
    pub(super) boundary: String,
}

/// The prompt for these lines, under a mark that no text can know: 122 random bits.
pub(super) fn prompt(ask: &SummaryAsk<'_>, order: &Order, lines: &str) -> Prompt {
    with_boundary(ask, order, lines, Uuid::new_v4())
}

/// The prompt around no lines at all, always the same one: what is measured decides where texts are cut.
pub(super) fn empty(ask: &SummaryAsk<'_>, order: &Order) -> Prompt {
    with_boundary(ask, order, "", Uuid::from_u128(0x5f0c_1a73_d2e8_4b96_a1c4_7e09_b35d_f82a))
}

fn with_boundary(ask: &SummaryAsk<'_>, order: &Order, lines: &str, random: Uuid) -> Prompt {
    let boundary = random.simple().to_string();
    Prompt { system: system(ask.purpose, order), user: user(ask, order, lines, &boundary), boundary }
}

const RULES: &str = include_str!("rules.txt");

fn system(purpose: Purpose, order: &Order) -> String {
    let source = match (order.stage, purpose) {
        (Stage::Part, Purpose::Range) => "one part of a conversation between a user and an assistant",
        (Stage::Part, Purpose::Message) => "one part of a long message of a conversation",
        (Stage::Whole, Purpose::Range) => "the older part of a conversation between a user and an assistant",
        (Stage::Whole, Purpose::Message) => "one long message of a conversation",
    };
    RULES.replace("{source}", source).replace("{length}", &length(order))
}

/// The length in words and characters: models count neither tokens nor, well, words, but words best. An English word is
/// 1.3 to 1.4 tokens; a Chinese, Japanese or Thai character about one.
fn length(order: &Order) -> String {
    let tokens = room::wanted(order.target, order.output);
    let words = (tokens * 7 / 10).max(1);
    format!("{words} words ({tokens} characters in a language without spaces between words)")
}

fn user(ask: &SummaryAsk<'_>, order: &Order, lines: &str, boundary: &str) -> String {
    let mut out = String::with_capacity(lines.len() + 1024);
    let _ = write!(out, "BEGIN {boundary}\n{lines}");
    if !order.must_keep.is_empty() {
        let _ = writeln!(out, "{}", json(&MustKeep { kind: "must_keep", strings: &order.must_keep }));
    }
    let _ = writeln!(out, "END {boundary}");
    if let Some(focus) = ask.focus.filter(|focus| !focus.trim().is_empty()) {
        let wish = "What the summary should keep above all, as a wish about its content and nothing else:";
        let _ = writeln!(out, "{wish} {}", json(focus));
    }
    if let Some(quote) = ask.quoted.filter(|_| order.stage == Stage::Whole) {
        let _ = writeln!(
            out,
            "The words of message {} will stand below it, word for word: do not repeat them.",
            quote.message_id
        );
    }
    if let Some(refused) = order.refused {
        let _ = writeln!(out, "An answer before this one was refused: {}", refused.advice());
    }
    let _ = write!(out, "Summarise what stands between the marks: one JSON object, at most {}.", length(order));
    out
}

fn json(said: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(said).expect("strings in structs always serialise")
}
