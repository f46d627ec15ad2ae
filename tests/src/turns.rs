//! Turns of a chat in a test: asked for, and told by their events.

use std::{future::IntoFuture, pin::Pin, time::Duration};

use pb::chat_response::{Done, Event, Started};
use tonic::{Request, Status, Streaming};

use crate::{House, Talk, pb, user};

impl<'a> Talk<'a> {
    /// A turn in which the user says this; see [`AskedTurn`] for what else can be asked.
    pub fn chat(&self, said: &str) -> AskedTurn<'a> {
        self.chat_all(vec![user(said)])
    }

    /// A turn that begins with these messages.
    pub fn chat_all(&self, messages: Vec<pb::NewMessage>) -> AskedTurn<'a> {
        let ask = pb::ChatRequest { conversation_id: self.id.clone(), messages, ..Default::default() };
        AskedTurn { house: self.house, ask, deadline: None }
    }
}

/// A turn that is being asked for; await it to have it told whole, or [`AskedTurn::open`] it.
#[derive(Clone)]
pub struct AskedTurn<'a> {
    house: &'a House,
    /// The request; a test changes what matters to it.
    pub ask: pb::ChatRequest,
    deadline: Option<Duration>,
}

impl AskedTurn<'_> {
    /// With this request id.
    #[must_use]
    pub fn request_id(mut self, id: &str) -> Self {
        self.ask.request_id = id.into();
        self
    }

    /// Of this model.
    #[must_use]
    pub fn of(mut self, model: &str) -> Self {
        self.ask.model = model.into();
        self
    }

    /// With a tool of this name.
    #[must_use]
    pub fn with_tool(mut self, name: &str) -> Self {
        self.ask.tools.push(pb::Tool { name: name.into(), ..Default::default() });
        self
    }

    /// Given this time by the server; the client itself waits for as long as it takes.
    #[must_use]
    pub const fn due_in(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Begins it: the events come as they happen.
    pub async fn open(self) -> Result<Streaming<pb::ChatResponse>, Status> {
        let mut request = Request::new(self.ask);
        if let Some(deadline) = self.deadline {
            let timeout = format!("{}m", deadline.as_millis()).parse().expect("digits and a unit");
            request.metadata_mut().insert("grpc-timeout", timeout);
        }
        Ok(self.house.chats().chat(request).await?.into_inner())
    }

    /// Has it told whole.
    pub async fn told(self) -> ToldTurn {
        match self.open().await {
            Ok(stream) => ToldTurn::of(stream).await,
            Err(status) => ToldTurn { events: Vec::new(), end: Err(status) },
        }
    }
}

impl<'a> IntoFuture for AskedTurn<'a> {
    type Output = ToldTurn;
    type IntoFuture = Pin<Box<dyn Future<Output = ToldTurn> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.told())
    }
}

/// A turn as its caller saw it.
#[derive(Debug, Clone)]
pub struct ToldTurn {
    /// Every event but the last.
    pub events: Vec<Event>,
    /// How it ended.
    pub end: Result<Done, Status>,
}

impl ToldTurn {
    /// Reads a turn to its end.
    pub async fn of(mut stream: Streaming<pb::ChatResponse>) -> Self {
        let mut events = Vec::new();
        let end = loop {
            match stream.message().await {
                Ok(Some(pb::ChatResponse { event: Some(Event::Done(done)) })) => break Ok(done),
                Ok(Some(response)) => events.push(response.event.expect("every response is an event")),
                Ok(None) => panic!("a turn ends with `done` or a status: {events:?}"),
                Err(status) => break Err(status),
            }
        };
        if end.is_ok() {
            assert!(stream.message().await.expect("ends well").is_none(), "`done` comes last");
        }
        Self { events, end }
    }

    /// Its last event.
    #[track_caller]
    pub fn done(&self) -> &Done {
        self.end.as_ref().expect("the turn is answered")
    }

    /// Its first event.
    #[track_caller]
    pub fn started(&self) -> &Started {
        match self.events.first() {
            Some(Event::Started(started)) => started,
            other => panic!("a turn begins with `started`, not with {other:?}"),
        }
    }

    /// What the model said: that of the last attempt.
    pub fn text(&self) -> String {
        let last = self.events.iter().rposition(|event| matches!(event, Event::Attempt(_))).unwrap_or(0);
        let deltas = self.events[last..].iter().filter_map(|event| match event {
            Event::TextDelta(text) => Some(text.as_str()),
            _ => None,
        });
        deltas.collect()
    }

    /// The model's calls of tools.
    pub fn tool_calls(&self) -> Vec<pb::ToolUsePart> {
        let calls = self.events.iter().filter_map(|event| match event {
            Event::ToolCall(call) => Some(call.clone()),
            _ => None,
        });
        calls.collect()
    }

    /// The attempts after the first.
    pub fn attempts(&self) -> Vec<(i32, pb::Pressure, pb::AttemptReason)> {
        let attempts = self.events.iter().filter_map(|event| match event {
            Event::Attempt(attempt) => Some((attempt.number, attempt.pressure(), attempt.reason())),
            _ => None,
        });
        attempts.collect()
    }
}
