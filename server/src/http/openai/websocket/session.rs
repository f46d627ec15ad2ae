//! One WebSocket: reads the frames of its client, runs one response after the other, and sends their
//! events. Frames that arrive meanwhile wait in a queue. Nothing more is read while it is full, so
//! the client waits.

use std::{collections::VecDeque, future::pending, pin::pin, time::Duration};

use anneal_core::limits::REQUEST_BYTES;
use futures::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};
use tokio::time::{
    Instant, Interval, MissedTickBehavior, interval_at, sleep, sleep_until, timeout,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        self, Message, Utf8Bytes,
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::frame;
use crate::{
    failure::Failure,
    http::{
        HttpState,
        caller::HttpCaller,
        openai::{
            body_values,
            errors::ApiError,
            responses::{Medium, RunningResponse, UnstoredHistory, begin},
        },
        problem::Problem,
    },
    limits::cpu_pool,
    listen::SlotRef,
    traffic::{Meter, MeteredIo, RequestMemory},
};

/// The connection of a client.
pub(super) type Socket = WebSocketStream<MeteredIo<TokioIo<Upgraded>>>;

/// After this time no further response begins.
const MAX_AGE: Duration = Duration::from_hours(1);
/// Frames that wait while a response is under way.
const QUEUED_FRAMES: usize = 8;
/// Time between two pings, so that proxies do not close the connection as idle.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// A client that answers no ping for this long is gone.
const MAX_SILENCE: Duration = Duration::from_secs(90);
/// How long the client may take to answer that the connection is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the client may take to read an event once the server stops.
const SEND_TIMEOUT_AT_STOP: Duration = Duration::from_secs(2);
/// Most bytes of the newest response and its input that a connection remembers.
const HISTORY_BYTES: usize = 4 * REQUEST_BYTES;

/// A WebSocket and what it remembers.
pub(super) struct Session {
    state: HttpState,
    caller: HttpCaller,
    /// The slot of the connection. None: it came without one.
    slot: Option<SlotRef>,
    inbox: Inbox,
    watch: Watch,
    /// The newest response, if it has completed and is not stored, and the memory that it takes.
    earlier: Option<(UnstoredHistory, RequestMemory)>,
}

/// Why a connection ends.
#[derive(Debug)]
enum End {
    /// The client has closed it, or cannot be reached.
    Gone,
    /// Its slot is needed.
    Evicted,
    /// It has reached [`MAX_AGE`].
    TooOld,
    /// The server stops.
    Stopping,
    /// The client may not use it any more.
    Refused(ApiError),
    /// The client has sent a message that is too large.
    TooLarge,
}

/// The frames that wait.
struct Inbox {
    queue: VecDeque<Frame>,
    meter: Meter,
    last_heard: Instant,
}

/// A frame of the client.
struct Frame {
    /// None: it is binary.
    text: Option<Utf8Bytes>,
    memory: RequestMemory,
}

/// What is waited for beside frames and events.
struct Watch {
    interruptions: Interruptions,
    pings: Interval,
    began: Instant,
}

/// What ends a connection from outside, also in the middle of a response.
struct Interruptions {
    /// Ends when the credential becomes invalid. None: callers need no credential.
    credential_check: Option<AbortOnDropHandle<Failure>>,
    /// Cancelled when the slot of the connection is needed.
    close: CancellationToken,
    /// Cancelled when the server stops. A response goes on then, for a client that reads it.
    stopping: CancellationToken,
}

impl Session {
    pub(super) fn new(
        state: HttpState,
        caller: HttpCaller,
        meter: Meter,
        slot: Option<SlotRef>,
    ) -> Self {
        let credential_check = caller.proof().map(|proof| {
            let check = async move { proof.wait_until_invalid().await };
            AbortOnDropHandle::new(tokio::spawn(check))
        });
        let stopping = state.closing.clone();
        let now = Instant::now();
        let mut pings = interval_at(now + PING_INTERVAL, PING_INTERVAL);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            state,
            caller,
            watch: Watch {
                interruptions: Interruptions {
                    credential_check,
                    close: slot.as_ref().map(SlotRef::close_token).unwrap_or_default(),
                    stopping,
                },
                pings,
                began: now,
            },
            slot,
            inbox: Inbox {
                queue: VecDeque::new(),
                meter,
                last_heard: now,
            },
            earlier: None,
        }
    }

    /// Serves the connection until it ends.
    pub(super) async fn serve(mut self, mut socket: Socket) {
        let end = loop {
            if let Some(end) = self.end_between_responses() {
                break end;
            }
            let served = match self.inbox.queue.pop_front() {
                Some(frame) => Box::pin(self.serve_frame(&mut socket, frame)).await,
                None => self.wait_for_frame(&mut socket).await,
            };
            if let Err(end) = served {
                break end;
            }
        };
        // If the client does not answer in time, the connection is dropped.
        let _ = timeout(CLOSE_TIMEOUT, close(socket, end)).await;
    }

    /// Whether the connection ends now that no response is under way.
    fn end_between_responses(&self) -> Option<End> {
        if self.state.closing.is_cancelled() {
            return Some(End::Stopping);
        }
        (self.watch.began.elapsed() >= MAX_AGE).then_some(End::TooOld)
    }

    /// Waits for the next frame while no response is under way.
    async fn wait_for_frame(&mut self, socket: &mut Socket) -> Result<(), End> {
        let Self {
            state,
            inbox,
            watch,
            ..
        } = self;
        let oldest = watch.began + MAX_AGE;
        tokio::select! {
            biased;
            end = watch.interruptions.next() => Err(end),
            () = state.closing.cancelled() => Err(End::Stopping),
            () = sleep_until(oldest) => Err(End::TooOld),
            received = inbox.receive(socket) => received,
            _ = watch.pings.tick() => inbox.ping(socket, &mut watch.interruptions).await,
        }
    }

    /// Runs the response that a frame asks for.
    async fn serve_frame(&mut self, socket: &mut Socket, frame: Frame) -> Result<(), End> {
        let _in_flight = self.slot.as_ref().map(SlotRef::begin_call);
        let body = match self.read(frame.text, frame.memory.clone()).await {
            Ok(body) => body,
            Err(error) => return self.send(socket, &frame::error(&error)).await,
        };
        let earlier_id = self
            .earlier
            .as_ref()
            .map(|(earlier, _)| &*earlier.response_id);
        let continues = earlier_id.is_some() && earlier_id == frame::continued_response(&body);
        let begun = self.begin(body, frame.memory).await?;
        let has_completed = match begun {
            Err(error) => {
                self.send(socket, &frame::error(&error)).await?;
                false
            }
            Ok(mut running) => {
                let has_completed = self.send_events(socket, &mut running).await?;
                if has_completed {
                    self.earlier = self.remember(&running);
                }
                has_completed
            }
        };
        if continues && !has_completed {
            self.earlier = None;
        }
        Ok(())
    }

    /// Reads the body of a frame.
    async fn read(
        &self,
        text: Option<Utf8Bytes>,
        memory: RequestMemory,
    ) -> Result<Map<String, Value>, ApiError> {
        let tenant = self.caller.caller.tenant();
        self.inbox.meter.admit_call(tenant)?;
        let text = text.ok_or_else(|| {
            let message = "A frame must be text.";
            ApiError::invalid("body", Some("invalid_type"), message)
        })?;
        let is_long = cpu_pool::is_long(text.len(), 0);
        let cpu = &self.state.services.state.cpu;
        let parse = move || {
            body_values::reserve(text.as_bytes(), Some(&memory))?;
            frame::parse(&text)
        };
        cpu.run_if(is_long, tenant, parse).await?
    }

    /// Begins a response.
    async fn begin(
        &mut self,
        body: Map<String, Value>,
        memory: RequestMemory,
    ) -> Result<Result<RunningResponse, ApiError>, End> {
        let caller = self.caller.with_memory(memory);
        let medium = Medium::Socket {
            earlier: self.earlier.as_ref().map(|(earlier, _)| earlier),
        };
        tokio::select! {
            biased;
            end = self.watch.interruptions.next() => Err(end),
            begun = begin(&self.state, &caller, Value::Object(body), medium) => Ok(begun),
        }
    }

    /// Sends the events of a response. Returns whether it has completed.
    async fn send_events(
        &mut self,
        socket: &mut Socket,
        running: &mut RunningResponse,
    ) -> Result<bool, End> {
        loop {
            let Some(event) = self.next_event(socket, running).await? else {
                // The last event ends the loop, so there was none.
                let error = ApiError::from(Failure::Panicked);
                self.send(socket, &frame::error(&error)).await?;
                return Ok(false);
            };
            self.send(socket, &event).await?;
            if frame::is_last(&event) {
                let kind = event["type"].as_str().unwrap_or_default();
                let has_completed = matches!(kind, "response.completed" | "response.incomplete");
                return Ok(has_completed);
            }
        }
    }

    async fn send(&mut self, socket: &mut Socket, frame: &Value) -> Result<(), End> {
        let message = Message::text(frame.to_string());
        self.watch.interruptions.send(socket, message).await
    }

    /// The next event. Frames that arrive meanwhile are queued.
    async fn next_event(
        &mut self,
        socket: &mut Socket,
        running: &mut RunningResponse,
    ) -> Result<Option<Value>, End> {
        let Self { inbox, watch, .. } = self;
        // Dropping this future could lose an event, so it lives until it is ready.
        let mut next = pin!(running.next());
        loop {
            let has_room = inbox.queue.len() < QUEUED_FRAMES;
            tokio::select! {
                biased;
                end = watch.interruptions.next() => return Err(end),
                event = &mut next => return Ok(event),
                received = inbox.receive(socket), if has_room => received?,
                _ = watch.pings.tick() => inbox.ping(socket, &mut watch.interruptions).await?,
            }
        }
    }

    /// What the next response may continue. None: the response is stored, or takes more memory than
    /// is free.
    fn remember(&self, running: &RunningResponse) -> Option<(UnstoredHistory, RequestMemory)> {
        let history = running.history()?;
        let bytes = history.messages.iter().map(prost::Message::encoded_len);
        let bytes = bytes.sum();
        if bytes > HISTORY_BYTES {
            return None;
        }
        let memory = self.inbox.meter.reserve(bytes).ok()?;
        Some((history, memory))
    }
}

