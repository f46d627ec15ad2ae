//! Streams that break, and servers that are killed: responses are read on at another server.
//!
//! - `cut_streams`: a stream is cut after each of its events
//! - `killed_servers`: the server is killed before the end of the answer is stored

mod cut_streams;
mod killed_servers;

use anneal_llm::provider::Api;
use anneal_testkit::{
    AnnealBinary, Folder, Gate, HttpClient, MODEL, ModelRequest, Process, Say, Script,
    ScriptedModel, SeededRandom, TestApp, eventually,
};
use reqwest::Response;
use serde_json::{Value, json};

use super::{RESPONSES, number, read_events, tool};

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

/// The types of the events before the answer.
const STATES: [&str; 3] = [
    "response.created",
    "response.queued",
    "response.in_progress",
];

/// An answer of the model, over Gemini's protocol: each part of it is one piece.
#[derive(Debug, Clone)]
struct Answer {
    says: Vec<Say>,
    /// Whether the connection breaks after the last part.
    is_cut: bool,
    /// The type of the last event.
    end: &'static str,
}

impl Answer {
    fn new(says: Vec<Say>) -> Self {
        Self {
            says,
            is_cut: false,
            end: "response.completed",
        }
    }

    /// The number of pieces, without the one that ends the answer.
    fn pieces(&self) -> usize {
        let parts = self.says.iter();
        parts.filter(|say| **say != Say::OutputLimit).count()
    }

    fn script(&self, request: &ModelRequest) -> Script {
        let script = Script::says(request, self.says.clone());
        if self.is_cut {
            script.cut_after(self.pieces())
        } else {
            script
        }
    }
}

