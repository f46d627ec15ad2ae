//! The programs of the tutorials run against a server: they give the whole answer once, although
//! connections are lost. The pages `docs/tutorial-*.md` show parts of the programs as they are.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
};

use anneal_testkit::{
    HttpClient, HttpResponse, TcpProxy, TestApp, skip_outside_gate, typescript_programs,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines},
    process::{ChildStdout, Command},
};

use super::{resume::start_model_with_gated_words, session_of};

/// The message of every turn.
const MESSAGE: &str = "Tell me.";
/// Most words of a tutorial, the code included: about two pages.
const MAX_WORDS: usize = 1_200;

/// Reads a turn with the browser's module. Its arguments: the module's path and the address of the
/// back end. Prints each event as a line of JSON.
const BROWSER: &str = r#"
const [module, backend] = process.argv.slice(-2);
const { turnEvents } = await import(module);
let sessionId;
const send = (lastEventId) =>
  fetch(`${backend}/chat`, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...(lastEventId && { "Last-Event-ID": lastEventId }) },
    body: JSON.stringify({ message: "Tell me.", requestId: "r1", sessionId }),
  });
for await (const event of turnEvents(send)) {
  sessionId ??= event.sessionId;
  console.log(JSON.stringify(event));
}
"#;

/// The programs of one tutorial.
struct Programs {
    /// The command that runs them.
    runtime: &'static str,
    folder: PathBuf,
    extension: &'static str,
}

impl Programs {
    /// Those in Python. None, and a line that says so, if Python is not installed.
    async fn in_python() -> Option<Self> {
        can_run("python3").await.then(|| Self {
            runtime: "python3",
            folder: tutorial_folder().join("python"),
            extension: "py",
        })
    }

    /// Those in TypeScript. None, and a line that says so, if Node is not installed or the programs
    /// are not compiled.
    async fn in_typescript() -> Option<Self> {
        if !can_run("node").await {
            return None;
        }
        typescript_programs().map(|folder| Self {
            runtime: "node",
            folder,
            extension: "js",
        })
    }

    /// A command that runs a program. It calls anneal at this port.
    fn command(&self, program: &str, anneal_port: u16) -> Command {
        let mut command = Command::new(self.runtime);
        command
            .arg(self.folder.join(program).with_extension(self.extension))
            .env("ANNEAL_HTTP", format!("http://127.0.0.1:{anneal_port}"))
            .env("PORT", "0")
            .env("NO_PROXY", "*")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        command
    }
}

/// The folder with the programs of the tutorials.
fn tutorial_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tutorial")
}

/// Whether this program can be run. If it is not installed, prints that the test is skipped, or
/// panics in the gate.
async fn can_run(program: &str) -> bool {
    let is_installed = Command::new(program)
        .arg("--version")
        .output()
        .await
        .is_ok();
    if !is_installed {
        skip_outside_gate(&format!("{program} is not installed"));
    }
    is_installed
}

/// `chat` loses its connection after the first word. It prints the whole answer, then the session,
/// whose history it prints in a second run.
async fn assert_chat_prints_the_whole_answer(programs: &Programs) {
    let (gate, model) = start_model_with_gated_words().await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let proxy = TcpProxy::to_port(app.addresses.http.port()).await;
    let mut chat = programs
        .command("chat", proxy.port())
        .arg(MESSAGE)
        .spawn()
        .expect("the program starts");
    let mut output = chat.stdout.take().expect("is piped");
    gate.open(2);
    let mut first_word = [0; 4];
    output
        .read_exact(&mut first_word)
        .await
        .expect("the program goes on");
    assert_eq!(&first_word, b"one ");
    proxy.close_connections();
    gate.open_for_ever();
    let mut rest = String::new();
    output.read_to_string(&mut rest).await.expect("is text");
    assert!(chat.wait().await.expect("the program ends").success());
    let session = rest
        .strip_prefix("two three\nsession ")
        .unwrap_or_else(|| panic!("after the first word came {rest:?}"))
        .trim_end();
    assert_eq!(model.requests().len(), 1, "the model was called once");

    let history = programs
        .command("chat", proxy.port())
        .args(["--history", session])
        .output()
        .await
        .expect("the program runs");
    assert_eq!(
        String::from_utf8_lossy(&history.stdout),
        format!("user: {MESSAGE}\nassistant: one two three\n")
    );
}