impl Inbox {
    /// Receives one message. Queues it if it is a frame.
    async fn receive(&mut self, socket: &mut Socket) -> Result<(), End> {
        let received = socket.next().await;
        self.last_heard = Instant::now();
        let memory = self.meter.take_memory();
        let text = match received {
            Some(Ok(Message::Text(text))) => Some(text),
            Some(Ok(Message::Binary(_))) => None,
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => return Ok(()),
            Some(Err(tungstenite::Error::Capacity(_))) => return Err(End::TooLarge),
            Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(End::Gone),
        };
        self.queue.push_back(Frame { text, memory });
        Ok(())
    }

    /// Sends a ping, unless the client has answered none for long. While the queue is full its
    /// answers are not read.
    async fn ping(
        &mut self,
        socket: &mut Socket,
        interruptions: &mut Interruptions,
    ) -> Result<(), End> {
        let is_read = self.queue.len() < QUEUED_FRAMES;
        if is_read && self.last_heard.elapsed() > MAX_SILENCE {
            return Err(End::Gone);
        }
        let ping = Message::Ping(Vec::new().into());
        interruptions.send(socket, ping).await
    }
}

impl Interruptions {
    /// Waits for the next one, which is also the last.
    async fn next(&mut self) -> End {
        let credential_ends = async {
            match &mut self.credential_check {
                Some(check) => check.await.unwrap_or(Failure::Panicked),
                None => pending().await,
            }
        };
        tokio::select! {
            failure = credential_ends => End::Refused(failure.into()),
            () = self.close.cancelled() => End::Evicted,
        }
    }

