//! The examples in Python, with a client generated from proto/, against a real server: they are what a stranger starts from.

use std::{ffi::OsString, path::Path};

use anneal_tests::{House, Say, Script, ScriptedModel, python_path};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

/// Runs an example to its end; what it printed.
async fn run(house: &House, model: &ScriptedModel, path: &OsString, example: &str, arguments: &[&str]) -> String {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/python");
    let ran = Command::new("python3")
        .arg(examples.join(example))
        .args(arguments)
        .env("PYTHONPATH", path)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("ANNEAL_GRPC", house.addresses.grpc.to_string())
        .env("OPENAI_BASE_URL", model.url())
        .output()
        .await
        .expect("python3 runs");
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{example}: {err}\n{out}");
    out.into_owned()
}

/// Says the same to those who want a stream and those who want the whole.
async fn model() -> ScriptedModel {
    ScriptedModel::start(|asked| {
        if asked.body["stream"] == true {
            return Script::says(asked, [Say::text("At 16:45 "), Say::text("from berth 2.")]);
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
async fn every_python_example_does_what_it_says() {
    let Some(path) = python_path() else { return };
    let model = model().await;
    let house = House::chatting(&model).await;
    let stop = CancellationToken::new();
    let working = tokio::spawn({
        let (worker, stop) = (house.worker(), stop.clone());
        async move { worker.run(stop).await }
    });
    let address = house.addresses.grpc.to_string();
    let wanted = [
        ("first_session.py", address.as_str(), "And the one after that?"),
        ("conversations.py", "", "3 conversations made, listed and deleted"),
        ("messages.py", "", "messages [1, 2, 3] appended"),
        ("contexts.py", "", "compaction: COMPACT_OUTCOME_CREATED"),
        ("chat.py", "When does the next ferry leave?", "At 16:45 from berth 2."),
        ("model_call.py", "When does the next ferry leave?", "At 16:45 from berth 2."),
    ];
    let mut last = String::new();
    for (example, argument, says) in wanted {
        let arguments = [argument];
        let arguments: &[&str] = if argument.is_empty() { &[] } else { &arguments };
        last = run(&house, &model, &path, example, arguments).await;
        assert!(last.contains(says), "{example} printed\n{last}");
    }
    let conversation = last.rsplit(' ').next().expect("it ends with the conversation").trim();
    let proof = run(&house, &model, &path, "operators.py", &[conversation]).await;
    assert!(proof.contains("2 messages checked, 0 violations"), "{proof}");
    assert!(proof.contains("scripted-model: 1 calls today, 0 failed"), "{proof}");
    stop.cancel();
    working.await.expect("the worker stops");
}
