//! OpenAI's client and Agents SDK for Python, which know nothing of the server but its address and
//! a key. The programs in `sdk/` check what they get; the examples print it.

use std::path::{Path, PathBuf};

use anneal_core::caller::Verb;
use anneal_llm::provider::Api;
use anneal_testkit::{Gate, MODEL, Say, Script, ScriptedModel, Sdk, TestApp};
use tokio::process::Command;

use crate::sdks::start_model;

/// The folder of these programs.
pub(super) fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/api/openai/sdk")
}

/// The folder of the examples.
pub(super) fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/openai")
}

/// Runs a program against a server of its own with the API key of a tenant. An answer to "Count
/// slowly" stops after its first word, until the program has left. Returns its output.
pub(super) async fn run(sdk: &Sdk, program: &Path) -> String {
    let slow = Gate::default();
    slow.open(2);
    let model = start_model(&slow).await;
    let app = TestApp::with_models_and_keys(model.settings(&[MODEL]), MODEL).await;
    Sdk::run(command(sdk, program, &app).await, async || {
        slow.open_for_ever();
    })
    .await
}

/// Runs an example, likewise, with a model that never stops.
pub(super) async fn run_example(sdk: &Sdk, name: &str) -> String {
    let slow = Gate::default();
    slow.open_for_ever();
    let model = start_model(&slow).await;
    let app = TestApp::with_models_and_keys(model.settings(&[MODEL]), MODEL).await;
    Sdk::run(
        command(sdk, &examples().join(name), &app).await,
        async || (),
    )
    .await
}

/// Runs a program, likewise, with a model that gives signed reasoning.
pub(super) async fn run_with_reasoning(sdk: &Sdk, name: &str) -> String {
    let model = ScriptedModel::start(|request| {
        let asks = |words: &str| request.raw.contains(words);
        if asks("Fail.") {
            return Script::status(400, &[], r#"{"error": {"message": "no"}}"#);
        }
        let mut says = vec![Say::thought("Let me see."), Say::Signature("s".to_owned())];
        says.extend(Say::texts(&["Here ", "it is."]));
        if asks("Stop early.") {
            says.push(Say::OutputLimit);
        }
        Script::says(request, says)
    })
    .await;
    let settings = model.settings_of(Api::Anthropic, &[MODEL]);
    let app = TestApp::with_models_and_keys(settings, MODEL).await;
    Sdk::run(
        command(sdk, &programs().join(name), &app).await,
        async || (),
    )
    .await
}

/// A command that runs this program. The environment has the server's address and a key.
async fn command(sdk: &Sdk, program: &Path, app: &TestApp) -> Command {
    let key = app
        .key("anna", &[Verb::Read, Verb::Append, Verb::Admin])
        .await;
    let mut command = sdk.command(program);
    command
        .env(
            "OPENAI_BASE_URL",
            format!("http://{}/v1", app.addresses.http),
        )
        .env("OPENAI_API_KEY", &key.text);
    command
}

async fn assert_program_succeeds(name: &str) {
    let Some(sdk) = Sdk::python() else { return };
    let output = run(&sdk, &programs().join(name)).await;
    assert!(output.ends_with("done\n"), "{output}");
}

#[tokio::test]
async fn the_client_creates_streams_parses_and_chains_responses() {
    assert_program_succeeds("responses.py").await;
}

#[tokio::test]
async fn the_asynchronous_client_runs_calls_side_by_side() {
    assert_program_succeeds("asynchronous.py").await;
}

#[tokio::test]
async fn the_client_pages_through_the_items_of_a_conversation() {
    assert_program_succeeds("conversations.py").await;
}

#[tokio::test]
async fn the_client_polls_cancels_and_resumes_responses_in_the_background() {
    assert_program_succeeds("background.py").await;
}

#[tokio::test]
async fn the_client_gets_chat_completions() {
    assert_program_succeeds("chat_completions.py").await;
}

#[tokio::test]
async fn the_agents_sdk_runs_tools_and_keeps_its_session_in_a_conversation() {
    assert_program_succeeds("agents_sdk.py").await;
}

#[tokio::test]
async fn the_client_reads_reasoning_and_sends_it_back() {
    let Some(sdk) = Sdk::python() else { return };
    assert_eq!(run_with_reasoning(&sdk, "reasoning.py").await, "done\n");
}

#[tokio::test]
async fn the_examples_print_the_expected_output() {
    let Some(sdk) = Sdk::python() else { return };
    let expected = [
        (
            "responses.py",
            "first: Hello there, friend!\nsecond: Your name is Alice.\n\
             stream: Hello there, friend!\nresumed: one two three\n",
        ),
        (
            "conversations.py",
            "answer: Your name is Alice.\ncompletion: Hello there, friend!\n\
             user: My name is Alice.\nuser: What is my name?\nassistant: Your name is Alice.\n\
             user: Say hello.\nassistant: Hello there, friend!\n",
        ),
        (
            "agent.py",
            "What is the weather in Paris? The tool returned: Sunny.\n\
             Say hello. Hello there, friend!\n\
             user\nfunction_call\nfunction_call_output\nassistant\nuser\nassistant\n",
        ),
    ];
    for (example, text) in expected {
        assert_eq!(run_example(&sdk, example).await, text, "{example}");
    }
}
