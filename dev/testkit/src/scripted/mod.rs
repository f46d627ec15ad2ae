//! A model provider on a loopback port. The test's scripts decide what it answers and when. The
//! provider records its requests, unless the test turns this off.
//!
//! - `script`: the steps of one answer. `connection`: performs them.
//! - `dialect`: writes answers in the protocols of the providers. `summaries`: writes valid
//!   summaries.
//! - `answer`: calls a model and reads its answer.

mod answer;
mod connection;
mod dialect;
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

pub use answer::{ModelAnswer, plain_call, read_answer, read_rest};
pub use dialect::{ReportedUsage, Say};
pub use script::{Gate, Script};

/// The name of the model in [`ScriptedModel::server_settings`] and in the apps that call it.
pub const MODEL: &str = "scripted-model";

/// The context window of the models in [`ScriptedModel::settings`], in tokens.
const WINDOW: u32 = 8_192;

/// A received request.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// The path, with the query.
    pub path: String,
    /// The headers, names in lower case.
    pub headers: HashMap<String, String>,
    /// The body as JSON. Null if it is not JSON.
    pub body: Value,
    /// The body as text.
    pub raw: String,
    /// The number of earlier requests. Always 0 if the provider does not record requests.
    pub nth: usize,
}

impl ModelRequest {
    /// The provider's protocol, derived from the path.
    pub fn api(&self) -> Api {
        if self.path.contains(":streamGenerateContent") {
            Api::Gemini
        } else if self.path.ends_with("/messages") {
            Api::Anthropic
        } else {
            Api::OpenAi
        }
    }

    /// Every text of the conversation, in order.
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
                    Value::String(text) if name == "text" || name == "content" => {
                        texts.push(text.clone());
                    }
                    _ => collect_texts(field, texts),
                }
            }
        }
        _ => {}
    }
}

/// Counters of calls.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    /// All calls so far.
    arrived: usize,
    /// Calls in progress.
    open: usize,
    /// The highest number of calls that were in progress at the same time.
    most_open: usize,
    /// Calls whose connection the client closed before they were answered.
    closed_by_client: usize,
}

/// State that the connections share.
struct Shared {
    respond: Box<dyn Fn(&ModelRequest) -> Script + Send + Sync>,
    /// Whether requests are kept for [`ScriptedModel::requests`].
    keeps_requests: bool,
    requests: Mutex<Vec<ModelRequest>>,
    counts: watch::Sender<Counts>,
}

/// The provider. Dropping it stops it and aborts open connections.
pub struct ScriptedModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: AbortHandle,
}

impl ScriptedModel {
    /// A provider that answers each request with the script that `respond` returns.
    pub async fn start(respond: impl Fn(&ModelRequest) -> Script + Send + Sync + 'static) -> Self {
        Self::start_with(respond, true).await
    }

    /// A provider that does not record requests: [`Self::requests`] is empty, and `nth` is always
    /// 0.
    pub async fn start_without_requests(
        respond: impl Fn(&ModelRequest) -> Script + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(respond, false).await
    }

    async fn start_with(
        respond: impl Fn(&ModelRequest) -> Script + Send + Sync + 'static,
        keeps_requests: bool,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("some port is free");
        let address = listener.local_addr().expect("it has an address");
        let (counts, _) = watch::channel(Counts::default());
        let shared = Arc::new(Shared {
            respond: Box::new(respond),
            keeps_requests,
            requests: Mutex::default(),
            counts,
        });
        let server = tokio::spawn(connection::accept(listener, Arc::clone(&shared))).abort_handle();
        Self {
            address,
            shared,
            server,
        }
    }

    /// A provider that always answers with this text, in the protocol of the request.
    pub async fn saying(text: &str) -> Self {
        let text = text.to_owned();
        Self::start(move |asked| Script::says(asked, [Say::text(&text)])).await
    }

    /// The base URL of the provider's APIs: `http://127.0.0.1:PORT/v1`.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Settings of one provider, `scripted`, with OpenAI's protocol, and of these models with a
    /// window of 8,192 tokens.
    pub fn settings(&self, models: &[&str]) -> (Providers, Models) {
        self.settings_of(Api::OpenAi, models)
    }

    /// Settings of one provider, `scripted`, with this protocol, and of these models.
    pub fn settings_of(&self, api: Api, models: &[&str]) -> (Providers, Models) {
        let provider = json!({"scripted": {"api": api, "url": self.url()}});
        let model = json!({"provider": "scripted", "window_tokens": WINDOW});
        let models: serde_json::Map<String, Value> = models
            .iter()
            .map(|name| ((*name).to_owned(), model.clone()))
            .collect();
        (
            serde_json::from_value(provider).expect("the settings are valid"),
            serde_json::from_value(models.into()).expect("the settings are valid"),
        )
    }

    /// The text of a settings file with which a server calls [`MODEL`] at this provider.
    pub fn server_settings(&self) -> String {
        let (model, url) = (MODEL, self.url());
        format!(
            "[providers.scripted]\napi = \"openai\"\nurl = \"{url}\"\n\
             [models.{model}]\nprovider = \"scripted\"\nwindow_tokens = {WINDOW}\n[chat]\nmodel = \"{model}\"\n"
        )
    }

    /// The text of a settings file with which a server calls [`MODEL`] at this provider over this
    /// protocol, with timeouts of an hour, so that a timeout never ends a call of the test.
    pub fn server_settings_without_timeouts(&self, api: Api) -> String {
        let (model, url, api) = (MODEL, self.url(), json!(api));
        format!(
            "[providers.scripted]\napi = {api}\nurl = \"{url}\"\n\
             first_byte_timeout_ms = 3600000\ntotal_timeout_ms = 3600000\n\
             [models.{model}]\nprovider = \"scripted\"\nwindow_tokens = {WINDOW}\n[chat]\nmodel = \"{model}\"\n"
        )
    }

    /// Models with these names at this provider, ready to be called by this protocol.
    pub fn callable(&self, api: Api, models: &[&str]) -> CallableModels {
        let (providers, models) = self.settings_of(api, models);
        CallableModels::new(&providers, &models).expect("the settings are valid")
    }

    /// Every request so far, in order of arrival.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.shared
            .requests
            .lock()
            .expect("no thread panics while holding the lock")
            .clone()
    }

    /// The number of calls in progress.
    pub fn open_calls(&self) -> usize {
        self.shared.counts.borrow().open
    }

    /// The highest number of concurrent calls so far.
    pub fn most_open_calls(&self) -> usize {
        self.shared.counts.borrow().most_open
    }

    /// Waits until this many calls have arrived since the start.
    pub async fn wait_for_calls(&self, calls: usize) {
        self.wait_for(|counts| counts.arrived >= calls).await;
    }

    /// Waits until clients have closed this many calls before they were answered.
    pub async fn wait_for_closed_calls(&self, calls: usize) {
        self.wait_for(|counts| counts.closed_by_client >= calls)
            .await;
    }

    /// Waits until no call is in progress.
    pub async fn wait_until_idle(&self) {
        self.wait_for(|counts| counts.open == 0).await;
    }

    async fn wait_for(&self, happened: impl FnMut(&Counts) -> bool) {
        self.shared
            .counts
            .subscribe()
            .wait_for(happened)
            .await
            .expect("the sender is not dropped");
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        self.server.abort();
    }
}
