//! The scripted model that writes summaries and answers chats. For each summary it records which
//! worker asked for it and which messages the prompt contained, and encodes the number of the call
//! in the summary's text. It can fail on demand, and hold back the answers to a worker.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, SystemTime},
};

use super::{chat_client::answer_to, findings::lock, message_states::marks_in};
use crate::{Gate, ModelRequest, Say, Script, ScriptedModel};
use serde_json::Value;

/// A call that a worker has made to the model.
#[derive(Debug)]
pub(super) struct RecordedCall {
    /// The number of the worker that made the call.
    pub(super) worker_number: u32,
    pub(super) when: SystemTime,
    /// The messages in the prompt.
    pub(super) messages: NamedMessages,
    /// The marks in the prompt (`Client::mark`).
    pub(super) marks: BTreeSet<String>,
}

/// The messages that a prompt names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NamedMessages {
    /// Those whose content is in the prompt.
    single: BTreeSet<i64>,
    /// First and last message of those that an earlier part of the same summary covers. Some
    /// between them may be withdrawn.
    ranges: Vec<(i64, i64)>,
}

impl NamedMessages {
    /// Whether a summary of the messages from `first` to `last` may be made from these: they are
    /// within this range, and none of `standing` is missing.
    pub(super) fn cover(&self, (first, last): (i64, i64), standing: &[i64]) -> bool {
        let is_inside = |from: i64, to: i64| first <= from && to <= last;
        let is_named = |id: &i64| {
            let covers = |(from, to): &(i64, i64)| (*from..=*to).contains(id);
            self.single.contains(id) || self.ranges.iter().any(covers)
        };
        self.single.iter().all(|id| is_inside(*id, *id))
            && self.ranges.iter().all(|(from, to)| is_inside(*from, *to))
            && standing.iter().all(is_named)
    }

    /// A message from `first` to `last` whose content is in the prompt, and that is not in
    /// `standing`.
    pub(super) fn find_fallen(&self, (first, last): (i64, i64), standing: &[i64]) -> Option<i64> {
        let mut inside = self.single.range(first..=last).copied();
        inside.find(|id| !standing.contains(id))
    }
}

/// How the model behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelBehavior {
    /// It answers as asked.
    Normal,
    /// It answers with status 429.
    RateLimited,
    /// It answers with status 500.
    Failing,
    /// It does not answer until its behavior changes.
    Hanging,
    /// It answers with bytes that are not HTTP.
    Nonsense,
}

/// The behaviors, each at the index by which `Shared::behavior` stores it.
const BEHAVIORS: [ModelBehavior; 5] = [
    ModelBehavior::Normal,
    ModelBehavior::RateLimited,
    ModelBehavior::Failing,
    ModelBehavior::Hanging,
    ModelBehavior::Nonsense,
];

/// The model, and the calls of workers that it has recorded. Chats of servers are not recorded.
pub struct RecordingModel {
    model: ScriptedModel,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    calls: Mutex<Vec<Arc<RecordedCall>>>,
    /// Gates that the answers to a worker wait for, by the worker's number.
    held_answers: Mutex<HashMap<u32, Gate>>,
    behavior: AtomicU8,
    /// The gate of hanging answers, opened when the behavior changes.
    hang_gate: Mutex<Gate>,
}

/// The first path segment in requests of servers. In requests of a worker it is the worker's
/// number.
const SERVER: &str = "server";
/// The range of answer times, in milliseconds. Conversations change while their summaries are made.
const ANSWER_TIME_MS: std::ops::Range<u64> = 20..400;

impl RecordingModel {
    /// Starts the model with [`ModelBehavior::Normal`].
    pub async fn start() -> Self {
        let shared = Arc::<Shared>::default();
        let model = ScriptedModel::start({
            let shared = Arc::clone(&shared);
            move |asked| shared.answer(asked)
        })
        .await;
        Self { model, shared }
    }

    /// The settings file of a server whose chats this model answers.
    pub(super) fn server_settings(&self) -> String {
        format!(
            "{}[chat]\nmodel = \"writer\"\n",
            self.provider_settings(SERVER)
        )
    }

