//! A desk whose model is a function of what it is told: every call is read back, every part is kept.
#![allow(dead_code, clippy::unwrap_used, clippy::missing_panics_doc, reason = "each test file uses its part")]

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use anneal_core::{digest::Digest, tokens::Tokens};
use anneal_llm::{
    BoxFuture, Desk, ModelSummarizer, Summarizer, Summary, SummaryAsk, SummaryFailure,
    provider::{Answer, Call, CallFailure, CallUsage, CallableModels, End, Model, StopReason},
};
use serde_json::{Value, json};

use crate::house::measure;

/// What one call said, read back.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) system: String,
    pub(crate) user: String,
    pub(crate) boundary: String,
    /// The lines between the marks that tell texts.
    pub(crate) lines: Vec<Value>,
    /// The strings of the line behind them.
    pub(crate) must_keep: Vec<String>,
    /// What stands behind them.
    pub(crate) after: Vec<String>,
    pub(crate) output: u64,
    /// Tokens of both texts, as GPT-4o counts.
    pub(crate) sent: u64,
    /// What the provider was said to count at least.
    pub(crate) surely: u64,
}

impl Told {
    fn of(call: &Call<'_>) -> Self {
        assert!(call.tools.is_empty(), "a summariser has no tools");
        let context: Value = serde_json::from_str(call.context).unwrap();
        let [system, user] = ["/messages/0/content", "/messages/1/content"].map(|at| context.pointer(at).unwrap());
        let [system, user] = [system, user].map(|text| text.as_str().unwrap().to_owned());
        let mut lines = user.split('\n');
        let boundary = lines.next().unwrap().strip_prefix("BEGIN ").unwrap().to_owned();
        let end = format!("END {boundary}");
        let data = lines.by_ref().take_while(|line| *line != end).map(|line| serde_json::from_str(line).unwrap());
        let mut data: Vec<Value> = data.collect();
        let kept = data.pop_if(|line| line["kind"] == "must_keep");
        let must_keep = kept.map(|line| serde_json::from_value(line["strings"].clone()).unwrap()).unwrap_or_default();
        let after = lines.map(str::to_owned).collect();
        let sent = (measure(&system) + measure(&user)).get();
        let surely = call.sent_tokens.unwrap().get();
        Self { lines: data, must_keep, after, system, boundary, output: call.output.get(), sent, surely, user }
    }

    pub(crate) fn kinds(&self) -> Vec<&str> {
        self.lines.iter().map(|line| line["kind"].as_str().unwrap_or("said")).collect()
    }

    pub(crate) fn texts(&self) -> Vec<&str> {
        self.lines.iter().map(|line| line["text"].as_str().unwrap()).collect()
    }

    pub(crate) fn is_whole(&self) -> bool {
        !self.system.contains("summary of one part")
    }

    /// The line that begins so, without that beginning.
    pub(crate) fn says(&self, beginning: &str) -> Option<&str> {
        self.after.iter().find_map(|line| line.strip_prefix(beginning))
    }

    pub(crate) fn refused(&self) -> Option<&str> {
        self.says("An answer before this one was refused: ")
    }
}

type Mind = dyn Fn(usize, &Told) -> Result<Answer, SummaryFailure> + Send + Sync;

/// The desk.
pub(crate) struct Scripted {
    mind: Box<Mind>,
    pub(crate) told: Mutex<Vec<Told>>,
    pub(crate) kept: Mutex<HashMap<Digest, String>>,
}

impl Scripted {
    /// A model that answers so: the number of the call counts from 0.
    pub(crate) fn new(mind: impl Fn(usize, &Told) -> Result<Answer, SummaryFailure> + Send + Sync + 'static) -> Self {
        Self { mind: Box::new(mind), told: Mutex::default(), kept: Mutex::default() }
    }

    /// A model that always says this.
    pub(crate) fn saying(text: impl Into<String>) -> Self {
        let text = text.into();
        Self::new(move |_, _| Ok(answer(text.clone())))
    }

    /// A model that reports as it should.
    pub(crate) fn able() -> Self {
        Self::new(|_, told| Ok(answer(report(told))))
    }

