//! Scripted model providers with prompt caches that behave as the caches of Anthropic, OpenAI and
//! Gemini are published to. They are another reading of the published rules than
//! `anneal_core::cache`, which they do not use, so that tests can compare the two. Only tokens are
//! counted as anneal counts them.
//!
//! - `anthropic`, `openai`, `gemini`: the caches. Each file names its pages and lists their rules.
//! - `clock`: the provider's time, which the test moves.
//! - `prefix`: beginnings of requests. `request_json`: reads requests.

mod anthropic;
mod clock;
mod gemini;
mod openai;
mod prefix;
mod request_json;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
};

use anneal_core::model::Models;
use anneal_llm::provider::{Api, Providers};
use serde_json::{Value, json};

pub use clock::ProviderClock;

use crate::{ModelRequest, ReportedUsage, Say, Script, ScriptedModel};

/// The context window of the models, in tokens.
const WINDOW: u32 = 1_000_000;

/// Which entries of Anthropic's cache a read keeps alive. The page says that a read refreshes what
/// it reads, and does not say what becomes of shorter entries at other marks of the same request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Refresh {
    /// The entries at all marks of the request.
    #[default]
    All,
    /// Only the longest entry, which is read.
    Longest,
}

/// What becomes of a request's marks before the cache sees them, so that a check of bills can be
/// seen to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MarkFault {
    /// They are as they were sent.
    #[default]
    None,
    /// There are none.
    Dropped,
    /// Each is one block closer to the beginning.
    OneBlockEarly,
}

/// The bill of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BilledCall {
    /// All input tokens.
    pub input: u64,
    /// Part of `input`: read from the cache.
    pub cached: u64,
    /// Part of `input`: written to the cache, where the provider bills that.
    pub written: u64,
    /// Part of `written`: for an hour.
    pub long_written: u64,
    /// Marks of the request.
    pub marks: usize,
    /// The price of the input, in hundredths of the price of a token of plain input.
    pub units: u64,
}

/// The caches of the providers, and what the test has told them.
#[derive(Default)]
struct State {
    anthropic: anthropic::AnthropicCache,
    openai: openai::OpenAiCache,
    gemini: gemini::GeminiCache,
    counts: prefix::TextCounts,
    clock: ProviderClock,
    refresh: Refresh,
    fault: MarkFault,
    /// The answers to the next requests.
    answers: VecDeque<Vec<Say>>,
    bills: Vec<BilledCall>,
}

/// Providers with prompt caches, all on one port. Dropping it stops them.
pub struct CachingProvider {
    model: ScriptedModel,
    state: Arc<Mutex<State>>,
}

impl CachingProvider {
    /// Providers with empty caches.
    pub async fn start() -> Self {
        Self::start_with(Refresh::default(), MarkFault::default()).await
    }

    /// Providers with empty caches that refresh these entries, and see marks with this fault.
    pub async fn start_with(refresh: Refresh, fault: MarkFault) -> Self {
        let state = Arc::new(Mutex::new(State {
            refresh,
            fault,
            ..State::default()
        }));
        let shared = Arc::clone(&state);
        let model =
            ScriptedModel::start_without_requests(move |asked| respond(&mut lock(&shared), asked))
                .await;
        Self { model, state }
    }

    /// Settings of these models and of their providers. The beginning of a model's name says whose
    /// it is.
    pub fn settings(&self, models: &[&str]) -> (Providers, Models) {
        let provider = |api: Api| {
            let url = self.model.url();
            json!({"api": api, "url": url, "prompt_cache": "on"})
        };
        let providers = json!({
            "anthropic": provider(Api::Anthropic),
            "openai": provider(Api::OpenAi),
            "gemini": provider(Api::Gemini),
        });
        let models: serde_json::Map<String, Value> = models
            .iter()
            .map(|name| {
                let settings = json!({"provider": provider_of(name), "window_tokens": WINDOW});
                ((*name).to_owned(), settings)
            })
            .collect();
        (
            serde_json::from_value(providers).expect("the settings are valid"),
            serde_json::from_value(models.into()).expect("the settings are valid"),
        )
    }

    /// The time of the providers.
    pub fn clock(&self) -> ProviderClock {
        lock(&self.state).clock.clone()
    }

    /// Sets the answer to the first request that has none yet.
    pub fn answer_next(&self, says: Vec<Say>) {
        lock(&self.state).answers.push_back(says);
    }

    /// Empties the caches.
    pub fn empty_caches(&self) {
        let mut state = lock(&self.state);
        state.anthropic = anthropic::AnthropicCache::default();
        state.openai = openai::OpenAiCache::default();
        state.gemini = gemini::GeminiCache::default();
    }

    /// The bills of all calls so far.
    pub fn bills(&self) -> Vec<BilledCall> {
        lock(&self.state).bills.clone()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state
        .lock()
        .expect("no thread panics while holding the lock")
}

/// The provider of a model, as it is called in the settings.
fn provider_of(model: &str) -> &'static str {
    if model.starts_with("claude-") {
        "anthropic"
    } else if model.starts_with("gemini-") {
        "gemini"
    } else {
        "openai"
    }
}

fn respond(state: &mut State, asked: &ModelRequest) -> Script {
    let api = asked.api();
    let billed = match state.bill(api, &asked.path, &asked.raw) {
        Ok(billed) => billed,
        Err(request_json::Refusal(words)) => {
            let error = json!({"type": "invalid_request_error", "message": words});
            let body = json!({"type": "error", "error": error});
            return Script::status(400, &[], &body.to_string());
        }
    };
    let Some(says) = state.answers.pop_front() else {
        return Script::status(500, &[], r#"{"error": {"message": "nothing to say"}}"#);
    };
    state.bills.push(billed);
    let counted = ReportedUsage {
        input: billed.input,
        cached: billed.cached,
        written: billed.written,
        long_written: billed.long_written,
        output: 1,
        reasoning: 0,
    };
    Script::says_counted(api, &says, counted)
}

impl State {
    fn bill(
        &mut self,
        api: Api,
        path: &str,
        json: &str,
    ) -> Result<BilledCall, request_json::Refusal> {
        let (now, counts) = (self.clock.seconds(), &mut self.counts);
        let switches = (self.refresh, self.fault);
        match api {
            Api::Anthropic => self.anthropic.bill(json, now, switches, counts),
            Api::OpenAi => self.openai.bill(json, now, switches, counts),
            Api::Gemini => self.gemini.bill((path, json), now, counts),
        }
    }
}