/// Reads events until their texts together are `text`.
async fn read_until(
    lines: &mut Lines<BufReader<ChildStdout>>,
    events: &mut Vec<Value>,
    text: &str,
) {
    while text_of(events) != text {
        let line = lines.next_line().await.expect("is text");
        let line = line.unwrap_or_else(|| panic!("the events end: {events:?}"));
        events.push(serde_json::from_str(&line).expect("JSON"));
    }
}

fn text_of(events: &[Value]) -> String {
    let texts = events.iter().filter(|event| event["type"] == "text");
    texts.filter_map(|event| event["text"].as_str()).collect()
}

/// Number of events of this type.
fn count_of(events: &[Value], kind: &str) -> usize {
    events.iter().filter(|event| event["type"] == kind).count()
}

/// A browser reads a turn from `backend`. First the back end loses its connection to anneal, then
/// the browser loses its connection to the back end. The browser gets every event once. It gets no
/// session of another user.
async fn assert_backend_relays_the_whole_answer(programs: &Programs) {
    if !can_run("node").await {
        return;
    }
    let (gate, model) = start_model_with_gated_words().await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    let to_anneal = TcpProxy::to_port(app.addresses.http.port()).await;
    let mut backend = programs
        .command("backend", to_anneal.port())
        .spawn()
        .expect("the program starts");
    let mut printed = BufReader::new(backend.stdout.take().expect("is piped")).lines();
    let url = printed.next_line().await.expect("is text");
    let address: SocketAddr = url
        .as_deref()
        .and_then(|url| url.strip_prefix("http://"))
        .and_then(|address| address.parse().ok())
        .unwrap_or_else(|| panic!("the back end prints its address, not {url:?}"));
    let to_backend = TcpProxy::to_port(address.port()).await;

    let mut browser = Command::new("node")
        .args(["--input-type=module", "--eval", BROWSER])
        .arg(tutorial_folder().join("browser/turn-events.mjs"))
        .arg(format!("http://127.0.0.1:{}", to_backend.port()))
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("node runs");
    let mut lines = BufReader::new(browser.stdout.take().expect("is piped")).lines();
    let mut events = Vec::new();
    gate.open(2);
    read_until(&mut lines, &mut events, "one ").await;
    to_anneal.close_connections();
    gate.open(1);
    read_until(&mut lines, &mut events, "one two ").await;
    to_backend.close_connections();
    gate.open_for_ever();
    while let Some(line) = lines.next_line().await.expect("is text") {
        events.push(serde_json::from_str(&line).expect("JSON"));
    }
    assert_eq!(text_of(&events), "one two three", "{events:?}");
    for kind in ["started", "done"] {
        assert_eq!(count_of(&events, kind), 1, "{kind}: {events:?}");
    }
    assert_eq!(model.requests().len(), 1, "the model was called once");
    let session = events[0]["sessionId"]
        .as_str()
        .expect("`started` comes first");
    assert_backend_serves_only_its_user(&app, &HttpClient::at(address), session).await;
}

