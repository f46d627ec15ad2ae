//! The steps of the scripted provider's answer to one request.

use std::sync::Arc;

use anneal_llm::provider::Api;
use tokio::sync::Semaphore;

use super::{
    ModelRequest,
    dialect::{self, ReportedUsage, Say},
};

/// A gate at which answers wait until the test opens it. All clones are one gate.
#[derive(Clone)]
pub struct Gate(Arc<Semaphore>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }
}

impl Gate {
    /// Lets this many pieces pass, whether they wait already or arrive later.
    pub fn open(&self, pieces: usize) {
        self.0.add_permits(pieces);
    }

    /// Lets all pieces pass from now on.
    pub fn open_for_ever(&self) {
        self.0.close();
    }

    /// Waits until the gate lets one piece pass.
    pub(super) async fn pass(&self) {
        // A closed semaphore means that the gate is open for ever.
        if let Ok(permit) = self.0.acquire().await {
            permit.forget();
        }
    }
}

/// A step of an answer.
pub(super) enum Step {
    /// Sends raw bytes.
    Raw(Vec<u8>),
    /// Sends bytes as one chunk of a chunked body.
    Chunk(Vec<u8>),
    /// Sends this many filler bytes.
    Flood(usize),
    /// Waits until the gate lets one piece pass.
    Wait(Gate),
    /// Waits until the client is gone.
    Hang,
    /// Sends this chunk repeatedly until the client is gone.
    Endless(Vec<u8>),
}

/// One answer: its head, the pieces of its body, its end. In a streamed answer each event is a
/// piece.
pub struct Script {
    pub(super) steps: Vec<Step>,
}

/// The end of a chunked body.
const END: &[u8] = b"0\r\n\r\n";

impl Script {
    /// A streamed answer in the protocol of the request. It reports a usage of one token per four
    /// bytes.
    pub fn says(asked: &ModelRequest, says: impl IntoIterator<Item = Say>) -> Self {
        let says: Vec<Say> = says.into_iter().collect();
        let counted = ReportedUsage::of(asked, &says);
        Self::says_counted(asked.api(), &says, counted)
    }

    /// A streamed answer in this protocol that reports this usage.
    pub fn says_counted(api: Api, says: &[Say], counted: ReportedUsage) -> Self {
        Self::events(dialect::events(api, says, counted))
    }

    /// An answer in OpenAI's protocol with this text in pieces.
    pub fn openai(pieces: &[&str], counted: ReportedUsage) -> Self {
        Self::says_counted(Api::OpenAi, &Say::texts(pieces), counted)
    }

    /// An answer in Anthropic's protocol with this text in pieces.
    pub fn anthropic(pieces: &[&str], counted: ReportedUsage) -> Self {
        Self::says_counted(Api::Anthropic, &Say::texts(pieces), counted)
    }

    /// An answer in Gemini's protocol with this text in pieces.
    pub fn gemini(pieces: &[&str], counted: ReportedUsage) -> Self {
        Self::says_counted(Api::Gemini, &Say::texts(pieces), counted)
    }

    /// Server-sent events as given, one chunk each. Each text includes `data:` and its blank line.
    pub fn events(events: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let head = head(
            200,
            &[
                ("content-type", "text/event-stream"),
                ("transfer-encoding", "chunked"),
            ],
        );
        let chunks = events
            .into_iter()
            .map(|event| Step::Chunk(event.into().into_bytes()));
        Self {
            steps: std::iter::once(head)
                .chain(chunks)
                .chain([Step::Raw(END.to_vec())])
                .collect(),
        }
    }

    /// An answer with this status, these headers and this body.
    pub fn status(status: u16, headers: &[(&str, &str)], body: &str) -> Self {
        let length = body.len().to_string();
        let mut all = vec![("content-length", length.as_str())];
        if !headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("content-type"))
        {
            all.push(("content-type", "application/json"));
        }
        all.extend_from_slice(headers);
        Self {
            steps: vec![head(status, &all), Step::Raw(body.as_bytes().to_vec())],
        }
    }

    /// Sends these bytes instead of an HTTP answer and closes the connection.
    pub fn raw(bytes: &[u8]) -> Self {
        Self {
            steps: vec![Step::Raw(bytes.to_vec())],
        }
    }

    /// An answer with a body of this many filler bytes.
    pub fn bytes(status: u16, bytes: usize) -> Self {
        let headers = [
            ("content-length", bytes.to_string()),
            ("content-type", "application/json".to_owned()),
        ];
        let headers: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        Self {
            steps: vec![head(status, &headers), Step::Flood(bytes)],
        }
    }

    /// Sends nothing until the client is gone.
    pub fn hang() -> Self {
        Self {
            steps: vec![Step::Hang],
        }
    }

    /// Sends this event repeatedly until the client is gone.
    pub fn endless(event: &str) -> Self {
        Self::events(Vec::<String>::new()).then_endless(event)
    }

    /// Sends the head of this script, then this chunk repeatedly until the client is gone.
    #[must_use]
    pub fn then_endless(self, chunk: &str) -> Self {
        let mut endless = self.cut_after(0);
        endless.steps.push(Step::Endless(chunk.as_bytes().to_vec()));
        endless
    }

    /// This script, cut off after this many pieces: the connection closes before the body's end.
    #[must_use]
    pub fn cut_after(mut self, pieces: usize) -> Self {
        self.steps.truncate(1 + pieces);
        self
    }

    /// This script, silent after this many pieces until the client is gone.
    #[must_use]
    pub fn hanging_after(self, pieces: usize) -> Self {
        let mut cut = self.cut_after(pieces);
        cut.steps.push(Step::Hang);
        cut
    }

    /// This script, but each piece and the end wait at the gate. The head is sent at once.
    #[must_use]
    pub fn gated(self, gate: &Gate) -> Self {
        let mut steps = Vec::new();
        for (index, step) in self.steps.into_iter().enumerate() {
            if index > 0 {
                steps.push(Step::Wait(gate.clone()));
            }
            steps.push(step);
        }
        Self { steps }
    }

    /// This script, but the whole answer, including its head, waits at the gate once.
    #[must_use]
    pub fn after(mut self, gate: &Gate) -> Self {
        self.steps.insert(0, Step::Wait(gate.clone()));
        self
    }

    /// This script with its body split into chunks of at most `bytes`.
    #[must_use]
    pub fn in_chunks_of(self, bytes: usize) -> Self {
        let resized = |step| match step {
            Step::Chunk(chunk) => chunk
                .chunks(bytes)
                .map(|piece| Step::Chunk(piece.to_vec()))
                .collect(),
            other => vec![other],
        };
        Self {
            steps: self.steps.into_iter().flat_map(resized).collect(),
        }
    }
}

/// The head of an answer: status line and headers.
fn head(status: u16, headers: &[(&str, &str)]) -> Step {
    let mut lines = vec![
        format!("HTTP/1.1 {status} Said"),
        "connection: close".to_owned(),
    ];
    lines.extend(
        headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}")),
    );
    Step::Raw(format!("{}\r\n\r\n", lines.join("\r\n")).into_bytes())
}
