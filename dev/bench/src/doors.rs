//! Turns through the doors of a server: POST /v1/responses, and Chat of gRPC. Each turn is timed
//! without the model's time, which the model itself notes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anneal_proto::v1::{self as pb, chat_service_client::ChatServiceClient};
use anyhow::Context as _;
use pb::chat_response::Event;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    connection::Channel,
    conversations::never_compacted,
    silent_model::{CallTimes, SilentModel, mark},
    stack::{BenchStack, user},
};

/// How turns reach the server.
#[derive(Clone)]
pub(crate) enum Door {
    /// POST /v1/responses, with these fields beside the input.
    Responses(Value),
    /// Chat, in a conversation that is never compacted.
    Chat,
}

/// Turns that follow each other in one conversation, over one connection.
pub(crate) struct Chain {
    door: Door,
    model: Arc<SilentModel>,
    name_of_model: &'static str,
    http: reqwest::Client,
    url: String,
    authorization: String,
    channel: Channel,
    /// The response before, or the conversation of Chat.
    previous: Option<String>,
}

/// The times of a turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnTimes {
    /// From the call to the first bytes at the model.
    pub(crate) before: Duration,
    /// From the first bytes at the model until it has read the whole context.
    pub(crate) sending: Duration,
    /// From the model's first delta to the client's.
    pub(crate) after: Duration,
    /// From the call to the end of its events, the model's time included.
    pub(crate) whole: Duration,
    /// Length of the request to the model.
    pub(crate) bytes: usize,
}

impl TurnTimes {
    /// The server's own time to the first delta.
    pub(crate) fn own(&self) -> Duration {
        self.before + self.after
    }
}

/// The number of the next turn's mark.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

impl Chain {
    /// Opens connections for a chain. Its first turn begins the conversation.
    pub(crate) async fn open(
        stack: &BenchStack,
        door: &Door,
        model: &Arc<SilentModel>,
        name_of_model: &'static str,
    ) -> anyhow::Result<Self> {
        let channel = stack.channel().await?;
        let previous = match door {
            Door::Responses(_) => None,
            Door::Chat => Some(
                stack
                    .create_conversation(&channel, Some(never_compacted()))
                    .await?,
            ),
        };
        Ok(Self {
            door: door.clone(),
            model: Arc::clone(model),
            name_of_model,
            http: reqwest::Client::builder().no_proxy().build()?,
            url: format!("http://{}/v1/responses", stack.http_address()),
            authorization: stack.credential().authorization()?.to_owned(),
            channel,
            previous,
        })
    }

    /// Runs a turn whose input is this text.
    pub(crate) async fn run_turn(&mut self, text: &str) -> anyhow::Result<TurnTimes> {
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let input = format!("{text} {}", mark(number));
        let (begun, first_delta) = match &self.door {
            Door::Responses(fields) => self.run_response(fields.clone(), &input).await?,
            Door::Chat => self.run_chat(input).await?,
        };
        let whole = begun.elapsed();
        let call = self.model.take_times(number);
        let CallTimes {
            arrived,
            complete,
            answered,
            bytes,
        } = call.context("the model was not called")?;
        Ok(TurnTimes {
            before: arrived - begun,
            sending: complete - arrived,
            after: first_delta - answered,
            whole,
            bytes,
        })
    }

    /// Returns when the call began, and when the first delta came.
    async fn run_response(
        &mut self,
        mut fields: Value,
        input: &str,
    ) -> anyhow::Result<(Instant, Instant)> {
        fields["model"] = json!(self.name_of_model);
        fields["stream"] = json!(true);
        fields["input"] = json!(input);
        fields["previous_response_id"] = json!(self.previous);
        let ask = self.http.post(&self.url);
        let ask = ask
            .header("authorization", &self.authorization)
            .header("content-type", "application/json")
            .body(fields.to_string());
        let begun = Instant::now();
        let mut answer = ask.send().await?;
        let (mut events, mut first_delta) = (Vec::new(), None);
        while let Some(bytes) = answer.chunk().await? {
            events.extend_from_slice(&bytes);
            if first_delta.is_none()
                && String::from_utf8_lossy(&events).contains("response.output_text.delta")
            {
                first_delta = Some(Instant::now());
            }
        }
        let events = String::from_utf8_lossy(&events);
        let completed = events
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .filter(|data| data.contains("response.completed"))
            .find_map(|data| serde_json::from_str::<Value>(data).ok());
        let completed = completed.with_context(|| format!("no response: {events}"))?;
        let id = completed["response"]["id"].as_str();
        self.previous = Some(id.context("a response has an id")?.to_owned());
        Ok((begun, first_delta.context("a response has no delta")?))
    }

    /// Returns when the call began, and when the first delta came.
    async fn run_chat(&self, input: String) -> anyhow::Result<(Instant, Instant)> {
        let ask = pb::ChatRequest {
            conversation_id: self.previous.clone().unwrap_or_default(),
            request_id: Uuid::new_v4().to_string(),
            messages: vec![user(input)],
            model: self.name_of_model.to_owned(),
            ..Default::default()
        };
        let mut client = ChatServiceClient::new(self.channel.clone());
        let begun = Instant::now();
        let mut events = client.chat(ask).await?.into_inner();
        let mut first_delta = None;
        while let Some(response) = events.message().await? {
            if let Some(Event::TextDelta(_)) = response.event {
                first_delta.get_or_insert_with(Instant::now);
            }
        }
        Ok((begun, first_delta.context("a turn has no delta")?))
    }
}
