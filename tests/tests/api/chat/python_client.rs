//! The Python examples run against a real server, with a client generated from `proto/`.

use std::{ffi::OsString, path::Path};

use anneal_testkit::{Say, Script, ScriptedModel, TestApp, python_path};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

/// Runs an example to its end. Returns its output. `python_path`: the value of `PYTHONPATH`, with
/// the folder of the generated client.
async fn run_example(
    app: &TestApp,
    model: &ScriptedModel,
    python_path: &OsString,
    example: &str,
    arguments: &[&str],
) -> String {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/python");
    let ran = Command::new("python3")
        .arg(examples.join(example))
        .args(arguments)
        .env("PYTHONPATH", python_path)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("ANNEAL_GRPC", app.addresses.grpc.to_string())
        .env("OPENAI_BASE_URL", model.url())
        .output()
        .await
        .expect("python3 runs");
    let (out, err) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    assert!(ran.status.success(), "{example}: {err}\n{out}");
    out.into_owned()
}

/// Starts a model that gives the same answer to streaming and other requests.
async fn start_model() -> ScriptedModel {
    ScriptedModel::start(|request| {
        let waits_for_tools =
            request.body["tools"].is_array() && !request.raw.contains("tool_call_id");
        if waits_for_tools {
            let calls = [
                Say::tool("call_1", "time_in", r#"{"zone": "UTC"}"#),
                Say::tool("call_2", "time_in", r#"{"zone": 3}"#),
            ];
            return Script::says(request, calls);
        }
        if request.body["stream"] == true {
            return Script::says(request, [Say::text("At 16:45 "), Say::text("from berth 2.")]);
        }
        let answer = serde_json::json!({"id": "chatcmpl-1", "object": "chat.completion", "model": "scripted",
            "choices": [{"index": 0, "finish_reason": "stop",
                "message": {"role": "assistant", "content": "At 16:45 from berth 2."}}],
            "usage": {"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29}});
        Script::status(200, &[("content-type", "application/json")], &answer.to_string())
    })
    .await
}

#[tokio::test]
async fn every_python_example_runs_and_prints_the_expected_output() {
    let Some(path) = python_path() else { return };
    let model = start_model().await;
    let app = TestApp::with_scripted_model(&model).await;
    let stop = CancellationToken::new();
    let worker_task = tokio::spawn({
        let (worker, stop) = (app.worker(), stop.clone());
        async move { worker.run(stop).await }
    });
    let address = app.addresses.grpc.to_string();
    let expected = [
        (
            "first_session.py",
            address.as_str(),
            "And the one after that?",
        ),
        (
            "conversations.py",
            "",
            "3 conversations made, listed and deleted",
        ),
        ("messages.py", "", "messages [1, 2, 3] appended"),
        ("contexts.py", "", "compaction: COMPACT_OUTCOME_CREATED"),
        (
            "chat.py",
            "When does the next ferry leave?",
            "At 16:45 from berth 2.",
        ),
        (
            "model_call.py",
            "When does the next ferry leave?",
            "At 16:45 from berth 2.",
        ),
    ];
    let mut last = String::new();
    for (example, argument, expected_text) in expected {
        let arguments = [argument];
        let arguments: &[&str] = if argument.is_empty() { &[] } else { &arguments };
        last = run_example(&app, &model, &path, example, arguments).await;
        assert!(last.contains(expected_text), "{example} printed\n{last}");
    }
    let conversation = last
        .rsplit(' ')
        .next()
        .expect("the output ends with the conversation's id")
        .trim();
    let output = run_example(&app, &model, &path, "operators.py", &[conversation]).await;
    assert!(
        output.contains("2 messages checked, 0 violations"),
        "{output}"
    );
    assert!(
        output.contains("scripted-model: 1 calls today, 0 failed"),
        "{output}"
    );
    let calls_before = model.requests().len();
    let output = run_example(&app, &model, &path, "tools.py", &["When?"]).await;
    assert!(
        output.contains(r#"-> time_in {"zone": "UTC"}"#)
            && output.contains("At 16:45 from berth 2."),
        "{output}"
    );
    let sent = &model.requests()[calls_before + 1].raw;
    assert!(sent.contains("no such zone"), "{sent}");
    stop.cancel();
    worker_task.await.expect("the worker stops");
}
