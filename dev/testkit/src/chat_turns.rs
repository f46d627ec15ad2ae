//! Chat turns over gRPC: requests, and outcomes read from the event stream. Earlier answers to a
//! question: lists, and the choice of one.

use std::{future::IntoFuture, pin::Pin, time::Duration};

use pb::{
    chat_response::{Done, Event, Started},
    chat_service_client::ChatServiceClient,
};
use tonic::{Request, Status, Streaming, transport::Endpoint};

use crate::{TestApp, TestConversation, pb, user};

impl TestApp {
    /// Runs a turn in a new conversation, at the server on this port of loopback, which works on the
    /// same database. Returns the answer's text.
    pub async fn chat_at(&self, port: u16) -> Result<String, Status> {
        let ask = pb::ChatRequest {
            conversation_id: self.conversation().await.id,
            messages: vec![user("Anybody?")],
            ..Default::default()
        };
        let channel = Endpoint::from_shared(format!("http://127.0.0.1:{port}"))
            .expect("an address")
            .connect_lazy();
        let stream = ChatServiceClient::new(channel)
            .chat(ask)
            .await?
            .into_inner();
        let outcome = TurnOutcome::read(stream).await;
        outcome.end.clone()?;
        Ok(outcome.text())
    }
}

impl<'a> TestConversation<'a> {
    /// A turn with this user message. [`TurnRequest`] has further options.
    pub fn chat(&self, content: &str) -> TurnRequest<'a> {
        self.chat_all(vec![user(content)])
    }

    /// A turn that begins with these messages.
    pub fn chat_all(&self, messages: Vec<pb::NewMessage>) -> TurnRequest<'a> {
        let ask = pb::ChatRequest {
            conversation_id: self.id.clone(),
            messages,
            ..Default::default()
        };
        TurnRequest {
            app: self.app,
            ask,
            deadline: None,
        }
    }
}

impl TestConversation<'_> {
    /// Stops the turn with this request id; empty: the one that is under way. `keep`: whether what
    /// has come of its answer is kept; None: as the policy says.
    pub async fn cancel_turn(
        &self,
        turn_request_id: &str,
        keep: Option<bool>,
    ) -> pb::CancelTurnResponse {
        let ask = pb::CancelTurnRequest {
            conversation_id: self.id.clone(),
            turn_request_id: turn_request_id.to_owned(),
            keep_partial: keep,
            wait: None,
        };
        let cancelled = self.app.chats().cancel_turn(ask).await;
        cancelled.expect("is answered").into_inner()
    }
}

/// Reads a turn until this text of its answer has come.
pub async fn read_until_text(stream: &mut Streaming<pb::ChatResponse>, text: &str) {
    let mut come = String::new();
    while come != text {
        let response = stream.message().await.expect("the turn goes on");
        match response.and_then(|response| response.event) {
            Some(Event::TextDelta(piece)) => come.push_str(&piece),
            Some(Event::Done(done)) => panic!("the turn ends before {text:?}: {done:?}"),
            Some(_) => {}
            None => panic!("the turn ends before {text:?}"),
        }
    }
}

impl<'a> TestConversation<'a> {
    /// A turn that answers the newest question anew.
    pub fn regenerate(&self) -> TurnRequest<'a> {
        let mut request = self.chat_all(Vec::new());
        request.ask.regenerate = true;
        request
    }

    /// A turn that gives a message of the user this text, and answers it.
    pub fn edit_and_answer(&self, message_id: i64, content: &str) -> TurnRequest<'a> {
        let mut request = self.chat(content);
        request.ask.edit_message_id = Some(message_id);
        request
    }

    /// The answers to the question that a message is, or belongs to the answer of.
    pub async fn alternatives(&self, message_id: i64) -> Vec<pb::Alternative> {
        let ask = pb::GetMessageRequest {
            conversation_id: self.id.clone(),
            message_id,
            // A message that no later call has edited. It may be withdrawn.
            version: 1,
            alternatives: true,
            ..Default::default()
        };
        let found = self.app.messages().get_message(ask).await;
        found.expect("answers").into_inner().alternatives
    }

    /// Makes an earlier answer to a question stand again.
    pub async fn choose(
        &self,
        question_message_id: i64,
        number: i32,
    ) -> Result<pb::MessageChange, Status> {
        let ask = pb::ChooseAlternativeRequest {
            conversation_id: self.id.clone(),
            question_message_id,
            number,
            ..Default::default()
        };
        let chosen = self.app.chats().choose_alternative(ask).await;
        chosen.map(tonic::Response::into_inner)
    }
}

/// A turn to be requested. `.await` runs the whole turn. [`TurnRequest::open`] starts the turn
/// and returns its event stream.
#[derive(Clone)]
pub struct TurnRequest<'a> {
    app: &'a TestApp,
    /// The request. A test changes the fields that matter to it.
    pub ask: pb::ChatRequest,
    deadline: Option<Duration>,
}