    /// Settings of the provider and the model, with a short breaker cooldown.
    fn provider_settings(&self, who: &str) -> String {
        let url = self.model.url().replace("/v1", &format!("/{who}/v1"));
        format!(
            "[providers.scripted]\napi = \"openai\"\nurl = \"{url}\"\n\
             [models.writer]\nprovider = \"scripted\"\nwindow_tokens = 8192\n\
             [breaker]\ncooldown_seconds = 1\n"
        )
    }

    /// The settings file of the worker with this number, whose summaries this model writes.
    pub(super) fn worker_settings(&self, number: u32, summary_concurrency: u32) -> String {
        format!(
            "{}[summarizer]\nmodel = \"writer\"\n\
             [worker]\nhttp_address = \"127.0.0.1:0\"\npoll_ms = 100\nsummary_concurrency = {summary_concurrency}\nstop_seconds = 2\n",
            self.provider_settings(&number.to_string())
        )
    }

    /// Changes the behavior. Answers that hang are sent then.
    pub fn set_behavior(&self, behavior: ModelBehavior) {
        let code = BEHAVIORS
            .iter()
            .position(|other| *other == behavior)
            .unwrap_or_default();
        self.shared.behavior.store(code as u8, Ordering::SeqCst);
        std::mem::take(&mut *lock(&self.shared.hang_gate)).open_for_ever();
    }

    /// Holds back the answers to the worker with this number.
    pub(super) fn hold_answers(&self, worker_number: u32) {
        lock(&self.shared.held_answers)
            .entry(worker_number)
            .or_default();
    }

    /// Holds back all answers.
    pub(super) fn hold_all_answers(&self) {
        self.set_behavior(ModelBehavior::Hanging);
    }

    /// Sends the answers that were held back from the worker with this number.
    pub(super) fn release_answers(&self, worker_number: u32) {
        if let Some(gate) = lock(&self.shared.held_answers).remove(&worker_number) {
            gate.open_for_ever();
        }
    }

    /// The number of workers' calls so far, whether answered or not.
    pub fn call_count(&self) -> usize {
        lock(&self.shared.calls).len()
    }

    /// Whether the worker with this number has called the model since [`Self::call_count`] returned
    /// `count`.
    pub(super) fn has_called_since(&self, worker_number: u32, count: usize) -> bool {
        lock(&self.shared.calls)[count..]
            .iter()
            .any(|call| call.worker_number == worker_number)
    }

    /// The call that wrote this summary. None if no call did.
    pub(super) fn find_call(&self, summary: &str) -> Option<Arc<RecordedCall>> {
        let number = number_in(summary)?;
        lock(&self.shared.calls).get(number).map(Arc::clone)
    }
}

impl Shared {
    fn answer(&self, asked: &ModelRequest) -> Script {
        let who = asked.path.split('/').nth(1).unwrap_or_default();
        // 0 for a server. Workers count from 1, so no answer to a server is ever held back.
        let worker_number = who.parse().unwrap_or_default();
        let normal = match who {
            SERVER => Script::says(
                asked,
                [Say::text(&answer_to(
                    &asked.texts().pop().unwrap_or_default(),
                ))],
            ),
            _ => Script::summarizes_as(
                asked,
                &format!(
                    "They asked for things and got {}.",
                    number_as_words(self.record_call(worker_number, asked))
                ),
            ),
        };
        let script =
            match BEHAVIORS[usize::from(self.behavior.load(Ordering::SeqCst)) % BEHAVIORS.len()] {
                ModelBehavior::Normal => normal,
                ModelBehavior::RateLimited => Script::status(
                    429,
                    &[("retry-after", "1")],
                    "{\"error\":{\"message\":\"slow down\"}}",
                ),
                ModelBehavior::Failing => {
                    Script::status(500, &[], "{\"error\":{\"message\":\"it broke\"}}")
                }
                ModelBehavior::Hanging => return normal.after(&lock(&self.hang_gate)),
                ModelBehavior::Nonsense => Script::raw(b"\0\xff this is not HTTP \r\n\r\n"),
            };
        let gate = lock(&self.held_answers).get(&worker_number).cloned();
        script.after(&gate.unwrap_or_else(delayed_gate))
    }

    /// Records a worker's call. Returns the number of the call.
    fn record_call(&self, worker_number: u32, asked: &ModelRequest) -> usize {
        let call = Arc::new(RecordedCall {
            worker_number,
            when: SystemTime::now(),
            messages: messages_in(asked),
            marks: marks_in(&asked.raw),
        });
        let mut calls = lock(&self.calls);
        calls.push(call);
        calls.len() - 1
    }
}

