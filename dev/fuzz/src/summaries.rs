//! Fuzzes summaries, with any messages and any answers of the model. In the model's input, no text
//! of the messages can be mistaken for instructions. The model's answer is a summary that satisfies
//! all rules, or it is refused.

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

use anneal_core::{
    digest::Digest,
    limits::FOCUS_BYTES,
    message::{MessageId, Role},
    tokens::{Encoding, Tokens},
};
use anneal_llm::{
    BoxFuture, Extractive, ModelSummarizer, Purpose, Quote, Source, SourceBody, Summarizer,
    Summary, SummaryAsk, SummaryCalls, SummaryFailure,
    provider::{Answer, Call, CallFailure, CallUsage, CallableModels, End, Model, StopReason},
};
use arbitrary::Unstructured;
use serde_json::{Value, json};

use crate::messages;

/// Maximum number of messages to summarize.
const MAX_MESSAGES: usize = 6;
/// Size of the model's context window in tokens. Longer input is summarized in parts.
const WINDOW: u64 = 8_192;
/// The beginning of the line in the prompt that says why the answer before was refused.
const REFUSED: &str = "An answer before this one was refused: ";

fn measure(text: &str) -> Tokens {
    Encoding::O200kBase.counter().count(text)
}

fn model() -> Arc<Model> {
    let providers = json!({"house": {"api": "openai", "url": "http://127.0.0.1:1/v1"}});
    let models =
        json!({"m": {"provider": "house", "window_tokens": WINDOW, "output_tokens": 2_048}});
    let read = "these settings can be read";
    let providers = serde_json::from_value(providers).expect(read);
    let models =
        CallableModels::new(&providers, &serde_json::from_value(models).expect(read)).expect(read);
    Arc::clone(models.find("m").expect("it is there"))
}

/// Takes the place of the calls of a model: gives these answers in turn, and repeats the last one.
/// It checks every prompt.
struct ScriptedCalls {
    answers: Vec<Answer>,
    /// Number of calls so far.
    calls: Mutex<usize>,
}

impl SummaryCalls for ScriptedCalls {
    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, Result<Answer, SummaryFailure>> {
        Box::pin(async move {
            assert_prompt(call);
            let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            let answer = self.answers.get(*calls).or(self.answers.last()).cloned();
            *calls += 1;
            Ok(answer.expect("there is an answer"))
        })
    }

    fn load_part<'a>(&'a self, _: &'a Digest) -> BoxFuture<'a, Option<String>> {
        Box::pin(async { None })
    }

    fn store_part<'a>(&'a self, _: &'a Digest, _: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }
}

/// Checks a prompt: it has two texts. In the second, the data stands between two marks that do not
/// occur in the data, with one JSON object per line; after the marks there is only our own text.
fn assert_prompt(call: &Call<'_>) {
    let request: Value = serde_json::from_str(call.context).expect("a request is JSON");
    let messages = request["messages"].as_array().expect("OpenAI's messages");
    let roles: Vec<&str> = messages
        .iter()
        .filter_map(|message| message["role"].as_str())
        .collect();
    assert!(
        roles == ["system", "user"] && call.options.tools().is_empty(),
        "{request:#}"
    );
    let user = messages[1]["content"].as_str().expect("a text");
    let (first_line, rest) = user
        .split_once('\n')
        .expect("the first mark has a line of its own");
    let mark = first_line.strip_prefix("BEGIN ").expect("the first mark");
    assert_eq!(
        user.matches(mark).count(),
        2,
        "the marks are forged: {user}"
    );
    let (data, after) = rest
        .split_once(&format!("END {mark}\n"))
        .expect("the second mark");
    for line in data.lines() {
        let line: Value = serde_json::from_str(line).expect("a line of data is JSON");
        assert!(line.is_object(), "{line}");
    }
    assert!(
        data.ends_with('\n') || data.is_empty(),
        "the second mark has no line of its own: {user}"
    );
    for line in after.lines() {
        let ours = [
            "What the summary should keep above all",
            "The words of message ",
            REFUSED,
            "Summarise what stands between the marks",
        ];
        assert!(
            ours.iter().any(|ours| line.starts_with(ours)),
            "{line:?} follows the data, but is not our own text"
        );
    }
    // Each of these four lines occurs at most once: focus and reason have no line breaks of their
    // own. The last line is the instruction.
    assert!(
        after.lines().count() <= 4
            && after
                .lines()
                .last()
                .is_some_and(|last| last.starts_with("Summarise")),
        "{after}"
    );
}

/// Checks the rules that every summary satisfies.
fn assert_valid_summary(summary: &Summary, ask: &SummaryAsk<'_>) {
    assert!(!summary.text.trim().is_empty(), "the summary is blank");
    assert_eq!(summary.tokens, measure(&summary.text));
    assert!(
        summary.tokens <= ask.target,
        "{} tokens exceed the target of {}",
        summary.tokens,
        ask.target
    );
    assert!(
        summary.tokens < ask.source_tokens(Tokens::new(u64::MAX)),
        "the summary is not shorter than its source"
    );
    assert!(
        !summary
            .text
            .contains(|c: char| c.is_control() && c != '\n' && c != '\t'),
        "{:?}",
        summary.text
    );
}

