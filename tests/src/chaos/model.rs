//! The model that writes the summaries and answers in chats: it writes down which worker asked, and what it was shown, and says so
//! in the summary in words that a checker can read. It storms when told to, and a worker's answers can be held back.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, SystemTime},
};

use super::{findings::held, turns::answer_to};
use crate::{Asked, Gate, Say, Script, ScriptedModel};
use serde_json::Value;

/// One call of the model.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    /// Which process asked.
    pub(super) process: u32,
    pub(super) when: SystemTime,
    /// The first and the last message that it was shown, those included that earlier parts of the same summary stand for; None
    /// where one between them was not shown.
    pub(super) messages: Option<(i64, i64)>,
}

/// How the model behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// It answers.
    Calm,
    /// Too many requests.
    Limited,
    /// It fails.
    Failing,
    /// It does not answer while it lasts.
    Hanging,
    /// It answers nonsense.
    Mad,
}

const WEATHERS: [Weather; 5] = [Weather::Calm, Weather::Limited, Weather::Failing, Weather::Hanging, Weather::Mad];

/// The model, and what it remembers.
pub struct Witness {
    model: ScriptedModel,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    calls: Mutex<Vec<Shown>>,
    /// Answers of a process wait for these.
    held_back: Mutex<HashMap<u32, Gate>>,
    weather: AtomicU8,
    /// Answers that hang wait for this, until the weather changes.
    storm: Mutex<Gate>,
}

/// What servers call themselves, whichever processes they are.
const SERVER: &str = "server";
/// How long an answer takes, from the shortest to the longest: conversations move under their summaries.
const TAKES: std::ops::Range<u64> = 20..400;

impl Witness {
    /// A model in calm weather.
    pub async fn start() -> Self {
        let shared = Arc::<Shared>::default();
        let model = ScriptedModel::start({
            let shared = Arc::clone(&shared);
            move |asked| shared.answer(asked)
        })
        .await;
        Self { model, shared }
    }

    /// The settings file of a server process, in whose chats this model answers.
    pub(super) fn server_settings(&self) -> String {
        format!("{}[chat]\nmodel = \"writer\"\n", self.connected(SERVER))
    }

    /// How a process finds this model, and goes on after its storms.
    fn connected(&self, who: &str) -> String {
        let url = self.model.url().replace("/v1", &format!("/{who}/v1"));
        format!(
            "[providers.scripted]\napi = \"openai\"\nurl = \"{url}\"\n\
             [models.writer]\nprovider = \"scripted\"\nwindow_tokens = 8192\n\
             [breaker]\ncooldown_seconds = 1\n"
        )
    }

    /// The settings file of a worker process, known by this number, whose summaries this model writes.
    pub(super) fn settings(&self, process: u32, jobs: u32) -> String {
        format!(
            "{}[summarizer]\nmodel = \"writer\"\n\
             [worker]\nhttp_address = \"127.0.0.1:0\"\npoll_ms = 100\nsummary_concurrency = {jobs}\nstop_seconds = 2\n",
            self.connected(&process.to_string())
        )
    }

    /// Behaves like this from now on.
    pub fn turns(&self, weather: Weather) {
        let code = WEATHERS.iter().position(|other| *other == weather).unwrap_or_default();
        self.shared.weather.store(code as u8, Ordering::SeqCst);
        std::mem::take(&mut *held(&self.shared.storm)).open_for_ever();
    }

    /// The process's answers wait until they are let go.
    pub(super) fn hold_back(&self, process: u32) {
        held(&self.shared.held_back).entry(process).or_default();
    }

    /// Nobody is answered any more.
    pub(super) fn hold_all_back(&self) {
        self.turns(Weather::Hanging);
    }

    /// All that was held back goes on.
    pub(super) fn let_go(&self, process: u32) {
        if let Some(gate) = held(&self.shared.held_back).remove(&process) {
            gate.open_for_ever();
        }
    }

    /// Calls so far.
    pub fn calls(&self) -> usize {
        held(&self.shared.calls).len()
    }

    /// Whether a process has asked since there were so many calls.
    pub(super) fn has_asked_since(&self, process: u32, calls: usize) -> bool {
        held(&self.shared.calls)[calls..].iter().any(|shown| shown.process == process)
    }

    /// The call that wrote this summary; None: no model did.
    pub(super) fn wrote(&self, summary: &str) -> Option<Shown> {
        let number = number_in(summary)?;
        held(&self.shared.calls).get(number).cloned()
    }
}