    /// Sends a message. A client that does not read it does not keep the connection from ending.
    async fn send(&mut self, socket: &mut Socket, message: Message) -> Result<(), End> {
        let stopping = self.stopping.clone();
        let stops = async move {
            stopping.cancelled().await;
            sleep(SEND_TIMEOUT_AT_STOP).await;
        };
        tokio::select! {
            biased;
            end = self.next() => Err(end),
            sent = socket.send(message) => sent.map_err(|_| End::Gone),
            () = stops => Err(End::Stopping),
        }
    }
}

/// Says why the connection ends, and waits until the client has closed it, too.
async fn close(mut socket: Socket, end: End) {
    if let Some(frame) = end.frame() {
        let _ = socket.send(Message::text(frame.to_string())).await;
    }
    let Some(code) = end.close_code() else {
        return;
    };
    let frame = CloseFrame {
        code,
        reason: Utf8Bytes::from_static(""),
    };
    let _ = socket.close(Some(frame)).await;
    while let Some(Ok(_)) = socket.next().await {}
}

impl End {
    /// The last frame before the connection is closed.
    fn frame(&self) -> Option<Value> {
        match self {
            Self::Gone | Self::Evicted => None,
            Self::TooOld => Some(json!({
                "type": "error",
                "status": 400,
                "error": {
                    "type": "invalid_request_error",
                    "code": "websocket_connection_limit_reached",
                    "message": "A connection lasts 60 minutes. Open another one to go on.",
                    "param": null,
                },
            })),
            Self::Stopping => Some(frame::error(&Failure::ServerStopping.into())),
            Self::Refused(error) => Some(frame::error(error)),
            Self::TooLarge => Some(frame::error(&Problem::too_large(REQUEST_BYTES).into())),
        }
    }

    /// None: the connection is closed at once.
    const fn close_code(&self) -> Option<CloseCode> {
        match self {
            Self::Evicted => None,
            Self::Gone | Self::TooOld => Some(CloseCode::Normal),
            Self::Stopping => Some(CloseCode::Away),
            Self::Refused(_) => Some(CloseCode::Policy),
            Self::TooLarge => Some(CloseCode::Size),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::AuthError;

    #[test]
    fn a_connection_says_why_it_ends() {
        let told = |end: &End| {
            let frame = end.frame();
            let code = frame.map(|frame| frame["error"]["code"].clone());
            (code, end.close_code())
        };
        assert_eq!(
            told(&End::TooOld),
            (
                Some(json!("websocket_connection_limit_reached")),
                Some(CloseCode::Normal)
            )
        );
        let refused = End::Refused(Failure::from(AuthError::Unknown).into());
        assert_eq!(
            told(&refused),
            (Some(json!("invalid_api_key")), Some(CloseCode::Policy))
        );
        assert_eq!(told(&End::Stopping).1, Some(CloseCode::Away));
        assert_eq!(told(&End::TooLarge).1, Some(CloseCode::Size));
        let too_large = End::TooLarge.frame().expect("is told");
        assert_eq!(too_large["status"], 413);
        assert_eq!(told(&End::Evicted), (None, None));
    }
}