/// Answers of each shape, and random ones.
fn answers(random_ones: usize) -> Vec<Answer> {
    let words: Vec<String> = (0..12).map(|n| format!("wörd{n} ")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let signed = |thought: &str| [Say::thought(thought), Say::Signature("signed".into())];
    let mut reasoned = signed("Let me see.").to_vec();
    reasoned.extend(Say::texts(&["Here ", "it is."]));
    let calls = vec![
        Say::text("I look."),
        Say::tool("call_1", "look", r#"{"ä":1}"#),
        Say::tool("call_2", "look", "{}"),
    ];
    let mut random = SeededRandom(24);
    let mut answers = vec![
        Answer::new(Say::texts(&["Größe ", "zählt, ", "世界."])),
        Answer::new(reasoned),
        Answer::new(calls),
        Answer::new(Say::texts(&words)),
        Answer {
            end: "response.incomplete",
            ..Answer::new(vec![Say::text("Once upon"), Say::OutputLimit])
        },
        Answer {
            is_cut: true,
            end: "response.failed",
            ..Answer::new(Say::texts(&["Once ", "upon "]))
        },
    ];
    answers.extend((0..random_ones).map(|_| Answer::new(random_says(&mut random))));
    answers
}

/// Texts, signed reasoning and calls in any order, and a text at the end.
fn random_says(random: &mut SeededRandom) -> Vec<Say> {
    let mut says = Vec::new();
    for place in 0..2 + random.below(4) {
        match random.below(3) {
            0 => says.extend(
                (0..=random.below(3)).map(|nth| Say::text(&format!("text {place}.{nth}\n"))),
            ),
            1 => says.extend([
                Say::thought("so"),
                Say::Signature(format!("signed {place}")),
            ]),
            _ => says.push(Say::tool(
                &format!("call_{place}"),
                "look",
                &format!("{{\"place\":{place}}}"),
            )),
        }
    }
    says.push(Say::text("end"));
    says
}

/// The number that follows these words in the question of a request.
fn number_after(request: &ModelRequest, words: &str) -> Option<usize> {
    let texts = request.texts();
    let (_, rest) = texts.last()?.split_once(words)?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Two servers on one database: a process that a test kills, and one in the process of the test.
struct Servers {
    first: Process,
    first_web: HttpClient,
    second: TestApp,
    _folder: Folder,
}

impl Servers {
    async fn start(model: &ScriptedModel) -> Self {
        let settings = model.settings_of(Api::Gemini, &[MODEL]);
        let second = TestApp::with_models(settings, MODEL).await;
        let folder = Folder::new();
        let settings = model.server_settings_without_timeouts(Api::Gemini);
        folder.file("anneal.toml", &settings);
        let (first, _) = AnnealBinary::new(BINARY, &folder, &second.url)
            .server()
            .await;
        Self {
            first_web: first.http_client().await,
            first,
            second,
            _folder: folder,
        }
    }

    /// Waits until it is recorded of each response which messages it answers.
    async fn wait_for_notes(&self) {
        let missing = "select count(*) from ai_response where question_last_id is null";
        let mut db = self.second.db().await;
        eventually("the questions of all responses are recorded", async || {
            let missing = sqlx::query_scalar::<_, i64>(missing).fetch_one(&mut db);
            missing.await.expect("is answered") == 0
        })
        .await;
    }

    /// Kills the first server. Returns the second one.
    async fn kill_first(self) -> TestApp {
        self.first.kill().await;
        self.second
    }
}

/// Ends the leases of a server that was killed, as time does after 15 seconds.
async fn end_leases(app: &TestApp) {
    let mut db = app.db().await;
    let deleted = sqlx::query("delete from ai_model_lease").execute(&mut db);
    deleted.await.expect("deletes");
}

/// A create in the background with this input, whose answer may call the tool `look`.
fn body(input: &str) -> Value {
    json!({"input": input, "background": true, "stream": true, "tools": [tool("look")]})
}

/// The path of the events after this one. None: of all.
fn events_path(id: &str, after: Option<&Value>) -> String {
    let path = format!("{RESPONSES}/{id}?stream=true");
    after.map_or(path.clone(), |event| {
        format!("{path}&starting_after={}", number(event))
    })
}

/// The events at this path, to the end of the response.
async fn read_path(web: &HttpClient, path: &str) -> Vec<Value> {
    let answer = web.get(path).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    read_events(&answer)
}

/// The events after this one, to the end of the response. None: all.
async fn read_after(web: &HttpClient, id: &str, after: Option<&Value>) -> Vec<Value> {
    read_path(web, &events_path(id, after)).await
}

/// The events of a response as they come.
struct EventStream {
    response: Response,
    pending: Vec<u8>,
    /// The events that were read.
    read: Vec<Value>,
}

impl EventStream {
    /// Creates a response, and reads the events before its answer.
    async fn create(web: &HttpClient, body: &Value) -> Self {
        let request = web.json("POST", RESPONSES, body);
        let response = request.send().await.expect("the server answers");
        assert_eq!(response.status(), 200);
        let mut stream = Self {
            response,
            pending: Vec::new(),
            read: Vec::new(),
        };
        for state in STATES {
            assert_eq!(stream.next().await.expect("begins")["type"], state);
        }
        stream
    }

    /// The id of the response.
    fn id(&self) -> String {
        super::id_of(&self.read[0]["response"])
    }

    /// The next event. None: the last one was read.
    async fn next(&mut self) -> Option<&Value> {
        let end = loop {
            if let Some(end) = self.pending.windows(2).position(|two| two == b"\n\n") {
                if !self.pending.starts_with(b":") {
                    break end;
                }
                self.pending.drain(..end + 2);
                continue;
            }
            let bytes = self.response.chunk().await.expect("the stream goes on");
            self.pending
                .extend_from_slice(&bytes.expect("the last frame is `[DONE]`"));
        };
        let frame: Vec<u8> = self.pending.drain(..end + 2).collect();
        let frame = String::from_utf8(frame).expect("is UTF-8");
        let (_, data) = frame.split_once("data: ").expect("has data");
        if data.trim_end() == "[DONE]" {
            return None;
        }
        self.read.push(serde_json::from_str(data).expect("is JSON"));
        self.read.last()
    }

    /// Reads until so much of the answer has come: bytes of text, and complete calls.
    async fn read_until(&mut self, text_bytes: usize, calls: usize) {
        while super::streamed_text(&self.read).len() < text_bytes || self.calls() < calls {
            self.next().await.expect("the answer goes on");
        }
    }

    /// The number of complete calls that have come.
    fn calls(&self) -> usize {
        let done = self.read.iter().filter(|event| {
            event["type"] == "response.output_item.done" && event["item"]["type"] == "function_call"
        });
        done.count()
    }
}

/// How much these parts of an answer show: bytes of text, and calls.
fn shown(says: &[Say]) -> (usize, usize) {
    let texts = says.iter().filter_map(|say| match say {
        Say::Text(text) => Some(text.len()),
        _ => None,
    });
    let calls = says.iter().filter(|say| matches!(say, Say::ToolUse { .. }));
    (texts.sum(), calls.count())
}

/// Asserts that the events are numbered from 0 without a gap: each takes one number, and a delta
/// as many as its text has bytes.
#[track_caller]
fn assert_without_gap(events: &[Value]) {
    let mut next = 0;
    for event in events {
        next += event["delta"].as_str().map_or(1, str::len) as u64;
        assert_eq!(number(event) + 1, next, "{event} in {events:#?}");
    }
}

/// The events with neighbouring deltas of one item merged. How a text is cut into deltas may differ
/// between streams.
fn merge_deltas(events: &[Value]) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for event in events {
        let same = |last: &&mut Value| {
            event["delta"].is_string()
                && (&last["type"], &last["item_id"]) == (&event["type"], &event["item_id"])
        };
        match merged.last_mut().filter(same) {
            Some(last) => {
                let text = [&last["delta"], &event["delta"]].map(|text| text.as_str());
                last["delta"] = json!(text.map(Option::unwrap_or_default).concat());
                last["sequence_number"] = event["sequence_number"].clone();
            }
            None => merged.push(event.clone()),
        }
    }
    merged
}

/// Asserts what holds of every response that keeps its output: what a reader had and what it got
/// after are the events of `expected`, each once.
#[track_caller]
fn assert_whole(had: &[Value], rest: &[Value], expected: &[Value]) {
    let whole = [had, rest].concat();
    assert_without_gap(&whole);
    assert_eq!(merge_deltas(&whole), merge_deltas(expected));
}

/// Asserts what holds of every failed response: a reader gets the states that it did not have, and
/// then the end, under numbers that rise. Returns the response object at the end.
#[track_caller]
fn assert_failed(had: &[Value], rest: &[Value]) -> Value {
    let (end, before) = rest.split_last().expect("the end comes");
    assert_eq!(end["type"], "response.failed", "{rest:#?}");
    let states = &STATES[had.len().min(STATES.len())..];
    let kinds: Vec<&Value> = before.iter().map(|event| &event["type"]).collect();
    assert_eq!(kinds, states);
    let whole = [had, rest].concat();
    assert!(
        whole.is_sorted_by(|one, next| number(one) < number(next)),
        "{whole:#?}"
    );
    let response = end["response"].clone();
    assert_eq!(
        (&response["status"], &response["output"]),
        (&json!("failed"), &json!([]))
    );
    response
}

/// The gates of this many answers.
fn gates(answers: usize) -> Vec<Gate> {
    std::iter::repeat_with(Gate::default)
        .take(answers)
        .collect()
}