impl Shared {
    fn answer(&self, asked: &Asked) -> Script {
        let who = asked.path.split('/').nth(1).unwrap_or_default();
        let process = who.parse().unwrap_or_default();
        let says = match who {
            SERVER => Script::says(asked, [Say::text(&answer_to(&asked.texts().pop().unwrap_or_default()))]),
            _ => Script::summarizes_as(
                asked,
                &format!("They asked for things and got {}.", words(self.notes(process, asked))),
            ),
        };
        let script = match WEATHERS[usize::from(self.weather.load(Ordering::SeqCst)) % WEATHERS.len()] {
            Weather::Calm => says,
            Weather::Limited => Script::status(429, &[("retry-after", "1")], "{\"error\":{\"message\":\"slow down\"}}"),
            Weather::Failing => Script::status(500, &[], "{\"error\":{\"message\":\"it broke\"}}"),
            Weather::Hanging => return says.after(&held(&self.storm)),
            Weather::Mad => Script::raw(b"\0\xff this is not HTTP \r\n\r\n"),
        };
        let gate = held(&self.held_back).get(&process).cloned();
        script.after(&gate.unwrap_or_else(soon))
    }

    /// Writes down a worker's call; its number.
    fn notes(&self, process: u32, asked: &Asked) -> usize {
        let mut calls = held(&self.calls);
        calls.push(Shown { process, when: SystemTime::now(), messages: messages_in(asked) });
        calls.len() - 1
    }
}

/// A gate that opens after a while.
fn soon() -> Gate {
    let gate = Gate::default();
    let opening = gate.clone();
    let takes = Duration::from_millis(fastrand::u64(TAKES));
    tokio::spawn(async move {
        // tidy: allow(sleep): a model takes its time
        tokio::time::sleep(takes).await;
        opening.open_for_ever();
    });
    gate
}

/// The first and the last message that the lines of a prompt name, if they name every one between them.
fn messages_in(asked: &Asked) -> Option<(i64, i64)> {
    let texts = asked.texts();
    let lines = texts.iter().flat_map(|text| text.lines()).filter_map(|line| serde_json::from_str(line).ok());
    let named = lines.filter_map(|line: Value| match (line["message"].as_i64(), line["messages"].as_array()) {
        (Some(one), _) => Some((one, one)),
        (None, Some(two)) => Some((two.first()?.as_i64()?, two.last()?.as_i64()?)),
        (None, None) => None,
    });
    let mut named: Vec<(i64, i64)> = named.collect();
    named.sort_unstable();
    let (first, mut last) = named.first().copied()?;
    for (next, until) in named {
        if next > last + 1 {
            return None;
        }
        last = last.max(until);
    }
    Some((first, last))
}

/// How many letters begin a word of a number, one for each digit.
const BEGINNINGS: [char; 4] = ['b', 'd', 'g', 'k'];
const MIDDLES: [char; 4] = ['a', 'e', 'i', 'o'];
const ENDS: [char; 4] = ['x', 'z', 'q', 'v'];
const BASE: usize = MIDDLES.len() * ENDS.len();

/// A number below 65,536 as four short words: a summary must not be refused for speaking of what nobody has said.
fn words(number: usize) -> String {
    let digit = |place: usize| (number / BASE.pow(place as u32)) % BASE;
    let word = |place: usize| -> String {
        let digit = digit(place);
        [BEGINNINGS[place], MIDDLES[digit / ENDS.len()], ENDS[digit % ENDS.len()]].iter().collect()
    };
    (0..BEGINNINGS.len()).map(word).collect::<Vec<_>>().join(" ")
}

/// The number whose words stand in the text.
fn number_in(text: &str) -> Option<usize> {
    let after = text.split("and got ").nth(1)?;
    let words: Vec<&str> = after.split(['.', '\n']).next()?.split(' ').collect();
    let digit = |(place, word): (usize, &&str)| -> Option<usize> {
        let letters: Vec<char> = word.chars().collect();
        let &[beginning, middle, end] = letters.as_slice() else { return None };
        let known = *BEGINNINGS.get(place)? == beginning;
        let middle = MIDDLES.iter().position(|letter| *letter == middle)?;
        let end = ENDS.iter().position(|letter| *letter == end)?;
        known.then_some((middle * ENDS.len() + end) * BASE.pow(place as u32))
    };
    let digits: Option<Vec<usize>> = words.iter().enumerate().map(digit).collect();
    digits.filter(|digits| digits.len() == BEGINNINGS.len()).map(|digits| digits.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_from_its_words() {
        for number in [0, 1, 15, 16, 4_711, 65_535] {
            let said = format!("They asked for things and got {}.\n\nIdentifiers: x", words(number));
            assert_eq!(number_in(&said), Some(number), "{said}");
        }
        assert_eq!(number_in("They asked for things and got nothing."), None);
    }
}