/// A gate that opens after a random delay.
fn delayed_gate() -> Gate {
    let gate = Gate::default();
    let opening = gate.clone();
    let delay = Duration::from_millis(fastrand::u64(ANSWER_TIME_MS));
    tokio::spawn(async move {
        // tidy: allow(sleep): the delay simulates a slow model
        tokio::time::sleep(delay).await;
        opening.open_for_ever();
    });
    gate
}

/// The messages that the lines of the prompt name.
fn messages_in(asked: &ModelRequest) -> NamedMessages {
    let texts = asked.texts();
    let lines = texts.iter().flat_map(|text| text.lines());
    let mut named = NamedMessages::default();
    for line in lines.filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let range = line["messages"].as_array();
        let id = |value: Option<&Value>| value.and_then(Value::as_i64);
        if let Some(id) = line["message"].as_i64() {
            named.single.insert(id);
        } else if let Some(range) = range
            && let (Some(first), Some(last)) = (id(range.first()), id(range.last()))
        {
            named.ranges.push((first, last));
        }
    }
    named
}

/// First letters of the four words that encode a number. There is one word of three letters per
/// digit, the lowest digit first.
const BEGINNINGS: [char; 4] = ['b', 'd', 'g', 'k'];
/// Second letters. The second and third letter together encode the digit.
const MIDDLES: [char; 4] = ['a', 'e', 'i', 'o'];
/// Third letters.
const ENDS: [char; 4] = ['x', 'z', 'q', 'v'];
const BASE: usize = MIDDLES.len() * ENDS.len();

/// Encodes a number below 65,536 as four short words. A summary with a plain number would be
/// refused, because its sources do not contain that number.
fn number_as_words(number: usize) -> String {
    let digit = |place: usize| (number / BASE.pow(place as u32)) % BASE;
    let word = |place: usize| -> String {
        let digit = digit(place);
        [
            BEGINNINGS[place],
            MIDDLES[digit / ENDS.len()],
            ENDS[digit % ENDS.len()],
        ]
        .iter()
        .collect()
    };
    (0..BEGINNINGS.len())
        .map(word)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Decodes the number in a summary. None if there is none.
fn number_in(text: &str) -> Option<usize> {
    let after = text.split("and got ").nth(1)?;
    let words: Vec<&str> = after.split(['.', '\n']).next()?.split(' ').collect();
    let digit = |(place, word): (usize, &&str)| -> Option<usize> {
        let letters: Vec<char> = word.chars().collect();
        let &[beginning, middle, end] = letters.as_slice() else {
            return None;
        };
        let known = *BEGINNINGS.get(place)? == beginning;
        let middle = MIDDLES.iter().position(|letter| *letter == middle)?;
        let end = ENDS.iter().position(|letter| *letter == end)?;
        known.then_some((middle * ENDS.len() + end) * BASE.pow(place as u32))
    };
    let digits: Option<Vec<usize>> = words.iter().enumerate().map(digit).collect();
    digits
        .filter(|digits| digits.len() == BEGINNINGS.len())
        .map(|digits| digits.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_in_a_summary_is_decoded_from_its_words() {
        for number in [0, 1, 15, 16, 4_711, 65_535] {
            let summary = format!(
                "They asked for things and got {}.\n\nIdentifiers: x",
                number_as_words(number)
            );
            assert_eq!(number_in(&summary), Some(number), "{summary}");
        }
        assert_eq!(number_in("They asked for things and got nothing."), None);
    }

    #[test]
    fn a_summary_is_of_all_messages_that_stand_and_of_no_others() {
        let named = NamedMessages {
            single: BTreeSet::from([5, 7]),
            ranges: vec![(1, 4)],
        };
        assert!(named.cover((1, 7), &[1, 2, 4, 5, 7]));
        assert!(!named.cover((1, 7), &[5, 6, 7]), "6 is missing");
        assert!(!named.cover((2, 7), &[5, 7]), "1 is no message of it");
        assert!(!named.cover((1, 6), &[5]), "7 is no message of it");
        assert_eq!(named.find_fallen((1, 7), &[5, 7]), None);
        assert_eq!(named.find_fallen((1, 7), &[1, 7]), Some(5));
        assert_eq!(named.find_fallen((6, 7), &[7]), None);
    }
}
