//! A model whose answers come from a function of the prompt. [`ScriptedCalls`] calls that function,
//! records every prompt and stores every part.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use anneal_core::{digest::Digest, tokens::Tokens};
use anneal_llm::{
    BoxFuture, ModelSummarizer, Summary, SummaryAsk, SummaryCalls, SummaryFailure,
    provider::{Answer, Call, CallFailure, CallUsage, CallableModels, End, Model, StopReason},
    provider_error::Confidence,
};
use serde_json::{Value, json};

use crate::fixtures::measure;

/// The prompt of one call, parsed.
#[derive(Debug, Clone)]
pub(crate) struct RecordedPrompt {
    pub(crate) system: String,
    pub(crate) user: String,
    /// The random string in the lines BEGIN and END.
    pub(crate) boundary: String,
    /// The lines of source texts between the lines BEGIN and END.
    pub(crate) lines: Vec<Value>,
    /// The strings of the `must_keep` line.
    pub(crate) must_keep: Vec<String>,
    /// The lines after the line END.
    pub(crate) after: Vec<String>,
    /// Output limit of the call, in tokens.
    pub(crate) output: u64,
    /// Tokens of `system` and `user` as GPT-4o counts them.
    pub(crate) sent: u64,
    /// The fewest tokens that the provider is expected to count.
    pub(crate) least_count: u64,
}

impl RecordedPrompt {
    fn of(call: &Call<'_>) -> Self {
        assert!(call.options.tools().is_empty(), "a summarizer has no tools");
        let context: Value = serde_json::from_str(call.context).unwrap();
        let [system, user] =
            ["/messages/0/content", "/messages/1/content"].map(|at| context.pointer(at).unwrap());
        let [system, user] = [system, user].map(|text| text.as_str().unwrap().to_owned());
        let mut lines = user.split('\n');
        let boundary = lines
            .next()
            .unwrap()
            .strip_prefix("BEGIN ")
            .unwrap()
            .to_owned();
        let end = format!("END {boundary}");
        let data = lines
            .by_ref()
            .take_while(|line| *line != end)
            .map(|line| serde_json::from_str(line).unwrap());
        let mut data: Vec<Value> = data.collect();
        let kept = data.pop_if(|line| line["kind"] == "must_keep");
        let must_keep = kept
            .map(|line| serde_json::from_value(line["strings"].clone()).unwrap())
            .unwrap_or_default();
        let after = lines.map(str::to_owned).collect();
        let sent = (measure(&system) + measure(&user)).get();
        let least_count = call.least_sent_tokens.unwrap().get();
        Self {
            lines: data,
            must_keep,
            after,
            system,
            boundary,
            output: call.output.get(),
            sent,
            least_count,
            user,
        }
    }

    /// The kind of each line; `said` for a line without one, which holds what the user or the model
    /// said.
    pub(crate) fn kinds(&self) -> Vec<&str> {
        self.lines
            .iter()
            .map(|line| line["kind"].as_str().unwrap_or("said"))
            .collect()
    }

    pub(crate) fn texts(&self) -> Vec<&str> {
        self.lines
            .iter()
            .map(|line| line["text"].as_str().unwrap())
            .collect()
    }

    /// Whether a summary of the whole source is asked for, not of one part of it.
    pub(crate) fn is_whole(&self) -> bool {
        !self.system.contains("summary of one part")
    }

    /// The rest of the line that starts with `beginning`, of the lines after the line END.
    pub(crate) fn line_after(&self, beginning: &str) -> Option<&str> {
        self.after
            .iter()
            .find_map(|line| line.strip_prefix(beginning))
    }

    /// The feedback on a refused answer, if the prompt has any.
    pub(crate) fn feedback(&self) -> Option<&str> {
        self.line_after("An answer before this one was refused: ")
    }
}

type Script = dyn Fn(usize, &RecordedPrompt) -> Result<Answer, SummaryFailure> + Send + Sync;

/// The calls of a summary, which a function answers.
pub(crate) struct ScriptedCalls {
    script: Box<Script>,
    pub(crate) prompts: Mutex<Vec<RecordedPrompt>>,
    pub(crate) parts: Mutex<HashMap<Digest, String>>,
}

impl ScriptedCalls {
    /// Calls that this function answers; calls are numbered from 0.
    pub(crate) fn new(
        script: impl Fn(usize, &RecordedPrompt) -> Result<Answer, SummaryFailure>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self {
            script: Box::new(script),
            prompts: Mutex::default(),
            parts: Mutex::default(),
        }
    }

    /// Calls that all get this answer.
    pub(crate) fn answering(text: impl Into<String>) -> Self {
        let text = text.into();
        Self::new(move |_, _| Ok(answer(text.clone())))
    }

    /// Calls that get a valid [`report`].
    pub(crate) fn reporting() -> Self {
        Self::new(|_, prompt| Ok(answer(report(prompt))))
    }

    pub(crate) fn calls(&self) -> usize {
        self.prompts.lock().unwrap().len()
    }

    pub(crate) fn prompts(&self) -> Vec<RecordedPrompt> {
        self.prompts.lock().unwrap().clone()
    }
}