impl TurnRequest<'_> {
    /// Sets the request id.
    #[must_use]
    pub fn request_id(mut self, id: &str) -> Self {
        self.ask.request_id = id.into();
        self
    }

    /// Sets the model.
    #[must_use]
    pub fn with_model(mut self, model: &str) -> Self {
        self.ask.model = model.into();
        self
    }

    /// Adds a tool of this name.
    #[must_use]
    pub fn with_tool(mut self, name: &str) -> Self {
        self.ask.tools.push(pb::Tool {
            name: name.into(),
            ..Default::default()
        });
        self
    }

    /// Sets what happens if the caller goes away.
    #[must_use]
    pub fn on_disconnect(mut self, on_disconnect: pb::OnDisconnect) -> Self {
        self.ask.on_disconnect = on_disconnect.into();
        self
    }

    /// Sets the models that are tried after the first one.
    #[must_use]
    pub fn with_fallbacks(mut self, models: &[&str]) -> Self {
        self.ask.fallback_models = models.iter().map(|model| (*model).to_owned()).collect();
        self
    }

    /// Sets the deadline that the server sees. The client itself waits as long as the turn takes.
    #[must_use]
    pub const fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Starts the turn and returns its event stream.
    pub async fn open(self) -> Result<Streaming<pb::ChatResponse>, Status> {
        let mut request = Request::new(self.ask);
        if let Some(deadline) = self.deadline {
            // The unit `m` of grpc-timeout is milliseconds.
            let timeout = format!("{}m", deadline.as_millis())
                .parse()
                .expect("digits and a unit");
            request.metadata_mut().insert("grpc-timeout", timeout);
        }
        Ok(self.app.chats().chat(request).await?.into_inner())
    }

    /// Starts the turn and reads it to its end.
    pub async fn run(self) -> TurnOutcome {
        match self.open().await {
            Ok(stream) => TurnOutcome::read(stream).await,
            Err(status) => TurnOutcome {
                events: Vec::new(),
                end: Err(status),
            },
        }
    }
}

impl<'a> IntoFuture for TurnRequest<'a> {
    type Output = TurnOutcome;
    type IntoFuture = Pin<Box<dyn Future<Output = TurnOutcome> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// A turn, as its caller saw it.
#[derive(Debug, Clone)]
pub struct TurnOutcome {
    /// Every event before `end`.
    pub events: Vec<Event>,
    /// The event `done`, or the status that ended the turn.
    pub end: Result<Done, Status>,
}

impl TurnOutcome {
    /// Reads a turn to its end.
    pub async fn read(mut stream: Streaming<pb::ChatResponse>) -> Self {
        let mut events = Vec::new();
        let end = loop {
            match stream.message().await {
                Ok(Some(pb::ChatResponse {
                    event: Some(Event::Done(done)),
                })) => break Ok(done),
                Ok(Some(response)) => {
                    events.push(response.event.expect("every response is an event"));
                }
                Ok(None) => panic!("a turn ends with `done` or a status: {events:?}"),
                Err(status) => break Err(status),
            }
        };
        if end.is_ok() {
            assert!(
                stream
                    .message()
                    .await
                    .expect("the stream ends without an error")
                    .is_none(),
                "nothing may follow `done`"
            );
        }
        Self { events, end }
    }

    /// The event `done`. Panics if the turn ended with a status.
    #[track_caller]
    pub fn done(&self) -> &Done {
        self.end.as_ref().expect("the turn is answered")
    }

    /// The first event. Panics if it is not `started`.
    #[track_caller]
    pub fn started(&self) -> &Started {
        match self.events.first() {
            Some(Event::Started(started)) => started,
            other => panic!("a turn begins with `started`, not with {other:?}"),
        }
    }

    /// The text of the last attempt.
    pub fn text(&self) -> String {
        let last = self
            .events
            .iter()
            .rposition(|event| matches!(event, Event::Attempt(_)))
            .unwrap_or(0);
        let deltas = self.events[last..].iter().filter_map(|event| match event {
            Event::TextDelta(text) => Some(text.as_str()),
            _ => None,
        });
        deltas.collect()
    }

    /// The tool calls of the model.
    pub fn tool_calls(&self) -> Vec<pb::ToolUsePart> {
        let calls = self.events.iter().filter_map(|event| match event {
            Event::ToolCall(call) => Some(call.clone()),
            _ => None,
        });
        calls.collect()
    }

    /// The attempts after the first: number, pressure, reason.
    pub fn attempts(&self) -> Vec<(i32, pb::Pressure, pb::AttemptReason)> {
        let attempts = self.events.iter().filter_map(|event| match event {
            Event::Attempt(attempt) => Some((attempt.number, attempt.pressure(), attempt.reason())),
            _ => None,
        });
        attempts.collect()
    }
}
