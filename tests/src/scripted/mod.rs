//! A model provider on a loopback port that says what the test wants, at the test's pace, and tells what it was asked.

mod connection;
mod dialect;
mod heard;
mod script;
mod summaries;

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use anneal_core::model::Models;
use anneal_llm::provider::{Api, CallableModels, Providers};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, task::AbortHandle};

pub use dialect::{Counted, Say};
pub use heard::{Heard, hear, hear_rest, plain_call};
pub use script::{Gate, Script};

/// The window of models that [`ScriptedModel::settings`] speaks of.
const WINDOW: u32 = 8_192;

/// One request, as it came.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Its path, with the query.
    pub path: String,
    /// Its headers, names in lower case.
    pub headers: HashMap<String, String>,
    /// Its body; null where that is no JSON.
    pub body: Value,
    /// Its body, byte for byte.
    pub raw: String,
    /// Which request it is: 0 for the first.
    pub nth: usize,
}

impl Asked {
    /// The protocol, by the path.
    pub fn api(&self) -> Api {
        if self.path.contains(":streamGenerateContent") {
            Api::Gemini
        } else if self.path.ends_with("/messages") {
            Api::Anthropic
        } else {
            Api::OpenAi
        }
    }

    /// Every text of the conversation, in order: what a test looks for words in.
    pub fn texts(&self) -> Vec<String> {
        let mut texts = Vec::new();
        for key in ["system", "systemInstruction", "messages", "contents"] {
            collect_texts(&self.body[key], &mut texts);
        }
        texts
    }
}

fn collect_texts(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::String(text) if name == "text" || name == "content" => texts.push(text.clone()),
                    _ => collect_texts(field, texts),
                }
            }
        }
        _ => {}
    }
}

/// What has happened so far.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    arrived: usize,
    open: usize,
    most_open: usize,
    closed_by_client: usize,
}

/// What the connections share.
struct Shared {
    respond: Box<dyn Fn(&Asked) -> Script + Send + Sync>,
    /// Whether requests are kept for [`ScriptedModel::asked`].
    keeps_requests: bool,
    asked: Mutex<Vec<Asked>>,
    counts: watch::Sender<Counts>,
}

/// The provider; it stops, and cuts whatever is under way, when dropped.
pub struct ScriptedModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: AbortHandle,
}

impl ScriptedModel {
    /// A provider that answers each request with the script that `respond` writes for it.
    pub async fn start(respond: impl Fn(&Asked) -> Script + Send + Sync + 'static) -> Self {
        Self::start_keeping(respond, true).await
    }

    /// The same without keeping the requests: [`Self::asked`] says none of them, and each is the first.
    pub async fn start_without_memory(respond: impl Fn(&Asked) -> Script + Send + Sync + 'static) -> Self {
        Self::start_keeping(respond, false).await
    }

    async fn start_keeping(respond: impl Fn(&Asked) -> Script + Send + Sync + 'static, keeps_requests: bool) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("some port is free");
        let address = listener.local_addr().expect("it has an address");
        let (counts, _) = watch::channel(Counts::default());
        let shared = Arc::new(Shared { respond: Box::new(respond), keeps_requests, asked: Mutex::default(), counts });
        let server = tokio::spawn(connection::accept(listener, Arc::clone(&shared))).abort_handle();
        Self { address, shared, server }
    }

    /// A provider that always says this, in the protocol that it is asked in.
    pub async fn saying(text: &str) -> Self {
        let text = text.to_owned();
        Self::start(move |asked| Script::says(asked, [Say::text(&text)])).await
    }

    /// Where its APIs begin: `http://127.0.0.1:PORT/v1`.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The configuration of one provider, `scripted`, that speaks OpenAI's protocol and serves these models with a window
    /// of 8,192 tokens.
    pub fn settings(&self, models: &[&str]) -> (Providers, Models) {
        self.settings_of(Api::OpenAi, models)
    }

    /// The same in another protocol.
    pub fn settings_of(&self, api: Api, models: &[&str]) -> (Providers, Models) {
        let provider = json!({"scripted": {"api": api, "url": self.url()}});
        let model = json!({"provider": "scripted", "window_tokens": WINDOW});
        let models: serde_json::Map<String, Value> =
            models.iter().map(|name| ((*name).to_owned(), model.clone())).collect();
        (
            serde_json::from_value(provider).expect("these are settings of a provider"),
            serde_json::from_value(models.into()).expect("these are settings of models"),
        )
    }

    /// What a settings file says so that a server calls [`MODEL`](crate::MODEL) here.
    pub fn server_settings(&self) -> String {
        let (model, url) = (crate::MODEL, self.url());
        format!(
            "[providers.scripted]\napi = \"openai\"\nurl = \"{url}\"\n\
             [models.{model}]\nprovider = \"scripted\"\nwindow_tokens = {WINDOW}\n[chat]\nmodel = \"{model}\"\n"
        )
    }

    /// These models, ready to be called.
    pub fn callable(&self, api: Api, models: &[&str]) -> CallableModels {
        let (providers, models) = self.settings_of(api, models);
        CallableModels::new(&providers, &models).expect("these settings can work")
    }

    /// Every request so far, in the order of arrival.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().expect("nobody panics while holding it").clone()
    }

    /// Calls that are being answered now.
    pub fn open_calls(&self) -> usize {
        self.shared.counts.borrow().open
    }

    /// Most calls that were being answered at one time.
    pub fn most_open_calls(&self) -> usize {
        self.shared.counts.borrow().most_open
    }

    /// Returns once this many calls have arrived since the start.
    pub async fn arrived(&self, calls: usize) {
        self.until(|counts| counts.arrived >= calls).await;
    }

    /// Returns once clients have ended this many calls before they were answered.
    pub async fn closed_by_client(&self, calls: usize) {
        self.until(|counts| counts.closed_by_client >= calls).await;
    }

    /// Returns once no call is being answered.
    pub async fn idle(&self) {
        self.until(|counts| counts.open == 0).await;
    }

    async fn until(&self, happened: impl FnMut(&Counts) -> bool) {
        self.shared.counts.subscribe().wait_for(happened).await.expect("the sender lives as long as this");
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        self.server.abort();
    }
}
