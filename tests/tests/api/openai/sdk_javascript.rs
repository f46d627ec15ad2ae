//! OpenAI's client for JavaScript, which knows nothing of the server but its address and a key.

use anneal_testkit::Sdk;

use super::sdk_python::{programs, run, run_example, run_with_reasoning};

#[tokio::test]
async fn the_client_creates_streams_lists_and_resumes() {
    let Some(sdk) = Sdk::javascript("openai") else {
        return;
    };
    let output = run(&sdk, &programs().join("javascript.mjs")).await;
    assert_eq!(output, "done\n");
}

#[tokio::test]
async fn the_client_reads_reasoning_and_answers_that_do_not_complete() {
    let Some(sdk) = Sdk::javascript("openai") else {
        return;
    };
    assert_eq!(run_with_reasoning(&sdk, "reasoning.mjs").await, "done\n");
}

#[tokio::test]
async fn the_example_prints_the_expected_output() {
    let Some(sdk) = Sdk::javascript("openai") else {
        return;
    };
    assert_eq!(
        run_example(&sdk, "responses.mjs").await,
        "first: Hello there, friend!\nsecond: Your name is Alice.\nstream: Hello there, friend!\n"
    );
}