    pub(crate) fn calls(&self) -> usize {
        self.told.lock().unwrap().len()
    }

    pub(crate) fn told(&self) -> Vec<Told> {
        self.told.lock().unwrap().clone()
    }
}

impl Desk for Scripted {
    fn ask<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, Result<Answer, SummaryFailure>> {
        Box::pin(async move {
            let told = Told::of(call);
            let number = self.calls();
            self.told.lock().unwrap().push(told.clone());
            (self.mind)(number, &told)
        })
    }

    fn recall<'a>(&'a self, part: &'a Digest) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move { self.kept.lock().unwrap().get(part).cloned() })
    }

    fn keep<'a>(&'a self, part: &'a Digest, text: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.kept.lock().unwrap().insert(*part, text.to_owned());
        })
    }
}

/// An answer that ended by itself.
pub(crate) fn answer(text: impl Into<String>) -> Answer {
    ended(text, StopReason::Done)
}

pub(crate) fn ended(text: impl Into<String>, stop: StopReason) -> Answer {
    Answer { text: text.into(), end: End { stop, usage: CallUsage::default() } }
}

/// A refusal because of the context's length.
pub(crate) fn overflow(window: Option<u64>) -> SummaryFailure {
    CallFailure::Overflow { window: window.map(Tokens::new), prompt: None, rule: "test" }.into()
}

/// A short summary in words of its own: which texts it stands for, and what it must keep.
pub(crate) fn report(told: &Told) -> String {
    let opening = |text: &&str| text.chars().filter(|c| c.is_alphanumeric()).take(8).collect::<String>();
    let [first, last] =
        [told.texts().first().map(opening), told.texts().last().map(opening)].map(Option::unwrap_or_default);
    let kept = told.must_keep.join(" and ");
    format!(
        r#"{{"summary": "Between {first} and {last} several things moved on, and nobody minded.", "open": ["{kept}"]}}"#
    )
    .replace('\\', "\\\\")
}

/// A model that is called `m`, with this window.
pub(crate) fn model(window: u64) -> Arc<Model> {
    model_that_writes(window, 4_096)
}

pub(crate) fn model_that_writes(window: u64, output: u64) -> Arc<Model> {
    model_from(window, output, "m")
}

/// The same, under this name of its provider's.
pub(crate) fn model_served_as(window: u64, served_as: &str) -> Arc<Model> {
    model_from(window, 4_096, served_as)
}

fn model_from(window: u64, output: u64, served_as: &str) -> Arc<Model> {
    let providers = serde_json::from_str(r#"{"house": {"api": "openai", "url": "http://127.0.0.1:1/v1"}}"#).unwrap();
    let output = output.min(window / 2);
    let said = json!({"provider": "house", "served_as": served_as, "window_tokens": window, "output_tokens": output});
    let models = CallableModels::new(&providers, &serde_json::from_value(json!({"m": said})).unwrap()).unwrap();
    Arc::clone(models.find("m").unwrap())
}

/// The summary, held against the rules that every summary keeps.
pub(crate) fn summarize(model: &Model, desk: &dyn Desk, ask: &SummaryAsk<'_>) -> Result<Summary, SummaryFailure> {
    let summary = written(model, desk, ask)?;
    assert!(!summary.text.trim().is_empty(), "blank");
    assert_eq!(summary.tokens, (ask.measure)(&summary.text));
    assert!(summary.tokens <= ask.target, "{} of {}", summary.tokens, ask.target);
    assert!(summary.tokens < ask.source_tokens(Tokens::new(u64::MAX)), "not shorter");
    assert!(!summary.text.contains(|c: char| c.is_control() && c != '\n' && c != '\t'), "control character");
    Ok(summary)
}

/// The summary, as it is.
pub(crate) fn written(model: &Model, desk: &dyn Desk, ask: &SummaryAsk<'_>) -> Result<Summary, SummaryFailure> {
    let summarizer = ModelSummarizer::new(model, desk);
    let mut future = pin!(summarizer.summarize(ask));
    let Poll::Ready(made) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("a scripted desk never waits")
    };
    made
}