impl SummaryCalls for ScriptedCalls {
    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, Result<Answer, SummaryFailure>> {
        Box::pin(async move {
            let prompt = RecordedPrompt::of(call);
            let number = self.calls();
            self.prompts.lock().unwrap().push(prompt.clone());
            (self.script)(number, &prompt)
        })
    }

    fn load_part<'a>(&'a self, part: &'a Digest) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move { self.parts.lock().unwrap().get(part).cloned() })
    }

    fn store_part<'a>(&'a self, part: &'a Digest, text: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.parts.lock().unwrap().insert(*part, text.to_owned());
        })
    }
}

/// A complete answer.
pub(crate) fn answer(text: impl Into<String>) -> Answer {
    ended(text, StopReason::Done)
}

/// An answer that ended for this reason.
pub(crate) fn ended(text: impl Into<String>, stop: StopReason) -> Answer {
    Answer {
        text: text.into(),
        end: End {
            stop,
            usage: CallUsage::default(),
        },
    }
}

/// The failure of a context that is too long.
pub(crate) fn overflow(window: Option<u64>) -> SummaryFailure {
    overflow_with(window, Confidence::Certain)
}

/// The failure of a context that only seems to be too long.
pub(crate) fn likely_overflow() -> SummaryFailure {
    overflow_with(None, Confidence::Likely)
}

fn overflow_with(window: Option<u64>, confidence: Confidence) -> SummaryFailure {
    CallFailure::Overflow {
        window: window.map(Tokens::new),
        prompt: None,
        read: None,
        rule: "test",
        confidence,
        status: None,
        wording: None,
    }
    .into()
}

/// A valid short summary that does not copy the source, with the strings that it must keep.
pub(crate) fn report(prompt: &RecordedPrompt) -> String {
    let opening = |text: &&str| {
        text.chars()
            .filter(|c| c.is_alphanumeric())
            .take(8)
            .collect::<String>()
    };
    let [first, last] = [
        prompt.texts().first().map(opening),
        prompt.texts().last().map(opening),
    ]
    .map(Option::unwrap_or_default);
    // Strings to keep may contain backslashes, which JSON escapes.
    let kept = prompt.must_keep.join(" and ");
    format!(
        r#"{{"summary": "Between {first} and {last} several things moved on, and nobody minded.", "open": ["{kept}"]}}"#
    )
    .replace('\\', "\\\\")
}

/// A model `m` with this window.
pub(crate) fn model(window: u64) -> Arc<Model> {
    model_that_writes(window, 4_096)
}

/// A model with this window and this output limit.
pub(crate) fn model_that_writes(window: u64, output: u64) -> Arc<Model> {
    model_from(window, output, "m")
}

/// A model with this window and this name at its provider.
pub(crate) fn model_served_as(window: u64, served_as: &str) -> Arc<Model> {
    model_from(window, 4_096, served_as)
}

/// A model with this window and this limit of calls at a time.
pub(crate) fn model_with_calls(window: u64, concurrent_calls: Option<u32>) -> Arc<Model> {
    let mut settings = settings(window, 4_096, "m");
    if let Some(calls) = concurrent_calls {
        settings["concurrent_calls"] = json!(calls);
    }
    model_of(&settings)
}

fn model_from(window: u64, output: u64, served_as: &str) -> Arc<Model> {
    model_of(&settings(window, output, served_as))
}

fn settings(window: u64, output: u64, served_as: &str) -> Value {
    let output = output.min(window / 2);
    json!({"provider": "provider", "served_as": served_as, "window_tokens": window, "output_tokens": output})
}

fn model_of(settings: &Value) -> Arc<Model> {
    let providers =
        serde_json::from_str(r#"{"provider": {"api": "openai", "url": "http://127.0.0.1:1/v1"}}"#)
            .unwrap();
    let models = CallableModels::new(
        &providers,
        &serde_json::from_value(json!({"m": settings})).unwrap(),
    )
    .unwrap();
    Arc::clone(models.find("m").unwrap())
}

/// The summary. Asserts that it is not blank, fits its target, is shorter than its source and has
/// no control characters.
pub(crate) fn summarize(
    model: &Model,
    calls: &dyn SummaryCalls,
    ask: &SummaryAsk<'_>,
) -> Result<Summary, SummaryFailure> {
    let summary = summarize_unchecked(model, calls, ask)?;
    assert!(!summary.text.trim().is_empty(), "the summary is blank");
    assert_eq!(summary.tokens, (ask.measure)(&summary.text));
    assert!(
        summary.tokens <= ask.target,
        "the summary has {} tokens, its target is {}",
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
        "the summary holds a control character"
    );
    Ok(summary)
}

/// The summary without checks.
pub(crate) fn summarize_unchecked(
    model: &Model,
    calls: &dyn SummaryCalls,
    ask: &SummaryAsk<'_>,
) -> Result<Summary, SummaryFailure> {
    let summarizer = ModelSummarizer::new(model, calls);
    let mut future = pin!(summarizer.summarize(ask));
    let Poll::Ready(result) = future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    else {
        panic!("a scripted model never waits")
    };
    result
}
