//! The scripts in `examples/http/` run and print the expected output.

use std::{
    net::SocketAddr,
    path::Path,
    process::{Output, Stdio},
};

use anneal_testkit::{Say, Script, ScriptedModel, TcpProxy, TestApp, pb};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

/// A command that runs the script against the server at this address. `None` if curl is not
/// installed.
async fn script_command(address: SocketAddr, script: &str, arguments: &[&str]) -> Option<Command> {
    if Command::new("curl")
        .arg("--version")
        .output()
        .await
        .is_err()
    {
        println!("skipped: curl is not installed");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../examples/http")
        .join(script);
    let mut command = Command::new("bash");
    command
        .arg(script)
        .args(arguments)
        .kill_on_drop(true)
        .env("NO_PROXY", "*");
    command.env("ANNEAL_HTTP", format!("http://{address}"));
    Some(command)
}

/// Runs a script against the app's server. `None` if curl is not installed.
async fn run_script(app: &TestApp, script: &str, arguments: &[&str]) -> Option<Output> {
    Some(
        script_command(app.addresses.http, script, arguments)
            .await?
            .output()
            .await
            .expect("bash is installed"),
    )
}

fn json_lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[tokio::test]
async fn the_scripts_chat_and_list_read_rename_and_delete_sessions() {
    let model = ScriptedModel::saying("A race is …").await;
    let app = TestApp::with_scripted_model(&model).await;
    let question = "What is a \"race\"?\n\tSay \u{1}\u{8}\r\u{1b}\u{1f}\\.";
    let Some(chat) = run_script(&app, "chat.sh", &[question]).await else {
        return;
    };
    assert!(chat.status.success(), "{chat:?}");
    let received = json_lines(&chat);
    assert_eq!(received.last().expect("an event arrived")["type"], "done");
    let session = received[0]["sessionId"]
        .as_str()
        .expect("`started` names the session");
    assert!(received[0]["requestId"].is_string());
    let mut repeated = Vec::new();
    for _ in 0..2 {
        let chat = script_command(app.addresses.http, "chat.sh", &["Once."]).await;
        let chat = chat
            .expect("curl is installed")
            .env("REQUEST_ID", "r1")
            .env("AGENT", "b")
            .output()
            .await;
        repeated.push(json_lines(&chat.expect("bash is installed")));
    }
    assert_eq!(
        repeated[0][0], repeated[1][0],
        "a repeated request id stays in one session: {repeated:?}"
    );
    assert_eq!(
        repeated[1].last().expect("an event arrived")["replayed"],
        true
    );
    let continued = run_script(&app, "chat.sh", &["And now?", session])
        .await
        .expect("curl is installed");
    assert_eq!(
        json_lines(&continued).last().expect("an event arrived")["messageIds"],
        json!([3, 4])
    );
    let listed = run_script(&app, "sessions.sh", &[])
        .await
        .expect("curl is installed");
    assert_eq!(json_lines(&listed)[0]["sessions"][0]["messageCount"], 4);
    let title = "\"Races\"\n\tand \u{1b}locks\\";
    let renamed = run_script(&app, "sessions.sh", &[session, title])
        .await
        .expect("curl is installed");
    assert_eq!(json_lines(&renamed)[0]["title"], title);
    let read = run_script(&app, "sessions.sh", &[session])
        .await
        .expect("curl is installed");
    assert_eq!(
        json_lines(&read)[0]["messages"][0]["content"][0]["text"],
        question
    );
    assert!(
        run_script(&app, "sessions.sh", &[session, "--delete"])
            .await
            .expect("curl is installed")
            .status
            .success()
    );
    let refused = run_script(&app, "watch.sh", &[session])
        .await
        .expect("curl is installed");
    assert!(!refused.status.success(), "{refused:?}");
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("CONVERSATION_NOT_FOUND"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn the_tools_script_runs_both_calls_and_ends_with_the_answer() {
    let model = ScriptedModel::start(|request| {
        let says = if request.raw.contains("tool_call_id") {
            vec![Say::text("At nine.")]
        } else {
            vec![
                Say::tool("call_1", "time_in", r#"{"zone": "UTC"}"#),
                Say::tool("call_2", "time_in", r#"{"zone": "../x"}"#),
            ]
        };
        Script::says(request, says)
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let Some(ran) = run_script(&app, "tools.sh", &["What \"time\" is it?"]).await else {
        return;
    };
    assert!(ran.status.success(), "{ran:?}");
    let received = json_lines(&ran);
    let kinds: Vec<_> = received
        .iter()
        .filter_map(|event| event["type"].as_str())
        .collect();
    assert_eq!(
        kinds,
        [
            "started",
            "tool_call",
            "tool_call",
            "done",
            "started",
            "text",
            "done"
        ]
    );
    let requests = model.requests();
    let sent = requests[1].body["messages"].as_array().expect("messages");
    let sent: Vec<_> = sent
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| (message["tool_call_id"].clone(), message.to_string()))
        .collect();
    assert_eq!(
        (&sent[0].0, &sent[1].0),
        (&json!("call_1"), &json!("call_2"))
    );
    assert!(sent[1].1.contains("no such tool or zone"), "{sent:?}");
    let refused = run_script(&app, "tools.sh", &["And now?", "no-session"]).await;
    let refused = refused.expect("curl is installed");
    assert!(!refused.status.success(), "{refused:?}");
}

#[tokio::test]
async fn the_watch_script_resumes_after_a_lost_connection() {
    let app = TestApp::start().await;
    let ask = pb::CreateConversationRequest {
        agent_id: "example".into(),
        ..Default::default()
    };
    let conversation = app.conversation_with(ask).await;
    let proxy = TcpProxy::to_port(app.addresses.http.port()).await;
    let Some(mut watch) = script_command(
        SocketAddr::from(([127, 0, 0, 1], proxy.port())),
        "watch.sh",
        &[&conversation.id],
    )
    .await
    else {
        return;
    };
    let mut watch = watch
        .stdout(Stdio::piped())
        .spawn()
        .expect("bash is installed");
    let mut events = BufReader::new(watch.stdout.take().expect("is piped")).lines();
    let mut appended = Vec::new();
    for id in 1..=6 {
        conversation.append("more").await;
        while appended.last() != Some(&json!(id)) {
            let event = events
                .next_line()
                .await
                .expect("is text")
                .expect("the watch continues");
            let event: Value = serde_json::from_str(&event).expect("JSON");
            if event["type"] == "message_appended" {
                appended.push(event["message"]["id"].clone());
            }
        }
        if id % 2 == 0 {
            proxy.close_connections();
        }
    }
    assert_eq!(
        appended,
        [1, 2, 3, 4, 5, 6],
        "each event arrives once although connections are lost"
    );
}