/// Checks that the summary's own words contain no line that looks like the beginning of another
/// turn, and none of the tokens that separate turns for a model. The quoted words of the user at
/// the summary's end are exempt.
fn assert_no_turn_openers(summary: &Summary, quoted_id: Option<MessageId>) {
    let quote_heading = quoted_id.map(|id| format!("\n\n[{id} user, word for word]\n"));
    let own = quote_heading
        .and_then(|heading| summary.text.find(&heading))
        .map_or(summary.text.as_str(), |at| &summary.text[..at]);
    let lower = own.to_lowercase();
    for line in lower.lines() {
        let line = line.trim_start();
        for opener in [
            "user:",
            "assistant:",
            "system:",
            "human:",
            "</conversation",
            "<system",
            "</system",
            "{\"message\":",
        ] {
            assert!(
                !line.starts_with(opener),
                "{line:?} looks like another turn: {own}"
            );
        }
    }
    for token in [
        "<|im_start|>",
        "<|im_end|>",
        "[inst]",
        "<start_of_turn>",
        "<｜user｜>",
    ] {
        assert!(!lower.contains(token), "{token} occurs in {own}");
    }
}

fn poll_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future)
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("the summary waits, although the scripted model answers at once"),
    }
}

/// Generates an answer of the model: words, the requested object with arbitrary contents, or
/// something similar to it.
fn answer(from: &mut Unstructured<'_>) -> arbitrary::Result<Answer> {
    let words = messages::text(from)?;
    let text = match from.int_in_range(0..=4)? {
        0 | 1 => words,
        2 => json!({"summary": words, "decisions": [messages::text(from)?], "identifiers": [messages::text(from)?]}).to_string(),
        3 => format!("<think>{}</think>```json\n{{\"summary\": \"{words}\"}}\n```", messages::text(from)?),
        _ => format!("Here is a summary:\n{words}"),
    };
    let stop = *from.choose(&[
        StopReason::Done,
        StopReason::Done,
        StopReason::Done,
        StopReason::OutputLimit,
        StopReason::Filtered,
    ])?;
    Ok(Answer {
        text,
        end: End {
            stop,
            usage: CallUsage::default(),
        },
    })
}

fn sources(from: &mut Unstructured<'_>, purpose: Purpose) -> arbitrary::Result<Vec<Source>> {
    let most = if purpose == Purpose::Message {
        1
    } else {
        MAX_MESSAGES
    };
    let mut sources = Vec::new();
    for (message, id) in messages::messages(from, most)?.into_iter().zip(1..) {
        let body = if from.ratio(1, 8)? {
            SourceBody::CachedSummary(messages::text(from)?)
        } else {
            SourceBody::Original(message.parts)
        };
        sources.push(Source {
            message_id: MessageId(id),
            role: message.role,
            body,
        });
    }
    Ok(sources)
}

fn check_case(model: &Model, from: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let purpose = *from.choose(&[Purpose::Range, Purpose::Range, Purpose::Message])?;
    let target = Tokens::new(from.int_in_range(24..=400)?);
    let answers = (0..2)
        .map(|_| answer(from))
        .collect::<arbitrary::Result<Vec<_>>>()?;
    let quoted_text = if from.ratio(1, 4)? {
        Some(messages::text(from)?)
    } else {
        None
    };
    let previous = if from.ratio(1, 4)? {
        Some(messages::text(from)?)
    } else {
        None
    };
    let focus = if from.ratio(1, 4)? {
        Some(messages::text(from)?)
    } else {
        None
    };
    let focus = focus.filter(|focus| focus.len() <= FOCUS_BYTES);
    let sources = sources(from, purpose)?;
    if sources.is_empty() {
        return Ok(());
    }
    // The quoted message is the first source if that is the user's; 99 is the id of no source.
    let quoted_id = MessageId(if sources[0].role == Role::User { 1 } else { 99 });
    let ask = SummaryAsk {
        purpose,
        previous: previous.as_deref(),
        quoted: quoted_text.as_deref().map(|text| Quote {
            message_id: quoted_id,
            text,
        }),
        sources: &sources,
        focus: focus.as_deref(),
        target,
        measure: &measure,
    };
    if let Ok(summary) = Extractive.summarize(&ask) {
        assert_valid_summary(&summary, &ask);
        assert_eq!(
            Extractive.summarize(&ask).ok().as_ref(),
            Some(&summary),
            "two extracts of the same sources differ"
        );
    }
    let has_filtered = answers
        .iter()
        .any(|answer| answer.end.stop == StopReason::Filtered);
    let scripted = ScriptedCalls {
        answers,
        calls: Mutex::new(0),
    };
    match poll_once(ModelSummarizer::new(model, &scripted).summarize(&ask)) {
        Ok(summary) => {
            assert_valid_summary(&summary, &ask);
            assert_no_turn_openers(&summary, ask.quoted.map(|quote| quote.message_id));
        }
        Err(SummaryFailure::Filtered) => assert!(
            has_filtered,
            "the summary failed as filtered, but no answer was filtered"
        ),
        Err(
            SummaryFailure::EmptySource
            | SummaryFailure::NotShorter
            | SummaryFailure::TargetTooSmall(_),
        ) => {}
        // Control characters are encoded as six characters each, so a focus full of them can exceed
        // a small window.
        Err(SummaryFailure::Call(CallFailure::Overflow { .. })) => {
            let focus = serde_json::to_string(&focus).expect("a text is JSON");
            assert!(
                measure(&focus).get() > WINDOW / 4,
                "a short focus does not fit into the window of {WINDOW} tokens"
            );
        }
        Err(failure) => assert!(failure.is_bad_output(), "{failure:?}"),
    }
    Ok(())
}

/// The bytes select the messages, the request and the model's answers.
pub fn check(data: &[u8]) {
    thread_local!(static MODEL: Arc<Model> = model());
    // If there are too few bytes, there is nothing to check.
    let _ = MODEL.with(|model| check_case(model, &mut Unstructured::new(data)));
}