/// The back end serves the page and this session. To sessions of another user it answers 404.
async fn assert_backend_serves_only_its_user(app: &TestApp, web: &HttpClient, session: &str) {
    assert!(web.get("/").await.text.contains("/turn-events.mjs"));
    assert_eq!(web.get("/turn-events.mjs").await.status, 200);
    let history = web.get(&format!("/sessions/{session}")).await.json();
    assert_eq!(history["messages"].as_array().map(Vec::len), Some(2));

    let question = json!({"message": MESSAGE, "userId": "another"});
    let events = app.http_client().chat("tutorial", &question).await;
    let foreign = session_of(&events);
    let sessions = web.get("/sessions").await.json();
    assert_eq!(sessions["sessions"].as_array().map(Vec::len), Some(1));
    assert_eq!(web.get(&format!("/sessions/{foreign}")).await.status, 404);
    let question = json!({"message": MESSAGE, "requestId": "r2", "sessionId": foreign});
    let turn = HttpResponse::send(web.json("POST", "/chat", &question)).await;
    assert_eq!(turn.status, 404, "{turn:?}");
    // Without a session the back end cannot know whose turn it is.
    let question = json!({"message": MESSAGE, "requestId": "r1"});
    let resumed = web
        .json("POST", "/chat", &question)
        .header("last-event-id", &events[0].id);
    assert_eq!(HttpResponse::send(resumed).await.status, 400);
}

#[tokio::test]
async fn the_python_chat_prints_the_whole_answer_although_its_connection_is_lost() {
    if let Some(programs) = Programs::in_python().await {
        assert_chat_prints_the_whole_answer(&programs).await;
    }
}

#[tokio::test]
async fn the_typescript_chat_prints_the_whole_answer_although_its_connection_is_lost() {
    if let Some(programs) = Programs::in_typescript().await {
        assert_chat_prints_the_whole_answer(&programs).await;
    }
}

#[tokio::test]
async fn the_python_back_end_gives_a_browser_the_whole_answer_although_connections_are_lost() {
    if let Some(programs) = Programs::in_python().await {
        assert_backend_relays_the_whole_answer(&programs).await;
    }
}

#[tokio::test]
async fn the_typescript_back_end_gives_a_browser_the_whole_answer_although_connections_are_lost() {
    if let Some(programs) = Programs::in_typescript().await {
        assert_backend_relays_the_whole_answer(&programs).await;
    }
}

/// The parts of programs that a page shows: for each block of code, the path of the program below
/// `examples/tutorial/`, and the code. The last link before the block names the program.
fn shown_parts(page: &str) -> Vec<(&str, &str)> {
    let mut parts = Vec::new();
    let mut linked = None;
    let mut pieces = page.split("```");
    while let (Some(text), Some(block)) = (pieces.next(), pieces.next()) {
        if let Some((_, link)) = text.rsplit_once("](../examples/tutorial/") {
            linked = link.split(')').next();
        }
        let (language, code) = block.split_once('\n').expect("a block has lines");
        if !matches!(language, "console" | "toml") {
            let program = linked.take();
            parts.push((program.expect("a link before the block"), code));
        }
    }
    parts
}

#[test]
fn the_tutorials_link_their_programs_and_show_parts_of_them_as_they_are() {
    for name in ["python", "typescript"] {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/tutorial-{name}.md"));
        let page = fs::read_to_string(path).expect("the page exists");
        let words = page.split_whitespace().count();
        assert!(
            words <= MAX_WORDS,
            "docs/tutorial-{name}.md has {words} words"
        );
        let parts = shown_parts(&page);
        assert!(!parts.is_empty(), "docs/tutorial-{name}.md shows no code");
        for (program, part) in parts {
            let code = fs::read_to_string(tutorial_folder().join(program)).expect("is text");
            assert!(
                format!("\n{code}").contains(&format!("\n{part}")),
                "docs/tutorial-{name}.md shows another text than {program}:\n{part}"
            );
        }
        let mut programs = 0;
        for folder in [name, "browser"] {
            for file in fs::read_dir(tutorial_folder().join(folder)).expect("the folder exists") {
                let file = file.expect("can be listed").file_name();
                let file = file.to_str().expect("is text");
                let extension = Path::new(file).extension().and_then(|name| name.to_str());
                if matches!(extension, Some("py" | "ts" | "mjs" | "html")) {
                    let link = format!("](../examples/tutorial/{folder}/{file})");
                    assert!(page.contains(&link), "docs/tutorial-{name}.md: {link}");
                    programs += 1;
                }
            }
        }
        assert_eq!(programs, 5, "docs/tutorial-{name}.md");
    }
}
